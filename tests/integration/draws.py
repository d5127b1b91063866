"""Queries over the readings of which two depend on chance, and must agree with each other.

What was drawn for a row is in the one query, and in the sums of the other.
"""

import os
import random
from pathlib import Path

import polars as pl
import pyarrow as pa

from rekindle_spark.pipeline.replay import Replay
from rekindle_spark.pipeline.steps import Pipeline, count, total

HOURS = 6


def drawn(table: pa.Table) -> pa.Table:
    """With a number by chance: another one whenever it is asked."""
    numbers = [random.randrange(1_000_000) for _ in range(table.num_rows)]
    return table.append_column("draw", pa.array(numbers, pa.int64()))


def pipeline() -> Pipeline:
    """Three queries, one of them certain; the folder of input comes from the environment."""
    directory = Path(os.environ["REKINDLE_TEST_INPUT"])
    built = Pipeline("draws")
    found = built.source(
        "readings", Replay(str(directory / "readings.parquet"), "event_time"), parallelism=2
    )
    alarms = built.source("alarms", Replay(str(directory / "alarms.parquet"), "event_time"))
    schema = found.schema.append(pa.field("draw", pa.int64()))
    draws = found.map("drawn", drawn, schema=schema, deterministic=False)
    draws.sink("draws", priority=5)
    draws.window(
        "summed",
        keys=["sensor"],
        size_seconds=HOURS * 3600,
        aggregates={"rows": count(), "draws": total("draw")},
        parallelism=2,
    ).sink("sums", priority=3)
    alarms.window(
        "by-day", keys=["code"], size_seconds=86_400, aggregates={"alarms": count()}
    ).sink("alarms-daily", priority=9)
    return built


def sums(draws: pl.DataFrame) -> pl.DataFrame:
    """What the sums must be by the draws that were committed."""
    return (
        draws.with_columns(window_start=pl.col("event_time").dt.truncate(f"{HOURS}h"))
        .group_by("sensor", "window_start")
        .agg(rows=pl.len(), draws=pl.col("draw").sum())
        .with_columns(window_end=pl.col("window_start").dt.offset_by(f"{HOURS}h"))
    )
