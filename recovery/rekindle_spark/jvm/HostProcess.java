package rekindle;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.BufferedOutputStream;
import java.io.BufferedInputStream;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/**
 * The host of this executor: a Python process that owns partition state and runs operators.
 *
 * <p>One per JVM, started with the executor, started again when it is found dead. It ends by itself
 * when the JVM ends.
 */
final class HostProcess {
  private static final long START_SECONDS = 180;
  private static final int STARTS_MAX = 5;
  private static HostProcess instance;

  private final String python;
  private final Path socket;
  private Process process;
  private int starts;

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

  /** Sends one request: header, then all blocks in one stretch; reads the answer. */
  Answer call(byte[] header, List<byte[]> blocks) throws IOException {
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

  private synchronized void ensureRunning() throws IOException {
    if (process != null && process.isAlive()) return;
    if (starts == STARTS_MAX) {
      throw new IOException("the host ended " + starts + " times; see the executor's stderr");
    }
    starts++;
    Files.deleteIfExists(socket);
    String pid = Long.toString(ProcessHandle.current().pid());
    process =
        new ProcessBuilder(python, "-m", "rekindle_spark.host", socket.toString(), pid)
            .redirectOutput(ProcessBuilder.Redirect.INHERIT)
            .redirectError(ProcessBuilder.Redirect.INHERIT)
            .start();
  }

  private void end() {
    Process running = process;
    if (running != null) running.destroyForcibly();
    try {
      Files.deleteIfExists(socket);
      Files.deleteIfExists(socket.getParent());
    } catch (IOException gone) {
      return;
    }
  }
}
