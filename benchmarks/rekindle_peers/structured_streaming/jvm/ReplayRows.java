package rekindle;

import java.io.Serializable;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** An executor's side of a replay: rows of one file, whose times are later in every lap. */
final class ReplayRows implements PartitionReader<InternalRow> {
  /** The time of the row behind all others, in microseconds since 1970. */
  static final long END = 7_258_119_600_000_000L;

  private final ReplayFile file;
  private final int[] columns;
  private final int time;
  private final long lapMicros;
  private final long end;
  private final GenericInternalRow row;
  private long next;
  private int group = -1;
  private Object[][] values;

  private ReplayRows(ReplayFile file, int[] columns, int time, long lapMicros, Range range) {
    this.file = file;
    this.columns = columns;
    this.time = time;
    this.lapMicros = lapMicros;
    next = range.begin;
    end = range.end;
    row = new GenericInternalRow(columns.length);
  }

  @Override
  public boolean next() {
    if (next >= end) return false;
    int index = (int) (next % file.rows());
    if (group < 0 || index < file.start(group) || index >= file.start(group + 1)) {
      group = file.groupOf(index);
      values = file.group(group);
    }
    int place = index - file.start(group);
    for (int i = 0; i < columns.length; i++) row.update(i, values[columns[i]][place]);
    row.update(time, (Long) values[columns[time]][place] + next / file.rows() * lapMicros);
    next++;
    return true;
  }

  @Override
  public InternalRow get() {
    return row;
  }

  @Override
  public void close() {}

  /** Rows [begin, end) of a file and the laps behind it; without a path, the last row of all. */
  static final class Range implements InputPartition {
    final String path;
    final long begin;
    final long end;

    Range(String path, long begin, long end) {
      this.path = path;
      this.begin = begin;
      this.end = end;
    }
  }

  static final class Factory implements PartitionReaderFactory, Serializable {
    private final StructType schema;
    private final String eventTime;
    private final long lapMicros;

    Factory(StructType schema, String eventTime, long lapMicros) {
      this.schema = schema;
      this.eventTime = eventTime;
      this.lapMicros = lapMicros;
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      Range range = (Range) partition;
      if (range.path.isEmpty()) return new LastRow(last());
      ReplayFile file = ReplayFile.at(range.path);
      int[] columns = new int[schema.size()];
      for (int i = 0; i < columns.length; i++) columns[i] = file.column(schema.apply(i).name());
      int time = schema.fieldIndex(eventTime);
      return new ReplayRows(file, columns, time, lapMicros, range);
    }

    /** No nulls: a filter for values that are there must not keep it from the watermark. */
    private InternalRow last() {
      GenericInternalRow row = new GenericInternalRow(schema.size());
      for (int i = 0; i < schema.size(); i++) {
        StructField field = schema.apply(i);
        boolean text = field.dataType().equals(DataTypes.StringType);
        row.update(i, text ? UTF8String.EMPTY_UTF8 : (Object) 0L);
      }
      row.update(schema.fieldIndex(eventTime), END);
      return row;
    }
  }

  private static final class LastRow implements PartitionReader<InternalRow> {
    private final InternalRow row;
    private boolean given;

    LastRow(InternalRow row) {
      this.row = row;
    }

    @Override
    public boolean next() {
      boolean first = !given;
      given = true;
      return first;
    }

    @Override
    public InternalRow get() {
      return row;
    }

    @Override
    public void close() {}
  }
}
