"""A program on real Spark with two streaming queries: one works off a backlog, one is steady.

`test_spark_ui.py` runs it in a process of its own, with a folder and settings of Spark as
its arguments. It prints where its UI is, and ends with its input. The bodies in
`tests/unit/rekindle_operator/applications/recorded_spark_ui.json` are of it: `--record FILE` as
last arguments writes them.
"""

import json
import sys
import time
import urllib.request
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

FILES, ROWS = 24, 50
# The rows of the newest five are the reference. The first batches are no like those after them, and
# on a busy machine neither are two in a row, one late and one short.
STEADY_BATCHES_MIN = 9
SECONDS_MAX = 600.0


def start(folder: Path, *settings: str) -> Any:
    """Spark, with its UI at any free port."""
    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "1")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.ui.port", "0")
    for name, value in (setting.split("=", 1) for setting in settings):
        builder = builder.config(name, value)
    return builder.config("spark.local.dir", str(folder / "spark")).getOrCreate()


def steady(spark: Any, folder: Path) -> Any:
    """It waits for its trigger, and takes in about as much with each one."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
    writer = rows.writeStream.format("noop").trigger(processingTime="4 seconds")
    return writer.queryName("steady").option("checkpointLocation", str(folder / "a")).start()


def behind(spark: Any, folder: Path) -> Any:
    """One file in a batch, of those that have waited."""
    waiting = folder / "waiting"
    waiting.mkdir()
    for number in range(FILES):
        lines = "\n".join(f"{number} {row}" for row in range(ROWS))
        (waiting / f"{number:02}.txt").write_text(f"{lines}\n")
    rows = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(waiting))
    writer = rows.groupBy("value").count().writeStream.format("noop").outputMode("complete")
    return writer.queryName("behind").option("checkpointLocation", str(folder / "b")).start()


def await_batches(query: Any, count: int) -> None:
    """Until a query has had so many batches."""
    ends = time.monotonic() + SECONDS_MAX
    while (query.lastProgress or {"batchId": -1})["batchId"] < count - 1:
        assert query.exception() is None, query.exception()
        assert time.monotonic() < ends, "it takes too long"
        time.sleep(0.1)


def get(address: str) -> tuple[Any, float]:
    """A body of the status API, and when it was made by the server's clock."""
    with urllib.request.urlopen(address, timeout=60.0) as response:
        return json.load(response), parsedate_to_datetime(response.headers["Date"]).timestamp()


def recorded(address: str, lost_at: float, back_at: float) -> dict[str, Any]:
    """All that a reader asks for now."""
    root = f"{address}/api/v1/applications"
    listed, _ = get(f"{root}?limit=1")
    jobs, now = get(f"{root}/{listed[0]['id']}/jobs")
    stages = sorted({stage for job in jobs for stage in job["stageIds"]})
    return {
        "lost_at": lost_at,
        "back_at": back_at,
        "now": now,
        "applications": listed,
        "jobs": jobs,
        "stages": {
            stage: get(f"{root}/{listed[0]['id']}/stages/{stage}?details=false")[0]
            for stage in stages
        },
    }


def record(spark: Any, folder: Path, file: Path) -> None:
    """While one query is behind, and once it is not."""
    first = steady(spark, folder)
    await_batches(first, STEADY_BATCHES_MIN)
    lost_at, address = time.time(), spark.sparkContext.uiWebUrl
    second = behind(spark, folder)
    await_batches(second, 5)
    found = {"behind": recorded(address, lost_at, lost_at)}
    await_batches(second, FILES)
    time.sleep(40.0)  # a query that waits for input runs no job, so there is no event to await
    found["caught_up"] = recorded(address, lost_at, lost_at)
    found["version"] = spark.version
    file.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


def main(folder: Path, *settings: str) -> None:
    spark = start(folder, *settings)
    first = steady(spark, folder)
    await_batches(first, STEADY_BATCHES_MIN)
    print(f"steady {spark.sparkContext.uiWebUrl}", flush=True)
    sys.stdin.readline()
    behind(spark, folder)
    print("behind", flush=True)
    sys.stdin.readline()
    for query in spark.streams.active:
        query.stop()
    spark.stop()


if __name__ == "__main__":
    if sys.argv[-2] == "--record":
        record(start(Path(sys.argv[1])), Path(sys.argv[1]), Path(sys.argv[-1]))
    else:
        main(Path(sys.argv[1]), *sys.argv[2:])
