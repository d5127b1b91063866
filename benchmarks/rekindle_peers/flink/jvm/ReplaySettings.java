package rekindle.flink;

import java.io.Serializable;

/**
 * What rows come in when: one clock and one order for all sources of a run.
 *
 * <p>`folder` has the converted rows, `store` is where the source tells of checkpoints, and where a
 * file `end` says after how many rows of all sources the input ends.
 */
record ReplaySettings(
    String folder, String store, long lapRows, long lapMillis, double startedAt, double rowsPerSecond)
    implements Serializable {
  /** How many rows of all sources have come in by now. */
  long arrived() {
    double seconds = System.currentTimeMillis() / 1000.0 - startedAt;
    return Math.max(0, (long) (seconds * rowsPerSecond));
  }

  /** How long it takes until so many have. */
  long millisUntil(long rows) {
    double moment = startedAt + rows / rowsPerSecond;
    return Math.max(1, (long) (moment * 1000) - System.currentTimeMillis() + 1);
  }
}
