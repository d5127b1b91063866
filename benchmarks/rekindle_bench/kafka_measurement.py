"""One way to read from Kafka or to write to it, measured in the process that calls it.

Reading: the product's source, range by range; or the plain client with the same settings, and a
decoder of a library for the same number of records. Writing: the product's transactions, cut as the
publisher of a sink cuts them; or the plain client, which waits after as many records until all are
acknowledged. Both make the records of rows by the product's sink, so that what differs is how they
are written. Called by `kafka_benchmark`.
"""

import io
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from rekindle.model.errors import RunError
from rekindle_spark.connectors import kafka_ranges, kafka_sink
from rekindle_spark.connectors.decoding import Json
from rekindle_spark.connectors.kafka import Kafka
from rekindle_spark.connectors.kafka_sink import KafkaSink, SinkRecords
from rekindle_spark.connectors.kafka_transactions import EpochMarker, TransactionalWriter
from rekindle_spark.output import sink_publishing
from rekindle_spark.output.sink_publishing import TransactionSize
from rekindle_store.committed_files import NamedFile

OURS = "rekindle"
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
# Rows of an epoch of one query partition, and how many of these write side by side.
EPOCH_ROWS, PARTITIONS = 10_000, 4
WAIT_SECONDS = 60.0
SCHEMA = pa.schema(
    [
        ("at", pa.int64()),
        ("flight", pa.int64()),
        ("carrier", pa.string()),
        ("airport", pa.string()),
        ("delay", pa.float64()),
        ("cancelled", pa.bool_()),
    ]
)
SUMMED = "flight"

Decode = Callable[[list[bytes]], pa.Table]


@dataclass(frozen=True, slots=True)
class KafkaWorkload:
    """Which way reads or writes how many rows of a topic."""

    way: str
    servers: str
    topic: str
    rows: int


@dataclass(frozen=True, slots=True)
class KafkaMeasurement:
    """What it took; `checksum` is that of the rows, the same for all ways."""

    seconds: float
    cpu_seconds: float
    checksum: int


def rows(begin: int, end: int) -> pa.Table:
    """Some of the rows that are read and written, 100 bytes each as JSON."""
    numbers = range(begin, end)
    columns = [
        [1_600_000_000_000_000 + 1_000 * n for n in numbers],
        [*numbers],
        [f"C{n % 17}" for n in numbers],
        [f"airport-{n % 301}" for n in numbers],
        [(n % 1_000) / 8 for n in numbers],
        [n % 11 == 0 for n in numbers],
    ]
    arrays = [pa.array(one, kind) for one, kind in zip(columns, SCHEMA.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def fill(work: KafkaWorkload, partitions: int = 1) -> None:
    """Write the rows that are to be read, dealt out to so many partitions of the topic. Raises
    RunError where the broker does not take them."""
    producer = _producer(work.servers)
    for begin in range(0, work.rows, EPOCH_ROWS):
        table = rows(begin, min(work.rows, begin + EPOCH_ROWS))
        values = kafka_sink.json_objects(table)
        for partition in range(partitions):
            _produce(producer, work.topic, partition, values[partition::partitions])
    _flush(producer, work.topic)


def read(work: KafkaWorkload) -> KafkaMeasurement:
    """Read all of a topic's first partition. The first epoch's rows come before the measurement:
    with them libraries are imported, pandas by pyarrow among them."""
    batches = READERS[work.way](work)
    total = pc.sum(next(batches)[SUMMED]).as_py() or 0
    began, cpu_began = time.monotonic(), time.process_time()
    for table in batches:
        total += pc.sum(table[SUMMED]).as_py() or 0
    return KafkaMeasurement(time.monotonic() - began, time.process_time() - cpu_began, total)


def _ours(work: KafkaWorkload) -> Iterator[pa.Table]:
    source = Kafka(work.servers, [work.topic], value=Json(SCHEMA), columns=())
    for begin in range(0, work.rows, EPOCH_ROWS):
        yield source.read(f"{work.topic}/0", begin, min(work.rows, begin + EPOCH_ROWS)).rows


def _plain(work: KafkaWorkload, decode: Decode) -> Iterator[pa.Table]:
    from confluent_kafka import Consumer, TopicPartition

    own = {kafka_ranges.QUEUED: kafka_ranges.QUEUED_BYTES_MAX >> 10}
    consumer = Consumer({**kafka_ranges.CONSUMER, **own, "bootstrap.servers": work.servers})
    consumer.assign([TopicPartition(work.topic, 0, 0)])
    left, values = work.rows, list[bytes]()
    end = time.monotonic() + WAIT_SECONDS
    while left:
        wanted = min(left, EPOCH_ROWS) - len(values)
        found = consumer.consume(wanted, 0.05)
        values += [one.value() or b"" for one in found if one.error() is None]
        if len(values) == min(left, EPOCH_ROWS):
            left -= len(values)
            yield decode(values)
            values, end = [], time.monotonic() + WAIT_SECONDS
        elif time.monotonic() > end:
            raise _failed(work.topic, "gives no records")
    consumer.close()


def _polars(values: list[bytes]) -> pa.Table:
    schema = {
        "at": pl.Int64,
        "flight": pl.Int64,
        "carrier": pl.String,
        "airport": pl.String,
        "delay": pl.Float64,
        "cancelled": pl.Boolean,
    }
    return pl.read_ndjson(io.BytesIO(b"\n".join(values)), schema=schema).to_arrow()


def _pyarrow(values: list[bytes]) -> pa.Table:
    data = b"\n".join(values)
    return pyarrow.json.read_json(
        pa.BufferReader(data),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=SCHEMA, unexpected_field_behavior="ignore"
        ),
    )


READERS: dict[str, Callable[[KafkaWorkload], Iterator[pa.Table]]] = {
    OURS: _ours,
    "polars": lambda work: _plain(work, _polars),
    "pyarrow": lambda work: _plain(work, _pyarrow),
}


def write(work: KafkaWorkload) -> KafkaMeasurement:
    """Write all rows, in so many threads as there are query partitions; then count them."""
    share = -(-work.rows // PARTITIONS)
    tables = [
        [
            rows(begin, min(begin + EPOCH_ROWS, work.rows, (index + 1) * share))
            for begin in range(index * share, min(work.rows, (index + 1) * share), EPOCH_ROWS)
        ]
        for index in range(PARTITIONS)
    ]
    make = _exactly_once if work.way == EXACTLY_ONCE else _at_least_once
    writers = [make(work, index) for index in range(PARTITIONS)]
    errors, threads = list[BaseException](), list[threading.Thread]()

    def run(writer: Callable[[Sequence[pa.Table]], None], part: Sequence[pa.Table]) -> None:
        try:
            writer(part)
        except BaseException as error:
            errors.append(error)

    for writer, part in zip(writers, tables, strict=True):
        threads.append(threading.Thread(target=run, args=(writer, part), daemon=True))
    began, cpu_began = time.monotonic(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds, cpu_seconds = time.monotonic() - began, time.process_time() - cpu_began
    for error in errors:
        raise error
    return KafkaMeasurement(seconds, cpu_seconds, _count(work))


def _stretches(
    sink: KafkaSink, tables: Sequence[pa.Table], size: TransactionSize
) -> Iterator[list[tuple[NamedFile, SinkRecords]]]:
    """What the publisher of a sink writes together, where it is behind."""
    epochs = (
        (
            NamedFile("q", 0, epoch, table.num_rows, "", epoch, 0.0),
            sink.records("q", table),
        )
        for epoch, table in enumerate(tables, 1)
    )
    return sink_publishing.transactions(epochs, size)


def _exactly_once(work: KafkaWorkload, index: int) -> Callable[[Sequence[pa.Table]], None]:
    sink = KafkaSink(work.servers, work.topic)
    writer = TransactionalWriter(sink, work.topic, f"{work.topic}-{index}", index)
    writer.open()
    writer.mark(EpochMarker())

    def run(tables: Sequence[pa.Table]) -> None:
        size = TransactionSize()
        for stretch in _stretches(sink, tables, size):
            newest, began = stretch[-1][0], time.monotonic()
            writer.write([one for _, one in stretch], EpochMarker(newest.epoch, newest.commit))
            length = sum(one.bytes for _, one in stretch)
            size.note(length, time.monotonic() - began, writer.seconds_max)

    return run


def _at_least_once(work: KafkaWorkload, index: int) -> Callable[[Sequence[pa.Table]], None]:
    sink, producer = KafkaSink(work.servers, work.topic), _producer(work.servers)

    def run(tables: Sequence[pa.Table]) -> None:
        size = TransactionSize()
        for stretch in _stretches(sink, tables, size):
            began = time.monotonic()
            for _, records in stretch:
                _produce(producer, work.topic, index, records.values)
            _flush(producer, work.topic)
            length = sum(one.bytes for _, one in stretch)
            size.note(length, time.monotonic() - began, WAIT_SECONDS)

    return run


def _producer(servers: str) -> Any:
    from confluent_kafka import Producer

    return Producer({"bootstrap.servers": servers, "log_level": 2, "acks": "all"})


def _produce(producer: Any, topic: str, partition: int, values: Sequence[bytes | None]) -> None:
    for value in values:
        while True:
            try:
                producer.produce(topic, value, partition=partition)
                break
            except BufferError:  # its queue is full
                producer.poll(0.1)
        producer.poll(0)


def _flush(producer: Any, topic: str) -> None:
    if producer.flush(WAIT_SECONDS):
        raise _failed(topic, f"has not acknowledged all records within {WAIT_SECONDS:.0f} s")


def _count(work: KafkaWorkload) -> int:
    """How many records a consumer of committed records gets."""
    from rekindle_local.demo import topic_witness

    return sum(
        len(topic_witness.read(work.servers, work.topic, index)) for index in range(PARTITIONS)
    )


def _failed(topic: str, what: str) -> RunError:
    return RunError(where=f"topic {topic}", what=what, remedy="read the broker's log")
