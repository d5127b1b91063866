"""A program that tests of the driver place and move: rows x2 -> counted, in some partitions."""

from typing import Any

import pyarrow as pa

from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.program import Program
from rekindle_spark.pipeline.steps import Pipeline, count
from rekindle_testing.runtime_builders import UnreadSource

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string())])


def counted_rows(parallelism: int) -> Program:
    """Partitions 0 and 1 are of the source, those behind them count rows by key and second."""
    built = Pipeline("counted-rows")
    unread: Any = UnreadSource(SCHEMA, "at")
    rows = built.source("rows", unread, parallelism=2)
    rows.window(
        "counted",
        keys=["key"],
        size_seconds=1,
        aggregates={"n": count()},
        parallelism=parallelism,
    ).sink("out")
    return program.build(built)
