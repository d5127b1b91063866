"""Case 10: the Parquet file of a source is replaced, and a host that starts later opens it."""

import os
import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import verdicts
from pyspark import cloudpickle

from rekindle.model.errors import RekindleError
from rekindle_spark.pipeline.replay import Replay
from rekindle_spark.pipeline.steps import Pipeline

TIMES = verdicts.times(6, step_seconds=7)
OTHERS = {
    "other rows": {"k": ["b"] * 6, "v": range(100, 106), "t": TIMES},
    "v as text": {"t": TIMES, "v": list("012345"), "k": ["b"] * 6},
    "v as double": {
        "t": TIMES,
        "v": [x + 0.9 for x in range(6)],
        "k": ["b"] * 6,
    },
}


def put(table: pa.Table) -> None:
    pq.write_table(table, "new.parquet")
    os.replace("new.parquet", "rows.parquet")


def read(shipped: bytes) -> list[object]:
    """Rows 3 and 4, as a host reads them."""
    values: list[object] = pickle.loads(shipped).read(3, 5)["v"].to_pylist()
    return values


def main() -> None:
    put(pa.table({"k": ["a"] * 10, "v": range(10), "t": verdicts.times(10)}))
    replay = Replay("rows.parquet", event_time="t")
    Pipeline("p").source("rows", replay)
    shipped = cloudpickle.dumps(replay)
    print("driver, rows 3 and 4:", replay.read(3, 5)["v"].to_pylist())
    wrong = 0
    for name, columns in OTHERS.items():
        put(pa.table(columns))
        got, error = verdicts.attempt(lambda: read(shipped))
        print(f"replaced with {name}: {got if error is None else verdicts.worded(error)}")
        names_file = isinstance(error, RekindleError) or "rows.parquet" in str(error)
        wrong += error is None or not names_file
    verdicts.end(
        not wrong,
        "each time a fault that names the file: it is not the one the run began with",
    )


if __name__ == "__main__":
    main()
