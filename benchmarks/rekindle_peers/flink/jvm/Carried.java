package rekindle.flink;

import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/** A leg on which an aircraft carries delay over: what `rekindle_local.flights.flight_queries` makes. */
public final class Carried {
  public long time;
  public String tailnum;
  public String origin;
  public String carrier;
  public long flight;
  public long previous;
  public long delay;
  public long legs;

  /**
   * Keyed by aircraft. An aircraft's legs are in one split and so come in order: none is kept until
   * the watermark has passed it.
   */
  static final class Over extends KeyedProcessFunction<String, Flight, Carried> {
    private static final long LATE_MINUTES = 15;
    private static final long BETWEEN_LEGS_MAX = 12 * 3_600_000L;

    private transient ValueState<Last> state;

    @Override
    public void open(OpenContext context) {
      state = getRuntimeContext().getState(new ValueStateDescriptor<>("last", Last.class));
    }

    @Override
    public void processElement(Flight leg, Context context, Collector<Carried> output)
        throws Exception {
      Last last = state.value();
      if (last == null) last = new Last();
      if (carries(last, leg)) {
        last.legs++;
        output.collect(carried(last, leg));
      } else {
        last.legs = 0;
      }
      last.time = leg.time;
      last.arrived = leg.arrived;
      state.update(last);
    }

    private static boolean carries(Last last, Flight leg) {
      return leg.departed > LATE_MINUTES
          && last.arrived > LATE_MINUTES
          && leg.time - last.time <= BETWEEN_LEGS_MAX;
    }

    private static Carried carried(Last last, Flight leg) {
      Carried found = new Carried();
      found.time = leg.time;
      found.tailnum = leg.tailnum;
      found.origin = leg.origin;
      found.carrier = leg.carrier;
      found.flight = leg.flight;
      found.previous = last.arrived;
      found.delay = leg.departed;
      found.legs = last.legs;
      return found;
    }
  }

  /** The last leg of an aircraft. */
  public static final class Last {
    public long time;
    public long arrived = Table.NONE;
    public long legs;
  }

  /** What a carrier carried over in a week: `legs`, their delay, the longest chain. */
  public static final class Week implements Ranked {
    public String carrier;
    public long start;
    public long end;
    public long carried;
    public long delay;
    public long longest;
    public long rank;

    static Week of(Carried leg) {
      Week one = new Week();
      one.carrier = leg.carrier;
      one.carried = 1;
      one.delay = leg.delay;
      one.longest = leg.legs;
      return one;
    }

    @Override
    public void place(long rank) {
      this.rank = rank;
    }
  }

  /** Adds up. */
  static final class Total implements AggregateFunction<Week, Week, Week> {
    @Override
    public Week createAccumulator() {
      return new Week();
    }

    @Override
    public Week add(Week more, Week week) {
      week.carrier = more.carrier;
      week.carried += more.carried;
      week.delay += more.delay;
      week.longest = Math.max(week.longest, more.longest);
      return week;
    }

    @Override
    public Week getResult(Week week) {
      return week;
    }

    @Override
    public Week merge(Week one, Week other) {
      return add(other, one);
    }
  }

  /** Puts the window's ends into its sums. */
  static final class Dated extends ProcessWindowFunction<Week, Week, String, TimeWindow> {
    @Override
    public void process(
        String carrier, Context context, Iterable<Week> weeks, Collector<Week> output) {
      for (Week week : weeks) {
        week.start = context.window().getStart();
        week.end = context.window().getEnd();
        output.collect(week);
      }
    }
  }
}
