package rekindle;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.MapOutputTrackerMaster;
import org.apache.spark.SparkContext;
import org.apache.spark.util.AccumulatorContext;

/**
 * Removes what Spark keeps of jobs that have ended: their accumulators, and shuffles. Broadcasts
 * leave nothing (`CarriedBroadcasts`).
 *
 * <p>Spark's own cleaner waits for a collection of the driver's heap and then removes all of it at
 * once: with four stages a second, hundreds of requests to each executor a minute later, which held
 * nodes of a fifth of a core up for five seconds. Ids grow, so what is older than every job that
 * runs belongs to none.
 *
 * <p>Why: docs/decisions/0046-rekindle-removes-shuffles-itself.md.
 */
final class Leftovers {
  private final SparkContext context;
  private final List<Long> running = new ArrayList<>();
  private long removed;

  Leftovers(SparkContext context) {
    this.context = context;
    this.removed = AccumulatorContext.newId();
  }

  /** Call before anything of a job is made: what it makes has ids behind the one that is given. */
  synchronized Long begin() {
    Long mark = AccumulatorContext.newId();
    running.add(mark);
    return mark;
  }

  /** A job has ended, or counts no more; a second call does nothing. */
  synchronized void end(Long mark) {
    if (!running.remove(mark)) return;
    long oldest = running.isEmpty() ? AccumulatorContext.newId() : running.get(0);
    for (long id = removed; id <= oldest; id++) AccumulatorContext.remove(id);
    removed = Math.max(removed, oldest + 1);
  }

  void removeShuffle(int shuffle) {
    MapOutputTrackerMaster tracker = (MapOutputTrackerMaster) context.env().mapOutputTracker();
    if (!tracker.containsShuffle(shuffle)) return;
    context.shuffleDriverComponents().removeShuffle(shuffle, false);
    tracker.unregisterShuffle(shuffle);
  }
}
