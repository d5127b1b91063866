"""Case 15: text columns as keys, of a file that polars wrote and of one with views of strings."""

import datetime as dt

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import verdicts

from rekindle_spark.pipeline.replay import Replay
from rekindle_spark.pipeline.steps import Pipeline, count
from rekindle_spark.testing.in_process_driver import run_pipeline

CARRIERS = ["UA", "AA"] * 5


def windowed(file: str) -> int:
    pipeline = Pipeline("p")
    rows = pipeline.source("rows", Replay(file, event_time="t"))
    rows.window("w", keys=["carrier"], size_seconds=5, aggregates={"n": count()}).sink("q")
    found: int = run_pipeline(pipeline, epochs=1)["q"].num_rows
    return found


def main() -> None:
    start = dt.datetime(2024, 1, 1)
    moments = [start + dt.timedelta(seconds=number) for number in range(10)]
    pl.DataFrame({"carrier": CARRIERS, "t": moments}).write_parquet("polars.parquet")
    views = {"carrier": pa.array(CARRIERS, pa.string_view()), "t": verdicts.times(10)}
    pq.write_table(pa.table(views), "view.parquet")
    wrong = 0
    for file in ("polars.parquet", "view.parquet"):
        kind = pq.ParquetFile(file).schema_arrow.field("carrier").type
        rows, error = verdicts.attempt(lambda file=file: windowed(file))
        print(f"{file}, {kind}: {rows if error is None else verdicts.worded(error)}")
        wrong += error is not None
    verdicts.end(not wrong, "text is a key whatever its writer")


if __name__ == "__main__":
    main()
