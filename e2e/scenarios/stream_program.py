"""The program of `application_scenarios`: queries of Structured Streaming over files.

    stream_program.py FOLDER TASKS NAME=PRIORITY [NAME=PRIORITY ...] [--protect]

It lies on the claim that all pods share. A batch has TASKS tasks at most: Spark would make one of
each small file, and more CPU would go into tasks than into rows. Without `--protect` it is what
everybody has: it knows nothing of Rekindle. With it the one import is made that
docs/protected-queries.md says.
"""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pyspark.sql.functions as f
from pyspark.sql import SparkSession

# Somewhat less than 1 ms of CPU for each row, where Java compiles as it does on small nodes.
ROUNDS = 200
TRIGGER = "10 seconds"


def start(spark: SparkSession, folder: str, tasks: int, name: str) -> Any:
    """A query that hashes each row, and writes it."""
    files = spark.readStream.schema("key long, at double").json(f"{folder}/input/{name}")
    rows = files.coalesce(tasks)
    text = "concat(key, '/', at)"
    hashed = f.expr(
        f"aggregate(sequence(1, {ROUNDS}), {text}, (before, number) -> sha2(before, 256))"
    )
    written = rows.withColumn("hash", hashed).writeStream.format("parquet")
    written = written.option("path", f"{folder}/output/{name}")
    written = written.option("checkpointLocation", f"{folder}/checkpoints/{name}")
    return written.queryName(name).trigger(processingTime=TRIGGER).start()


def main(folder: str, tasks: int, priorities: Mapping[str, float], *, protect: bool) -> None:
    """Start all queries, and run until one ends."""
    spark = SparkSession.builder.getOrCreate()
    starts: dict[str, Callable[[], Any]] = {
        name: partial(start, spark, folder, tasks, name) for name in priorities
    }
    if protect:
        import rekindle

        with rekindle.protect(spark, starts, priorities=priorities) as protected:
            protected.await_termination()
        return
    for begin in starts.values():
        begin()
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    words = [word.partition("=") for word in sys.argv[3:] if word != "--protect"]
    wanted = {name: float(priority) for name, _, priority in words}
    main(sys.argv[1], int(sys.argv[2]), wanted, protect="--protect" in sys.argv)
