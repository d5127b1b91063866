"""Queries of priority 1 with slow functions, beside an important one that must not wait for them.

One slow function is behind a keyed step that reads the source of the important query, the other
behind a source of its own. A test sets traps, files in the folder of traps: with `SLOW` both sleep
a little in each call, with `CRAWLS` the other one sleeps for longer than the classes need to be
apart, and with `HANGS` one call of it does nothing for very long.
"""

import os
import time
from pathlib import Path

import polars as pl
import pyarrow as pa

from rekindle_spark.pipeline.replay import Replay
from rekindle_spark.pipeline.steps import Pipeline, count, total

INPUT_ROWS = 2 * 60_000
SLOW, CRAWLS, HANGS = "slow", "crawls", "hangs"
EPOCH_SECONDS = 2
# With less than an epoch a function keeps up on a fast machine, so that it is never behind.
SECONDS = {SLOW: 0.25, CRAWLS: 4.0 * EPOCH_SECONDS, HANGS: 45.0}


def slowed(traps: Path, *names: str):
    """A function that gives what it gets, after a while where one of these traps is set."""

    def function(table: pa.Table) -> pa.Table:
        for name in names:
            if (traps / name).exists():
                if name == HANGS:
                    (traps / name).unlink(missing_ok=True)
                time.sleep(SECONDS[name])
        return table

    return function


def pipeline() -> Pipeline:
    """The important query, and two others."""
    directory = Path(os.environ["REKINDLE_TEST_INPUT"])
    traps = Path(os.environ["REKINDLE_TEST_TRAPS"])
    built = Pipeline("sluggish")

    def source(name: str, parallelism: int):
        replay = Replay(str(directory / "readings.parquet"), "event_time")
        return built.source(name, replay, parallelism=parallelism)

    readings = source("readings", 2)
    readings.window(
        "by-day",
        keys=["sensor"],
        size_seconds=86_400,
        aggregates={"readings": count()},
        parallelism=2,
    ).sink("daily", priority=10)
    hourly = readings.window(
        "by-hour",
        keys=["sensor"],
        size_seconds=3_600,
        aggregates={"sum": total("value")},
        parallelism=2,
    )
    hourly.map("pondered", slowed(traps, SLOW), schema=hourly.schema).sink("hourly")
    others = source("others", 2)
    dawdled = slowed(traps, SLOW, CRAWLS, HANGS)
    others.map("dawdled", dawdled, schema=others.schema).sink("lone")
    return built


def expected(directory: Path) -> dict[str, pl.DataFrame]:
    """The same queries over the whole file, by polars."""
    readings = pl.read_parquet(directory / "readings.parquet")
    return {
        "daily": _windows(readings, "1d").agg(readings=pl.len()).with_columns(_end("1d")),
        "hourly": _windows(readings, "1h").agg(sum=pl.col("value").sum()).with_columns(_end("1h")),
        "lone": readings,
    }


def _windows(readings: pl.DataFrame, size: str):
    cut = readings.with_columns(window_start=pl.col("event_time").dt.truncate(size))
    return cut.group_by("sensor", "window_start")


def _end(size: str) -> pl.Expr:
    return pl.col("window_start").dt.offset_by(size).alias("window_end")
