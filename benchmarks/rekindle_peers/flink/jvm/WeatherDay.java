package rekindle.flink;

import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/** A day's weather at an origin; `windy` counts the winds in `wind`, `measured` the rains. */
public final class WeatherDay implements Ranked {
  public String origin;
  public long start;
  public long end;
  public long hours;
  public long coldest = Table.NONE;
  public long warmest = Table.NONE;
  public long wind;
  public long windy;
  public long precipitation;
  public long measured;
  public long rank;

  @Override
  public void place(long rank) {
    this.rank = rank;
  }

  private void add(Hour hour) {
    hours++;
    if (hour.temperature != Table.NONE) {
      coldest = coldest == Table.NONE ? hour.temperature : Math.min(coldest, hour.temperature);
      warmest = Math.max(warmest, hour.temperature);
    }
    if (hour.wind != Table.NONE) {
      wind += hour.wind;
      windy++;
    }
    if (hour.precipitation != Table.NONE) {
      precipitation += hour.precipitation;
      measured++;
    }
  }

  /** Adds hours up. */
  static final class Total implements AggregateFunction<Hour, WeatherDay, WeatherDay> {
    @Override
    public WeatherDay createAccumulator() {
      return new WeatherDay();
    }

    @Override
    public WeatherDay add(Hour hour, WeatherDay day) {
      day.add(hour);
      return day;
    }

    @Override
    public WeatherDay getResult(WeatherDay day) {
      return day;
    }

    @Override
    public WeatherDay merge(WeatherDay one, WeatherDay other) {
      throw new UnsupportedOperationException("windows of a day do not merge");
    }
  }

  /** Puts origin and day into the sums. */
  static final class Dated extends ProcessWindowFunction<WeatherDay, WeatherDay, String, TimeWindow> {
    @Override
    public void process(
        String origin, Context context, Iterable<WeatherDay> days, Collector<WeatherDay> output) {
      for (WeatherDay day : days) {
        day.origin = origin;
        day.start = context.window().getStart();
        day.end = context.window().getEnd();
        output.collect(day);
      }
    }
  }
}
