"""One query of ordinary Structured Streaming: JSON from a topic, a window, JSON into a topic.

    python -m rekindle_peers.structured_streaming.kafka_windows SERVERS SOURCE SINK --store FOLDER …

It runs until it is ended. Started by `rekindle bench kafka-peers`, which has the same query for
Rekindle and knows what rows and windows look like.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from rekindle_cli import command_line

ROW = "at BIGINT, flight BIGINT, carrier STRING, airport STRING, delay DOUBLE, cancelled BOOLEAN"


def main() -> int:
    """Runs the program; returns the exit code."""
    return command_line.run_alone(_run, sys.argv[1:])


def _run(
    servers: Annotated[str, typer.Argument(metavar="SERVERS", help="HOST:PORT of the brokers.")],
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The topic that is read.")],
    sink: Annotated[str, typer.Argument(metavar="SINK", help="The topic that is written.")],
    store: Annotated[Path, typer.Option(help="Checkpoints: a folder all nodes share.")],
    window_seconds: Annotated[int, typer.Option(help="How long a window is.")],
    lateness_seconds: Annotated[int, typer.Option(help="How long rows may be late.")],
    rows_per_trigger_max: Annotated[int, typer.Option(help="Rows of one batch at most.")],
) -> None:
    """Write how many rows each carrier has in each window, and the sum of their numbers.

    Example: python -m rekindle_peers.structured_streaming.kafka_windows b:9092 in out --store s ...
    """
    from pyspark.sql import functions as sql

    from rekindle_peers.structured_streaming import streaming_driver

    session = streaming_driver.open_session()
    session.conf.set("spark.sql.shuffle.partitions", streaming_driver.PARTITIONS)
    records = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", rows_per_trigger_max)
        .load()
    )
    row = sql.from_json(sql.col("value").cast("string"), ROW)
    rows = records.select(row.alias("row")).select("row.*")
    windows = (
        rows.withColumn("at", sql.timestamp_micros("at"))
        .withWatermark("at", f"{lateness_seconds} seconds")
        .groupBy(sql.window("at", f"{window_seconds} seconds").alias("window"), "carrier")
        .agg(sql.count("*").alias("rows"), sql.sum("flight").alias("total"))
    )
    start = sql.col("window.start").alias("window_start")
    value = sql.to_json(sql.struct("carrier", start, "rows", "total"))
    written = (
        windows.select(value.alias("value"))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", sink)
        .option("checkpointLocation", str(store))
        .outputMode("append")
        .start()
    )
    written.awaitTermination()


if __name__ == "__main__":
    sys.exit(main())
