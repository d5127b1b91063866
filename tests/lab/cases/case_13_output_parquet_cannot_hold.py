"""Case 13: maps declare types that Arrow has and Parquet has not."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import verdicts

from rekindle.model.errors import RekindleError
from rekindle_spark.pipeline.replay import Replay
from rekindle_spark.pipeline.steps import Pipeline
from rekindle_spark.testing.in_process_driver import run_pipeline

INTERVAL = pa.month_day_nano_interval()
Column = tuple[pa.Field, Callable[[int], Any]]
COLUMNS: dict[str, Column] = {
    "an empty struct": (
        pa.field("x", pa.struct([])),
        lambda rows: pa.array([{}] * rows, pa.struct([])),
    ),
    "an interval": (
        pa.field("x", INTERVAL),
        lambda rows: pa.array([(1, 2, 3)] * rows, INTERVAL),
    ),
    "run-end encoded": (
        pa.field("x", pa.run_end_encoded(pa.int32(), pa.string())),
        lambda rows: pa.RunEndEncodedArray.from_arrays(pa.array([rows], pa.int32()), ["a"]),
    ),
    "a null where nullable=False": (
        pa.field("x", pa.string(), nullable=False),
        lambda rows: pa.array([None] * rows, pa.string()),
    ),
}


def written(column: pa.Field, make: Callable[[int], Any]) -> None:
    pipeline = Pipeline("p")
    rows = pipeline.source("rows", Replay("numbers.parquet", event_time="t"))
    schema = rows.schema.append(column)

    def add(table: pa.Table) -> pa.Table:
        return pa.table([*table.columns, make(table.num_rows)], schema=schema)

    rows.map("add", add, schema=schema).sink("q")
    run_pipeline(pipeline, epochs=1)


def main() -> None:
    pq.write_table(pa.table({"v": range(4), "t": verdicts.times(4)}), "numbers.parquet")
    raw = 0
    for name, (column, make) in COLUMNS.items():
        _, error = verdicts.attempt(lambda column=column, make=make: written(column, make))
        print(f"{name}: {verdicts.worded(error)}")
        raw += error is not None and not isinstance(error, RekindleError)
    verdicts.end(
        not raw,
        "refused when the pipeline is built, or a fault that names step and query",
    )


if __name__ == "__main__":
    main()
