package rekindle.flink;

import java.io.Serializable;

/** Makes a record of a converted row; `laps` is by how much its event time is later, in ms. */
interface Decoder<T> extends Serializable {
  T decode(Table table, long number, long laps);

  /** Event time in ms. */
  long time(T record);

  int columns();
}
