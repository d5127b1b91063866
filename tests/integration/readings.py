"""A small pipeline over made-up sensor readings, and the same queries computed by polars at once.

Run by the real runtime in the integration tests; the batch half shares no code with it.
"""

import os
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rekindle_spark.operators import StatefulOperator
from rekindle_spark.pipeline import Pipeline, count, largest, total
from rekindle_spark.replay import Replay

ROWS = 60_000
ALARMS = 6_000
DAY = 86_400 * 1_000_000
ALARM_SCHEMA = pa.schema(
    [
        ("sensor", pa.string()),
        ("event_time", pa.timestamp("us")),
        ("rise", pa.int64()),
        ("number", pa.int64()),
    ]
)


def prepare(directory: Path) -> None:
    """Write the two input files."""
    rng = np.random.default_rng(7)
    times = np.sort(rng.choice(20 * DAY, ROWS, replace=False))
    readings = pa.table(
        {
            "event_time": pa.array(times, pa.timestamp("us")),
            "sensor": pa.array([f"sensor-{i}" for i in rng.integers(0, 40, ROWS)]),
            "value": pa.array(rng.integers(-50, 100, ROWS)),
        }
    )
    pq.write_table(readings, directory / "readings.parquet", row_group_size=8192)
    times = np.sort(rng.choice(20 * DAY, ALARMS, replace=False))
    alarms = pa.table(
        {
            "event_time": pa.array(times, pa.timestamp("us")),
            "sensor": pa.array([f"sensor-{i}" for i in rng.integers(0, 40, ALARMS)]),
            "code": pa.array(rng.integers(1, 5, ALARMS)),
        }
    )
    pq.write_table(alarms, directory / "alarms.parquet", row_group_size=8192)


class Rises(StatefulOperator):
    """Emits a reading that is higher than the sensor's one before, numbered per sensor."""

    value_schema = pa.schema([("last", pa.int64()), ("rises", pa.int64())])

    def handle(self, key, rows, value):
        last, rises = value.get() if value.exists() else (None, 0)
        for row in rows:
            if last is not None and row["value"] > last:
                rises += 1
                yield (key[0], row["event_time"], row["value"] - last, rises)
            last = row["value"]
        value.update((last, rises))


def positive(table):
    """The filter's function; the file named by BREAK_ONCE, where it is, makes it raise once."""
    trap = os.environ.get("REKINDLE_TEST_TRAP")
    if trap and Path(trap).exists():
        Path(trap).unlink()
        raise ValueError("the trap was set")
    return pc.greater(table["value"], 0)


def pipeline() -> Pipeline:
    """Six queries on three levels; input folder from the environment."""
    directory = Path(os.environ["REKINDLE_TEST_INPUT"])
    built = Pipeline("readings")
    readings = built.source(
        "readings", Replay(str(directory / "readings.parquet"), "event_time"), parallelism=2
    )
    alarms = built.source("alarms", Replay(str(directory / "alarms.parquet"), "event_time"))
    alarms.filter("grave", lambda table: pc.greater(table["code"], 3)).sink(
        "grave-alarms", priority=9
    )
    warm = readings.filter("warm", positive)
    hourly = warm.window(
        "by-hour",
        keys=["sensor"],
        size_seconds=3600 * 6,
        aggregates={"readings": count(), "sum": total("value"), "peak": largest("value")},
        parallelism=2,
    )
    hourly.sink("hourly", priority=5)
    hourly.top("most-readings", by="readings", count=3, ties=["sensor"]).sink("busiest", priority=8)
    readings.stateful("rising", Rises(), keys=["sensor"], schema=ALARM_SCHEMA, parallelism=2).sink(
        "rises", priority=3
    )
    joined = warm.join("near", alarms, keys=["sensor"], within_seconds=900, parallelism=2)
    joined.sink("near-alarms", priority=6)
    alarms.window(
        "by-day", keys=["code"], size_seconds=86_400, aggregates={"alarms": count()}
    ).sink("alarms-daily", priority=2)
    return built


def expected(directory: Path) -> dict[str, pl.DataFrame]:
    """The same queries over the whole files, by polars."""
    readings = pl.read_parquet(directory / "readings.parquet")
    alarms = pl.read_parquet(directory / "alarms.parquet")
    warm = readings.filter(pl.col("value") > 0)
    hourly = (
        warm.with_columns(window_start=pl.col("event_time").dt.truncate("6h"))
        .group_by("sensor", "window_start")
        .agg(readings=pl.len(), sum=pl.col("value").sum(), peak=pl.col("value").max())
        .with_columns(window_end=pl.col("window_start").dt.offset_by("6h"))
    )
    ranked = hourly.sort(
        ["window_end", "readings", "sensor"], descending=[False, True, False]
    ).with_columns(rank=pl.int_range(pl.len()).over("window_end") + 1)
    steps = readings.sort("event_time").with_columns(rise=pl.col("value").diff().over("sensor"))
    rises = steps.filter(pl.col("rise") > 0).with_columns(
        number=pl.int_range(pl.len()).over("sensor") + 1
    )
    near = warm.join(alarms, on="sensor", suffix="_right").filter(
        (pl.col("event_time") - pl.col("event_time_right")).abs() <= pl.duration(seconds=900)
    )
    daily = (
        alarms.with_columns(window_start=pl.col("event_time").dt.truncate("1d"))
        .group_by("code", "window_start")
        .agg(alarms=pl.len())
    )
    return {
        "grave-alarms": alarms.filter(pl.col("code") > 3),
        "hourly": hourly,
        "busiest": ranked.filter(pl.col("rank") <= 3),
        "rises": rises.select("sensor", "event_time", "rise", "number"),
        "near-alarms": near.select("sensor", "value", "code"),
        "alarms-daily": daily.select("code", "window_start", "alarms"),
    }
