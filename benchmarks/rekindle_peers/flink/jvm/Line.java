package rekindle.flink;

/** An output row as a line: fields with tabs between them, times in microseconds. */
final class Line {
  private static final String NONE = "\\N";

  private final StringBuilder text = new StringBuilder(96);

  static Line of() {
    return new Line();
  }

  Line text(String value) {
    return put(value);
  }

  Line number(long value) {
    return put(value == Table.NONE ? NONE : Long.toString(value));
  }

  /** A sum of as many numbers; there is none of none. */
  Line sum(long value, long count) {
    return put(count == 0 ? NONE : Long.toString(value));
  }

  Line mean(long sum, long count) {
    return put(count == 0 ? NONE : Double.toString((double) sum / count));
  }

  Line time(long millis) {
    return put(Long.toString(millis * 1000));
  }

  @Override
  public String toString() {
    return text.toString();
  }

  private Line put(String field) {
    if (text.length() > 0) text.append('\t');
    text.append(field);
    return this;
  }
}
