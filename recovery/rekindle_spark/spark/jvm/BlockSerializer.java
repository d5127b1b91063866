package rekindle;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import org.apache.spark.serializer.DeserializationStream;
import org.apache.spark.serializer.SerializationStream;
import org.apache.spark.serializer.Serializer;
import org.apache.spark.serializer.SerializerInstance;
import scala.reflect.ClassTag;

/**
 * Reads records of target and block: an int, a length and bytes, as `put` writes them.
 *
 * <p>Kryo would do it too, but setting up one of its instances for every task costs more CPU than
 * everything else that a task does on a small node.
 *
 * <p>Disks flip bits, in lengths too. A damaged length neither fails nor asks for memory: what is
 * there is passed on, and the host sees by the checksums in it that something is missing.
 *
 * <p>Why: docs/decisions/0014-our-own-record-serializer.md.
 */
public final class BlockSerializer extends Serializer implements Serializable {
  /**
   * In place of a block that is lost: a frame of version 2 for nobody, without rows, whose checksum
   * is wrong. The host (frames.py) sees that something is damaged, and goes on behind it.
   */
  static final byte[] DAMAGED = Arrays.copyOf(new byte[] {2}, 52);

  /** Of a record: target and length, before the block. */
  static final long HEADER_BYTES = 2 * Integer.BYTES;

  static void put(DataOutputStream out, int target, byte[] block) throws IOException {
    out.writeInt(target);
    out.writeInt(block.length);
    out.write(block);
  }

  @Override
  public SerializerInstance newInstance() {
    return new Instance();
  }

  @Override
  public boolean supportsRelocationOfSerializedObjects() {
    return true;
  }

  private static final class Instance extends SerializerInstance {
    @Override
    public <T> ByteBuffer serialize(T value, ClassTag<T> tag) {
      throw new UnsupportedOperationException("blocks go through streams");
    }

    @Override
    public <T> T deserialize(ByteBuffer bytes, ClassTag<T> tag) {
      throw new UnsupportedOperationException("blocks go through streams");
    }

    @Override
    public <T> T deserialize(ByteBuffer bytes, ClassLoader loader, ClassTag<T> tag) {
      throw new UnsupportedOperationException("blocks go through streams");
    }

    @Override
    public SerializationStream serializeStream(OutputStream out) {
      throw new UnsupportedOperationException("BlockWriter writes blocks");
    }

    @Override
    public DeserializationStream deserializeStream(InputStream in) {
      return new Reader(new DataInputStream(in));
    }
  }

  private static final class Reader extends DeserializationStream {
    /** A longer block is read in parts, so that memory is taken only after bytes have come. */
    private static final int TRUSTED_BYTES_MAX = 1 << 24;
    /** Each part makes four times as much: a sound block takes 5/4 of its size while it is read. */
    private static final int GROWTH_BITS = 2;
    private final DataInputStream in;

    Reader(DataInputStream in) {
      this.in = in;
    }

    @Override
    @SuppressWarnings("unchecked")
    public <T> T readKey(ClassTag<T> tag) {
      return (T) Integer.valueOf(target());
    }

    @Override
    @SuppressWarnings("unchecked")
    public <T> T readValue(ClassTag<T> tag) {
      try {
        return (T) block();
      } catch (IOException failed) {
        throw new UncheckedIOException(failed);
      }
    }

    private byte[] block() throws IOException {
      byte[] length = in.readNBytes(Integer.BYTES);
      if (length.length < Integer.BYTES) return DAMAGED;
      int size = ByteBuffer.wrap(length).getInt();
      if (size < 0) return in.readAllBytes();
      int shift = 0;
      while (size >> shift > TRUSTED_BYTES_MAX) shift += GROWTH_BITS;
      byte[] block = new byte[size >> shift];
      int there = in.readNBytes(block, 0, block.length);
      while (shift > 0 && there == block.length) {
        shift -= GROWTH_BITS;
        block = Arrays.copyOf(block, size >> shift);
        there += in.readNBytes(block, there, block.length - there);
      }
      return there == size ? block : Arrays.copyOf(block, there);
    }

    @Override
    public <T> T readObject(ClassTag<T> tag) {
      throw new UnsupportedOperationException("blocks are read as key and value");
    }

    @Override
    public void close() {
      try {
        in.close();
      } catch (IOException failed) {
        throw new UncheckedIOException(failed);
      }
    }

    /** The end of the stream is where a key would begin: Spark looks for an EOFException there. */
    private int target() {
      byte[] target;
      try {
        target = in.readNBytes(Integer.BYTES);
      } catch (IOException failed) {
        throw new UncheckedIOException(failed);
      }
      if (target.length == 0) return Reader.<RuntimeException, Integer>raise(new EOFException());
      return ByteBuffer.wrap(Arrays.copyOf(target, Integer.BYTES)).getInt();
    }

    @SuppressWarnings("unchecked")
    private static <E extends Throwable, R> R raise(Throwable problem) throws E {
      throw (E) problem;
    }
  }
}
