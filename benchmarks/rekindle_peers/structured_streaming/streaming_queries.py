"""The 18 queries of the flights as streaming DataFrames: windows, joins, tops, custom state.

Each reads its sources itself and shares nothing with the others, as applications of many queries
are written; `SHARED` is what somebody could put into one stream by hand. What they mean stands in
`flights/queries.sql`: change both. Called by `streaming_driver`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from rekindle_local.flights import flight_columns
from rekindle_local.flights.flight_data import ORIGINS, UNKNOWN_AIRCRAFT
from rekindle_peers.structured_streaming.replayed_streams import END, Replays, in_time

DAY, WEEK = "1 day", "7 days"
NOTABLE = ("carrier", "flight", "tailnum", "dest", "dep_delay")
# Pairs of the join are as late as the later side, so up to half an hour ahead of the rows behind
# them; and an hour is asked for until half an hour after it.
JOIN_DELAY = "61 minutes"


@dataclass(frozen=True, slots=True)
class Shared:
    """One stream for several queries: `rows` are its own, from which each query makes those that it
    puts out, batch by batch. The groups of a window close in one batch, so that tops can."""

    rows: Callable[[Replays], DataFrame]
    queries: Mapping[str, Callable[[DataFrame], DataFrame]]


def _extreme_delays(replays: Replays) -> DataFrame:
    return _before_the_end(replays.flights(["EWR"], NOTABLE).where(_is_extreme()))


def _diversions(replays: Replays) -> DataFrame:
    diverted = replays.flights(["JFK"], [*NOTABLE, "arr_delay"]).where(_is_diverted())
    return _before_the_end(diverted).select("event_time", *NOTABLE)


def _extreme_or_diverted(replays: Replays) -> DataFrame:
    rows = replays.flights(["EWR", "JFK"], ["origin", *NOTABLE, "arr_delay"])
    return _before_the_end(rows.where(_at("EWR", _is_extreme()) | _at("JFK", _is_diverted())))


def _notable(rows: DataFrame, origin: str) -> DataFrame:
    return rows.where(sql.col("origin") == origin).select("event_time", *NOTABLE)


def _itself(rows: DataFrame) -> DataFrame:
    return rows


def _at(origin: str, condition: Column) -> Column:
    return (sql.col("origin") == origin) & condition


def _is_extreme() -> Column:
    return sql.col("dep_delay") >= flight_columns.EXTREME_MINUTES


def _is_diverted() -> Column:
    return sql.col("dep_delay").isNotNull() & sql.col("arr_delay").isNull()


def _windy_hours(replays: Replays) -> DataFrame:
    rows = replays.weather(["origin", "wind_speed_tenths", "visibility_hundredths"])
    windy = rows.where(sql.col("wind_speed_tenths") >= flight_columns.STRONG_WIND_TENTHS)
    return _before_the_end(windy)


def _weather_days(replays: Replays) -> DataFrame:
    measured = ("temperature_tenths", "wind_speed_tenths", "precipitation_hundredths")
    rows = in_time(replays.weather(["origin", *measured]))
    return rows.groupBy(sql.window("event_time", DAY), "origin").agg(
        sql.count("*").alias("hours"),
        sql.min("temperature_tenths").alias("coldest_tenths"),
        sql.max("temperature_tenths").alias("warmest_tenths"),
        sql.avg("wind_speed_tenths").alias("mean_wind_tenths"),
        sql.sum("precipitation_hundredths").alias("precipitation_hundredths"),
    )


def _wettest(weather_days: DataFrame) -> DataFrame:
    wet = weather_days.where(sql.col("precipitation_hundredths") > 0)
    return _top(wet, 1, "precipitation_hundredths", "origin")


def _carrier_days(replays: Replays, *origins: str) -> DataFrame:
    rows = in_time(replays.flights(origins, ["origin", "carrier", "dep_delay", "distance"]))
    days = rows.groupBy(sql.window("event_time", DAY), "origin", "carrier")
    return days.agg(*_sums(), sql.sum("distance").alias("miles"))


def _latest(carrier_days: DataFrame) -> DataFrame:
    return _top(carrier_days, 1, "late", "carrier")


def _often_cancelled(carrier_days: DataFrame) -> DataFrame:
    return carrier_days.where(sql.col("cancelled") >= 5)


def _of_airports(carrier_days: DataFrame) -> DataFrame:
    sums = [sql.sum(name).alias(name) for name in ("flights", "late", "cancelled", "delay_minutes")]
    return carrier_days.groupBy("window", "origin").agg(*sums)


def _airport_days(replays: Replays) -> DataFrame:
    rows = in_time(replays.flights(ORIGINS, ["origin", "dep_delay"]))
    return rows.groupBy(sql.window("event_time", DAY), "origin").agg(*_sums())


def _carrier_weeks(replays: Replays) -> DataFrame:
    rows = in_time(replays.flights(ORIGINS, ["carrier", "dep_delay"]))
    return rows.groupBy(sql.window("event_time", WEEK), "carrier").agg(*_sums())


def _latest_of_weeks(carrier_weeks: DataFrame) -> DataFrame:
    return _top(carrier_weeks, 3, "late", "carrier")


def _departure_waves(replays: Replays) -> DataFrame:
    rows = in_time(replays.flights(["JFK"], ["origin", "dep_delay"]))
    waves = rows.groupBy(sql.window("event_time", "12 hours", "6 hours"), "origin")
    return waves.agg(sql.count("*").alias("flights"), sql.avg("dep_delay").alias("mean_delay"))


def _destination_weeks(replays: Replays) -> DataFrame:
    rows = in_time(replays.flights(ORIGINS, ["dest", "dep_delay", "arr_delay"]))
    return rows.groupBy(sql.window("event_time", WEEK), "dest").agg(
        sql.count("*").alias("flights"),
        _cancelled(),
        sql.avg("arr_delay").alias("mean_delay"),
    )


def _busiest(destination_weeks: DataFrame) -> DataFrame:
    return _top(destination_weeks, 3, "flights", "dest")


def _departures_in_weather(replays: Replays, *origins: str) -> DataFrame:
    """Each departure with the hours at most half an hour away, joined by the hour itself."""
    hours = [f"date_trunc('hour', departure {sign} INTERVAL 30 MINUTES)" for sign in "-+"]
    rows = replays.flights(origins, ["origin", "carrier", "flight", "dep_delay"])
    departures = (
        rows.where(sql.col("dep_delay").isNotNull())
        .withColumnRenamed("event_time", "departure")
        .withColumn("hour", sql.expr(f"explode(array_distinct(array({', '.join(hours)})))"))
        .where("hour BETWEEN departure - INTERVAL 30 MINUTES AND departure + INTERVAL 30 MINUTES")
        .withColumn("event_time", sql.greatest("departure", "hour"))
    )
    measured = ("visibility_hundredths", "precipitation_hundredths", "wind_speed_tenths")
    weather = in_time(replays.weather(["origin", *measured])).select(
        sql.col("event_time").alias("hour"), "origin", _conditions().alias("conditions")
    )
    return in_time(departures, JOIN_DELAY).join(weather, ["origin", "hour"])


def _bad_weather_delays(replays: Replays) -> DataFrame:
    bad = (sql.col("dep_delay") >= flight_columns.DELAYED_MINUTES) & (
        sql.col("conditions") != "fair"
    )
    return (
        _departures_in_weather(replays, "EWR")
        .where(bad)
        .withColumnRenamed("hour", "observed")
        .select(
            "event_time", "departure", "observed", "carrier", "flight", "conditions", "dep_delay"
        )
    )


def _delays_by_weather(replays: Replays) -> DataFrame:
    days = _departures_in_weather(replays, *ORIGINS).groupBy(
        sql.window("event_time", DAY), "conditions"
    )
    return days.agg(sql.count("*").alias("flights"), sql.avg("dep_delay").alias("mean_delay"))


def _carried(replays: Replays) -> DataFrame:
    """Legs that carry delay over; the state is kept by Java (`CarriedDelay`)."""
    legs = ("tailnum", "origin", "carrier", "flight", "dep_delay", "arr_delay", "sequence")
    rows = replays.flights(ORIGINS, legs).where(
        sql.col("dep_delay").isNotNull() & (sql.col("tailnum") != UNKNOWN_AIRCRAFT)
    )
    timed = rows.select(sql.unix_micros("event_time").alias("time"), *legs)
    virtual_machine = replays.session._jvm
    assert virtual_machine is not None
    carried = DataFrame(virtual_machine.rekindle.CarriedDelay.over(timed._jdf), replays.session)
    return carried.withColumn("event_time", sql.timestamp_micros("time")).drop("time")


def _carried_delay_chains(replays: Replays) -> DataFrame:
    return _before_the_end(_carried(replays).where(sql.col("legs") >= 2))


def _carried_delay_weeks(replays: Replays) -> DataFrame:
    rows = in_time(_carried(replays))
    return rows.groupBy(sql.window("event_time", WEEK), "carrier").agg(
        sql.count("*").alias("carried"),
        sql.sum("dep_delay").alias("delay_minutes"),
        sql.max("legs").alias("longest_chain"),
    )


def _most_carried(carried_weeks: DataFrame) -> DataFrame:
    return _top(carried_weeks, 3, "delay_minutes", "carrier")


def _sums() -> tuple[Column, ...]:
    return (
        sql.count("*").alias("flights"),
        sql.sum(sql.when(sql.col("dep_delay") > flight_columns.LATE_MINUTES, 1).otherwise(0)).alias(
            "late"
        ),
        _cancelled(),
        sql.sum("dep_delay").alias("delay_minutes"),
    )


def _cancelled() -> Column:
    return sql.count_if(sql.col("dep_delay").isNull()).alias("cancelled")


def _conditions() -> Column:
    foggy = sql.col("visibility_hundredths") < flight_columns.FOG_VISIBILITY_HUNDREDTHS
    strong = sql.col("wind_speed_tenths") >= flight_columns.STRONG_WIND_TENTHS
    rainy = sql.col("precipitation_hundredths") > 0
    words = sql.when(foggy, "fog").when(rainy, "rain").when(strong, "wind")
    return words.otherwise("fair")


def _top(windows: DataFrame, count: int, by: str, tie: str) -> DataFrame:
    """The `count` rows of each window with the largest `by`, then the smallest `tie`, ranked."""
    others = [name for name in windows.columns if name != "window"]
    row = sql.struct((-sql.col(by)).alias("#by"), sql.col(tie).alias("#tie"), *others)
    ranked = sql.slice(sql.sort_array(sql.collect_list(row)), 1, count)
    tops = windows.groupBy("window").agg(ranked.alias("rows"))
    return tops.select("window", sql.posexplode("rows").alias("position", "row")).select(
        "window",
        *(sql.col(f"row.{name}").alias(name) for name in others),
        (sql.col("position") + 1).cast("bigint").alias("rank"),
    )


def _before_the_end(rows: DataFrame) -> DataFrame:
    """Without the row behind all others, where there is no watermark that waits for it."""
    return rows.where(sql.col("event_time") < sql.lit(END).cast("timestamp"))


# What makes each query's rows; a `window` stands for its two ends.
QUERIES: Mapping[str, Callable[[Replays], DataFrame]] = {
    "ewr-extreme-delays": _extreme_delays,
    "ewr-latest-carriers": lambda replays: _latest(_carrier_days(replays, "EWR")),
    "ewr-bad-weather-delays": _bad_weather_delays,
    "jfk-diversions": _diversions,
    "jfk-departure-waves": _departure_waves,
    "lga-cancellation-days": lambda replays: _often_cancelled(_carrier_days(replays, "LGA")),
    "windy-hours": _windy_hours,
    "weather-days": _weather_days,
    "wettest-airports": lambda replays: _wettest(_weather_days(replays)),
    "airport-days": _airport_days,
    "carrier-weeks": _carrier_weeks,
    "late-carriers": lambda replays: _latest_of_weeks(_carrier_weeks(replays)),
    "destination-weeks": _destination_weeks,
    "top-destinations": lambda replays: _busiest(_destination_weeks(replays)),
    "delays-by-weather": _delays_by_weather,
    "carried-delay-chains": _carried_delay_chains,
    "carried-delay-weeks": _carried_delay_weeks,
    "top-carried-delays": lambda replays: _most_carried(_carried_delay_weeks(replays)),
}

# Those of two streams, which keep rows of both. None shares a stream.
JOINS = frozenset({"ewr-bad-weather-delays", "delays-by-weather"})

SHARED: Sequence[Shared] = (
    Shared(
        _extreme_or_diverted,
        {
            "ewr-extreme-delays": lambda rows: _notable(rows, "EWR"),
            "jfk-diversions": lambda rows: _notable(rows, "JFK"),
        },
    ),
    Shared(
        lambda replays: _carrier_days(replays, *ORIGINS),
        {
            "ewr-latest-carriers": lambda days: _latest(days.where("origin = 'EWR'")),
            "lga-cancellation-days": lambda days: _often_cancelled(days.where("origin = 'LGA'")),
            "airport-days": _of_airports,
        },
    ),
    Shared(_weather_days, {"weather-days": _itself, "wettest-airports": _wettest}),
    Shared(_carrier_weeks, {"carrier-weeks": _itself, "late-carriers": _latest_of_weeks}),
    Shared(_destination_weeks, {"destination-weeks": _itself, "top-destinations": _busiest}),
    Shared(
        _carried_delay_weeks,
        {"carried-delay-weeks": _itself, "top-carried-delays": _most_carried},
    ),
)


def build(query: str, replays: Replays) -> DataFrame:
    """A query's rows, with the columns that queries.sql gives them."""
    return flatten(QUERIES[query](replays))


def flatten(rows: DataFrame) -> DataFrame:
    """Rows as they are put out: a window as its two ends."""
    if "window" not in rows.columns:
        return rows
    ends = [sql.col(f"window.{end}").alias(f"window_{end}") for end in ("start", "end")]
    return rows.select(*ends, *(name for name in rows.columns if name != "window"))
