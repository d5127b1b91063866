package rekindle;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.parquet.column.ColumnDescriptor;
import org.apache.parquet.column.ColumnReader;
import org.apache.parquet.column.impl.ColumnReadStoreImpl;
import org.apache.parquet.column.page.PageReadStore;
import org.apache.parquet.example.data.simple.convert.GroupRecordConverter;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.parquet.io.LocalInputFile;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.PrimitiveType.PrimitiveTypeName;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A Parquet file of whole numbers, times and texts, by row groups that stay decoded as long as
 * there is room: the same rows come again in every lap and in every query.
 */
final class ReplayFile {
  private static final int GROUPS_MAX = 64;
  private static final Map<String, ReplayFile> FILES = new ConcurrentHashMap<>();
  /** Decoded groups of all files; the one that was not asked for the longest goes first. */
  private static final Map<String, Object[][]> GROUPS =
      new LinkedHashMap<>(GROUPS_MAX, 0.75f, true) {
        @Override
        protected boolean removeEldestEntry(Map.Entry<String, Object[][]> eldest) {
          return size() > GROUPS_MAX;
        }
      };

  private final String path;
  private final MessageType schema;
  private final String writer;
  private final int[] starts;

  static ReplayFile at(String path) {
    return FILES.computeIfAbsent(path, ReplayFile::new);
  }

  private ReplayFile(String path) {
    this.path = path;
    try (ParquetFileReader reader = open()) {
      schema = reader.getFileMetaData().getSchema();
      writer = reader.getFileMetaData().getCreatedBy();
      List<BlockMetaData> groups = reader.getRowGroups();
      starts = new int[groups.size() + 1];
      for (int i = 0; i < groups.size(); i++) {
        starts[i + 1] = starts[i] + Math.toIntExact(groups.get(i).getRowCount());
      }
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  int rows() {
    return starts[starts.length - 1];
  }

  int column(String name) {
    return schema.getFieldIndex(name);
  }

  int start(int group) {
    return starts[group];
  }

  int groupOf(int row) {
    int found = Arrays.binarySearch(starts, row);
    return found >= 0 ? found : -found - 2;
  }

  /** The values of a row group: by column, then by row; null where there is none. */
  Object[][] group(int number) {
    String key = path + "#" + number;
    synchronized (GROUPS) {
      Object[][] known = GROUPS.get(key);
      if (known != null) return known;
    }
    Object[][] fresh = read(number);
    synchronized (GROUPS) {
      GROUPS.put(key, fresh);
    }
    return fresh;
  }

  private Object[][] read(int number) {
    try (ParquetFileReader reader = open()) {
      PageReadStore pages = reader.readRowGroup(number);
      var converter = new GroupRecordConverter(schema).getRootConverter();
      var store = new ColumnReadStoreImpl(pages, converter, schema, writer);
      List<ColumnDescriptor> columns = schema.getColumns();
      Object[][] values = new Object[columns.size()][];
      for (int i = 0; i < values.length; i++) {
        int rows = starts[number + 1] - starts[number];
        values[i] = values(store.getColumnReader(columns.get(i)), rows);
      }
      return values;
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private static Object[] values(ColumnReader reader, int rows) {
    ColumnDescriptor column = reader.getDescriptor();
    boolean text = column.getPrimitiveType().getPrimitiveTypeName() == PrimitiveTypeName.BINARY;
    Map<Object, Object> shared = new HashMap<>();
    Object[] values = new Object[rows];
    for (int row = 0; row < rows; row++) {
      if (reader.getCurrentDefinitionLevel() == column.getMaxDefinitionLevel()) {
        Object value =
            text ? UTF8String.fromBytes(reader.getBinary().getBytes()) : (Object) reader.getLong();
        values[row] = shared.computeIfAbsent(value, same -> same);
      }
      reader.consume();
    }
    return values;
  }

  private ParquetFileReader open() throws IOException {
    return ParquetFileReader.open(new LocalInputFile(Path.of(path)));
  }
}
