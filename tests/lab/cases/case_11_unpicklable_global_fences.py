"""Case 11: a map uses a lock, which is refused before the driver that runs is fenced.

Rewritten: the refusal is now of the start, so a driver is started on the store of one that runs.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import stores
import verdicts

from rekindle.model.errors import RekindleError
from rekindle.model.settings import Settings
from rekindle_cli import pipeline_file
from rekindle_cli.guard import CallLimits
from rekindle_spark.driver import driver_main
from rekindle_spark.driver.driver_main import DriverPlace

PIPELINE = """
import threading

from rekindle_spark.pipeline.replay import Replay
from rekindle_spark.pipeline.steps import Pipeline

LOCK = threading.Lock()


def guarded(table):
    with LOCK:
        return table


def pipeline():
    built = Pipeline("p")
    rows = built.source("rows", Replay("numbers.parquet", event_time="t"))
    rows.map("guarded", guarded, schema=rows.schema).sink("out")
    return built
"""


def start() -> None:
    """Start a driver; no Spark is at the master's address, so a late refusal is another error."""
    built = pipeline_file.load("locked.py", CallLimits(60.0)).pipeline
    place = DriverPlace("spark://127.0.0.1:1", "store", Path("events.jsonl"), {})
    driver_main.run(built, Settings(), place)


def main() -> None:
    pq.write_table(pa.table({"v": range(10), "t": verdicts.times(10)}), "numbers.parquet")
    Path("locked.py").write_text(PIPELINE)
    running = stores.opened(Path("store"))
    _, refused = verdicts.attempt(start)
    print("the start:", verdicts.worded(refused))
    _, fenced = verdicts.attempt(running.check_generation)
    print("the driver that runs:", verdicts.worded(fenced))
    verdicts.end(
        isinstance(refused, RekindleError) and "step guarded" in str(refused) and fenced is None,
        "refused before the store is touched, with the name of the step",
    )


if __name__ == "__main__":
    main()
