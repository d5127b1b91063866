package rekindle.flink;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.connector.source.SourceSplit;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/** The rows of one split of `splits`, from row `next` of the table on. */
record ReplaySplit(int number, int splits, long next) implements SourceSplit {
  @Override
  public String splitId() {
    return Integer.toString(number);
  }

  /** Splits, one after the other; a list of one is a split. */
  static final class Several implements SimpleVersionedSerializer<List<ReplaySplit>> {
    @Override
    public int getVersion() {
      return 1;
    }

    @Override
    public byte[] serialize(List<ReplaySplit> splits) throws IOException {
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      DataOutputStream output = new DataOutputStream(bytes);
      for (ReplaySplit split : splits) {
        output.writeInt(split.number);
        output.writeInt(split.splits);
        output.writeLong(split.next);
      }
      return bytes.toByteArray();
    }

    @Override
    public List<ReplaySplit> deserialize(int version, byte[] bytes) throws IOException {
      DataInputStream input = new DataInputStream(new ByteArrayInputStream(bytes));
      List<ReplaySplit> splits = new ArrayList<>();
      while (input.available() > 0) {
        splits.add(new ReplaySplit(input.readInt(), input.readInt(), input.readLong()));
      }
      return splits;
    }
  }

  static final class One implements SimpleVersionedSerializer<ReplaySplit> {
    private final Several several = new Several();

    @Override
    public int getVersion() {
      return several.getVersion();
    }

    @Override
    public byte[] serialize(ReplaySplit split) throws IOException {
      return several.serialize(List.of(split));
    }

    @Override
    public ReplaySplit deserialize(int version, byte[] bytes) throws IOException {
      return several.deserialize(version, bytes).get(0);
    }
  }
}
