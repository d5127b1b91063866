"""Queries over the readings whose functions raise for some of them, and what comes out in the end.

A test asks with files in the folder of traps, before it starts a driver, for `dead_letters`, or for
functions that have been mended.
"""

import os
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from rekindle_spark.operators import StatefulOperator
from rekindle_spark.pipeline import Pipeline, count
from rekindle_spark.replay import Replay

# Names of the files that a test puts into the folder of traps.
LETTERS, MENDED = "dead-letters", "mended"
# of the map that checks, and of the operator that counts
BAD_VALUE, BAD_SENSOR = 77, "sensor-7"
WORST_VALUE, WORST_SENSOR = -33, "sensor-11"
COUNTED = pa.schema(
    [("sensor", pa.string()), ("event_time", pa.timestamp("us")), ("number", pa.int64())]
)


def checked(table: pa.Table) -> pa.Table:
    """The readings as they are, unless there is a bad one."""
    bad = pc.and_(pc.equal(table["value"], BAD_VALUE), pc.equal(table["sensor"], BAD_SENSOR))
    if pc.any(bad).as_py():
        raise ValueError("a bad reading")
    return table


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
        "daily": found.with_columns(window_start=pl.col("event_time").dt.truncate("1d"))
        .group_by("sensor", "window_start")
        .agg(readings=pl.len())
        .with_columns(window_end=pl.col("window_start").dt.offset_by("1d")),
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
    }


def numbered(found: pl.DataFrame) -> pl.DataFrame:
    """Each reading with its number among those of its sensor."""
    return (
        found.sort("event_time")
        .with_columns(number=pl.int_range(pl.len()).over("sensor") + 1)
        .drop("value")
    )
