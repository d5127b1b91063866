"""Case 11: a map uses a lock, which is refused before the driver that runs is fenced.

Rewritten: the refusal is of the start, so a `rekindle run` starts on the store of a driver that
runs. There is no Spark at the master's address, so a later refusal would be another error.
"""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import stores
import verdicts

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


def main() -> None:
    pq.write_table(pa.table({"v": range(10), "t": verdicts.times(10)}), "numbers.parquet")
    Path("locked.py").write_text(PIPELINE)
    running = stores.opened(Path("store"))
    command = [Path(sys.executable).with_name("rekindle"), "run", "locked.py", "--store", "store"]
    command += ["--master", "spark://127.0.0.1:1"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    said = ended.stdout + ended.stderr
    print(f"exit code {ended.returncode}: {said}")
    _, fenced = verdicts.attempt(running.check_generation)
    print("the driver that runs:", verdicts.worded(fenced))
    is_refused = ended.returncode == 2 and "step guarded" in said and "LOCK" in said
    verdicts.end(
        is_refused and fenced is None and "Traceback" not in said,
        "refused before the store is touched, with the name of the step",
    )


if __name__ == "__main__":
    main()
