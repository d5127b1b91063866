package rekindle.flink;

import org.apache.flink.api.connector.source.SourceEvent;

/** What enumerator and readers of a source tell each other. */
final class ReplayEvents {
  private ReplayEvents() {}

  /** To readers: the input ends after so many rows of all sources. */
  record End(long rows) implements SourceEvent {}

  /** To the enumerator: at a checkpoint, how many rows of all sources a reader is past. */
  record Position(long checkpoint, long rows) implements SourceEvent {}
}
