package rekindle.flink;

/** An hour's weather at an origin; what was not measured is `Table.NONE`. */
public final class Hour {
  private static final long FOG_VISIBILITY_HUNDREDTHS = 300;
  private static final long STRONG_WIND_TENTHS = 200;

  public long time;
  public String origin;
  public long temperature;
  public long wind;
  public long precipitation;
  public long visibility;

  boolean isWindy() {
    return wind >= STRONG_WIND_TENTHS;
  }

  String conditions() {
    if (visibility != Table.NONE && visibility < FOG_VISIBILITY_HUNDREDTHS) return "fog";
    if (precipitation > 0) return "rain";
    return isWindy() ? "wind" : "fair";
  }

  /** Rows of the weather, in the order of `rekindle_peers.flink.flink_conversion`. */
  static final class Rows implements Decoder<Hour> {
    @Override
    public Hour decode(Table table, long number, long laps) {
      Hour row = new Hour();
      row.time = table.value(number, 0) + laps;
      row.origin = table.text(number, 1);
      row.temperature = table.value(number, 2);
      row.wind = table.value(number, 3);
      row.precipitation = table.value(number, 4);
      row.visibility = table.value(number, 5);
      return row;
    }

    @Override
    public long time(Hour row) {
      return row.time;
    }

    @Override
    public int columns() {
      return 6;
    }
  }
}
