package rekindle;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.MapOutputTrackerMaster;
import org.apache.spark.SparkContext;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.BlockManager;
import org.apache.spark.storage.BroadcastBlockId;
import org.apache.spark.util.AccumulatorContext;
import scala.collection.Iterator;

/**
 * Removes what Spark keeps of jobs that have ended: the broadcasts of their stages, which every
 * executor has a copy of, their accumulators, and shuffles.
 *
 * <p>Spark's own cleaner waits for a collection of the driver's heap and then removes all of it at
 * once: with four stages a second, hundreds of requests to each executor a minute later, which held
 * nodes of a fifth of a core up for five seconds. Ids grow, so what is older than every job that
 * runs belongs to none.
 */
final class Leftovers {
  private final SparkContext context;
  private final List<Mark> running = new ArrayList<>();
  private long accumulatorsRemoved;

  /** When a job began: it has the ids behind these. */
  static final class Mark {
    private final long broadcast;
    private final long accumulator;

    private Mark(long broadcast, long accumulator) {
      this.broadcast = broadcast;
      this.accumulator = accumulator;
    }
  }

  Leftovers(SparkContext context) {
    this.context = context;
    this.accumulatorsRemoved = AccumulatorContext.newId();
  }

  /** Call before anything of a job is made. */
  synchronized Mark begin() {
    Mark mark = now();
    running.add(mark);
    return mark;
  }

  /** A job has ended, or counts no more; a second call does nothing. */
  synchronized void end(Mark mark) {
    if (!running.remove(mark)) return;
    Mark oldest = running.isEmpty() ? now() : running.get(0);
    for (long id : broadcasts()) {
      if (id <= oldest.broadcast) context.env().broadcastManager().unbroadcast(id, true, false);
    }
    for (long id = accumulatorsRemoved; id <= oldest.accumulator; id++) AccumulatorContext.remove(id);
    accumulatorsRemoved = Math.max(accumulatorsRemoved, oldest.accumulator + 1);
  }

  void removeShuffle(int shuffle) {
    MapOutputTrackerMaster tracker = (MapOutputTrackerMaster) context.env().mapOutputTracker();
    if (!tracker.containsShuffle(shuffle)) return;
    context.shuffleDriverComponents().removeShuffle(shuffle, false);
    tracker.unregisterShuffle(shuffle);
  }

  private Mark now() {
    long newest = -1;
    for (long id : broadcasts()) newest = Math.max(newest, id);
    return new Mark(newest, AccumulatorContext.newId());
  }

  /** Of those that the driver has, one block each at least. */
  private List<Long> broadcasts() {
    BlockManager blocks = context.env().blockManager();
    List<Long> found = new ArrayList<>();
    Iterator<BlockId> ids = blocks.getMatchingBlockIds(id -> id instanceof BroadcastBlockId).iterator();
    while (ids.hasNext()) {
      BroadcastBlockId id = (BroadcastBlockId) ids.next();
      if (id.field().isEmpty()) found.add(id.broadcastId());
    }
    return found;
  }
}
