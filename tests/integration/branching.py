"""Queries of one source, one of which raises for some readings, and what comes out in the end.

A test asks with the file `MENDED` in the folder of traps for functions that have been mended.
"""

import os
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from rekindle_spark.pipeline.replay import Replay
from rekindle_spark.pipeline.steps import Pipeline, count

MENDED = "mended"
BAD_VALUE, BAD_SENSOR, BAD_DAY = 77, "sensor-7", "sensor-11"
INPUT_ROWS = 60_000


def checking(mended: bool):
    """The function of the step `checked`."""

    def checked(table: pa.Table) -> pa.Table:
        bad = pc.and_(pc.equal(table["value"], BAD_VALUE), pc.equal(table["sensor"], BAD_SENSOR))
        if not mended and pc.any(bad).as_py():
            raise ValueError("a bad reading")
        return table

    return checked


def judging(mended: bool):
    """The function of the step `judged`."""

    def judged(table: pa.Table) -> pa.Table:
        late = pc.greater(table["window_start"], pa.scalar(2 * 86_400 * 10**6, pa.timestamp("us")))
        bad = pc.and_(pc.equal(table["sensor"], BAD_DAY), late)
        if not mended and pc.any(bad).as_py():
            raise ValueError("a bad day")
        return table

    return judged


def pipeline() -> Pipeline:
    """The readings by day, and those that are warm; behind each a branch with two queries."""
    directory = Path(os.environ["REKINDLE_TEST_INPUT"])
    mended = (Path(os.environ["REKINDLE_TEST_TRAPS"]) / MENDED).exists()
    built = Pipeline("branching")
    readings = built.source(
        "readings", Replay(str(directory / "readings.parquet"), "event_time"), parallelism=2
    )
    warm = readings.filter("warm", lambda table: pc.greater(table["value"], 0))
    warm.sink("all-warm", priority=9)
    by_day = {"keys": ["sensor"], "size_seconds": 86_400, "aggregates": {"readings": count()}}
    daily = readings.window("by-day", **by_day, parallelism=2)
    daily.sink("daily", priority=10)
    judged = daily.map("judged", judging(mended), schema=daily.schema)
    judged.sink("fine-days", priority=1)
    judged.top("most-readings", by="readings", count=3, ties=["sensor"]).sink("most", priority=2)
    checked = warm.map("checked", checking(mended), schema=warm.schema)
    checked.sink("good", priority=1)
    checked.window("checked-by-day", **by_day).sink("good-daily", priority=2)
    return built


def expected(directory: Path) -> dict[str, pl.DataFrame]:
    """The queries over the whole file, by polars, where nothing raises."""
    readings = pl.read_parquet(directory / "readings.parquet")
    warm = readings.filter(pl.col("value") > 0)
    daily = _daily(readings)
    ranked = daily.sort(
        ["window_end", "readings", "sensor"], descending=[False, True, False]
    ).with_columns(rank=pl.int_range(pl.len()).over("window_end") + 1)
    return {
        "all-warm": warm,
        "daily": daily,
        "fine-days": daily,
        "most": ranked.filter(pl.col("rank") <= 3),
        "good": warm,
        "good-daily": _daily(warm),
    }


def _daily(readings: pl.DataFrame) -> pl.DataFrame:
    return (
        readings.with_columns(window_start=pl.col("event_time").dt.truncate("1d"))
        .group_by("sensor", "window_start")
        .agg(readings=pl.len())
        .with_columns(window_end=pl.col("window_start").dt.offset_by("1d"))
    )
