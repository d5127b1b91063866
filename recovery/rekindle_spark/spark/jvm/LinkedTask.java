package rekindle;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** A task of a linked job, and the messages about it. A job is named by its first shuffle. */
final class LinkedTask implements Serializable {
  /**
   * The messages to an executor: run this, here are blocks for you, this job counts no more, blocks
   * for you wait in a file.
   */
  static final byte RUN = 0, BLOCKS = 1, CANCEL = 2, STORED = 3;

  /** An executor that reads this task's output, and the reduce ids that it reads. */
  record Reader(String executor, Links.Place place, int[] reduces) implements Serializable {}

  /** A block of one task's output. */
  record Block(int reduce, byte[] bytes) {}

  /**
   * Blocks of a task's output for one executor, `from` another one; behind the last ones all of them
   * are there.
   */
  record Output(String from, int job, int shuffle, int map, boolean isLast, List<Block> blocks) {
    long bytes() {
      return blocks.stream().mapToLong(block -> block.bytes().length).sum();
    }

    /** In pieces of about PIECE_BYTES, or one block. */
    List<Output> pieces() {
      List<Output> pieces = new ArrayList<>();
      List<Block> piece = new ArrayList<>();
      long size = 0;
      for (Block block : blocks) {
        if (size >= PIECE_BYTES) {
          pieces.add(new Output(from, job, shuffle, map, false, piece));
          piece = new ArrayList<>();
          size = 0;
        }
        piece.add(block);
        size += block.bytes().length;
      }
      pieces.add(new Output(from, job, shuffle, map, true, piece));
      return pieces;
    }

    /** The same where it is not sent: it is to be read from the shuffle files at `host` and `port`. */
    Stored stored(String host, int port) {
      Map<Integer, Long> sizes = new TreeMap<>();
      for (Block block : blocks) sizes.put(block.reduce(), (long) block.bytes().length);
      return new Stored(from, job, shuffle, map, host, port, sizes);
    }
  }

  /**
   * Blocks of a task's output that wait in the shuffle file of the executor `from`, whose blocks are
   * served at `host` and `port`: by reduce id their bytes.
   */
  record Stored(
      String from, int job, int shuffle, int map, String host, int port, Map<Integer, Long> sizes) {
    /** What of it is for some reduce ids, given as stretches. */
    Stored among(int[] reduces) {
      Map<Integer, Long> found = new TreeMap<>(sizes);
      found.keySet().removeIf(reduce -> !JobOutputs.isAmong(reduce, reduces));
      return new Stored(from, job, shuffle, map, host, port, found);
    }
  }

  private static final long PIECE_BYTES = 1 << 20;

  final int job;
  final Stage.Task task;
  /** The shuffle of its output, and the operator partitions in the order of that. */
  final int shuffle;
  final int[] order;
  /** The shuffles of the job itself, whose blocks are sent and not fetched. */
  final int[] own;
  /** The job that the same partitions run before this one; none where nothing is to be waited for. */
  final int after;
  /** How many tasks of the job its executor has. */
  final int tasksHere;
  final List<Reader> readers;
  /** What reads shuffles, serialised; null where it reads none. */
  final byte[] template;

  LinkedTask(
      Stage.Task task,
      int shuffle,
      int[] order,
      int[] own,
      int after,
      int tasksHere,
      List<Reader> readers,
      byte[] template) {
    this.job = own[0];
    this.task = task;
    this.shuffle = shuffle;
    this.order = order;
    this.own = own;
    this.after = after;
    this.tasksHere = tasksHere;
    this.readers = readers;
    this.template = template;
  }

  boolean isOwn(int shuffle) {
    for (int one : own) if (one == shuffle) return true;
    return false;
  }

  /** Which of the job's stages it is of: an executor has one task of each at most. */
  int stage() {
    int stage = 0;
    while (own[stage] != shuffle) stage++;
    return stage;
  }

  byte[] message() throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    bytes.write(RUN);
    try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
      out.writeObject(this);
    }
    return bytes.toByteArray();
  }

  static LinkedTask read(ByteBuffer message) throws IOException, ClassNotFoundException {
    try (ObjectInputStream in = new ObjectInputStream(stream(message))) {
      return (LinkedTask) in.readObject();
    }
  }

  static byte[] message(Output output) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    DataOutputStream out = new DataOutputStream(bytes);
    out.writeByte(BLOCKS);
    out.writeUTF(output.from());
    out.writeInt(output.job());
    out.writeInt(output.shuffle());
    out.writeInt(output.map());
    out.writeBoolean(output.isLast());
    out.writeInt(output.blocks().size());
    for (Block block : output.blocks()) {
      out.writeInt(block.reduce());
      out.writeInt(block.bytes().length);
      out.write(block.bytes());
    }
    return bytes.toByteArray();
  }

  static Output readOutput(ByteBuffer message) throws IOException {
    DataInputStream in = new DataInputStream(stream(message));
    String from = in.readUTF();
    int job = in.readInt();
    int shuffle = in.readInt();
    int map = in.readInt();
    boolean isLast = in.readBoolean();
    List<Block> blocks = new ArrayList<>();
    for (int left = in.readInt(); left > 0; left--) {
      int reduce = in.readInt();
      int length = in.readInt();
      // asks for no memory that the message has not taken already
      if (length < 0 || length > in.available()) throw new IOException("a block is cut short");
      byte[] bytes = new byte[length];
      in.readFully(bytes);
      blocks.add(new Block(reduce, bytes));
    }
    return new Output(from, job, shuffle, map, isLast, blocks);
  }

  static byte[] message(Stored stored) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    DataOutputStream out = new DataOutputStream(bytes);
    out.writeByte(STORED);
    out.writeUTF(stored.from());
    out.writeInt(stored.job());
    out.writeInt(stored.shuffle());
    out.writeInt(stored.map());
    out.writeUTF(stored.host());
    out.writeInt(stored.port());
    out.writeInt(stored.sizes().size());
    for (Map.Entry<Integer, Long> one : stored.sizes().entrySet()) {
      out.writeInt(one.getKey());
      out.writeLong(one.getValue());
    }
    return bytes.toByteArray();
  }

  static Stored readStored(ByteBuffer message) throws IOException {
    DataInputStream in = new DataInputStream(stream(message));
    String from = in.readUTF();
    int job = in.readInt();
    int shuffle = in.readInt();
    int map = in.readInt();
    String host = in.readUTF();
    int port = in.readInt();
    Map<Integer, Long> sizes = new TreeMap<>();
    for (int left = in.readInt(); left > 0; left--) sizes.put(in.readInt(), in.readLong());
    return new Stored(from, job, shuffle, map, host, port, sizes);
  }

  static byte[] cancelMessage(int[] shuffles) {
    ByteBuffer message = ByteBuffer.allocate(1 + (1 + shuffles.length) * Integer.BYTES);
    message.put(CANCEL).putInt(shuffles.length);
    for (int shuffle : shuffles) message.putInt(shuffle);
    return message.array();
  }

  static int[] readCancelled(ByteBuffer message) {
    int[] shuffles = new int[message.getInt()];
    for (int i = 0; i < shuffles.length; i++) shuffles[i] = message.getInt();
    return shuffles;
  }

  private static ByteArrayInputStream stream(ByteBuffer message) {
    byte[] bytes = new byte[message.remaining()];
    message.get(bytes);
    return new ByteArrayInputStream(bytes);
  }
}
