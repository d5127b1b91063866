"""Stateless steps on Arrow tables: columns of flights, weather and windows for the queries.

Vectorised; nulls behave as in SQL. Called through the steps of `flight_pipeline`.
"""

import pyarrow as pa
import pyarrow.compute as pc

from rekindle_local.flights.flight_data import UNKNOWN_AIRCRAFT

LATE_MINUTES = 15
DELAYED_MINUTES = 60
EXTREME_MINUTES = 180
FOG_VISIBILITY_HUNDREDTHS = 300
STRONG_WIND_TENTHS = 200
TIME = ("event_time", pa.timestamp("us"))

MEASURES = pa.schema(
    [
        TIME,
        ("origin", pa.string()),
        ("carrier", pa.string()),
        ("dest", pa.string()),
        ("dep_delay", pa.int64()),
        ("arr_delay", pa.int64()),
        ("distance", pa.int64()),
        ("late", pa.int64()),
        ("cancelled", pa.int64()),
    ]
)
DEPARTURES = pa.schema(
    [
        TIME,
        ("origin", pa.string()),
        ("carrier", pa.string()),
        ("flight", pa.int64()),
        ("dep_delay", pa.int64()),
    ]
)
LEGS = pa.schema(
    [
        TIME,
        ("tailnum", pa.string()),
        ("origin", pa.string()),
        ("carrier", pa.string()),
        ("flight", pa.int64()),
        ("dep_delay", pa.int64()),
        ("arr_delay", pa.int64()),
        ("sequence", pa.int64()),
    ]
)
NOTABLE = pa.schema(
    [
        TIME,
        ("carrier", pa.string()),
        ("flight", pa.int64()),
        ("tailnum", pa.string()),
        ("dest", pa.string()),
        ("dep_delay", pa.int64()),
    ]
)
CONDITIONS = pa.schema([TIME, ("origin", pa.string()), ("conditions", pa.string())])
BAD_WEATHER_DELAYS = pa.schema(
    [
        TIME,
        ("departure", pa.timestamp("us")),
        ("observed", pa.timestamp("us")),
        ("carrier", pa.string()),
        ("flight", pa.int64()),
        ("conditions", pa.string()),
        ("dep_delay", pa.int64()),
    ]
)
WINDY_HOURS = pa.schema(
    [
        TIME,
        ("origin", pa.string()),
        ("wind_speed_tenths", pa.int64()),
        ("visibility_hundredths", pa.int64()),
    ]
)


def measures(flights: pa.Table) -> pa.Table:
    """Flights with the flags `late` and `cancelled` as 0 or 1, so that sums count them."""
    delay = flights["dep_delay"]
    late = pc.fill_null(pc.greater(delay, LATE_MINUTES), False)
    table = flights.select(MEASURES.names[:-2])
    table = table.append_column(MEASURES.field("late"), late.cast(pa.int64()))
    return table.append_column(MEASURES.field("cancelled"), pc.is_null(delay).cast(pa.int64()))


def departed(flights: pa.Table) -> pa.ChunkedArray:
    """Flights that were not cancelled."""
    return pc.is_valid(flights["dep_delay"])


def known_aircraft(flights: pa.Table) -> pa.ChunkedArray:
    """Flights whose aircraft has a name."""
    return pc.not_equal(flights["tailnum"], UNKNOWN_AIRCRAFT)


def extremely_late(flights: pa.Table) -> pa.ChunkedArray:
    """Flights that departed three hours late or more."""
    return pc.greater_equal(flights["dep_delay"], EXTREME_MINUTES)


def diverted(flights: pa.Table) -> pa.ChunkedArray:
    """Flights that departed and have no arrival."""
    return pc.and_(pc.is_valid(flights["dep_delay"]), pc.is_null(flights["arr_delay"]))


def windy(weather: pa.Table) -> pa.ChunkedArray:
    """Hours with 20 miles per hour of wind or more."""
    return pc.greater_equal(weather["wind_speed_tenths"], STRONG_WIND_TENTHS)


def conditions(weather: pa.Table) -> pa.Table:
    """One word per hour: 'fog', else 'rain', else 'wind', else 'fair'; unmeasured is not bad."""
    foggy = pc.less(weather["visibility_hundredths"], FOG_VISIBILITY_HUNDREDTHS)
    rainy = pc.greater(weather["precipitation_hundredths"], 0)
    strong = pc.greater_equal(weather["wind_speed_tenths"], STRONG_WIND_TENTHS)
    flags = [pc.fill_null(flag, False).combine_chunks() for flag in (foggy, rainy, strong)]
    words = pc.case_when(
        pc.make_struct(*flags, field_names=["fog", "rain", "wind"]), "fog", "rain", "wind", "fair"
    )
    return weather.select(["event_time", "origin"]).append_column(
        CONDITIONS.field("conditions"), words
    )


def delayed_in_bad_weather(joined: pa.Table) -> pa.ChunkedArray:
    """Pairs of a departure an hour late or more and an hour that was not fair."""
    delayed = pc.greater_equal(joined["dep_delay"], DELAYED_MINUTES)
    return pc.and_(delayed, pc.not_equal(joined["conditions"], "fair"))


def bad_weather_rows(joined: pa.Table) -> pa.Table:
    """The columns of `BAD_WEATHER_DELAYS`: `departure` and `observed` are the two sides' times."""
    names = {"departure": "event_time_left", "observed": "event_time_right"}
    arrays = [joined[names.get(name, name)] for name in BAD_WEATHER_DELAYS.names]
    return pa.Table.from_arrays(arrays, schema=BAD_WEATHER_DELAYS)


def window_time(windows: pa.Table) -> pa.ChunkedArray:
    """The last microsecond of each row's window: an event time that larger windows contain.

    `window_end` itself would belong to the window after, and `window_start` would be late.
    """
    return pc.subtract(windows["window_end"], pa.scalar(1, pa.duration("us")))
