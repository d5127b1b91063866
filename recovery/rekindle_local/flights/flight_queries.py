"""The 18 queries, up to four levels deep, as steps of the pipeline.

    flights_ewr, flights_jfk, flights_lga, weather                            sources
    ├─ ORIGIN-carriers (per origin and day) ─► carriers ─► latest             windows, top
    │                                      └─► airports; ewr-latest           window; top
    ├─ destinations (all origins, per week) ─► busiest                        window, top
    ├─ jfk-waves                                                              sliding window
    ├─ ORIGIN-weather (with weather, per origin) ─► weather-impact            join, window
    ├─ carry-over (all origins, per aircraft) ─► carried ─► most-carried      custom state
    └─ weather-by-day ─► wettest                                              window, top

Queries of one origin or of the weather alone have small closures, those over all origins large
ones that they share. The same queries for a batch engine are in `queries.sql`: change both.
Called by `pipeline`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rekindle_local.flights import flight_columns
from rekindle_local.flights.flight_columns import LATE_MINUTES
from rekindle_spark.operators import Aggregate, StatefulOperator, ValueState
from rekindle_spark.pipeline.steps import Stream, count, largest, mean, smallest, total

# Delay that an aircraft carries over from one leg to its next.
#
# A leg carries delay over when it departs more than 15 minutes late and the same aircraft's leg
# before it, scheduled at most 12 hours earlier, arrived more than 15 minutes late. Legs in a row
# that do so form a chain, counted in `legs`.
#
#     first leg  ──arrived late──►  second leg departs late: legs = 1  ──arrived late──►  legs = 2
#                ──on time, or 12 hours pass──►  the chain ends
#
# Only legs from New York are known.

CARRIED = pa.schema(
    [
        ("event_time", pa.timestamp("us")),
        ("tailnum", pa.string()),
        ("origin", pa.string()),
        ("carrier", pa.string()),
        ("flight", pa.int64()),
        ("previous_arr_delay", pa.int64()),
        ("dep_delay", pa.int64()),
        ("legs", pa.int64()),
    ]
)
BETWEEN_LEGS_MAX = timedelta(hours=12)
# An aircraft is listed twice for one minute now and then, at two origins too. Rows of one event
# time come in one call but in the order of the sources; this order is that of the data alone.
_IN_ORDER = itemgetter("event_time", "origin", "sequence")


class CarryOver(StatefulOperator):
    """Emits a row of `CARRIED` for each leg that carries delay over; keyed by tailnum.

    Value: when the last leg was scheduled, its arrival delay, and the chain so far.
    """

    value_schema = pa.schema(
        [
            ("event_time", pa.timestamp("us")),
            ("arr_delay", pa.int64()),
            ("legs", pa.int64()),
        ]
    )

    def handle(
        self, key: tuple[Any, ...], rows: list[dict[str, Any]], value: ValueState
    ) -> Iterator[tuple[Any, ...]]:
        """Take the next legs of one aircraft."""
        last: tuple[datetime | None, int | None, int] = value.get() or (None, None, 0)
        then, arrival, legs = last
        for row in sorted(rows, key=_IN_ORDER) if len(rows) > 1 else rows:
            now, delay = row["event_time"], row["dep_delay"]
            late = delay > LATE_MINUTES and arrival is not None and arrival > LATE_MINUTES
            if late and then is not None and now - then <= BETWEEN_LEGS_MAX:
                legs += 1
                leg = row["origin"], row["carrier"], row["flight"]
                yield now, key[0], *leg, arrival, delay, legs
            else:
                legs = 0
            then, arrival = now, row["arr_delay"]
        value.update((then, arrival, legs))


HOUR_SECONDS = 3600
DAY_SECONDS = 24 * HOUR_SECONDS
WEEK_SECONDS = 7 * DAY_SECONDS
# Of each query; the demo's report counts the time beyond it.
LAG_GOAL_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Flights:
    """The streams of one origin, whose name is in lower case."""

    origin: str
    rows: Stream
    measures: Stream
    departures: Stream
    legs: Stream


def add(sources: Mapping[str, Stream], weather: Stream, ranks: Mapping[str, int]) -> None:
    """Add all steps behind the sources; `sources`: flights by origin, `ranks`: priorities."""
    flights = {origin: _flights(origin, rows) for origin, rows in sources.items()}
    carriers = {origin: _carriers(streams) for origin, streams in flights.items()}
    _add_stateless(flights, weather, ranks)
    _add_weather(weather, ranks)
    _add_carriers(carriers, ranks)
    _add_departures(flights, ranks)
    _add_joins(flights, weather, ranks)
    _add_carry_over(flights, ranks)


def _flights(origin: str, rows: Stream) -> Flights:
    departed = rows.filter(f"{origin}-departed", flight_columns.departed)
    known = departed.filter(f"{origin}-known-aircraft", flight_columns.known_aircraft)
    return Flights(
        origin,
        rows,
        rows.map(f"{origin}-measures", flight_columns.measures, schema=flight_columns.MEASURES),
        _select(departed, f"{origin}-departures", flight_columns.DEPARTURES),
        _select(known, f"{origin}-legs", flight_columns.LEGS),
    )


def _select(stream: Stream, name: str, schema: pa.Schema) -> Stream:
    return stream.map(name, lambda table: table.select(schema.names), schema=schema)


def _carriers(flights: Flights) -> Stream:
    return flights.measures.window(
        f"{flights.origin}-carriers",
        keys=["origin", "carrier"],
        size_seconds=DAY_SECONDS,
        aggregates={
            "flights": count(),
            "late": total("late"),
            "cancelled": total("cancelled"),
            "delay_minutes": total("dep_delay"),
            "miles": total("distance"),
        },
    )


def _add_stateless(
    flights: Mapping[str, Flights], weather: Stream, ranks: Mapping[str, int]
) -> None:
    late = flights["ewr"].rows.filter("ewr-extremely-late", flight_columns.extremely_late)
    _sink(_select(late, "ewr-extreme-rows", flight_columns.NOTABLE), "ewr-extreme-delays", ranks)
    diverted = flights["jfk"].rows.filter("jfk-diverted", flight_columns.diverted)
    _sink(_select(diverted, "jfk-diverted-rows", flight_columns.NOTABLE), "jfk-diversions", ranks)
    windy = weather.filter("windy", flight_columns.windy)
    _sink(_select(windy, "windy-rows", flight_columns.WINDY_HOURS), "windy-hours", ranks)


def _add_weather(weather: Stream, ranks: Mapping[str, int]) -> None:
    days = weather.window(
        "weather-by-day",
        keys=["origin"],
        size_seconds=DAY_SECONDS,
        aggregates={
            "hours": count(),
            "coldest_tenths": smallest("temperature_tenths"),
            "warmest_tenths": largest("temperature_tenths"),
            "mean_wind_tenths": mean("wind_speed_tenths"),
            "precipitation_hundredths": total("precipitation_hundredths"),
        },
    )
    _sink(days, "weather-days", ranks)
    wet = days.filter("wet-days", lambda table: pc.greater(table["precipitation_hundredths"], 0))
    wettest = wet.top("wettest", by="precipitation_hundredths", count=1, ties=["origin"])
    _sink(wettest, "wettest-airports", ranks)


def _add_carriers(carriers: Mapping[str, Stream], ranks: Mapping[str, int]) -> None:
    latest = carriers["ewr"].top("ewr-latest", by="late", count=1, ties=["carrier"])
    _sink(latest, "ewr-latest-carriers", ranks)
    cancelled = carriers["lga"].filter(
        "lga-many-cancelled", lambda table: pc.greater_equal(table["cancelled"], 5)
    )
    _sink(cancelled, "lga-cancellation-days", ranks)
    days = [_dated(stream, f"{origin}-dated") for origin, stream in carriers.items()]
    sums = {name: total(name) for name in ("flights", "late", "cancelled", "delay_minutes")}
    _sink(_window("airports", days, ["origin"], DAY_SECONDS, sums), "airport-days", ranks)
    weeks = _window("carriers", days, ["carrier"], WEEK_SECONDS, sums, parallelism=2)
    _sink(weeks, "carrier-weeks", ranks)
    late = weeks.top("latest", by="late", count=3, ties=["carrier"])
    _sink(late, "late-carriers", ranks)


def _add_departures(flights: Mapping[str, Flights], ranks: Mapping[str, int]) -> None:
    waves = flights["jfk"].measures.window(
        "jfk-waves",
        keys=["origin"],
        size_seconds=12 * HOUR_SECONDS,
        slide_seconds=6 * HOUR_SECONDS,
        aggregates={"flights": count(), "mean_delay": mean("dep_delay")},
    )
    _sink(waves, "jfk-departure-waves", ranks)
    aggregates = {
        "flights": count(),
        "cancelled": total("cancelled"),
        "mean_delay": mean("arr_delay"),
    }
    measures = [streams.measures for streams in flights.values()]
    weeks = _window("destinations", measures, ["dest"], WEEK_SECONDS, aggregates, parallelism=3)
    _sink(weeks, "destination-weeks", ranks)
    top = weeks.top("busiest", by="flights", count=3, ties=["dest"])
    _sink(top, "top-destinations", ranks)


def _add_joins(flights: Mapping[str, Flights], weather: Stream, ranks: Mapping[str, int]) -> None:
    hours = weather.map("conditions", flight_columns.conditions, schema=flight_columns.CONDITIONS)
    joined = {
        origin: streams.departures.join(
            f"{origin}-weather", hours, keys=["origin"], within_seconds=HOUR_SECONDS / 2
        )
        for origin, streams in flights.items()
    }
    impact = _window(
        "weather-impact",
        list(joined.values()),
        ["conditions"],
        DAY_SECONDS,
        {"flights": count(), "mean_delay": mean("dep_delay")},
    )
    _sink(impact, "delays-by-weather", ranks)
    bad = joined["ewr"].filter("ewr-bad-weather", flight_columns.delayed_in_bad_weather)
    rows = bad.map(
        "ewr-bad-weather-rows",
        flight_columns.bad_weather_rows,
        schema=flight_columns.BAD_WEATHER_DELAYS,
    )
    _sink(rows, "ewr-bad-weather-delays", ranks)


def _add_carry_over(flights: Mapping[str, Flights], ranks: Mapping[str, int]) -> None:
    pipeline = next(iter(flights.values())).legs.pipeline
    legs = pipeline.union("legs", *(streams.legs for streams in flights.values()))
    carried = legs.stateful(
        "carry-over", CarryOver(), keys=["tailnum"], schema=CARRIED, parallelism=10
    )
    chains = carried.filter("long-chains", lambda table: pc.greater_equal(table["legs"], 2))
    _sink(chains, "carried-delay-chains", ranks)
    weeks = carried.window(
        "carried",
        keys=["carrier"],
        size_seconds=WEEK_SECONDS,
        aggregates={
            "carried": count(),
            "delay_minutes": total("dep_delay"),
            "longest_chain": largest("legs"),
        },
        parallelism=2,
    )
    _sink(weeks, "carried-delay-weeks", ranks)
    top = weeks.top("most-carried", by="delay_minutes", count=3, ties=["carrier"])
    _sink(top, "top-carried-delays", ranks)


def _dated(windows: Stream, name: str) -> Stream:
    """Windows as rows that larger windows can take: with an event time inside their own."""
    kept = [field for field in windows.schema if not field.name.startswith("window_")]
    schema = pa.schema([("event_time", pa.timestamp("us")), *kept])

    def dated(table: pa.Table) -> pa.Table:
        moments = flight_columns.window_time(table)
        others = [table[field.name] for field in kept]
        return pa.Table.from_arrays([moments, *others], schema=schema)

    return windows.map(name, dated, schema=schema, event_time="event_time")


def _window(
    name: str,
    streams: Sequence[Stream],
    group_by: Sequence[str],
    size_seconds: float,
    aggregates: Mapping[str, Aggregate],
    *,
    parallelism: int = 1,
) -> Stream:
    """A tumbling window over several streams."""
    united = streams[0].pipeline.union(f"{name}-input", *streams)
    return united.window(
        name,
        keys=group_by,
        size_seconds=size_seconds,
        aggregates=aggregates,
        parallelism=parallelism,
    )


def _sink(stream: Stream, query: str, ranks: Mapping[str, int]) -> None:
    stream.sink(query, priority=ranks[query], lag_goal_seconds=LAG_GOAL_SECONDS)
