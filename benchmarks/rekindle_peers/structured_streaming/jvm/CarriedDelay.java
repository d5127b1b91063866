package rekindle;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.api.java.function.FlatMapGroupsWithStateFunction;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.GroupState;
import org.apache.spark.sql.streaming.GroupStateTimeout;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.types.StructType;

/**
 * Delay that an aircraft carries from leg to leg, with Structured Streaming's own state: what
 * `rekindle_local.flights.flight_queries` is for pipelines, for comparisons with ordinary Spark.
 *
 * <p>`ReplaySource` gives rows in the order of event time, origin and sequence, so no leg of an
 * aircraft comes after a later one, and nothing has to wait for the watermark.
 */
public final class CarriedDelay
    implements FlatMapGroupsWithStateFunction<String, Row, CarriedDelay.Last, Row> {
  private static final long LATE_MINUTES = 15;
  private static final long BETWEEN_LEGS_MICROS_MAX = 12L * 3_600_000_000L;
  private static final Comparator<Row> IN_ORDER =
      Comparator.<Row>comparingLong(row -> row.getLong(0))
          .thenComparing(row -> row.getString(2))
          .thenComparingLong(row -> row.getLong(7));

  /** The last leg of an aircraft; `arrived` is 0 where its arrival delay is not known. */
  public static final class Last implements Serializable {
    private long time;
    private long delay;
    private boolean arrived;
    private long legs;

    public long getTime() {
      return time;
    }

    public void setTime(long time) {
      this.time = time;
    }

    public long getDelay() {
      return delay;
    }

    public void setDelay(long delay) {
      this.delay = delay;
    }

    public boolean getArrived() {
      return arrived;
    }

    public void setArrived(boolean arrived) {
      this.arrived = arrived;
    }

    public long getLegs() {
      return legs;
    }

    public void setLegs(long legs) {
      this.legs = legs;
    }
  }

  /**
   * Legs that carry delay over. Columns of `legs`: time (microseconds), tailnum, origin, carrier,
   * flight, dep_delay, arr_delay, sequence; of the result: time, tailnum, origin, carrier, flight,
   * previous_arr_delay, dep_delay, legs. The row behind all others, of no aircraft, is passed on.
   */
  public static Dataset<Row> over(Dataset<Row> legs) {
    StructType result =
        StructType.fromDDL(
            "time BIGINT, tailnum STRING, origin STRING, carrier STRING, flight BIGINT,"
                + " previous_arr_delay BIGINT, dep_delay BIGINT, legs BIGINT");
    MapFunction<Row, String> aircraft = row -> row.getString(1);
    return legs.groupByKey(aircraft, Encoders.STRING())
        .flatMapGroupsWithState(
            new CarriedDelay(),
            OutputMode.Append(),
            Encoders.bean(Last.class),
            Encoders.row(result),
            GroupStateTimeout.NoTimeout());
  }

  @Override
  public Iterator<Row> call(String tailnum, Iterator<Row> rows, GroupState<Last> state) {
    List<Row> sorted = new ArrayList<>();
    rows.forEachRemaining(sorted::add);
    sorted.sort(IN_ORDER);
    Last last = state.exists() ? state.get() : new Last();
    List<Row> carried = new ArrayList<>();
    for (Row row : sorted) {
      if (tailnum.isEmpty()) {
        carried.add(result(row, 0, 0));
      } else if (carries(last, row)) {
        last.legs++;
        carried.add(result(row, last.delay, last.legs));
      } else {
        last.legs = 0;
      }
      last.time = row.getLong(0);
      last.arrived = !row.isNullAt(6);
      last.delay = last.arrived ? row.getLong(6) : 0;
    }
    state.update(last);
    return carried.iterator();
  }

  private static boolean carries(Last last, Row row) {
    return row.getLong(5) > LATE_MINUTES
        && last.arrived
        && last.delay > LATE_MINUTES
        && row.getLong(0) - last.time <= BETWEEN_LEGS_MICROS_MAX;
  }

  private static Row result(Row row, long previous, long legs) {
    return RowFactory.create(
        row.get(0), row.get(1), row.get(2), row.get(3), row.get(4), previous, row.get(5), legs);
  }
}
