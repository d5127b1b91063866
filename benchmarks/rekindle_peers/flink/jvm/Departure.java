package rekindle.flink;

import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.streaming.api.functions.co.ProcessJoinFunction;
import org.apache.flink.util.Collector;

/**
 * A departure and an hour at most half an hour away. Both sides of the join know the hour, so it is
 * part of the key, and no departure is compared with other hours.
 */
public final class Departure {
  static final long HALF_HOUR = 1_800_000;
  private static final long HOUR = 2 * HALF_HOUR;

  public String origin;
  public String carrier;
  public long flight;
  public long delay;
  public long time;
  public long hour;

  /** A departure once for each such hour: twice at half past. */
  static final class Hours implements FlatMapFunction<Flight, Departure> {
    @Override
    public void flatMap(Flight flight, Collector<Departure> output) {
      if (flight.isCancelled()) return;
      long before = Math.floorDiv(flight.time, HOUR) * HOUR;
      if (flight.time - before <= HALF_HOUR) output.collect(at(before, flight));
      if (flight.time - before >= HALF_HOUR) output.collect(at(before + HOUR, flight));
    }

    private static Departure at(long hour, Flight flight) {
      Departure departure = new Departure();
      departure.origin = flight.origin;
      departure.carrier = flight.carrier;
      departure.flight = flight.flight;
      departure.delay = flight.departed;
      departure.time = flight.time;
      departure.hour = hour;
      return departure;
    }
  }

  /** Origin and hour: what the join goes by. */
  static final class Place implements KeySelector<Departure, Tuple2<String, Long>> {
    @Override
    public Tuple2<String, Long> getKey(Departure departure) {
      return Tuple2.of(departure.origin, departure.hour);
    }
  }

  /** What of an hour is joined. */
  public static final class Conditions {
    public String origin;
    public long hour;
    public String conditions;

    static Conditions of(Hour hour) {
      Conditions found = new Conditions();
      found.origin = hour.origin;
      found.hour = hour.time;
      found.conditions = hour.conditions();
      return found;
    }

    /** The same of the weather. */
    static final class Place implements KeySelector<Conditions, Tuple2<String, Long>> {
      @Override
      public Tuple2<String, Long> getKey(Conditions conditions) {
        return Tuple2.of(conditions.origin, conditions.hour);
      }
    }
  }

  /** A departure with the weather of an hour. */
  public static final class InWeather {
    private static final long DELAYED_MINUTES = 60;

    public Departure departure;
    public String conditions;

    long time() {
      return Math.max(departure.time, departure.hour);
    }

    boolean isDelayedInBadWeather() {
      return departure.origin.equals("EWR")
          && departure.delay >= DELAYED_MINUTES
          && !conditions.equals("fair");
    }
  }

  /** Joins both. */
  static final class Joined extends ProcessJoinFunction<Departure, Conditions, InWeather> {
    @Override
    public void processElement(
        Departure departure, Conditions conditions, Context context, Collector<InWeather> output) {
      InWeather found = new InWeather();
      found.departure = departure;
      found.conditions = conditions.conditions;
      output.collect(found);
    }
  }
}
