"""Topics of Kafka as sources of hosts, as actions: decodings, records of no use, lost topics."""
# Arguments are those that callers pass.
# ruff: noqa: ARG002

import contextlib
import io
import json
import os
import struct
import sys
import types
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import fastavro
import pyarrow as pa
from host_sources import IDENTITY, of_source, spans, with_action
from host_story import Action, Story
from pyspark import cloudpickle

from rekindle_spark.connectors import kafka_ranges
from rekindle_spark.connectors.avro_values import Avro
from rekindle_spark.connectors.decoding import Bytes, Csv, Json
from rekindle_spark.connectors.hidden_values import FromEnvironment, FromFile
from rekindle_spark.connectors.kafka import RECORD, Kafka

cloudpickle.register_pickle_by_value(sys.modules[__name__])


@dataclass
class Record:
    """A message as Kafka's client gives it."""

    at: int
    body: bytes | None
    failed: Any = None

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def error(self) -> Any:
        return self.failed

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes | None:
        return self.body

    def headers(self) -> Any:
        return [("h", b"1")] if self.at % 2 else None

    def timestamp(self) -> tuple[int, int]:
        return (1, self.at * 1_000)


class Failure:
    """An error as the client gives it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        return self._name

    def str(self) -> str:
        return "it failed"

    def fatal(self) -> bool:
        return False


@dataclass
class Consumer:
    """Kafka's client, of one partition in memory: `batches` are what it gives, one at a time."""

    batches: list[list[Record]]
    place: int = 0
    given: int = 0

    def assign(self, places: Any) -> None:
        self.given = 0

    def consume(self, most: int, seconds: float) -> list[Record]:
        self.given += 1
        return self.batches[self.given - 1] if self.given <= len(self.batches) else []

    def position(self, places: Any) -> Any:
        known = [one.at + 1 for batch in self.batches[: self.given] for one in batch]
        return [types.SimpleNamespace(offset=max(known, default=-1001))]

    def close(self) -> None: ...


class Admin:
    """Knows the ids of topics."""

    def __init__(self, options: Any) -> None:
        del options

    def describe_topics(self, topics: list[str], request_timeout: float) -> dict[str, Any]:
        del request_timeout
        described = types.SimpleNamespace(topic_id=IDENTITY)
        return {topic: types.SimpleNamespace(result=lambda: described) for topic in topics}

    def poll(self, seconds: float) -> None: ...


def no_admin(failure: str) -> type[Admin]:
    """One whose answers about topics are a failure."""

    class NoAdmin(Admin):
        def describe_topics(self, topics: list[str], request_timeout: float) -> dict[str, Any]:
            def result() -> Any:
                raise RuntimeError(Failure(failure))

            del request_timeout
            return {topic: types.SimpleNamespace(result=result) for topic in topics}

    return NoAdmin


@contextlib.contextmanager
def kafka_of(
    batches: list[list[Record]], silent_seconds: float = 10.0, admin: type[Admin] = Admin
) -> Iterator[None]:
    library = types.ModuleType("confluent_kafka")

    def consumer(options: Any) -> Consumer:
        options["error_cb"](Failure("TOPIC_AUTHORIZATION_FAILED"))
        options["error_cb"](Failure("_ALL_BROKERS_DOWN"))
        return Consumer(batches)

    library.Consumer = consumer  # type: ignore[attr-defined]
    library.KafkaException = RuntimeError  # type: ignore[attr-defined]
    library.TopicCollection = list  # type: ignore[attr-defined]
    library.admin = types.SimpleNamespace(AdminClient=admin)  # type: ignore[attr-defined]
    library.TopicPartition = lambda *parts: types.SimpleNamespace(  # type: ignore[attr-defined]
        topic=parts[0], partition=parts[1], offset=0
    )
    kafka_ranges._readers.clear()
    with (
        mock.patch.dict(sys.modules, {"confluent_kafka": library}),
        mock.patch.object(kafka_ranges, "SILENT_SECONDS_MAX", silent_seconds),
        mock.patch.object(kafka_ranges, "READERS_MAX", 1),
    ):
        yield


AVRO = {
    "type": "record",
    "name": "order",
    "fields": [{"name": "value", "type": "long"}, {"name": "key", "type": "string"}],
}


def _avro(number: int, key: str, schema: int = 1) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(AVRO), {"value": number, "key": key})
    return struct.pack(">bI", 0, schema) + body.getvalue()


AVRO_PARTS = {
    "type": "record",
    "name": "parts",
    "fields": [
        {"name": "at", "type": "long"},
        {
            "name": "parts",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "part",
                    "fields": [{"name": "of", "type": {"type": "map", "values": "long"}}],
                },
            },
        },
    ],
}
PARTS = pa.list_(pa.struct([("of", pa.map_(pa.string(), pa.int8()))]))


def _avro_parts(number: int) -> bytes:
    body = io.BytesIO()
    schema = fastavro.parse_schema(AVRO_PARTS)
    fastavro.schemaless_writer(body, schema, {"at": number, "parts": [{"of": {"a": number}}]})
    return struct.pack(">bI", 0, 5) + body.getvalue()


OTHERS = pa.schema([("at", pa.timestamp("us")), ("is", pa.bool_()), ("of", pa.decimal128(5, 2))])


def _others(values: pa.BinaryArray) -> pa.Table:
    numbers = [int(one.as_py()) for one in values]
    floats = pa.array(numbers, pa.float64())
    return pa.table({"at": pa.array(numbers, pa.date32()), "is": floats, "of": floats})


def _maps(values: pa.BinaryArray) -> pa.Table:
    inner = pa.map_(pa.string(), pa.float64())
    return pa.table({"in": pa.array([[("a", float(one.as_py()))] for one in values], inner)})


@contextlib.contextmanager
def registry() -> Iterator[None]:
    """A registry that knows one schema."""

    def answer(request: Any, timeout: float) -> Any:
        del timeout
        if request.full_url.endswith("/2"):
            said = io.BytesIO(b'{"error_code":40403}')
            raise urllib.error.HTTPError(request.full_url, 404, "no", {}, said)  # type: ignore[arg-type]
        if request.full_url.endswith("/3"):
            raise urllib.error.HTTPError(request.full_url, 500, "no", {}, None)  # type: ignore[arg-type]
        if request.full_url.endswith("/4"):
            raise OSError("away")
        schema = AVRO_PARTS if request.full_url.endswith("/5") else AVRO
        return io.BytesIO(json.dumps({"schema": json.dumps(schema)}).encode())

    with (
        mock.patch.object(urllib.request, "urlopen", answer),
        mock.patch("rekindle_spark.connectors.avro_values.ASK_AGAIN_SECONDS", 0.0),
        mock.patch.dict(os.environ, {"REGISTRY_USER": "u:p"}),
    ):
        yield


def _table_of(values: pa.BinaryArray) -> pa.Table:
    return pa.table({"value": pa.array([int(one.as_py()) for one in values], pa.int64())})


def _kafka_values() -> dict[str, tuple[Any, list[bytes | None]]]:
    """Decoders, each with values of records."""
    numbers = pa.schema([("value", pa.int64())])
    short, at = pa.float32(), pa.field("at", pa.timestamp("us"))
    nested = pa.struct([("x", short), ("xs", pa.list_(short)), ("n", pa.int8())])
    floats = pa.schema([("value", short), ("all", pa.list_(nested))])
    of_floats = [b'{"value":Infinity}', b'{"value":1e39}', b'{"all":[{"xs":[1e39],"n":1}]}']
    of_json = [b'{"value":1,"at":5}', None, b"x", b'{"value":2}', b'{"value":"x"}', b"{} {}"]
    return {
        "raw": (None, [b"1", None, b"2"]),
        "json": (Json(pa.schema([*numbers, ("at", pa.timestamp("us"))]), {"at": "ms"}), of_json),
        "csv": (
            Csv(pa.schema([*numbers, ("on", pa.timestamp("us"))])),
            [b"1,2024-01-01T00:00:00+02:00", b"2,2024-01-01", b"x,", b'"1', b"1,2,3"],
        ),
        "json-floats": (Json(floats), of_floats),
        "csv-floats": (Csv(floats.remove(1)), [b"1.5", b"inf", b"1e999"]),
        "csv-digits": (Csv(numbers), [b"0x1", b"2"]),
        "bytes": (Bytes(numbers, _table_of), [b"1", b"2", b"x"]),
        "bytes-unfit": (Bytes(pa.schema([("value", at.type)]), _table_of), [b"1", b"2"]),
        "bytes-others": (Bytes(OTHERS, _others), [b"1", b"2"]),
        "avro": (
            Avro(
                pa.schema([*numbers, ("key", pa.string())]),
                "http://r",
                FromEnvironment("REGISTRY_USER"),
            ),
            [
                _avro(1, "a"),
                b"",
                _avro(2, "b") + b"x",
                _avro(1, "a", 2),
                _avro(1, "a", 2),
                _avro(3, "c"),
            ],
        ),
        "avro-parts": (
            Avro(pa.schema([("parts", PARTS), at]), "http://r", units={"at": "s"}),
            [_avro_parts(1), _avro_parts(2)],
        ),
        "bytes-parts": (Bytes(pa.schema([("in", pa.map_(pa.string(), short))]), _maps), [b"1"]),
        **{
            f"avro-{kind}": (
                Avro(pa.schema([("value", kind)]), "http://r", units={"value": kind.unit}),
                [_avro(1, "a")],
            )
            for kind in (pa.duration("ms"), pa.time32("s"), pa.time64("us"))
        },
        "avro-date": (Avro(pa.schema([("value", pa.date32())]), "http://r"), [_avro(1, "a")]),
        "avro-3": (Avro(numbers, "http://r"), [_avro(1, "a", 3)]),
        "avro-4": (Avro(numbers, "http://r"), [_avro(1, "a", 4)]),
    }


def of_kafka(folder: Path) -> Iterator[Action]:
    """Each decoding, with tombstones, records that are none, and gaps."""
    (folder / "x").mkdir(parents=True)
    secret = folder / "x" / "secret"
    secret.write_text("word\n")
    options = {"sasl.password": FromFile(str(secret)), "client.id": "x"}
    for name, (value, bodies) in _kafka_values().items():
        records = [Record(at, body) for at, body in enumerate(bodies)]
        end = Record(len(records), None, Failure("_PARTITION_EOF"))
        for tombstones in (False, True):
            source = Kafka(
                "b:9",
                ["orders"],
                value=value,
                columns=RECORD.names,
                tombstones=tombstones,
                options=options,
            )
            story = Story(
                f"kafka {name} {tombstones}",
                folder / f"{name}{tombstones}",
                of_source(source, dead_letters=True),
                spans(("orders/0", 0, 2), ("orders/0", 2, len(records) + 1), ("orders/1", 0, 2)),
            )

            def context(records: Any = records, end: Any = end) -> Any:
                stack = contextlib.ExitStack()
                stack.enter_context(registry())
                stack.enter_context(kafka_of([records[:1], records[1:], [end]], 0.01))
                return stack

            with context():
                story.begin()
            yield from with_action(context, story.actions())
    for failure in ("_AUTO_OFFSET_RESET", "SASL_AUTHENTICATION_FAILED", "_INVALID_ARG", ""):
        batches = [[Record(0, b"1", Failure(failure))]] if failure else []
        story = Story(
            f"kafka {failure}",
            folder / f"f{failure}",
            of_source(Kafka("b:9", ["orders"])),
            spans(("orders/0", 0, 2)),
        )

        def failing(batches: Any = batches) -> Any:
            return kafka_of(batches, 0.0)

        with failing():
            story.begin()
        yield from with_action(failing, story.actions())
    yield from _of_lost_topics(folder)


def _of_lost_topics(folder: Path) -> Iterator[Action]:
    """Topics that cannot be described behind the rows of one."""
    for failure in ("UNKNOWN_TOPIC_OR_PART", "_TRANSPORT"):
        story = Story(
            f"kafka with no topic: {failure}",
            folder / f"no{failure}",
            of_source(Kafka("b:9", ["orders"])),
            spans(("orders/0", 0, 1)),
        )

        def gone(failure: str = failure) -> Any:
            end = Record(1, None, Failure("_PARTITION_EOF"))
            return kafka_of([[Record(0, b"1")], [end]], 0.01, no_admin(failure))

        with gone():
            story.begin()
        yield from with_action(gone, story.actions())
