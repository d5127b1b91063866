package rekindle.flink;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.SortedMap;
import java.util.TreeMap;
import org.apache.flink.api.connector.source.SourceEvent;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;

/**
 * The JobManager's side of a source: deals splits out, says when the input ends, and tells of
 * checkpoints.
 *
 * <p>A line of `told/NAME.jsonl` in the store for each that was completed: its number, when it
 * began and when it was complete (seconds since 1970), and how many rows of all sources every
 * reader was past.
 */
final class ReplayEnumerator implements SplitEnumerator<ReplaySplit, List<ReplaySplit>> {
  private static final long LOOK_MILLIS = 500;
  private static final long NO_END = Long.MAX_VALUE;

  private final ReplaySettings settings;
  private final SplitEnumeratorContext<ReplaySplit> context;
  private final List<ReplaySplit> unassigned;
  private final Path told;
  private final SortedMap<Long, Begun> begun = new TreeMap<>();
  private long end = NO_END;

  static ReplayEnumerator begin(
      String name, ReplaySettings settings, SplitEnumeratorContext<ReplaySplit> context) {
    int splits = context.currentParallelism();
    List<ReplaySplit> all = new ArrayList<>();
    for (int number = 0; number < splits; number++) all.add(new ReplaySplit(number, splits, 0));
    return new ReplayEnumerator(name, settings, context, all);
  }

  ReplayEnumerator(
      String name,
      ReplaySettings settings,
      SplitEnumeratorContext<ReplaySplit> context,
      List<ReplaySplit> unassigned) {
    this.settings = settings;
    this.context = context;
    this.unassigned = new ArrayList<>(unassigned);
    told = Path.of(settings.store(), "told", name + ".jsonl");
    end = readEnd();
  }

  @Override
  public void start() {
    context.callAsync(this::readEnd, this::tellEnd, LOOK_MILLIS, LOOK_MILLIS);
  }

  @Override
  public void handleSplitRequest(int subtask, String host) {}

  @Override
  public void addSplitsBack(List<ReplaySplit> splits, int subtask) {
    unassigned.addAll(splits);
  }

  @Override
  public void addReader(int subtask) {
    for (ReplaySplit split : List.copyOf(unassigned)) {
      if (split.number() % context.currentParallelism() == subtask) {
        unassigned.remove(split);
        context.assignSplit(split, subtask);
      }
    }
    context.sendEventToSourceReader(subtask, new ReplayEvents.End(end));
  }

  @Override
  public void handleSourceEvent(int subtask, SourceEvent event) {
    ReplayEvents.Position position = (ReplayEvents.Position) event;
    Begun one = begun.get(position.checkpoint());
    if (one != null) one.rows = Math.min(one.rows, position.rows());
  }

  @Override
  public List<ReplaySplit> snapshotState(long checkpoint) {
    begun.put(checkpoint, new Begun(end, System.currentTimeMillis()));
    return List.copyOf(unassigned);
  }

  @Override
  public void notifyCheckpointComplete(long checkpoint) throws IOException {
    Begun one = begun.get(checkpoint);
    if (one == null || one.rows == NO_END) return;
    begun.headMap(checkpoint + 1).clear();
    String line =
        String.format(
            "{\"version\": 1, \"checkpoint\": %d, \"at\": %.3f, \"complete_at\": %.3f, \"rows\": %d, \"last\": %b}\n",
            checkpoint, one.at / 1e3, System.currentTimeMillis() / 1e3, one.rows, one.rows >= end);
    Files.createDirectories(told.getParent());
    Files.writeString(told, line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
  }

  @Override
  public void close() {}

  private long readEnd() {
    try {
      return Long.parseLong(Files.readString(Path.of(settings.store(), "end")).strip());
    } catch (NoSuchFileException inputGoesOn) {
      return NO_END;
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private void tellEnd(Long rows, Throwable error) {
    if (error != null) throw new IllegalStateException(error);
    if (rows == end) return;
    end = rows;
    for (int subtask : context.registeredReaders().keySet()) {
      context.sendEventToSourceReader(subtask, new ReplayEvents.End(end));
    }
  }

  /** A checkpoint on its way: when it began, and how far the reader is that is the least so. */
  private static final class Begun {
    private final long at;
    private long rows;

    Begun(long rows, long at) {
      this.rows = rows;
      this.at = at;
    }
  }
}
