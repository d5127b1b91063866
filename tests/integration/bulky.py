"""A pipeline over the same readings with a large state in one partition: values have ballast."""

import os
from pathlib import Path

import polars as pl
import pyarrow as pa

from rekindle_spark.operators import StatefulOperator
from rekindle_spark.pipeline.replay import Replay
from rekindle_spark.pipeline.steps import Pipeline

INPUT_ROWS = 60_000
SENSORS = 40
BALLAST_BYTES = 1_500_000
STATE_BYTES = SENSORS * BALLAST_BYTES
SCHEMA = pa.schema(
    [("sensor", pa.string()), ("event_time", pa.timestamp("us")), ("number", pa.int64())]
)


class Numbered(StatefulOperator):
    """Numbers the readings of a sensor, and remembers far more than that takes."""

    value_schema = pa.schema([("rows", pa.int64()), ("ballast", pa.binary())])

    def handle(self, key, rows, value):
        number = value.get()[0] if value.exists() else 0
        for row in rows:
            number += 1
            yield (key[0], row["event_time"], number)
        value.update((number, key[0].encode() * (BALLAST_BYTES // len(key[0]))))


def pipeline() -> Pipeline:
    """One query; the folder of input comes from the environment."""
    directory = Path(os.environ["REKINDLE_TEST_INPUT"])
    built = Pipeline("bulky")
    readings = built.source(
        "readings", Replay(str(directory / "readings.parquet"), "event_time"), parallelism=2
    )
    readings.stateful("bulk", Numbered(), keys=["sensor"], schema=SCHEMA, parallelism=1).sink(
        "numbered", priority=5
    )
    return built


def expected(directory: Path) -> dict[str, pl.DataFrame]:
    """All rows of the query."""
    rows = pl.read_parquet(directory / "readings.parquet").sort("event_time")
    number = pl.int_range(pl.len()).over("sensor") + 1
    return {"numbered": rows.select("sensor", "event_time", number=number)}
