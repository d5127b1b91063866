"""The 18 queries of the flights as streaming DataFrames: windows, joins, tops, custom state.

Each reads its sources itself and shares nothing with the others, as applications of many queries
are written. What they mean stands in `flights/queries.sql`: change both. Called by `application`.
"""

from collections.abc import Callable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from rekindle_local.flights import columns
from rekindle_local.flights.data import ORIGINS, UNKNOWN_AIRCRAFT
from rekindle_local.structured_streaming.sources import END, Replays, in_time

__all__ = ["QUERIES", "build"]

DAY, WEEK = "1 day", "7 days"
NOTABLE = ("carrier", "flight", "tailnum", "dest", "dep_delay")
# Pairs of the join are as late as the later side, so up to half an hour ahead of the rows behind
# them; and an hour is asked for until half an hour after it.
JOIN_DELAY = "61 minutes"


def _extreme_delays(replays: Replays) -> DataFrame:
    rows = replays.flights(["EWR"], NOTABLE)
    return _before_the_end(rows.where(sql.col("dep_delay") >= columns.EXTREME_MINUTES))


def _diversions(replays: Replays) -> DataFrame:
    rows = replays.flights(["JFK"], [*NOTABLE, "arr_delay"])
    diverted = rows.where(sql.col("dep_delay").isNotNull() & sql.col("arr_delay").isNull())
    return _before_the_end(diverted).select("event_time", *NOTABLE)


def _windy_hours(replays: Replays) -> DataFrame:
    rows = replays.weather(["origin", "wind_speed_tenths", "visibility_hundredths"])
    windy = rows.where(sql.col("wind_speed_tenths") >= columns.STRONG_WIND_TENTHS)
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


def _wettest_airports(replays: Replays) -> DataFrame:
    wet = _weather_days(replays).where(sql.col("precipitation_hundredths") > 0)
    return _top(wet, 1, "precipitation_hundredths", "origin")


def _carrier_days(replays: Replays, origin: str) -> DataFrame:
    rows = in_time(replays.flights([origin], ["origin", "carrier", "dep_delay", "distance"]))
    days = rows.groupBy(sql.window("event_time", DAY), "origin", "carrier")
    return days.agg(*_sums(), sql.sum("distance").alias("miles"))


def _latest_carriers(replays: Replays) -> DataFrame:
    return _top(_carrier_days(replays, "EWR"), 1, "late", "carrier")


def _cancellation_days(replays: Replays) -> DataFrame:
    return _carrier_days(replays, "LGA").where(sql.col("cancelled") >= 5)


def _airport_days(replays: Replays) -> DataFrame:
    rows = in_time(replays.flights(ORIGINS, ["origin", "dep_delay"]))
    return rows.groupBy(sql.window("event_time", DAY), "origin").agg(*_sums())


def _carrier_weeks(replays: Replays) -> DataFrame:
    rows = in_time(replays.flights(ORIGINS, ["carrier", "dep_delay"]))
    return rows.groupBy(sql.window("event_time", WEEK), "carrier").agg(*_sums())


def _late_carriers(replays: Replays) -> DataFrame:
    return _top(_carrier_weeks(replays), 3, "late", "carrier")


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


def _top_destinations(replays: Replays) -> DataFrame:
    return _top(_destination_weeks(replays), 3, "flights", "dest")


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
    bad = (sql.col("dep_delay") >= columns.DELAYED_MINUTES) & (sql.col("conditions") != "fair")
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


def _top_carried_delays(replays: Replays) -> DataFrame:
    return _top(_carried_delay_weeks(replays), 3, "delay_minutes", "carrier")


def _sums() -> tuple[Column, ...]:
    return (
        sql.count("*").alias("flights"),
        sql.sum(sql.when(sql.col("dep_delay") > columns.LATE_MINUTES, 1).otherwise(0)).alias(
            "late"
        ),
        _cancelled(),
        sql.sum("dep_delay").alias("delay_minutes"),
    )


def _cancelled() -> Column:
    return sql.count_if(sql.col("dep_delay").isNull()).alias("cancelled")


def _conditions() -> Column:
    foggy = sql.col("visibility_hundredths") < columns.FOG_VISIBILITY_HUNDREDTHS
    strong = sql.col("wind_speed_tenths") >= columns.STRONG_WIND_TENTHS
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
    "ewr-latest-carriers": _latest_carriers,
    "ewr-bad-weather-delays": _bad_weather_delays,
    "jfk-diversions": _diversions,
    "jfk-departure-waves": _departure_waves,
    "lga-cancellation-days": _cancellation_days,
    "windy-hours": _windy_hours,
    "weather-days": _weather_days,
    "wettest-airports": _wettest_airports,
    "airport-days": _airport_days,
    "carrier-weeks": _carrier_weeks,
    "late-carriers": _late_carriers,
    "destination-weeks": _destination_weeks,
    "top-destinations": _top_destinations,
    "delays-by-weather": _delays_by_weather,
    "carried-delay-chains": _carried_delay_chains,
    "carried-delay-weeks": _carried_delay_weeks,
    "top-carried-delays": _top_carried_delays,
}


def build(query: str, replays: Replays) -> DataFrame:
    """A query's rows, with the columns that queries.sql gives them."""
    return _flat(QUERIES[query](replays))


def _flat(rows: DataFrame) -> DataFrame:
    if "window" not in rows.columns:
        return rows
    ends = [sql.col(f"window.{end}").alias(f"window_{end}") for end in ("start", "end")]
    return rows.select(*ends, *(name for name in rows.columns if name != "window"))
