"""Readings of machines per minute, and the machines that are hottest: a pipeline to try out."""

from pathlib import Path

from rekindle_spark.pipeline import Pipeline, count, largest, mean
from rekindle_spark.pipeline.replay import Replay

# On the volume that driver and executors share.
INPUT = Path("/shared/input")


def pipeline() -> Pipeline:
    """Two queries, of which the second matters more."""
    built = Pipeline("machines")
    readings = built.source(
        "readings", Replay(str(INPUT / "readings.parquet"), event_time="event_time"), parallelism=3
    )
    minutes = readings.window(
        "machine-minutes",
        keys=["machine"],
        size_seconds=60,
        aggregates={"readings": count(), "mean": mean("celsius"), "peak": largest("celsius")},
        parallelism=3,
    )
    minutes.sink("minutes", priority=3)
    hottest = minutes.top("hottest", by="peak", count=3, ties=["machine"])
    hottest.sink("hottest-machines", priority=9)
    return built
