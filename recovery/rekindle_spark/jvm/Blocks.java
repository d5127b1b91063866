package rekindle;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.spark.FetchFailed;
import org.apache.spark.MapOutputTracker;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskFailedReason;
import org.apache.spark.executor.TempShuffleReadMetrics;
import org.apache.spark.shuffle.BaseShuffleHandle;
import org.apache.spark.shuffle.BlockStoreShuffleReader;
import org.apache.spark.shuffle.FetchFailedException;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.BlockManagerId;
import scala.Product2;
import scala.Tuple2;
import scala.Tuple3;
import scala.collection.Iterator;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Reads any part of any shuffles in one go: one request per shuffle, executor that holds some, and
 * stretch of reduce ids. What a map output has of a stretch is one block.
 *
 * <p>It runs on a thread without a TaskContext: Spark would otherwise note a failed fetch in the
 * task and let the scheduler run map tasks of a past epoch again.
 */
final class Blocks {
  private static final long READ_SECONDS_MAX = 20;
  private static final ExecutorService READERS =
      Executors.newCachedThreadPool(
          work -> {
            Thread thread = new Thread(work, "rekindle-reader");
            thread.setDaemon(true);
            return thread;
          });

  /** `peer` is the executor that has the blocks; empty when that is not known. */
  static final class Unreadable extends Exception {
    final String peer;

    Unreadable(String message, String peer) {
      super(message);
      this.peer = peer;
    }
  }

  private Blocks() {}

  static List<byte[]> read(Stage.Read[] reads, ShuffleDependency<?, ?, ?> template, TaskContext task)
      throws Unreadable {
    if (reads.length == 0) return List.of();
    Future<List<byte[]>> reading = READERS.submit(() -> fetch(reads, template, task));
    try {
      return reading.get(READ_SECONDS_MAX, TimeUnit.SECONDS);
    } catch (TimeoutException silent) {
      reading.cancel(true);
      String late = "blocks did not come within " + READ_SECONDS_MAX + " s";
      throw new Unreadable(late, onlyPeer(reads));
    } catch (InterruptedException cancelled) {
      reading.cancel(true);
      Thread.currentThread().interrupt();
      throw new Unreadable("cancelled", "");
    } catch (ExecutionException failed) {
      Throwable cause = failed.getCause();
      String peer = peer(cause);
      while (cause.getMessage() == null && cause.getCause() != null) cause = cause.getCause();
      throw new Unreadable(cause.getClass().getSimpleName() + ": " + cause.getMessage(), peer);
    }
  }

  /** Whose blocks Spark could not fetch; empty where it does not say, or where they are our own. */
  private static String peer(Throwable cause) {
    for (Throwable at = cause; at != null; at = at.getCause()) {
      if (!(at instanceof FetchFailedException)) continue;
      TaskFailedReason reason = ((FetchFailedException) at).toTaskFailedReason();
      BlockManagerId address = reason instanceof FetchFailed ? ((FetchFailed) reason).bmAddress() : null;
      return address == null ? "" : other(address);
    }
    return "";
  }

  /** The only other executor that something is read from; empty where there are several. */
  private static String onlyPeer(Stage.Read[] reads) {
    Set<String> peers = new HashSet<>();
    try {
      var entries = addresses(reads, SparkEnv.get().mapOutputTracker());
      while (entries.hasNext()) peers.add(other(entries.next()._1()));
    } catch (RuntimeException unknown) {
      return "";
    }
    peers.remove("");
    return peers.size() == 1 ? peers.iterator().next() : "";
  }

  private static String other(BlockManagerId address) {
    String executor = address.executorId();
    return executor.equals(SparkEnv.get().executorId()) ? "" : executor;
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  private static List<byte[]> fetch(
      Stage.Read[] reads, ShuffleDependency<?, ?, ?> template, TaskContext task) {
    SparkEnv env = SparkEnv.get();
    BaseShuffleHandle handle = new BaseShuffleHandle(template.shuffleId(), template);
    TempShuffleReadMetrics metrics = task.taskMetrics().createTempShuffleReadMetrics();
    BlockStoreShuffleReader reader =
        new BlockStoreShuffleReader(
            handle,
            addresses(reads, env.mapOutputTracker()),
            task,
            metrics,
            env.serializerManager(),
            env.blockManager(),
            env.mapOutputTracker(),
            true);
    List<byte[]> blocks = new ArrayList<>();
    Iterator<Product2> records = reader.read();
    while (records.hasNext()) blocks.add((byte[]) records.next()._2());
    return blocks;
  }

  private static Iterator<Tuple2<BlockManagerId, Seq<Tuple3<BlockId, Object, Object>>>> addresses(
      Stage.Read[] reads, MapOutputTracker tracker) {
    List<Tuple2<BlockManagerId, Seq<Tuple3<BlockId, Object, Object>>>> all = new ArrayList<>();
    for (Stage.Read read : reads) {
      for (int r = 0; r < read.reduces.length; r += 2) {
        // Apart for each shuffle: Spark refuses a request for blocks of several. And for each
        // stretch: of a map output's blocks it takes all between the first and the last.
        Map<BlockManagerId, List<Tuple3<BlockId, Object, Object>>> merged = new LinkedHashMap<>();
        for (int m = 0; m < read.maps.length; m += 2) {
          Iterator<Tuple2<BlockManagerId, Seq<Tuple3<BlockId, Object, Object>>>> found =
              tracker.getMapSizesByExecutorId(
                  read.shuffle,
                  read.maps[m],
                  read.maps[m + 1],
                  read.reduces[r],
                  read.reduces[r + 1]);
          while (found.hasNext()) {
            Tuple2<BlockManagerId, Seq<Tuple3<BlockId, Object, Object>>> entry = found.next();
            merged
                .computeIfAbsent(entry._1(), address -> new ArrayList<>())
                .addAll(CollectionConverters.asJava(entry._2()));
          }
        }
        merged.forEach(
            (address, ids) -> all.add(new Tuple2<>(address, CollectionConverters.asScala(ids))));
      }
    }
    return CollectionConverters.asScala(all.iterator());
  }
}
