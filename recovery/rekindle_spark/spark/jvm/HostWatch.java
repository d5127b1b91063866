package rekindle;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.locks.LockSupport;

/**
 * Ends a host in which a call of a user's function takes longer than it may, or far too much memory.
 *
 * <p>The host notes each call in a file (watchdog.py). It cannot watch itself: a function may hold
 * the interpreter's lock. Time for which the function could have run, and got no CPU, does not
 * count: nodes are small, and what catches up leaves the CPU to others.
 */
final class HostWatch implements Runnable {
  // as watchdog.py has them
  private static final int TOOK_TOO_LONG = 142;
  private static final int USED_TOO_MUCH = 153;
  // memory grows by a gigabyte in a second
  private static final long LOOK_NANOS = 100_000_000L;
  private static final double LOOK_SECONDS_MAX = 1.0;
  // offsets in the note
  private static final int PARTITION = 0;
  private static final int THREAD = 20;
  private static final int PROGRESS = 24;
  private static final int LIMIT_SECONDS = 32;
  private static final int LIMIT_BYTES = 40;
  static final int SIZE = 148;
  private static final long PAGE_BYTES = pageBytes();

  private final Process process;
  private final Path note;
  private volatile int exitCode;
  private long progress;
  private double seconds;
  private volatile double cpuSeconds;
  private long lookedAt;

  HostWatch(Process process, Path note) {
    this.process = process;
    this.note = note;
  }

  void start() {
    Thread thread = new Thread(this, "rekindle-host-watch");
    thread.setDaemon(true);
    thread.start();
  }

  /** For what the host was ended from here; 0: it was not. */
  int exitCode() {
    return exitCode;
  }

  /** CPU time of the thread that the host has noted: a sign that it goes on. */
  long cpuNanos() {
    return (long) (cpuSeconds * 1e9);
  }

  @Override
  public void run() {
    while (process.isAlive()) {
      LockSupport.parkNanos(LOOK_NANOS);
      try {
        int code = look(ByteBuffer.wrap(Files.readAllBytes(note)));
        if (code != 0) {
          exitCode = code;
          process.destroyForcibly();
          return;
        }
      } catch (IOException | RuntimeException unreadable) {
        progress = 0; // not there yet, or no more
      }
    }
  }

  private int look(ByteBuffer noted) throws IOException {
    if (noted.capacity() < SIZE || noted.getInt(PARTITION) < 0) {
      progress = 0;
      return 0;
    }
    if (isTooLong(noted)) return TOOK_TOO_LONG;
    long most = noted.getLong(LIMIT_BYTES);
    return most > 0 && usedBytes() > most ? USED_TOO_MUCH : 0;
  }

  /** Anonymous memory. */
  private long usedBytes() throws IOException {
    String[] pages = Files.readString(Path.of("/proc/" + process.pid() + "/statm")).split(" ");
    return (Long.parseLong(pages[1]) - Long.parseLong(pages[2])) * PAGE_BYTES;
  }

  private boolean isTooLong(ByteBuffer noted) throws IOException {
    long now = System.nanoTime();
    Path thread = Path.of("/proc/" + process.pid() + "/task/" + noted.getInt(THREAD));
    String stat = Files.readString(thread.resolve("stat"));
    boolean runs = stat.charAt(stat.lastIndexOf(')') + 2) == 'R';
    double cpu = Long.parseLong(Files.readString(thread.resolve("schedstat")).split(" ")[0]) / 1e9;
    if (noted.getLong(PROGRESS) == progress) {
      seconds += runs ? cpu - cpuSeconds : Math.min((now - lookedAt) / 1e9, LOOK_SECONDS_MAX);
    } else {
      progress = noted.getLong(PROGRESS);
      seconds = 0;
    }
    lookedAt = now;
    cpuSeconds = cpu;
    double most = noted.getDouble(LIMIT_SECONDS);
    return most > 0 && seconds > most;
  }

  /** The kernel's entry AT_PAGESZ (6) for this process. */
  private static long pageBytes() {
    try {
      ByteBuffer entries =
          ByteBuffer.wrap(Files.readAllBytes(Path.of("/proc/self/auxv"))).order(ByteOrder.nativeOrder());
      while (entries.remaining() >= 16) {
        long kind = entries.getLong();
        long value = entries.getLong();
        if (kind == 6) return value;
      }
    } catch (IOException unreadable) {
      return 4096;
    }
    return 4096;
  }
}
