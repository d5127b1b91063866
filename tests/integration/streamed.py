"""A pipeline over a topic of Kafka, and the same queries by polars from the topic's own records.

The batch half reads the topic with a plain consumer, and shares no code with the runtime.
"""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition

from rekindle_spark.connectors.decoding import Json
from rekindle_spark.connectors.kafka import Kafka
from rekindle_spark.pipeline.steps import Pipeline, count, total
from rekindle_spark.pipeline.unbounded_source import SourceTerms

if TYPE_CHECKING:  # drivers load this file without the modules of tests
    from broker import Broker

TOPIC, PARTITIONS = "orders", 3
# In the folder of inputs: where the broker is.
SERVERS = "servers"
SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string()), ("value", pa.int64())])
SECOND = 1_000_000
READ_SECONDS_MAX = 30.0


def pipeline() -> Pipeline:
    """A window over the topic's records, the records themselves, and those that are no JSON."""
    servers = (Path(os.environ["REKINDLE_TEST_INPUT"]) / SERVERS).read_text()
    kafka = Kafka(
        servers,
        topics=[TOPIC],
        value=Json(SCHEMA, units={"at": "us"}),
        event_time="at",
        columns=("kafka_partition", "kafka_offset"),
        terms=SourceTerms(idle_seconds=3_600, patience_seconds=120),
        group="rekindle-streamed",
    )
    built = Pipeline("streamed")
    orders = built.source("orders", kafka, parallelism=2, dead_letters=True)
    orders.sink("rows", priority=6)
    orders.window(
        "by-minute",
        keys=["key"],
        size_seconds=60,
        aggregates={"rows": count(), "sum": total("value")},
        parallelism=2,
    ).sink("windows", priority=8)
    return built


def values(seconds: range, number: int) -> list[bytes]:
    """Ten records for each of these seconds of event time, for a partition."""
    return [
        json.dumps(
            {"at": second * SECOND + n * 100_000, "key": f"key-{(second + number) % 7}", "value": n}
        ).encode()
        for second in seconds
        for n in range(10)
    ]


def produce(broker: "Broker", seconds: range, partitions: int = PARTITIONS) -> None:
    """Write them to each partition, the last ones in a transaction, behind one that is aborted."""
    early, late = range(seconds.start, seconds.stop - 5), range(seconds.stop - 5, seconds.stop)
    for number in range(partitions):
        broker.produce(TOPIC, number, [*values(early, number), b"no JSON"])
        broker.produce_transaction(TOPIC, number, values(late, number), commits=False)
        broker.produce_transaction(TOPIC, number, values(late, number))


def records(broker: "Broker") -> list[tuple[int, int, bytes]]:
    """Partition, offset and value of all committed records, by a plain consumer."""
    settings = {
        "bootstrap.servers": broker.servers,
        "group.id": "witness",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    consumer = Consumer(settings)
    partitions = consumer.list_topics(TOPIC, timeout=READ_SECONDS_MAX).topics[TOPIC].partitions
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in partitions])
    found, ended = [], set[int]()
    while len(ended) < len(partitions):
        message = consumer.poll(READ_SECONDS_MAX)
        assert message is not None, "the witness hears nothing"
        error = message.error()
        if error is not None:
            assert error.name() == "_PARTITION_EOF", error
            ended.add(message.partition())
        else:
            found.append((message.partition(), message.offset(), message.value()))
    consumer.close()
    return found


def expected(broker: "Broker") -> dict[str, pl.DataFrame]:
    """What the queries have to give."""
    good, bad = [], []
    for partition, offset, value in records(broker):
        if value.startswith(b"{"):
            good.append({**json.loads(value), "kafka_partition": partition, "kafka_offset": offset})
        else:
            bad.append({"kafka_partition": partition, "kafka_offset": offset, "kafka_value": value})
    rows = pl.DataFrame(good).with_columns(pl.col("at").cast(pl.Datetime("us")))
    windows = (
        rows.with_columns(window_start=pl.col("at").dt.truncate("1m"))
        .group_by("key", "window_start")
        .agg(rows=pl.len(), sum=pl.col("value").sum())
        .with_columns(window_end=pl.col("window_start").dt.offset_by("1m"))
    )
    return {"rows": rows, "windows": windows, "orders.dead-letters": pl.DataFrame(bad)}
