"""A program on real Spark: of two protected queries one waits while a worker of two is lost.

`test_spark_releases.py` runs it in a folder of its own, on several releases of Spark.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark.sql.functions as f
from pyspark.sql import SparkSession

import rekindle
from rekindle_local.spark_cluster import LocalCluster
from rekindle_spark.protection.spark_view import Heartbeats

HERE = Path.cwd()
NAMES = ("orders", "clicks")
DEADLINE = time.monotonic() + 600.0
SETTINGS = "policy:\n  cpu_cap: 0.6\n"


def look_up(value: int) -> str:
    """20 rows a second take 60 % of a core, which is all that plans use of a worker."""
    time.sleep(0.03)
    return f"{value:08}"


def start(spark: SparkSession, name: str) -> Callable[[], Any]:
    def query() -> Any:
        stream = spark.readStream.format("rate").options(rowsPerSecond=20, numPartitions=2)
        written = stream.load().select("value", f.udf(look_up)("value").alias("key")).writeStream
        written = written.format("parquet").option("path", str(HERE / name))
        written = written.option("checkpointLocation", str(HERE / "checkpoints" / name))
        return written.trigger(processingTime="2 seconds").start()

    return query


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        assert time.monotonic() < DEADLINE, "it takes too long"
        time.sleep(0.1)


def begin(cluster: LocalCluster) -> SparkSession:
    """Spark, once both workers are there."""
    builder = SparkSession.builder.master(cluster.master_url).config("spark.ui.enabled", "false")
    for option, value in cluster.spark_options().items():
        builder = builder.config(option, value)
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.scheduler.mode", "FAIR").getOrCreate()
    tracker = spark._jsc.sc().statusTracker()
    wait_until(lambda: len(tracker.getExecutorInfos()) == 1 + 2)  # the driver is one of them
    return spark


def lose_a_worker(cluster: LocalCluster, protected: Any) -> None:
    wait_until(lambda: len([load for load in protected.loads.values() if load > 40.0]) == 2)
    print("costs were measured")
    runs = {name: str(query.runId) for name, query in protected.queries.items()}
    lost = cluster.nodes[0].name
    cluster.kill([lost])
    wait_until(lambda: protected.running == {"orders"})
    print("clicks waits")
    cluster.start_worker(lost)
    wait_until(lambda: protected.running == {*NAMES})
    again = {name: str(query.runId) for name, query in protected.queries.items()}
    assert again["orders"] == runs["orders"], "the important one has gone on"
    assert again["clicks"] != runs["clicks"]
    committed = commits("clicks")
    wait_until(lambda: commits("clicks") > committed)
    print("clicks is back")


def commits(name: str) -> int:
    names = (path.name for path in (HERE / "checkpoints" / name / "commits").iterdir())
    return max(int(found) for found in names if found.isdecimal())


def check_rows(spark: SparkSession, name: str) -> None:
    """Each number is there once, and none is left out."""
    rows = spark.read.parquet(str(HERE / name))
    newest = rows.agg(f.max("value")).first()
    assert newest is not None
    assert rows.count() == rows.select("value").distinct().count() == newest[0] + 1 > 1


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("rekindle_spark.protection").setLevel(logging.INFO)
    (HERE / "settings.yaml").write_text(SETTINGS)
    with LocalCluster(directory=HERE / "nodes", nodes=2, slots=1, cpu_quota=None) as cluster:
        spark = begin(cluster)
        with rekindle.protect(
            spark,
            {name: start(spark, name) for name in NAMES},
            priorities={"orders": 9},
            settings=HERE / "settings.yaml",
            alone=True,
        ) as protected:
            beats = Heartbeats(spark._jsc.sc()).silences(time.monotonic())
            assert beats is not None, "they are where they are looked for"
            assert len(beats) >= 2, "each executor sends heartbeats"
            lose_a_worker(cluster, protected)
        for name in NAMES:
            check_rows(spark, name)
        print(f"each row is there once on Spark {spark.version}")
        spark.stop()


if __name__ == "__main__":
    main()
