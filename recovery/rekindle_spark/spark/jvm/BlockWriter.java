package rekindle;

import java.io.DataOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.scheduler.MapStatus$;
import org.apache.spark.shuffle.IndexShuffleBlockResolver;
import org.apache.spark.shuffle.ShuffleWriteMetricsReporter;
import org.apache.spark.shuffle.ShuffleWriteProcessor;
import org.apache.spark.shuffle.api.ShuffleMapOutputWriter;
import org.apache.spark.shuffle.sort.SortShuffleManager;
import org.apache.spark.shuffle.sort.io.LocalDiskShuffleExecutorComponents;
import org.apache.spark.storage.ShuffleBlockId;
import org.apache.spark.util.collection.OpenHashSet;
import scala.Product2;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.reflect.ClassTag;

/**
 * Writes the blocks of a task as one file and its index, as all of Spark's shuffles have them; each
 * block as `BlockSerializer` reads it.
 *
 * <p>Spark's own writers sort records that they do not know: each task sets up a megabyte to
 * serialise into and pages to sort in. Here there are a few blocks, each complete.
 *
 * <p>Why: docs/decisions/0041-blocks-are-written-as-they-are.md.
 */
final class BlockWriter extends ShuffleWriteProcessor {
  @Override
  public MapStatus write(
      Iterator<Object> records,
      ShuffleDependency<?, ?, ?> dependency,
      long mapId,
      int mapIndex,
      TaskContext context) {
    try {
      return write(
          ordered(records, dependency),
          dependency.shuffleId(),
          dependency.partitioner().numPartitions(),
          mapId,
          createMetricsReporter(context));
    } catch (IOException failed) {
      throw new UncheckedIOException(failed);
    }
  }

  /** By reduce id: the operator partition, and the block for it. */
  private static Map<Integer, Tuple2<Integer, byte[]>> ordered(
      Iterator<Object> records, ShuffleDependency<?, ?, ?> dependency) {
    Map<Integer, Tuple2<Integer, byte[]>> blocks = new TreeMap<>();
    while (records.hasNext()) {
      Product2<?, ?> record = (Product2<?, ?>) records.next();
      Integer target = (Integer) record._1();
      int place = dependency.partitioner().getPartition(target);
      if (blocks.put(place, new Tuple2<>(target, (byte[]) record._2())) != null) {
        throw new IllegalStateException("a task has two blocks for partition " + target);
      }
    }
    return blocks;
  }

  /** The same outside of a task of Spark's: by reduce id the operator partition and its block. */
  static MapStatus write(
      Map<Integer, Tuple2<Integer, byte[]>> blocks, int shuffle, int reduces, long mapId)
      throws IOException {
    return write(
        blocks, shuffle, reduces, mapId, TaskContext$.MODULE$.empty().taskMetrics().shuffleWriteMetrics());
  }

  private static MapStatus write(
      Map<Integer, Tuple2<Integer, byte[]>> blocks,
      int shuffle,
      int reduces,
      long mapId,
      ShuffleWriteMetricsReporter metrics)
      throws IOException {
    SparkEnv env = SparkEnv.get();
    IndexShuffleBlockResolver files =
        ((SortShuffleManager) env.blockingShuffleManager()).shuffleBlockResolver();
    noteForRemoval(files, shuffle, mapId);
    ShuffleMapOutputWriter output =
        new LocalDiskShuffleExecutorComponents(env.conf(), env.blockManager(), files)
            .createMapOutputWriter(shuffle, mapId, reduces);
    try {
      for (Map.Entry<Integer, Tuple2<Integer, byte[]>> entry : blocks.entrySet()) {
        ShuffleBlockId block = new ShuffleBlockId(shuffle, mapId, entry.getKey());
        OutputStream plain = output.getPartitionWriter(entry.getKey()).openStream();
        put(entry.getValue(), env.serializerManager().wrapStream(block, plain));
      }
      long[] lengths = output.commitAllPartitions(new long[0]).getPartitionLengths();
      if (files instanceof CheckedShuffleManager.Resolver checked) {
        checked.remember(shuffle, mapId, lengths);
      }
      metrics.incRecordsWritten(blocks.size());
      metrics.incBytesWritten(Arrays.stream(lengths).sum());
      return MapStatus$.MODULE$.apply(env.blockManager().shuffleServerId(), lengths, mapId, 0L);
    } catch (Throwable failed) {
      abort(output, failed);
      throw failed;
    }
  }

  /**
   * Deletes what was written. What is still in a buffer has no room on a full disk either, and is
   * given up after the first attempt.
   */
  private static void abort(ShuffleMapOutputWriter output, Throwable failed) throws IOException {
    try {
      output.abort(failed);
    } catch (IOException again) {
      failed.addSuppressed(again);
      output.abort(failed);
    }
  }

  private static void put(Tuple2<Integer, byte[]> block, OutputStream stream) throws IOException {
    try (DataOutputStream out = new DataOutputStream(stream)) {
      BlockSerializer.put(out, block._1(), block._2());
    }
  }

  /** Has the files of a map task go when the shuffle is removed, as Spark's own writers do. */
  private static void noteForRemoval(IndexShuffleBlockResolver files, int shuffle, long mapId) {
    OpenHashSet<Object> maps =
        files
            .taskIdMapsForShuffle()
            .computeIfAbsent(shuffle, id -> new OpenHashSet<>(16, ClassTag.Long()));
    synchronized (maps) {
      maps.add(mapId);
    }
  }
}
