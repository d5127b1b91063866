"""Case 04: mean and total of nanoseconds since 1970, and of big unsigned numbers."""

import pyarrow as pa
import pyarrow.parquet as pq
import verdicts

from rekindle_spark.pipeline.replay import Replay
from rekindle_spark.pipeline.steps import Pipeline, mean, total
from rekindle_spark.testing.in_process_driver import run_pipeline

NANOSECONDS = [1_700_000_000_000_000_000 + number for number in range(10)]
LARGEST = 2**64 - 1


def windowed(file: str, column: str) -> dict[str, float]:
    pipeline = Pipeline("p")
    rows = pipeline.source("rows", Replay(file, event_time="t"))
    aggregates = {"mean": mean(column), "total": total(column)}
    rows.window("w", keys=["k"], size_seconds=10, aggregates=aggregates).sink("q")
    found: list[dict[str, float]] = run_pipeline(pipeline, epochs=1)["q"].to_pylist()
    return found[0]


def is_right(row: dict[str, float] | None, mean_of_all: float) -> bool:
    return row is None or abs(row["mean"] - mean_of_all) < mean_of_all * 1e-9


def main() -> None:
    sent = {"k": ["a"] * 10, "t": verdicts.times(10), "sent_ns": NANOSECONDS}
    pq.write_table(pa.table(sent), "ns.parquet")
    one = {"k": ["a"], "t": verdicts.times(1), "id": pa.array([LARGEST], pa.uint64())}
    pq.write_table(pa.table(one), "ids.parquet")
    average = sum(NANOSECONDS) / len(NANOSECONDS)
    of_times, error = verdicts.attempt(lambda: windowed("ns.parquet", "sent_ns"))
    print("ten times:", of_times or verdicts.worded(error), "| the mean is", average)
    of_ids, error = verdicts.attempt(lambda: windowed("ids.parquet", "id"))
    print("one id:", of_ids or verdicts.worded(error), "| the mean is", float(LARGEST))
    verdicts.end(
        is_right(of_times, average) and is_right(of_ids, float(LARGEST)),
        "the mean is right, or the sum that overflows is refused; never a wrong number",
    )


if __name__ == "__main__":
    main()
