package rekindle.flink;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.SourceEvent;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.core.io.InputStatus;

/**
 * Goes through the rows of a table in order and emits those of its splits that have come in.
 *
 * <p>It begins once it has splits and knows whether the input ends: a reader that was restarted
 * must not run past the end before it is told.
 */
final class ReplayReader<T> implements SourceReader<T, ReplaySplit> {
  private static final int ROWS_PER_POLL = 64;
  private static final long WAIT_MILLIS_MIN = 5;
  private static final long UNKNOWN = -1;

  private final ReplaySettings settings;
  private final Decoder<T> decoder;
  private final SourceReaderContext context;
  private final Table table;
  private final SortedMap<Integer, ReplaySplit> splits = new TreeMap<>();
  /** By split, the row from which on it is ours; none of it before. */
  private long[] from = {};
  private long next;
  private long arrived;
  private long end = UNKNOWN;
  private CompletableFuture<Void> available = new CompletableFuture<>();

  ReplayReader(
      String name, ReplaySettings settings, Decoder<T> decoder, SourceReaderContext context) {
    this.settings = settings;
    this.decoder = decoder;
    this.context = context;
    table = new Table(Path.of(settings.folder()), name, decoder.columns(), settings.lapRows());
  }

  @Override
  public void start() {}

  @Override
  public InputStatus pollNext(ReaderOutput<T> output) {
    if (end == UNKNOWN || splits.isEmpty()) {
      // a reader without a split has nothing to say until the input ends
      if (end != UNKNOWN && end <= settings.arrived()) return InputStatus.END_OF_INPUT;
      if (end != UNKNOWN) output.markIdle();
      return waiting(end == UNKNOWN ? Long.MAX_VALUE : 500);
    }
    for (int left = ROWS_PER_POLL; left > 0; left--) {
      long order = table.order(next);
      if (order >= end) return InputStatus.END_OF_INPUT;
      if (order >= arrived) {
        arrived = settings.arrived();
        if (order >= arrived) return waiting(settings.millisUntil(order + 1));
      }
      if (from[table.split(next, from.length)] <= next) {
        T row = decoder.decode(table, next, table.lapOf(next) * settings.lapMillis());
        output.collect(row, decoder.time(row));
      }
      next++;
    }
    return InputStatus.MORE_AVAILABLE;
  }

  @Override
  public List<ReplaySplit> snapshotState(long checkpoint) {
    List<ReplaySplit> now = new ArrayList<>();
    for (ReplaySplit split : splits.values()) {
      long ours = Math.max(next, from[split.number()]);
      now.add(new ReplaySplit(split.number(), split.splits(), ours));
    }
    if (!splits.isEmpty()) {
      long rows = Math.min(table.order(next), settings.arrived());
      context.sendSourceEventToCoordinator(new ReplayEvents.Position(checkpoint, rows));
    }
    return now;
  }

  @Override
  public CompletableFuture<Void> isAvailable() {
    return available;
  }

  @Override
  public void addSplits(List<ReplaySplit> added) {
    for (ReplaySplit split : added) splits.put(split.number(), split);
    from = new long[added.get(0).splits()];
    java.util.Arrays.fill(from, Long.MAX_VALUE);
    next = Long.MAX_VALUE;
    for (ReplaySplit split : splits.values()) {
      from[split.number()] = split.next();
      next = Math.min(next, split.next());
    }
    available.complete(null);
  }

  @Override
  public void notifyNoMoreSplits() {}

  @Override
  public void handleSourceEvents(SourceEvent event) {
    long rows = ((ReplayEvents.End) event).rows();
    if (!splits.isEmpty() && next > 0 && table.order(next - 1) >= rows) {
      throw new IllegalStateException("the input has gone past its end, " + rows);
    }
    end = rows;
    available.complete(null);
  }

  @Override
  public void close() {}

  private InputStatus waiting(long millis) {
    available = new CompletableFuture<>();
    if (millis < Long.MAX_VALUE) {
      long delay = Math.max(millis, WAIT_MILLIS_MIN);
      available.completeOnTimeout(null, delay, TimeUnit.MILLISECONDS);
    }
    return InputStatus.NOTHING_AVAILABLE;
  }
}
