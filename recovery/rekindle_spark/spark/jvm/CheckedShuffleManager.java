package rekindle;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.zip.CRC32;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.buffer.NioManagedBuffer;
import org.apache.spark.shuffle.IndexShuffleBlockResolver;
import org.apache.spark.shuffle.sort.SortShuffleManager;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.ShuffleBlockBatchId;
import org.apache.spark.storage.ShuffleBlockId;
import scala.Option;

/**
 * Spark's own shuffles, but that the index of a file is checked before a block of it is served.
 *
 * <p>An index says where in the data file each block begins and ends. With a bit of it flipped,
 * Spark serves another block, an error, or more than there is, at which it closes the connection:
 * a sound executor then looks as if it could not be reached. Here the reader gets a damaged block.
 *
 * <p>The executor that writes an index is the one that serves it, and remembers its checksum.
 *
 * <p>Why: docs/decisions/0056-indexes-of-shuffles-are-checked.md.
 */
public final class CheckedShuffleManager extends SortShuffleManager {
  private final Resolver resolver;

  public CheckedShuffleManager(SparkConf conf) {
    super(conf);
    resolver = new Resolver(conf, super.shuffleBlockResolver());
  }

  @Override
  public IndexShuffleBlockResolver shuffleBlockResolver() {
    return resolver;
  }

  private record MapOutput(int shuffle, long map) {}

  static final class Resolver extends IndexShuffleBlockResolver {
    private final Map<MapOutput, Long> sums = new ConcurrentHashMap<>();

    private Resolver(SparkConf conf, IndexShuffleBlockResolver own) {
      super(conf, null, own.taskIdMapsForShuffle());
    }

    /** Remembers the index of a map output whose blocks have these lengths. */
    void remember(int shuffle, long map, long[] lengths) {
      ByteBuffer index = ByteBuffer.allocate((lengths.length + 1) * Long.BYTES);
      long end = 0;
      index.putLong(end);
      for (long length : lengths) index.putLong(end += length);
      sums.put(new MapOutput(shuffle, map), sum(index.array()));
    }

    @Override
    public ManagedBuffer getBlockData(BlockId block, Option<String[]> folders) {
      MapOutput output = output(block);
      Long sum = output == null ? null : sums.get(output);
      if (sum == null || isSound(output, sum, folders)) return super.getBlockData(block, folders);
      return damaged(block);
    }

    @Override
    public void removeDataByMap(int shuffle, long map) {
      sums.remove(new MapOutput(shuffle, map));
      super.removeDataByMap(shuffle, map);
    }

    private static MapOutput output(BlockId block) {
      if (block instanceof ShuffleBlockId one) return new MapOutput(one.shuffleId(), one.mapId());
      if (block instanceof ShuffleBlockBatchId some) {
        return new MapOutput(some.shuffleId(), some.mapId());
      }
      return null;
    }

    /** Whether the index is as it was written, and the data file as long as it says. */
    private boolean isSound(MapOutput output, long sum, Option<String[]> folders) {
      File data = getDataFile(output.shuffle(), output.map(), folders);
      try {
        File file = getIndexFile(output.shuffle(), output.map(), folders);
        byte[] index = Files.readAllBytes(file.toPath());
        if (sum(index) != sum) return false;
        return data.length() == ByteBuffer.wrap(index).getLong(index.length - Long.BYTES);
      } catch (IOException gone) {
        return false;
      }
    }

    private static long sum(byte[] index) {
      CRC32 sum = new CRC32();
      sum.update(index);
      return sum.getValue();
    }

    private static ManagedBuffer damaged(BlockId block) {
      ByteArrayOutputStream record = new ByteArrayOutputStream();
      OutputStream stream = SparkEnv.get().serializerManager().wrapStream(block, record);
      try (DataOutputStream out = new DataOutputStream(stream)) {
        BlockSerializer.put(out, 0, BlockSerializer.DAMAGED);
      } catch (IOException failed) {
        throw new UncheckedIOException(failed);
      }
      return new NioManagedBuffer(ByteBuffer.wrap(record.toByteArray()));
    }
  }
}
