package rekindle.flink;

/** A scheduled flight; delays are `Table.NONE` where there is none. */
public final class Flight {
  public long time;
  public String carrier;
  public long flight;
  public String tailnum;
  public String origin;
  public String dest;
  public long departed;
  public long arrived;
  public long distance;

  boolean isCancelled() {
    return departed == Table.NONE;
  }

  boolean isDiverted() {
    return departed != Table.NONE && arrived == Table.NONE;
  }

  boolean isOfAKnownAircraft() {
    return !tailnum.equals("unknown");
  }

  /** Rows of flights, in the order of `rekindle_peers.flink.flink_conversion`. */
  static final class Rows implements Decoder<Flight> {
    @Override
    public Flight decode(Table table, long number, long laps) {
      Flight row = new Flight();
      row.time = table.value(number, 0) + laps;
      row.carrier = table.text(number, 1);
      row.flight = table.value(number, 2);
      row.tailnum = table.text(number, 3);
      row.origin = table.text(number, 4);
      row.dest = table.text(number, 5);
      row.departed = table.value(number, 6);
      row.arrived = table.value(number, 7);
      row.distance = table.value(number, 8);
      return row;
    }

    @Override
    public long time(Flight row) {
      return row.time;
    }

    @Override
    public int columns() {
      return 9;
    }
  }
}
