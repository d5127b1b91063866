package rekindle;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
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
import org.apache.spark.storage.ShuffleBlockId;
import scala.Option;
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
 *
 * <p>Why: docs/decisions/0013-shuffles-are-read-without-a-dependency.md.
 */
final class Blocks {
  /** Without another block. */
  private static final long READ_SECONDS_MAX = 15;
  private static final int CONNECT_MILLIS_MAX = 2_000;
  private static final ExecutorService READERS =
      Executors.newCachedThreadPool(
          work -> {
            Thread thread = new Thread(work, "rekindle-reader");
            thread.setDaemon(true);
            return thread;
          });

  /** `peers` are executors whose blocks could not be read, as far as that is known. */
  static final class Unreadable extends Exception {
    final Set<String> peers;
    final double seconds;

    Unreadable(String message, Set<String> peers, double seconds) {
      super(message);
      this.peers = peers;
      this.seconds = seconds;
    }
  }

  private static final AtomicLong READ = new AtomicLong();

  private Blocks() {}

  /** How many blocks this executor has read: a sign that it goes on. */
  static long readCount() {
    return READ.get();
  }

  static List<byte[]> read(Stage.Read[] reads, ShuffleDependency<?, ?, ?> template, TaskContext task)
      throws Unreadable {
    return read(reads, List.of(), template, task);
  }

  /** The same with outputs of which Spark may not know yet where they are. */
  static List<byte[]> read(
      Stage.Read[] reads,
      List<LinkedTask.Stored> stored,
      ShuffleDependency<?, ?, ?> template,
      TaskContext task)
      throws Unreadable {
    if (reads.length == 0 && stored.isEmpty()) return List.of();
    long began = System.nanoTime();
    AtomicLong come = new AtomicLong();
    Future<List<byte[]>> reading = READERS.submit(() -> fetch(reads, stored, template, task, come));
    try {
      long seen = 0;
      long last = began;
      while (true) {
        try {
          return reading.get(1, TimeUnit.SECONDS);
        } catch (TimeoutException slow) {
          if (come.get() != seen) {
            seen = come.get();
            last = System.nanoTime();
          }
          if (secondsSince(last) < READ_SECONDS_MAX) continue;
          reading.cancel(true);
          String late = "no block came within " + READ_SECONDS_MAX + " s";
          throw new Unreadable(late, unreachable(reads, stored), secondsSince(began));
        }
      }
    } catch (InterruptedException cancelled) {
      reading.cancel(true);
      Thread.currentThread().interrupt();
      throw new Unreadable("cancelled", Set.of(), secondsSince(began));
    } catch (ExecutionException failed) {
      double seconds = secondsSince(began);
      Throwable cause = failed.getCause();
      Set<String> peers = unreachable(reads, stored);
      addNamed(peers, cause);
      while (cause.getMessage() == null && cause.getCause() != null) cause = cause.getCause();
      String text = cause.getClass().getSimpleName() + ": " + cause.getMessage();
      throw new Unreadable(text, peers, seconds);
    }
  }

  private static double secondsSince(long nanos) {
    return (System.nanoTime() - nanos) / 1e9;
  }

  /** Adds whose blocks Spark could not fetch: it names the first one only. */
  private static void addNamed(Set<String> peers, Throwable cause) {
    for (Throwable at = cause; at != null; at = at.getCause()) {
      if (!(at instanceof FetchFailedException)) continue;
      TaskFailedReason reason = ((FetchFailedException) at).toTaskFailedReason();
      if (!(reason instanceof FetchFailed)) continue;
      BlockManagerId address = ((FetchFailed) reason).bmAddress();
      if (address != null && isOther(address)) peers.add(address.executorId());
    }
  }

  /**
   * The executors to read from to which no connection can be made; none where Spark knows no longer
   * where the blocks are. Never looked for in the task's own thread: there Spark would take a lost
   * output for the task's failure to fetch, and its scheduler, which has no stage for it, would end.
   */
  private static Set<String> unreachable(Stage.Read[] reads, List<LinkedTask.Stored> stored) {
    try {
      return READERS.submit(() -> withoutConnection(reads, stored)).get();
    } catch (InterruptedException cancelled) {
      Thread.currentThread().interrupt();
      return new TreeSet<>();
    } catch (ExecutionException unknown) {
      return new TreeSet<>();
    }
  }

  /** Tries all at the same time. */
  private static Set<String> withoutConnection(Stage.Read[] reads, List<LinkedTask.Stored> stored)
      throws InterruptedException, ExecutionException {
    Map<BlockManagerId, Future<Boolean>> tries = new LinkedHashMap<>();
    var entries = addresses(reads, stored, SparkEnv.get().mapOutputTracker());
    while (entries.hasNext()) {
      BlockManagerId address = entries.next()._1();
      if (!isOther(address)) continue;
      tries.computeIfAbsent(address, other -> READERS.submit(() -> connects(other)));
    }
    Set<String> found = new TreeSet<>();
    for (var one : tries.entrySet()) {
      if (!one.getValue().get()) found.add(one.getKey().executorId());
    }
    return found;
  }

  private static boolean connects(BlockManagerId address) {
    try (Socket socket = new Socket()) {
      socket.connect(new InetSocketAddress(address.host(), address.port()), CONNECT_MILLIS_MAX);
      return true;
    } catch (IOException failed) {
      return false;
    }
  }

  private static boolean isOther(BlockManagerId address) {
    return !address.executorId().equals(SparkEnv.get().executorId());
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  private static List<byte[]> fetch(
      Stage.Read[] reads,
      List<LinkedTask.Stored> stored,
      ShuffleDependency<?, ?, ?> template,
      TaskContext task,
      AtomicLong come) {
    SparkEnv env = SparkEnv.get();
    BaseShuffleHandle handle = new BaseShuffleHandle(template.shuffleId(), template);
    TempShuffleReadMetrics metrics = task.taskMetrics().createTempShuffleReadMetrics();
    BlockStoreShuffleReader reader =
        new BlockStoreShuffleReader(
            handle,
            addresses(reads, stored, env.mapOutputTracker()),
            task,
            metrics,
            env.serializerManager(),
            env.blockManager(),
            env.mapOutputTracker(),
            true);
    List<byte[]> blocks = new ArrayList<>();
    Iterator<Product2> records = reader.read();
    while (records.hasNext()) {
      blocks.add((byte[]) records.next()._2());
      come.incrementAndGet();
      READ.incrementAndGet();
    }
    return blocks;
  }

  private static Iterator<Tuple2<BlockManagerId, Seq<Tuple3<BlockId, Object, Object>>>> addresses(
      Stage.Read[] reads, List<LinkedTask.Stored> stored, MapOutputTracker tracker) {
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
    for (LinkedTask.Stored one : stored) {
      BlockManagerId address = BlockManagerId.apply(one.from(), one.host(), one.port(), Option.empty());
      List<Tuple3<BlockId, Object, Object>> stretch = new ArrayList<>();
      int last = -1;
      for (Map.Entry<Integer, Long> block : one.sizes().entrySet()) {
        if (!stretch.isEmpty() && block.getKey() != last + 1) {
          all.add(new Tuple2<>(address, CollectionConverters.asScala(stretch)));
          stretch = new ArrayList<>();
        }
        last = block.getKey();
        BlockId id = new ShuffleBlockId(one.shuffle(), one.map(), last);
        stretch.add(new Tuple3<>(id, block.getValue() + BlockSerializer.HEADER_BYTES, one.map()));
      }
      if (!stretch.isEmpty()) all.add(new Tuple2<>(address, CollectionConverters.asScala(stretch)));
    }
    return CollectionConverters.asScala(all.iterator());
  }
}
