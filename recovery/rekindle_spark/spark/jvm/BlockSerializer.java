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
 * <p>Why: docs/decisions/0014-our-own-record-serializer.md.
 */
public final class BlockSerializer extends Serializer implements Serializable {
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
    private final DataInputStream in;

    Reader(DataInputStream in) {
      this.in = in;
    }

    @Override
    @SuppressWarnings("unchecked")
    public <T> T readKey(ClassTag<T> tag) {
      return (T) Integer.valueOf(readInt());
    }

    @Override
    @SuppressWarnings("unchecked")
    public <T> T readValue(ClassTag<T> tag) {
      byte[] block = new byte[readInt()];
      try {
        in.readFully(block);
      } catch (IOException failed) {
        throw new UncheckedIOException(failed);
      }
      return (T) block;
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
    private int readInt() {
      try {
        return in.readInt();
      } catch (EOFException end) {
        return Reader.<RuntimeException, Integer>raise(end);
      } catch (IOException failed) {
        throw new UncheckedIOException(failed);
      }
    }

    @SuppressWarnings("unchecked")
    private static <E extends Throwable, R> R raise(Throwable problem) throws E {
      throw (E) problem;
    }
  }
}
