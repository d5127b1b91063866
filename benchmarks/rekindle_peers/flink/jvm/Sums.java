package rekindle.flink;

import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/** What is summed up of flights: of one, or of a window. `delayed` counts the delays in `delay`. */
public final class Sums implements Ranked {
  private static final long LATE_MINUTES = 15;

  /** Of an origin, where it is grouped by that; and of whatever else is grouped by. */
  public String origin = "";
  public String group = "";
  public long start;
  public long end;
  public long flights;
  public long late;
  public long cancelled;
  public long delay;
  public long delayed;
  public long miles;
  public long rank;

  /** One flight, with the delay that counts. */
  static Sums of(Flight flight, String group, long delay) {
    Sums one = new Sums();
    one.origin = flight.origin;
    one.group = group;
    one.flights = 1;
    one.late = flight.departed > LATE_MINUTES ? 1 : 0;
    one.cancelled = flight.isCancelled() ? 1 : 0;
    one.add(delay);
    one.miles = flight.distance;
    return one;
  }

  /** One flight of which only the delay counts. */
  static Sums of(String group, long delay) {
    Sums one = new Sums();
    one.group = group;
    one.flights = 1;
    one.add(delay);
    return one;
  }

  @Override
  public void place(long rank) {
    this.rank = rank;
  }

  private void add(long delay) {
    if (delay == Table.NONE) return;
    this.delay = delay;
    delayed = 1;
  }

  /** Adds up, with the names of what is added. */
  static final class Total implements AggregateFunction<Sums, Sums, Sums> {
    @Override
    public Sums createAccumulator() {
      return new Sums();
    }

    @Override
    public Sums add(Sums more, Sums sums) {
      sums.origin = more.origin;
      sums.group = more.group;
      sums.flights += more.flights;
      sums.late += more.late;
      sums.cancelled += more.cancelled;
      sums.delay += more.delay;
      sums.delayed += more.delayed;
      sums.miles += more.miles;
      return sums;
    }

    @Override
    public Sums getResult(Sums sums) {
      return sums;
    }

    @Override
    public Sums merge(Sums one, Sums other) {
      return add(other, one);
    }
  }

  /** Puts the window's ends into its sums. */
  static final class Dated<K> extends ProcessWindowFunction<Sums, Sums, K, TimeWindow> {
    @Override
    public void process(K key, Context context, Iterable<Sums> sums, Collector<Sums> output) {
      for (Sums one : sums) {
        one.start = context.window().getStart();
        one.end = context.window().getEnd();
        output.collect(one);
      }
    }
  }
}
