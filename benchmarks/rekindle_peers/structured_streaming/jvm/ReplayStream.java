package rekindle;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxRows;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The driver's side of a replay. An offset counts rows of all files together, in the order in
 * which they arrive; so two sources of one query, or of two, have come equally far at equal offsets.
 *
 * <pre>
 *   paths              all files, one a line
 *   arrivals           a file with a byte per row of one lap: the number of the row's file
 *   reads              numbers of the files that this source reads, with commas between them
 *   eventTime          the column that each lap shifts, by lapSeconds
 *   startedAtMillis    when the first row arrived, since 1970
 *   rowsPerSecond      of all files together
 *   rowsPerTriggerMax  of all files together; 0 for no limit
 *   end                a file that is not there at first; then it holds the number of rows after
 *                      which the input ends
 * </pre>
 *
 * <p>At the end one row more comes whose time is `ReplayRows.END`, so that watermarks pass all.
 */
final class ReplayStream implements MicroBatchStream, SupportsAdmissionControl {
  private static final int BLOCK = 4096;

  private final StructType schema;
  private final String[] paths;
  private final int[] reads;
  private final byte[] arrivals;
  private final int[][] before;
  private final String eventTime;
  private final long lapMicros;
  private final long startedAtMillis;
  private final double rowsPerSecond;
  private final long rowsPerTriggerMax;
  private final Path end;

  ReplayStream(StructType schema, CaseInsensitiveStringMap options) {
    this.schema = schema;
    paths = options.get("paths").split("\n");
    String[] numbers = options.get("reads").split(",");
    reads = new int[numbers.length];
    for (int i = 0; i < numbers.length; i++) reads[i] = Integer.parseInt(numbers[i]);
    arrivals = bytes(Path.of(options.get("arrivals")));
    before = count(arrivals, paths.length);
    eventTime = options.get("eventTime");
    lapMicros = Math.round(options.getDouble("lapSeconds", 0) * 1e6);
    startedAtMillis = options.getLong("startedAtMillis", 0);
    rowsPerSecond = options.getDouble("rowsPerSecond", 0);
    rowsPerTriggerMax = options.getLong("rowsPerTriggerMax", 0);
    end = Path.of(options.get("end"));
  }

  @Override
  public Offset initialOffset() {
    return new Position(0, false);
  }

  @Override
  public Offset deserializeOffset(String json) {
    return Position.of(json);
  }

  @Override
  public ReadLimit getDefaultReadLimit() {
    return rowsPerTriggerMax > 0 ? ReadLimit.maxRows(rowsPerTriggerMax) : ReadLimit.allAvailable();
  }

  @Override
  public Offset latestOffset() {
    throw new UnsupportedOperationException("asked with a limit only");
  }

  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    Position from = (Position) start;
    Position newest = newest();
    long rows = newest.rows;
    if (limit instanceof ReadMaxRows) {
      rows = Math.min(rows, from.rows + ((ReadMaxRows) limit).maxRows());
    }
    rows = Math.max(rows, from.rows);
    return new Position(rows, newest.last && rows == newest.rows);
  }

  @Override
  public Offset reportLatestOffset() {
    return newest();
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    Position from = (Position) start;
    Position to = (Position) end;
    List<InputPartition> found = new ArrayList<>();
    for (int file : reads) {
      long begin = rowsOf(file, from.rows);
      long finish = rowsOf(file, to.rows);
      if (begin < finish) found.add(new ReplayRows.Range(paths[file], begin, finish));
    }
    if (to.last && !from.last) found.add(new ReplayRows.Range("", 0, 1));
    return found.toArray(new InputPartition[0]);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new ReplayRows.Factory(schema, eventTime, lapMicros);
  }

  @Override
  public void commit(Offset end) {}

  @Override
  public void stop() {}

  private Position newest() {
    double seconds = (System.currentTimeMillis() - startedAtMillis) / 1000.0;
    long arrived = Math.max(0, (long) (seconds * rowsPerSecond));
    try {
      long last = Long.parseLong(Files.readString(end).strip());
      return new Position(Math.min(arrived, last), arrived >= last);
    } catch (NoSuchFileException inputGoesOn) {
      return new Position(arrived, false);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** How many of the first `rows` rows are of a file. */
  private long rowsOf(int file, long rows) {
    int size = arrivals.length;
    int inLap = (int) (rows % size);
    int block = inLap / BLOCK;
    int found = before[file][block];
    for (int i = block * BLOCK; i < inLap; i++) {
      if (arrivals[i] == file) found++;
    }
    return rows / size * before[file][before[file].length - 1] + found;
  }

  /** Per file, how many of its rows come before each block; at last, how many there are. */
  private static int[][] count(byte[] arrivals, int files) {
    int blocks = (arrivals.length + BLOCK - 1) / BLOCK;
    int[][] counts = new int[files][blocks + 1];
    for (int i = 0; i < arrivals.length; i++) counts[arrivals[i]][i / BLOCK + 1]++;
    for (int[] count : counts) {
      for (int block = 0; block < blocks; block++) count[block + 1] += count[block];
    }
    return counts;
  }

  private static byte[] bytes(Path path) {
    try {
      return Files.readAllBytes(path);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** `last`: the row behind all others is read as well. */
  static final class Position extends Offset {
    private static final Pattern JSON =
        Pattern.compile("\\{\"rows\": ?(\\d+), ?\"last\": ?(true|false)}");
    final long rows;
    final boolean last;

    Position(long rows, boolean last) {
      this.rows = rows;
      this.last = last;
    }

    static Position of(String json) {
      Matcher found = JSON.matcher(json.strip());
      if (!found.matches()) throw new IllegalArgumentException("no offset of a replay: " + json);
      return new Position(Long.parseLong(found.group(1)), Boolean.parseBoolean(found.group(2)));
    }

    @Override
    public String json() {
      return "{\"rows\":" + rows + ",\"last\":" + last + "}";
    }
  }
}
