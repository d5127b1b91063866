package rekindle;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.BufferedOutputStream;
import java.io.BufferedInputStream;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * The host of this executor: a Python process that owns partition state and runs operators.
 *
 * <p>One per JVM, started with the executor, started again when it is found dead. It ends by itself
 * when the JVM ends. In a file it notes what it works on; whoever finds it dead reports the notes.
 */
final class HostProcess {
  private static final long START_SECONDS = 180;
  private static final int STARTS_MAX = 5;
  private static final long END_SECONDS = 5;
  private static volatile HostProcess instance;

  private final String python;
  private final Path socket;
  private volatile Started running;
  private int starts;
  private int started;

  /** One process. The note of a dead one is read once, then its file goes. */
  private static final class Started {
    final Process process;
    final Path note;
    final HostWatch watch;
    private byte[] noted;

    Started(Process process, Path note) {
      this.process = process;
      this.note = note;
      this.watch = new HostWatch(process, note);
      watch.start();
    }

    int exitCode() {
      return watch.exitCode() == 0 ? process.exitValue() : watch.exitCode();
    }

    /** What it worked on when it ended; empty when the file cannot be read. */
    synchronized byte[] noted() {
      if (noted == null) {
        try {
          noted = watch.blamed(Files.readAllBytes(note));
          Files.deleteIfExists(note);
        } catch (IOException unreadable) {
          noted = new byte[0];
        }
      }
      return noted;
    }
  }

  /** The host ended during a call. */
  static final class Ended extends IOException {
    final long process;
    final int exitCode;
    final byte[] note;

    Ended(long process, int exitCode, byte[] note) {
      super("the host ended with exit code " + exitCode);
      this.process = process;
      this.exitCode = exitCode;
      this.note = note;
    }
  }

  static final class Answer {
    final byte[] report;
    final int[] targets;
    final byte[][] blocks;

    Answer(byte[] report, int[] targets, byte[][] blocks) {
      this.report = report;
      this.targets = targets;
      this.blocks = blocks;
    }
  }

  private HostProcess(String python) throws IOException {
    this.python = python;
    this.socket = HostFolder.make().resolve(HostFolder.SOCKET);
    Runtime.getRuntime().addShutdownHook(new Thread(this::end));
  }

  static synchronized HostProcess start(String python) throws IOException {
    if (instance == null) instance = new HostProcess(python);
    instance.connect().close();
    return instance;
  }

  static synchronized HostProcess get() throws IOException {
    if (instance == null) throw new IOException("the executor was started without rekindle's plugin");
    return instance;
  }

  /**
   * Signs that this executor does something (activity.py): blocks that were read, CPU time, and what
   * the host notes, without the zeros at its end. Empty where there is no host, or none any more.
   */
  static byte[] signs() {
    HostProcess known = instance;
    Started host = known == null ? null : known.running;
    if (host == null) return new byte[0];
    try {
      byte[] file = Files.readAllBytes(host.note);
      int end = file.length;
      while (end > 0 && file[end - 1] == 0) end--;
      long[] cpuNanos = host.watch.cpuNanos();
      ByteBuffer signs = ByteBuffer.allocate((1 + cpuNanos.length) * Long.BYTES + end);
      signs.putLong(Blocks.readCount());
      for (long nanos : cpuNanos) signs.putLong(nanos);
      return signs.put(file, 0, end).array();
    } catch (IOException gone) {
      return new byte[0];
    }
  }

  /** Sends one request: header, then all blocks in one stretch; reads the answer. */
  Answer call(byte[] header, List<byte[]> blocks) throws IOException {
    Started host = ensureRunning();
    try {
      return ask(header, blocks);
    } catch (IOException broken) {
      throw cause(host, broken);
    }
  }

  /** Why a call was broken off. The end of a process is seen a moment after that of its socket. */
  private static IOException cause(Started host, IOException broken) {
    try {
      if (!Thread.currentThread().isInterrupted()
          && host.process.waitFor(END_SECONDS, TimeUnit.SECONDS)) {
        return new Ended(host.process.pid(), host.exitCode(), host.noted());
      }
    } catch (InterruptedException cancelled) {
      Thread.currentThread().interrupt();
    }
    return broken;
  }

  private Answer ask(byte[] header, List<byte[]> blocks) throws IOException {
    try (SocketChannel channel = connect()) {
      DataOutputStream out =
          new DataOutputStream(new BufferedOutputStream(Channels.newOutputStream(channel), 1 << 16));
      long total = 0;
      for (byte[] block : blocks) total += block.length;
      out.writeInt(header.length);
      out.write(header);
      out.writeLong(total);
      for (byte[] block : blocks) out.write(block);
      out.flush();
      return answer(
          new DataInputStream(new BufferedInputStream(Channels.newInputStream(channel), 1 << 16)));
    }
  }

  private static Answer answer(DataInputStream in) throws IOException {
    byte[] report = new byte[in.readInt()];
    in.readFully(report);
    int count = in.readInt();
    int[] targets = new int[count];
    byte[][] blocks = new byte[count][];
    for (int i = 0; i < count; i++) {
      targets[i] = in.readInt();
      blocks[i] = new byte[in.readInt()];
      in.readFully(blocks[i]);
    }
    return new Answer(report, targets, blocks);
  }

  private SocketChannel connect() throws IOException {
    long end = System.nanoTime() + START_SECONDS * 1_000_000_000L;
    while (true) {
      ensureRunning();
      try {
        SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX);
        channel.connect(UnixDomainSocketAddress.of(socket));
        starts = 0;
        return channel;
      } catch (IOException absent) {
        if (System.nanoTime() > end) throw absent;
        pause();
      }
    }
  }

  private static void pause() throws IOException {
    try {
      Thread.sleep(20);
    } catch (InterruptedException cancelled) {
      Thread.currentThread().interrupt();
      throw new IOException("cancelled");
    }
  }

  private synchronized Started ensureRunning() throws IOException {
    if (running != null && running.process.isAlive()) return running;
    if (starts == STARTS_MAX) {
      throw new IOException("the host ended " + starts + " times; see the executor's stderr");
    }
    starts++;
    started++;
    Files.deleteIfExists(socket);
    // the next one must not die of the same before the driver knows
    String last = running == null ? "" : HexFormat.of().formatHex(running.noted());
    String pid = Long.toString(ProcessHandle.current().pid());
    Path note = socket.resolveSibling("rekindle-" + pid + "-" + started + ".note");
    Process process =
        new ProcessBuilder(
                python, "-m", "rekindle_spark.executor.host", socket.toString(), pid, note.toString(), last)
            .redirectOutput(ProcessBuilder.Redirect.INHERIT)
            .redirectError(ProcessBuilder.Redirect.INHERIT)
            .start();
    running = new Started(process, note);
    return running;
  }

  private void end() {
    Started last = running;
    if (last != null) last.process.destroyForcibly();
    try {
      Files.deleteIfExists(socket);
      if (last != null) Files.deleteIfExists(last.note);
      Files.deleteIfExists(socket.getParent());
    } catch (IOException gone) {
      return;
    }
  }
}
