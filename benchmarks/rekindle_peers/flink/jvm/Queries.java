package rekindle.flink;

import java.time.Duration;
import java.util.Set;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.WindowAssigner;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;

/**
 * The 18 queries in one graph. Streams that several of them need are there once, as one writes a job
 * of many queries. What they mean stands in `flights/queries.sql`: change both.
 *
 * <p>A query's rows are lines, whose columns `rekindle_peers.flink.flink_outputs` names.
 */
final class Queries {
  private static final Duration DAY = Duration.ofDays(1);
  private static final Duration WEEK = Duration.ofDays(7);
  private static final long EXTREME_MINUTES = 180;
  private static final TypeInformation<Tuple2<String, String>> NAMES =
      Types.TUPLE(Types.STRING, Types.STRING);

  /** Takes the lines of a query. */
  interface Sinks {
    void take(String query, SingleOutputStreamOperator<String> lines);
  }

  private final Set<String> wanted;
  private final Sinks sinks;

  Queries(Set<String> wanted, Sinks sinks) {
    this.wanted = wanted;
    this.sinks = sinks;
  }

  void add(DataStream<Flight> flights, DataStream<Hour> weather) {
    addNotable(flights, weather);
    addWeatherDays(weather);
    addCarriers(flights);
    addWaves(flights);
    addDestinations(flights);
    addJoins(flights, weather);
    addCarriedDelays(flights);
  }

  private void addNotable(DataStream<Flight> flights, DataStream<Hour> weather) {
    DataStream<Flight> extreme =
        flights.filter(row -> row.origin.equals("EWR") && row.departed >= EXTREME_MINUTES);
    sink("ewr-extreme-delays", extreme, Queries::notable);
    DataStream<Flight> diverted =
        flights.filter(row -> row.origin.equals("JFK") && row.isDiverted());
    sink("jfk-diversions", diverted, Queries::notable);
    MapFunction<Hour, String> windy =
        row ->
            Line.of()
                .time(row.time).text(row.origin).number(row.wind).number(row.visibility)
                .toString();
    sink("windy-hours", weather.filter(Hour::isWindy).setParallelism(1), windy);
  }

  private static String notable(Flight row) {
    return Line.of()
        .time(row.time).text(row.carrier).number(row.flight).text(row.tailnum).text(row.dest)
        .number(row.departed)
        .toString();
  }

  private void addWeatherDays(DataStream<Hour> weather) {
    if (!wants("weather-days", "wettest-airports")) return;
    DataStream<WeatherDay> days =
        weather
            .keyBy(row -> row.origin)
            .window(TumblingEventTimeWindows.of(DAY))
            .aggregate(new WeatherDay.Total(), new WeatherDay.Dated())
            .setParallelism(1);
    sink("weather-days", days, row -> weatherDay(row).toString());
    DataStream<WeatherDay> wet = days.filter(row -> row.precipitation > 0).setParallelism(1);
    sink(
        "wettest-airports",
        top(wet, DAY, 1, new WettestFirst(), WeatherDay.class),
        row -> weatherDay(row).number(row.rank).toString());
  }

  private static Line weatherDay(WeatherDay row) {
    return Line.of()
        .text(row.origin).time(row.start).time(row.end)
        .number(row.hours).number(row.coldest).number(row.warmest)
        .mean(row.wind, row.windy).sum(row.precipitation, row.measured);
  }

  private void addCarriers(DataStream<Flight> flights) {
    if (!wants(
        "ewr-latest-carriers", "lga-cancellation-days", "airport-days", "carrier-weeks",
        "late-carriers")) return;
    KeySelector<Sums, Tuple2<String, String>> both = row -> Tuple2.of(row.origin, row.group);
    DataStream<Sums> days =
        window(
            map(flights, row -> Sums.of(row, row.carrier, row.departed)),
            both, NAMES, TumblingEventTimeWindows.of(DAY));
    DataStream<Sums> latest =
        top(days.filter(row -> row.origin.equals("EWR")), DAY, 1, new LatestFirst(), Sums.class);
    sink("ewr-latest-carriers", latest, row -> carrierDay(row).number(row.rank).toString());
    DataStream<Sums> many = days.filter(row -> row.origin.equals("LGA") && row.cancelled >= 5);
    sink("lga-cancellation-days", many, row -> carrierDay(row).toString());
    if (wants("airport-days")) {
      DataStream<Sums> airports =
          window(days, row -> row.origin, Types.STRING, TumblingEventTimeWindows.of(DAY));
      sink("airport-days", airports, row -> sums(row, row.origin).toString());
    }
    if (!wants("carrier-weeks", "late-carriers")) return;
    DataStream<Sums> weeks =
        window(days, row -> row.group, Types.STRING, TumblingEventTimeWindows.of(WEEK));
    sink("carrier-weeks", weeks, row -> sums(row, row.group).toString());
    DataStream<Sums> late = top(weeks, WEEK, 3, new LatestFirst(), Sums.class);
    sink("late-carriers", late, row -> sums(row, row.group).number(row.rank).toString());
  }

  private static Line carrierDay(Sums row) {
    return Line.of()
        .text(row.origin).text(row.group).time(row.start).time(row.end)
        .number(row.flights).number(row.late).number(row.cancelled)
        .sum(row.delay, row.delayed).number(row.miles);
  }

  private static Line sums(Sums row, String name) {
    return Line.of()
        .text(name).time(row.start).time(row.end)
        .number(row.flights).number(row.late).number(row.cancelled)
        .sum(row.delay, row.delayed);
  }

  private void addWaves(DataStream<Flight> flights) {
    if (!wants("jfk-departure-waves")) return;
    DataStream<Sums> rows =
        map(
            flights.filter(row -> row.origin.equals("JFK")),
            row -> Sums.of(row.origin, row.departed));
    DataStream<Sums> waves =
        window(
            rows, row -> row.group, Types.STRING,
            SlidingEventTimeWindows.of(Duration.ofHours(12), Duration.ofHours(6)));
    sink("jfk-departure-waves", waves, row -> means(row).toString());
  }

  private static Line means(Sums row) {
    return Line.of()
        .text(row.group).time(row.start).time(row.end).number(row.flights)
        .mean(row.delay, row.delayed);
  }

  private void addDestinations(DataStream<Flight> flights) {
    if (!wants("destination-weeks", "top-destinations")) return;
    DataStream<Sums> weeks =
        window(
            map(flights, row -> Sums.of(row, row.dest, row.arrived)),
            row -> row.group, Types.STRING, TumblingEventTimeWindows.of(WEEK));
    sink("destination-weeks", weeks, row -> destination(row).toString());
    DataStream<Sums> busiest = top(weeks, WEEK, 3, new BusiestFirst(), Sums.class);
    sink("top-destinations", busiest, row -> destination(row).number(row.rank).toString());
  }

  private static Line destination(Sums row) {
    return Line.of()
        .text(row.group).time(row.start).time(row.end)
        .number(row.flights).number(row.cancelled).mean(row.delay, row.delayed);
  }

  private void addJoins(DataStream<Flight> flights, DataStream<Hour> weather) {
    if (!wants("delays-by-weather", "ewr-bad-weather-delays")) return;
    Duration within = Duration.ofMillis(Departure.HALF_HOUR);
    DataStream<Departure.InWeather> joined =
        flights
            .flatMap(new Departure.Hours())
            .keyBy(new Departure.Place())
            .intervalJoin(
                weather
                    .map(Departure.Conditions::of)
                    .returns(Departure.Conditions.class)
                    .setParallelism(1)
                    .keyBy(new Departure.Conditions.Place()))
            .between(within.negated(), within)
            .process(new Departure.Joined(), TypeInformation.of(Departure.InWeather.class));
    DataStream<Sums> days =
        window(
            map(joined, row -> Sums.of(row.conditions, row.departure.delay)),
            row -> row.group, Types.STRING, TumblingEventTimeWindows.of(DAY));
    sink("delays-by-weather", days, row -> means(row).toString());
    sink(
        "ewr-bad-weather-delays",
        joined.filter(Departure.InWeather::isDelayedInBadWeather),
        row ->
            Line.of()
                .time(row.time()).time(row.departure.time).time(row.departure.hour)
                .text(row.departure.carrier).number(row.departure.flight)
                .text(row.conditions).number(row.departure.delay)
                .toString());
  }

  private void addCarriedDelays(DataStream<Flight> flights) {
    if (!wants("carried-delay-chains", "carried-delay-weeks", "top-carried-delays")) return;
    DataStream<Carried> carried =
        flights
            .filter(row -> !row.isCancelled() && row.isOfAKnownAircraft())
            .keyBy(row -> row.tailnum)
            .process(new Carried.Over());
    sink("carried-delay-chains", carried.filter(row -> row.legs >= 2), Queries::leg);
    if (!wants("carried-delay-weeks", "top-carried-delays")) return;
    DataStream<Carried.Week> weeks =
        carried
            .map(Carried.Week::of)
            .returns(Carried.Week.class)
            .keyBy(row -> row.carrier)
            .window(TumblingEventTimeWindows.of(WEEK))
            .aggregate(new Carried.Total(), new Carried.Dated());
    sink("carried-delay-weeks", weeks, row -> week(row).toString());
    sink(
        "top-carried-delays",
        top(weeks, WEEK, 3, new MostCarriedFirst(), Carried.Week.class),
        row -> week(row).number(row.rank).toString());
  }

  private static String leg(Carried row) {
    return Line.of()
        .time(row.time).text(row.tailnum).text(row.origin).text(row.carrier).number(row.flight)
        .number(row.previous).number(row.delay).number(row.legs)
        .toString();
  }

  private static Line week(Carried.Week row) {
    return Line.of()
        .text(row.carrier).time(row.start).time(row.end)
        .number(row.carried).number(row.delay).number(row.longest);
  }

  private static <T> DataStream<Sums> map(DataStream<T> rows, MapFunction<T, Sums> one) {
    return rows.map(one).returns(Sums.class);
  }

  private static <K> DataStream<Sums> window(
      DataStream<Sums> rows,
      KeySelector<Sums, K> key,
      TypeInformation<K> type,
      WindowAssigner<Object, TimeWindow> windows) {
    return rows.keyBy(key, type)
        .window(windows)
        .aggregate(new Sums.Total(), new Sums.Dated<K>());
  }

  private static <T extends Ranked> DataStream<T> top(
      DataStream<T> rows, Duration size, int count, Top.Order<T> order, Class<T> type) {
    return rows.windowAll(TumblingEventTimeWindows.of(size))
        .process(new Top<>(count, order), TypeInformation.of(type));
  }

  private boolean wants(String... queries) {
    for (String query : queries) if (wanted.contains(query)) return true;
    return false;
  }

  /** As many sinks as there are makers of rows, so that each writes what is made beside it. */
  private <T> void sink(String query, DataStream<T> rows, MapFunction<T, String> line) {
    if (!wanted.contains(query)) return;
    sinks.take(query, rows.map(line).returns(String.class).setParallelism(rows.getParallelism()));
  }

  private static final class WettestFirst implements Top.Order<WeatherDay> {
    @Override
    public long figure(WeatherDay row) {
      return row.precipitation;
    }

    @Override
    public String name(WeatherDay row) {
      return row.origin;
    }
  }

  private static final class LatestFirst implements Top.Order<Sums> {
    @Override
    public long figure(Sums row) {
      return row.late;
    }

    @Override
    public String name(Sums row) {
      return row.group;
    }
  }

  private static final class BusiestFirst implements Top.Order<Sums> {
    @Override
    public long figure(Sums row) {
      return row.flights;
    }

    @Override
    public String name(Sums row) {
      return row.group;
    }
  }

  private static final class MostCarriedFirst implements Top.Order<Carried.Week> {
    @Override
    public long figure(Carried.Week row) {
      return row.delay;
    }

    @Override
    public String name(Carried.Week row) {
      return row.carrier;
    }
  }
}
