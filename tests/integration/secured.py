"""A pipeline from a topic to topics of a broker that asks for a password: values as they are.

Names of topics have dots, values have one byte or ten million, and event times are those of the
producers' clocks.
"""

import os
from pathlib import Path

import pyarrow as pa

from rekindle_spark.connectors.hidden_values import FromFile
from rekindle_spark.connectors.kafka import Kafka
from rekindle_spark.connectors.kafka_sink import KafkaSink
from rekindle_spark.pipeline.steps import Pipeline, count
from rekindle_spark.pipeline.unbounded_source import FAIL, SourceTerms

TOPIC, VALUES, WINDOWS = "orders.v1.eu", "orders.values_v1", "orders.per-minute.v1"
# In the folder of inputs: where the broker is, the password, and what is done about lost records.
SERVERS, PASSWORD, ON_DATA_LOSS = "servers", "password", "on-data-loss"
LARGE = 20_000_000


def value_of(table: pa.Table) -> pa.Array:
    """What the record had."""
    return table["kafka_value"].combine_chunks()


def pipeline() -> Pipeline:
    """The values of the topic's records, and how many there are a minute."""
    inputs = Path(os.environ["REKINDLE_TEST_INPUT"])
    servers, on_data_loss = (inputs / SERVERS).read_text(), inputs / ON_DATA_LOSS
    options = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "rekindle",
        "sasl.password": FromFile(str(inputs / PASSWORD)),
    }
    terms = SourceTerms(
        idle_seconds=3_600,
        patience_seconds=120,
        on_data_loss=on_data_loss.read_text() if on_data_loss.exists() else FAIL,
    )
    built = Pipeline("secured")
    orders = built.source("orders", Kafka(servers, topics=[TOPIC], terms=terms, options=options))
    large = {**options, "message.max.bytes": LARGE}
    values = KafkaSink(servers, VALUES, value=value_of, patience_seconds=120, options=large)
    orders.sink("values", priority=6, to=values)
    windows = orders.window("by-minute", keys=[], size_seconds=60, aggregates={"rows": count()})
    to = KafkaSink(servers, WINDOWS, patience_seconds=120, options=options)
    windows.sink("windows", priority=8, to=to)
    return built
