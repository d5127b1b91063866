"""A small pipeline over made-up sensor readings, and the same queries computed by polars at once.

Run by the real runtime in the integration tests; the batch half shares no code with it. What a
test wants to go wrong inside the user's functions it asks for by a file in the folder of traps.
"""

import os
import time
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rekindle_spark.operators import StatefulOperator
from rekindle_spark.pipeline.replay import Replay
from rekindle_spark.pipeline.steps import Pipeline, count, largest, total

ROWS = 60_000
ALARMS = 6_000
INPUT_ROWS = ROWS + ALARMS
DAY = 86_400 * 1_000_000
HIGH = 95
SLOW_SECONDS = 2.0
# Names of the files that a test puts into the folder of traps, and of the one that answers. One
# call is slow, but all are as long as the step crawls.
RAISE_ONCE, SCHEMA, SLOW, REACHED = "raise-once", "schema", "slow", "reached"
CRAWLS = "crawls"
# Where it is there, the pipeline is the changed one.
CHANGED = "changed"
RISE_SCHEMA = pa.schema(
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


def trapped_grade(traps: Path):
    """The function of the step `graded`, with a look into the folder of traps at each call."""

    def grade(table: pa.Table) -> pa.Table:
        if (traps / SLOW).exists():
            (traps / SLOW).unlink(missing_ok=True)
            (traps / REACHED).touch()
            time.sleep(SLOW_SECONDS)
        elif (traps / CRAWLS).exists():
            time.sleep(SLOW_SECONDS)
        if (traps / RAISE_ONCE).exists():
            (traps / RAISE_ONCE).unlink(missing_ok=True)
            raise ValueError("a trap was set for once")
        if (traps / SCHEMA).exists():
            return table.append_column("extra", pc.is_valid(table["peak"]))
        return table.append_column("high", pc.greater(table["peak"], HIGH))

    return grade


def pipeline() -> Pipeline:
    """Six queries on three levels; the folders of input and traps come from the environment.

    The changed one has other parallelisms, and another query in place of `alarms-daily`.
    """
    directory = Path(os.environ["REKINDLE_TEST_INPUT"])
    traps = Path(os.environ["REKINDLE_TEST_TRAPS"])
    changed, grade = (traps / CHANGED).exists(), trapped_grade(traps)
    built = Pipeline("readings")
    readings = built.source(
        "readings", Replay(str(directory / "readings.parquet"), "event_time"), parallelism=2
    )
    alarms = built.source("alarms", Replay(str(directory / "alarms.parquet"), "event_time"))
    alarms.filter("grave", lambda table: pc.greater(table["code"], 3)).sink(
        "grave-alarms", priority=9
    )
    warm = readings.filter("warm", lambda table: pc.greater(table["value"], 0))
    windows = warm.window(
        "by-hour",
        keys=["sensor"],
        size_seconds=3600 * 6,
        aggregates={"readings": count(), "sum": total("value"), "peak": largest("value")},
        parallelism=3 if changed else 2,
    )
    hourly = windows.map(
        "graded", grade, schema=windows.schema.append(pa.field("high", pa.bool_()))
    )
    hourly.sink("hourly", priority=5)
    hourly.top("most-readings", by="readings", count=3, ties=["sensor"]).sink("busiest", priority=8)
    rises = readings.stateful(
        "rising",
        Rises(),
        keys=["sensor"],
        schema=RISE_SCHEMA,
        parallelism=1 if changed else 2,
    )
    rises.sink("rises", priority=3)
    joined = warm.join(
        "near", alarms, keys=["sensor"], within_seconds=900, parallelism=3 if changed else 2
    )
    joined.sink("near-alarms", priority=6)
    key = "sensor" if changed else "code"
    daily = alarms.window(
        f"by-day-and-{key}" if changed else "by-day",
        keys=[key],
        size_seconds=86_400,
        aggregates={"alarms": count()},
    )
    daily.sink(f"alarms-by-{key}" if changed else "alarms-daily", priority=2)
    return built


def expected(directory: Path) -> dict[str, pl.DataFrame]:
    """The same queries over the whole files, by polars: all columns, rows in any order."""
    readings = pl.read_parquet(directory / "readings.parquet")
    alarms = pl.read_parquet(directory / "alarms.parquet")
    warm = readings.filter(pl.col("value") > 0)
    hourly = _hourly(warm)
    ranked = hourly.sort(
        ["window_end", "readings", "sensor"], descending=[False, True, False]
    ).with_columns(rank=pl.int_range(pl.len()).over("window_end") + 1)
    return {
        "grave-alarms": alarms.filter(pl.col("code") > 3),
        "hourly": hourly,
        "busiest": ranked.filter(pl.col("rank") <= 3),
        "rises": _rises(readings),
        "near-alarms": _near(warm, alarms),
        "alarms-daily": daily(alarms, "code"),
    }


def daily(alarms: pl.DataFrame, key: str) -> pl.DataFrame:
    """Alarms by key and day."""
    return (
        alarms.with_columns(window_start=pl.col("event_time").dt.truncate("1d"))
        .group_by(key, "window_start")
        .agg(alarms=pl.len())
        .with_columns(window_end=pl.col("window_start").dt.offset_by("1d"))
    )


def _hourly(warm: pl.DataFrame) -> pl.DataFrame:
    return (
        warm.with_columns(window_start=pl.col("event_time").dt.truncate("6h"))
        .group_by("sensor", "window_start")
        .agg(readings=pl.len(), sum=pl.col("value").sum(), peak=pl.col("value").max())
        .with_columns(
            window_end=pl.col("window_start").dt.offset_by("6h"), high=pl.col("peak") > HIGH
        )
    )


def _rises(readings: pl.DataFrame) -> pl.DataFrame:
    steps = readings.sort("event_time").with_columns(rise=pl.col("value").diff().over("sensor"))
    return (
        steps.filter(pl.col("rise") > 0)
        .with_columns(number=pl.int_range(pl.len()).over("sensor") + 1)
        .drop("value")
    )


def _near(warm: pl.DataFrame, alarms: pl.DataFrame) -> pl.DataFrame:
    left = warm.rename({"event_time": "event_time_left"})
    right = alarms.rename({"event_time": "event_time_right"})
    apart = pl.col("event_time_left") - pl.col("event_time_right")
    return (
        left.join(right, on="sensor")
        .filter(apart.abs() <= pl.duration(seconds=900))
        .with_columns(event_time=pl.max_horizontal("event_time_left", "event_time_right"))
    )
