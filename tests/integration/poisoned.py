"""Queries over the readings whose functions raise for some of them, and what comes out in the end.

A test asks with files in the folder of traps, before it starts a driver, for `dead_letters`, or for
functions that have been mended. With dead letters there are sensors of which a clock is wrong too:
what they say comes too late.
"""

import os
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from rekindle_spark.operators import StatefulOperator
from rekindle_spark.pipeline.replay import Replay
from rekindle_spark.pipeline.steps import Pipeline, count

# Names of the files that a test puts into the folder of traps.
LETTERS, MENDED = "dead-letters", "mended"
# of the map that checks, and of the operator that counts
BAD_VALUE, BAD_SENSOR = 77, "sensor-7"
WORST_VALUE, WORST_SENSOR = -33, "sensor-11"
# A clock that goes wrong once there is a watermark: years behind, or without any time.
WRONG_SENSOR, WRONG_FROM = "sensor-3", datetime(1970, 1, 6)
BEHIND, TIMELESS_VALUE = timedelta(days=3_650), 40
COUNTED = pa.schema(
    [("sensor", pa.string()), ("event_time", pa.timestamp("us")), ("number", pa.int64())]
)


def checked(table: pa.Table) -> pa.Table:
    """The readings as they are, unless there is a bad one."""
    bad = pc.and_(pc.equal(table["value"], BAD_VALUE), pc.equal(table["sensor"], BAD_SENSOR))
    if pc.any(bad).as_py():
        raise ValueError("a bad reading")
    return table


def clocked(table: pa.Table) -> pa.Table:
    """The readings with the event times that their sensors tell."""
    times = table["event_time"]
    wrong = pc.and_(pc.equal(table["sensor"], WRONG_SENSOR), pc.greater(times, WRONG_FROM))
    timeless = pc.and_(wrong, pc.greater(table["value"], TIMELESS_VALUE))
    behind = pc.subtract(times, pa.scalar(BEHIND, pa.duration("us")))
    told = pc.if_else(timeless, pa.scalar(None, times.type), pc.if_else(wrong, behind, times))
    return table.set_column(table.column_names.index("event_time"), "event_time", told)


class Counted(StatefulOperator):
    """Numbers the readings of a sensor."""

    value_schema = pa.schema([("readings", pa.int64())])

    def __init__(self, mended: bool) -> None:
        self.mended = mended

    def handle(self, key, rows, value):
        (number,) = value.get() if value.exists() else (0,)
        for row in rows:
            if not self.mended and (key[0], row["value"]) == (WORST_SENSOR, WORST_VALUE):
                raise ValueError("the worst of readings")
            number += 1
            yield (key[0], row["event_time"], number)
        value.update((number,))


def pipeline() -> Pipeline:
    """Four queries; the folders of input and traps come from the environment."""
    directory = Path(os.environ["REKINDLE_TEST_INPUT"])
    traps = Path(os.environ["REKINDLE_TEST_TRAPS"])
    letters, mended = (traps / LETTERS).exists(), (traps / MENDED).exists()
    built = Pipeline("poisoned")
    found = built.source(
        "readings", Replay(str(directory / "readings.parquet"), "event_time"), parallelism=2
    )
    alarms = built.source("alarms", Replay(str(directory / "alarms.parquet"), "event_time"))
    alarms.sink("all-alarms", priority=9)
    if letters:
        found.map("checked", checked, schema=found.schema, dead_letters=True).sink("good")
        told = found.map("clocked", clocked, schema=found.schema)
        told.window(
            "timed",
            keys=["sensor"],
            size_seconds=86_400,
            aggregates={"readings": count()},
            parallelism=2,
            late=True,
        ).sink("timely")
        told.top("last", by="value", count=1, keys=["sensor"], late=True).sink("lasts", priority=4)
    found.stateful(
        "counted",
        Counted(mended),
        keys=["sensor"],
        schema=COUNTED,
        parallelism=2,
        dead_letters=letters,
    ).sink("numbers", priority=3)
    found.window(
        "by-day", keys=["sensor"], size_seconds=86_400, aggregates={"readings": count()}
    ).sink("daily", priority=5)
    return built


def is_bad() -> pl.Expr:
    """Readings for which the map raises."""
    return (pl.col("value") == BAD_VALUE) & (pl.col("sensor") == BAD_SENSOR)


def is_worst() -> pl.Expr:
    """Readings for which the operator raises."""
    return (pl.col("value") == WORST_VALUE) & (pl.col("sensor") == WORST_SENSOR)


def expected(directory: Path) -> dict[str, pl.DataFrame]:
    """The queries over the whole files, by polars, where nothing raises and nothing is left out."""
    found = pl.read_parquet(directory / "readings.parquet")
    return {
        "all-alarms": pl.read_parquet(directory / "alarms.parquet"),
        "numbers": numbered(found),
        "daily": daily(found),
    }


def expected_beside_letters(directory: Path) -> dict[str, pl.DataFrame]:
    """The same without the rows that raise, and those as they are among the dead letters."""
    found = pl.read_parquet(directory / "readings.parquet")
    return {
        **expected(directory),
        "good": found.filter(~is_bad()),
        "checked.dead-letters": found.filter(is_bad()),
        "numbers": numbered(found.filter(~is_worst())),
        "counted.dead-letters": found.filter(is_worst()),
        "timely": daily(found.filter(~is_wrong())),
        "timed.late": told_too_late(found),
        "lasts": found.filter(~is_wrong()).with_columns(rank=pl.lit(1)),
        "last.late": told_too_late(found),
    }


def is_wrong() -> pl.Expr:
    """Readings that come too late by their own clock."""
    return (pl.col("sensor") == WRONG_SENSOR) & (pl.col("event_time") > WRONG_FROM)


def told_too_late(found: pl.DataFrame) -> pl.DataFrame:
    """Those readings, with the time of that clock."""
    behind = pl.col("event_time") - BEHIND
    told = pl.when(pl.col("value") > TIMELESS_VALUE).then(None).otherwise(behind)
    return found.filter(is_wrong()).with_columns(event_time=told)


def daily(found: pl.DataFrame) -> pl.DataFrame:
    """Readings by sensor and day."""
    return (
        found.with_columns(window_start=pl.col("event_time").dt.truncate("1d"))
        .group_by("sensor", "window_start")
        .agg(readings=pl.len())
        .with_columns(window_end=pl.col("window_start").dt.offset_by("1d"))
    )


def numbered(found: pl.DataFrame) -> pl.DataFrame:
    """Each reading with its number among those of its sensor."""
    return (
        found.sort("event_time")
        .with_columns(number=pl.int_range(pl.len()).over("sensor") + 1)
        .drop("value")
    )
