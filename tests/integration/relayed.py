"""A pipeline from a topic of Kafka to topics of Kafka: rows, windows, and rows that may differ.

The topic, its records and what the queries have to give are those of `streamed`. What is in the
topics is read by a plain consumer, which shares no code with the runtime.
"""

import json
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition

from rekindle_spark.connectors.decoding import Json
from rekindle_spark.connectors.kafka import Kafka
from rekindle_spark.connectors.kafka_sink import KafkaSink
from rekindle_spark.pipeline.steps import Pipeline, count, total
from rekindle_spark.pipeline.unbounded_source import SourceTerms

if TYPE_CHECKING:  # drivers load this file without the modules of tests
    from broker import Broker

TOPIC = "orders"
# The topics by query, with how many partitions they have.
TOPICS = {"rows": 2, "windows": 3, "drawn": 1}
# In the folder of inputs: where the broker is.
SERVERS = "servers"
SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string()), ("value", pa.int64())])
READ_SECONDS_MAX = 30.0


def draw(table: pa.Table) -> pa.Table:
    """Something else each time."""
    drawn = [random.random() for _ in range(table.num_rows)]
    return table.append_column("drawn", pa.array(drawn, pa.float64()))


def pipeline() -> Pipeline:
    """A window over the topic's records, the records, and the records with what was drawn."""
    servers = (Path(os.environ["REKINDLE_TEST_INPUT"]) / SERVERS).read_text()
    kafka = Kafka(
        servers,
        topics=[TOPIC],
        value=Json(SCHEMA, units={"at": "us"}),
        event_time="at",
        columns=("kafka_partition", "kafka_offset"),
        terms=SourceTerms(idle_seconds=3_600, patience_seconds=120),
    )
    built = Pipeline("relayed")
    orders = built.source("orders", kafka, parallelism=2, dead_letters=True)
    orders.sink("rows", priority=6, to=KafkaSink(servers, "rows", patience_seconds=120))
    windows = orders.window(
        "by-minute",
        keys=["key"],
        size_seconds=60,
        aggregates={"rows": count(), "sum": total("value")},
        parallelism=2,
    )
    windows.sink("windows", priority=8, to=KafkaSink(servers, "windows", key="key"))
    wider = orders.schema.append(pa.field("drawn", pa.float64()))
    drawn = orders.map("draw", draw, schema=wider, deterministic=False)
    drawn.sink("drawn", priority=4, to=KafkaSink(servers, "drawn"))
    return built


def read(broker: "Broker", topic: str) -> list[tuple[int, bytes | None, dict[str, Any]]]:
    """Partition, key and value of all committed records of a topic, in order by partition."""
    settings = {
        "bootstrap.servers": broker.servers,
        "group.id": "witness",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    consumer = Consumer(settings)
    partitions = consumer.list_topics(topic, timeout=READ_SECONDS_MAX).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    found, ended = [], set[int]()
    while len(ended) < len(partitions):
        message = consumer.poll(READ_SECONDS_MAX)
        assert message is not None, "the witness hears nothing"
        error = message.error()
        if error is not None:
            assert error.name() == "_PARTITION_EOF", error
            ended.add(message.partition())
        else:
            found.append((message.partition(), message.key(), json.loads(message.value())))
    consumer.close()
    return found
