package rekindle;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.concurrent.locks.LockSupport;

/**
 * Ends a host in which a call of a user's function takes longer than it may, or far too much memory.
 *
 * <p>The host notes each call in a file (watchdog.py), those of its two lanes one behind the other.
 * It cannot watch itself: a function may hold the interpreter's lock. Time for which the function
 * could have run, and got no CPU, does not count: nodes are small, and what catches up leaves the CPU
 * to others. Nor does time in which it waits for the interpreter's lock while a call in the other lane
 * runs: that may hold the lock, and will be the one that takes too long. A thread that waits for that
 * lock wakes up each few milliseconds to ask for it, so one that has had no CPU time at all since the
 * last look waits for something else.
 */
final class HostWatch implements Runnable {
  // as watchdog.py has them
  private static final int TOOK_TOO_LONG = 142;
  private static final int USED_TOO_MUCH = 153;
  private static final int LANES = 2;
  // memory grows by a gigabyte in a second
  private static final long LOOK_NANOS = 100_000_000L;
  private static final double LOOK_SECONDS_MAX = 1.0;
  // offsets in a note
  private static final int PARTITION = 0;
  private static final int THREAD = 20;
  private static final int PROGRESS = 24;
  private static final int LIMIT_SECONDS = 32;
  private static final int LIMIT_BYTES = 40;
  private static final int NOTE_SIZE = 148;
  static final int SIZE = LANES * NOTE_SIZE;
  private static final long PAGE_BYTES = pageBytes();

  /** What is known of a lane's call: since when it goes on, and how its thread did at the last look. */
  private static final class Lane {
    long progress;
    double seconds;
    volatile double cpuSeconds;
    long lookedAt;
    boolean isNoted;
    boolean isNew;
    boolean runs;
    double ranSeconds;
    double waitedSeconds;

    void clear() {
      progress = 0;
      isNoted = false;
    }
  }

  private final Process process;
  private final Path note;
  private final Lane[] lanes = new Lane[LANES];
  private volatile int exitCode;
  private volatile int guilty = -1;

  HostWatch(Process process, Path note) {
    this.process = process;
    this.note = note;
    for (int i = 0; i < LANES; i++) lanes[i] = new Lane();
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

  /** What the host had noted when it ended: of the call that took too long alone, where one did. */
  byte[] blamed(byte[] notes) {
    int from = guilty < 0 ? 0 : guilty * NOTE_SIZE;
    int to = guilty < 0 ? SIZE : from + NOTE_SIZE;
    return Arrays.copyOfRange(notes, Math.min(from, notes.length), Math.min(to, notes.length));
  }

  /** CPU time of the threads that the host has noted, by lane: a sign that it goes on. */
  long[] cpuNanos() {
    return Arrays.stream(lanes).mapToLong(lane -> (long) (lane.cpuSeconds * 1e9)).toArray();
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
        for (Lane lane : lanes) lane.clear(); // not there yet, or no more
      }
    }
  }

  private int look(ByteBuffer noted) throws IOException {
    if (noted.capacity() < SIZE) return 0;
    long limitBytes = 0;
    for (int i = 0; i < LANES; i++) {
      ByteBuffer own = noted.slice(i * NOTE_SIZE, NOTE_SIZE);
      observe(lanes[i], own);
      if (lanes[i].isNoted) limitBytes = Math.max(limitBytes, own.getLong(LIMIT_BYTES));
    }
    for (int i = 0; i < LANES; i++) {
      double most = noted.getDouble(i * NOTE_SIZE + LIMIT_SECONDS);
      if (lanes[i].isNoted && isTooLong(lanes[i], lanes[LANES - 1 - i], most)) {
        guilty = i;
        return TOOK_TOO_LONG;
      }
    }
    return limitBytes > 0 && usedBytes() > limitBytes ? USED_TOO_MUCH : 0;
  }

  /** Anonymous memory. */
  private long usedBytes() throws IOException {
    String[] pages = Files.readString(Path.of("/proc/" + process.pid() + "/statm")).split(" ");
    return (Long.parseLong(pages[1]) - Long.parseLong(pages[2])) * PAGE_BYTES;
  }

  /** Look at the thread of a lane. Of one that has just ended nothing goes on. */
  private void observe(Lane lane, ByteBuffer noted) {
    if (noted.getInt(PARTITION) < 0) {
      lane.clear();
      return;
    }
    long now = System.nanoTime();
    Path thread = Path.of("/proc/" + process.pid() + "/task/" + noted.getInt(THREAD));
    String stat;
    double cpu;
    try {
      stat = Files.readString(thread.resolve("stat"));
      cpu = Long.parseLong(Files.readString(thread.resolve("schedstat")).split(" ")[0]) / 1e9;
    } catch (IOException gone) {
      lane.clear();
      return;
    }
    lane.runs = stat.charAt(stat.lastIndexOf(')') + 2) == 'R';
    lane.isNoted = true;
    lane.isNew = noted.getLong(PROGRESS) != lane.progress;
    lane.ranSeconds = cpu - lane.cpuSeconds;
    lane.waitedSeconds = Math.min((now - lane.lookedAt) / 1e9, LOOK_SECONDS_MAX);
    lane.progress = noted.getLong(PROGRESS);
    lane.lookedAt = now;
    lane.cpuSeconds = cpu;
  }

  private static boolean isTooLong(Lane lane, Lane other, double most) {
    boolean otherRuns = other.isNoted && !other.isNew && other.runs;
    if (lane.isNew) {
      lane.seconds = 0;
    } else if (lane.runs) {
      lane.seconds += lane.ranSeconds;
    } else if (!otherRuns) {
      lane.seconds += lane.waitedSeconds;
    } else if (lane.ranSeconds == 0) {
      // it may wait for a lock of the other call, which shall not be the later one to be found
      lane.seconds += Math.min(lane.waitedSeconds, other.ranSeconds);
    }
    return most > 0 && lane.seconds > most;
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
