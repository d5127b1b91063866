"""A pipeline over the same readings that takes memory: for its state, or for its work.

Which of the two a test says by a file in the folder of traps, which is there from the first start
on. One query shows every row; the other counts rows by keys that are as long as the state is large.
"""

import os
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from rekindle_spark.pipeline.replay import Replay
from rekindle_spark.pipeline.steps import Pipeline, count

INPUT_ROWS = 60_000
KEY_LETTERS = 3_000
WORK_BYTES_PER_ROW = 100_000
# The name of the file: with it work takes memory, without it the state.
WORK = "work"
SHORT = pa.schema([("key", pa.string()), ("rows", pa.int64()), ("window_end", pa.timestamp("us"))])
# Windows of 365 days begin at multiples since 1970, and the readings are of its first 20 days.
END = pl.datetime(1971, 1, 1)


def working(traps: Path):
    """The function of the step `worked`: uses memory for each row, and gives it back."""

    def work(table: pa.Table) -> pa.Table:
        if (traps / WORK).exists() and table.num_rows:
            assert np.ones(table.num_rows * WORK_BYTES_PER_ROW, np.uint8).any()
        return table

    return work


def with_keys(traps: Path):
    """The function of the step `keyed`: a key of its own for each row."""

    def with_key(table: pa.Table) -> pa.Table:
        moment = pc.cast(pc.cast(table["event_time"], pa.int64()), pa.string())
        letters = 20 if (traps / WORK).exists() else KEY_LETTERS
        return table.append_column("key", pc.utf8_lpad(moment, letters, "-"))

    return with_key


def shortened(table: pa.Table) -> pa.Table:
    """Without what makes keys long."""
    short = pc.utf8_ltrim(table["key"], "-")
    return pa.table([short, table["rows"], table["window_end"]], schema=SHORT)


def pipeline() -> Pipeline:
    """Two queries; the folders of input and traps come from the environment."""
    directory = Path(os.environ["REKINDLE_TEST_INPUT"])
    traps = Path(os.environ["REKINDLE_TEST_TRAPS"])
    built = Pipeline("hoarding")
    readings = built.source(
        "readings", Replay(str(directory / "readings.parquet"), "event_time"), parallelism=2
    )
    worked = readings.map("worked", working(traps), schema=readings.schema)
    worked.sink("shown", priority=5)
    schema = worked.schema.append(pa.field("key", pa.string()))
    hoard = worked.map("keyed", with_keys(traps), schema=schema).window(
        "hoard",
        keys=["key"],
        size_seconds=86_400 * 365,
        aggregates={"rows": count()},
        parallelism=2,
    )
    hoard.map("shortened", shortened, schema=SHORT).sink("hoarded", priority=3)
    return built


def expected(directory: Path) -> dict[str, pl.DataFrame]:
    """All rows of both queries."""
    rows = pl.read_parquet(directory / "readings.parquet")
    hoarded = rows.select(
        key=pl.col("event_time").cast(pl.Int64).cast(pl.String), rows=1, window_end=END
    )
    return {"shown": rows, "hoarded": hoarded}
