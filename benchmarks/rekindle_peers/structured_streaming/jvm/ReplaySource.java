package rekindle;

import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Prepared Parquet files as a source of Structured Streaming: `readStream.format("rekindle.
 * ReplaySource")`, for comparisons with ordinary Spark. No part of the epoch runtime uses it.
 *
 * <p>Rows arrive as those of `rekindle_spark.pipeline.replay` do. The columns are those of the schema that
 * the reader is given; what the options mean is in `ReplayStream`.
 */
public final class ReplaySource implements TableProvider {
  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    throw new IllegalArgumentException("give the columns with schema(...)");
  }

  @Override
  public boolean supportsExternalMetadata() {
    return true;
  }

  @Override
  public Table getTable(StructType schema, Transform[] by, Map<String, String> properties) {
    return new Replayed(schema);
  }

  private static final class Replayed implements Table, SupportsRead {
    private final StructType schema;

    Replayed(StructType schema) {
      this.schema = schema;
    }

    @Override
    public String name() {
      return "replay";
    }

    @Override
    @SuppressWarnings("deprecation")
    public StructType schema() {
      return schema;
    }

    @Override
    public Set<TableCapability> capabilities() {
      return Set.of(TableCapability.MICRO_BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      Scan scan =
          new Scan() {
            @Override
            public StructType readSchema() {
              return schema;
            }

            @Override
            public MicroBatchStream toMicroBatchStream(String checkpoint) {
              return new ReplayStream(schema, options);
            }
          };
      return () -> scan;
    }
  }
}
