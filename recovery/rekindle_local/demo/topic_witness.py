"""Reads the topics of all queries, and compares their rows with a batch computation.

    topics ──a consumer of committed records──► topics/outputs/QUERY/N.parquet ──► DuckDB

The consumer is the plain client of Kafka, the batch engine is DuckDB, and values are read by the
standard library's JSON. So a mistake of the runtime cannot hide itself. Called by `demo_run`.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from rekindle import verification
from rekindle.model.errors import RunError
from rekindle.report import Inputs

FOLDER = "topics"
READ_SECONDS_MAX = 60.0
# For how long a transaction may stay open behind which nothing comes.
OPEN_SECONDS_MAX = 60.0
END = "_PARTITION_EOF"


def write(directory: Path, servers: str, schemas: Mapping[str, pa.Schema]) -> None:
    """Write the rows of all topics into a folder of the report; `schemas` by query partition.

    A query partition has the topic partition of its number. Raises RunError where the broker does
    not answer.
    """
    for query_partition, schema in schemas.items():
        topic, _, number = query_partition.rpartition("/")
        table = rows(servers, topic, int(number), schema)
        epochs = pa.array([0] * table.num_rows, pa.int64())  # records do not name it
        path = directory / FOLDER / "outputs" / f"{query_partition}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table.append_column("epoch", epochs), path, compression="zstd")


def compare(directory: Path) -> dict[str, int]:
    """How many rows of the topics are expected, missing, duplicated and wrong; for a report's
    directory. They are written into `topics/exactly_once.json`, too."""
    folder = directory / FOLDER
    inputs = Inputs.from_record(json.loads((directory / "input.json").read_text()))
    link = folder / "input"
    if not link.exists():
        link.symlink_to(Path("..") / "input", target_is_directory=True)
    counts = verification.exactly_once(folder, inputs, (directory / "queries.sql").read_text())
    (folder / "exactly_once.json").write_text(json.dumps({"version": 1, **counts}) + "\n")
    return counts


def rows(servers: str, topic: str, partition: int, schema: pa.Schema) -> pa.Table:
    """The committed records of a topic's partition as rows. Raises as `read`."""
    found = [_typed(json.loads(value), schema) for value in read(servers, topic, partition)]
    return pa.Table.from_pylist(found, schema)


def read(servers: str, topic: str, partition: int) -> list[bytes]:
    """The values of all committed records of a topic's partition, in order.

    Transactions that are committed but of which the partition has yet to be informed are waited
    for. Raises RunError where the broker does not answer, and where a transaction stays open.
    """
    from confluent_kafka import Consumer, TopicPartition  # not needed by the demo without Kafka

    settings = {
        "bootstrap.servers": servers,
        "group.id": "witness",
        "log_level": 2,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    end = _end(servers, topic, partition)
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, partition, 0)])
    values: list[bytes] = []
    open_at: int | None = None
    try:
        while True:
            message = consumer.poll(READ_SECONDS_MAX if open_at is None else OPEN_SECONDS_MAX)
            if message is None and open_at is not None:
                raise _unfinished(topic, partition, open_at)
            if message is None:
                raise _unread(topic, partition, f"nothing came for {READ_SECONDS_MAX:.0f} s")
            error = message.error()
            if error is None:
                values.append(message.value() or b"")
                open_at = None
            elif error.name() == END:  # it comes again behind each transaction that ends later
                open_at = message.offset() or 0
                if open_at >= end:
                    return values
            else:
                raise _unread(topic, partition, error.str())
    finally:
        consumer.close()


def _end(servers: str, topic: str, partition: int) -> int:
    """The offset behind all records, whatever becomes of their transactions."""
    from confluent_kafka import IsolationLevel, KafkaException, TopicPartition, admin

    at, library = TopicPartition(topic, partition), cast("Any", admin)
    # the client answers while it is there
    client = library.AdminClient({"bootstrap.servers": servers, "log_level": 2})
    asked = client.list_offsets(
        {at: library.OffsetSpec.latest()},
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        request_timeout=READ_SECONDS_MAX,
    )
    try:
        return int(asked[at].result().offset)
    except KafkaException as error:
        raise _unread(topic, partition, error.args[0].str()) from error


def _unread(topic: str, partition: int, what: str) -> RunError:
    return RunError(
        where=f"topic {topic}, partition {partition}",
        what=f"cannot be read ({what})",
        remedy="read the broker's log beside the report",
    )


def _unfinished(topic: str, partition: int, offset: int) -> RunError:
    return RunError(
        where=f"topic {topic}, partition {partition}",
        what=f"cannot be read to its end (a transaction is open from offset {offset})",
        remedy="see that all brokers are there; if it stays so, find the transaction with "
        "`kafka-transactions.sh find-hanging` and abort it",
    )


def _typed(row: dict[str, Any], schema: pa.Schema) -> dict[str, Any]:
    """A row with times as times: JSON has them as texts."""
    for column in schema:
        if pa.types.is_timestamp(column.type) and row[column.name] is not None:
            row[column.name] = datetime.fromisoformat(row[column.name])
    return row
