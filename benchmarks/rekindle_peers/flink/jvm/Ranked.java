package rekindle.flink;

/** A row that a top gives its place, from 1 on. */
interface Ranked {
  void place(long rank);
}
