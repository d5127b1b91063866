"""Avro with a registry on this machine: known and unknown schemas, and a registry that is away."""

import base64
import datetime as dt
import decimal
import io
import json
import pickle
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

import fastavro
import pyarrow as pa
import pytest
import tls_servers

from rekindle.model.errors import InputError, SourceAwayError
from rekindle_spark.connectors import avro_values
from rekindle_spark.connectors.avro_values import Avro
from rekindle_spark.connectors.decoding import Decoded
from rekindle_spark.connectors.hidden_values import FromFile

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string()), ("value", pa.int64())])
AT = {"type": "long", "logicalType": "timestamp-millis"}
FIRST = {
    "type": "record",
    "name": "order",
    "fields": [{"name": "at", "type": AT}, {"name": "key", "type": ["null", "string"]}],
}
SECOND = {
    "type": "record",
    "name": "order",
    "fields": [
        {"name": "value", "type": "long"},
        {"name": "other", "type": {"type": "array", "items": "int"}},
    ],
}
OF_TEXT = {"type": "record", "name": "order", "fields": [{"name": "value", "type": "string"}]}
SCHEMAS: dict[int, Any] = {1: FIRST, 2: SECOND, 3: OF_TEXT}
USER = "reader:swordfish"


class Registry(ThreadingHTTPServer):
    """Knows SCHEMAS; `asked` are the numbers, `status` what it answers instead where it is set."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.asked: list[int] = []
        self.status = 0
        self.unknown = b'{"error_code":40403,"message":"Schema not found"}'
        self.wants = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Answering(BaseHTTPRequestHandler):
    """One request."""

    server: Registry

    def do_GET(self) -> None:
        number = int(self.path.rpartition("/")[2])
        self.server.asked.append(number)
        status = self.server.status or (200 if number in SCHEMAS else 404)
        if self.server.wants and self.headers["Authorization"] != self.server.wants:
            status = 401
        body = json.dumps({"schema": json.dumps(SCHEMAS.get(number))}).encode()
        if status == 404 and not self.server.status:
            body = self.server.unknown
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setattr(avro_values, "ASK_AGAIN_SECONDS", 0.01)
    with Registry() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def value(number: int, record: dict[str, Any]) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(SCHEMAS[number]), record)
    return struct.pack(">bI", 0, number) + body.getvalue()


def order(second: int, key: str | None) -> bytes:
    return value(1, {"at": dt.datetime(2024, 1, 1, 0, 0, second, tzinfo=dt.UTC), "key": key})


def test_values_of_several_schemas_are_rows_and_each_schema_is_asked_for_once(
    registry: Registry,
) -> None:
    decoder = Avro(SCHEMA, registry.url)
    decoder.check("value")
    values = [order(1, "a"), value(2, {"value": 7, "other": [1]}), order(2, None)]
    found = decoder.decode(values)
    assert found.rows.to_pylist() == [
        {"at": dt.datetime(2024, 1, 1, 0, 0, 1), "key": "a", "value": None},
        {"at": None, "key": None, "value": 7},
        {"at": dt.datetime(2024, 1, 1, 0, 0, 2), "key": None, "value": None},
    ]
    decoder.decode(values)
    assert registry.asked == [1, 2]


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 4}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
NANOS = {"type": "long", "logicalType": "timestamp-nanos"}
CLOCK = {"type": "long", "logicalType": "time-micros"}
INNER = {
    "type": "record",
    "name": "inner",
    "fields": [{"name": "a", "type": "double"}, {"name": "b", "type": "long"}],
}
MOMENT = dt.datetime(2024, 1, 1, 1, 2, 3, 456_789, tzinfo=dt.UTC)
CUT: list[tuple[Any, Any, pa.DataType]] = [
    ("double", 1.5, pa.int64()),
    ("double", 1e39, pa.float32()),
    ("double", 1.5, pa.timestamp("us")),
    ("long", 1_700_000_000_000, pa.timestamp("us")),
    (NANOS, 1_700_000_000_000_000_000, pa.timestamp("us")),
    (MICROS, MOMENT, pa.timestamp("s")),
    (MICROS, MOMENT, pa.date32()),
    (CLOCK, dt.time(1, 2, 3, 4), pa.time32("s")),
    (DECIMAL, decimal.Decimal("1.2345"), pa.int64()),
    ({"type": "array", "items": "double"}, [1.5], pa.list_(pa.int64())),
    ({"type": "array", "items": "long"}, [5], pa.list_(pa.timestamp("us"))),
    ({"type": "map", "values": "double"}, {"k": 1.5}, pa.map_(pa.string(), pa.int8())),
    (INNER, {"a": 1.5, "b": 2}, pa.struct([("a", pa.int64())])),
]


def decoded(registry: Registry, kind: Any, given: Any, field: pa.Field, **units: str) -> Decoded:
    """A value of a kind of Avro's, in a record alone."""
    record = {"type": "record", "name": "one", "fields": [{"name": "x", "type": kind}]}
    with mock.patch.dict(SCHEMAS, {4: record}):
        decoder = Avro(pa.schema([field]), registry.url, units=units)
        decoder.check("value")
        return pickle.loads(pickle.dumps(decoder)).decode([value(4, {"x": given})])


@pytest.mark.parametrize(("kind", "given", "column"), CUT, ids=[str(kind) for *_, kind in CUT])
def test_a_value_that_its_column_would_cut_or_take_for_another_is_rejected(
    kind: Any, given: Any, column: pa.DataType, registry: Registry
) -> None:
    found = decoded(registry, kind, given, pa.field("x", column))
    assert found.rows.num_rows == 0
    assert "raised TypeError: found" in found.rejected[0]


def test_what_its_column_holds_is_a_row_and_records_may_have_more_fields(
    registry: Registry,
) -> None:
    column = pa.field("x", pa.list_(pa.struct([("a", pa.int64()), ("c", pa.string())])))
    kind = {"type": "array", "items": INNER}
    found = decoded(registry, kind, [{"a": 2.0, "b": 2}], column)
    assert found.rows.to_pylist() == [{"x": [{"a": 2, "c": None}]}]
    column = pa.field("x", pa.map_(pa.string(), pa.int8()))
    found = decoded(registry, {"type": "map", "values": "long"}, {"k": 1}, column)
    assert found.rows.to_pylist() == [{"x": [("k", 1)]}]
    required = pa.field("x", pa.int64(), nullable=False)
    found = decoded(registry, ["null", "long"], None, required)
    assert "column 'x' has nulls, and may have none" in found.rejected[0]


@pytest.mark.parametrize(("unit", "count"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_whole_numbers_are_times_where_their_unit_is_given(
    unit: str, count: int, registry: Registry
) -> None:
    column = pa.field("x", pa.timestamp("us"))
    for kind in ("long", NANOS):
        found = decoded(registry, kind, 1_700_000_000 * count, column, x=unit)
        assert found.rows["x"].to_pylist() == [dt.datetime(2023, 11, 14, 22, 13, 20)]
    finer = decoded(registry, "long", 1_700_000_000_000_000_001, column, x="ns")
    assert "would lose data" in finer.rejected[0]
    assert decoded(registry, MICROS, MOMENT, column, x=unit).rows.num_rows == 0


CLOCKS = [
    (pa.duration("us"), "ms", 1_500, dt.timedelta(seconds=1.5)),
    (pa.duration("s"), "s", 90, dt.timedelta(seconds=90)),
    (pa.time64("us"), "ms", 3_723_004, dt.time(1, 2, 3, 4_000)),
    (pa.time64("us"), "us", 3_723_000_004, dt.time(1, 2, 3, 4)),
    (pa.time32("s"), "ns", 3_723_000_000_000, dt.time(1, 2, 3)),
]


@pytest.mark.parametrize(
    ("column", "unit", "given", "wanted"), CLOCKS, ids=[f"{one[0]} {one[1]}" for one in CLOCKS]
)
def test_whole_numbers_are_durations_and_times_of_day_where_their_unit_is_given(
    column: pa.DataType, unit: str, given: int, wanted: Any, registry: Registry
) -> None:
    found = decoded(registry, "long", given, pa.field("x", column), x=unit)
    assert found.rows["x"].to_pylist() == [wanted]
    found = decoded(registry, "long", given, pa.field("x", column))
    assert "for a time: name the column's unit in `units`" in found.rejected[0]
    if unit != "s":  # one more is no whole value of the column, or a day has fewer
        more = given + 1 if unit == "ns" else 10**12
        assert decoded(registry, "long", more, pa.field("x", column), x=unit).rejected or (
            pa.types.is_duration(column)
        )


def test_a_whole_number_for_a_date_is_rejected_with_what_to_declare(registry: Registry) -> None:
    found = decoded(registry, "long", 5, pa.field("x", pa.date32()))
    assert "declare a whole number, and convert it in a map" in found.rejected[0]


DECIMAL = {"logicalType": "decimal", "precision": 4, "scale": 2}
PRECISE = {
    "type": "record",
    "name": "precise",
    "fields": [
        {"name": "price", "type": ["null", {"type": "bytes", **DECIMAL}]},
        {"name": "rate", "type": {"type": "fixed", "name": "two", "size": 3, **DECIMAL}},
        {"name": "again", "type": "two"},
        {"name": "at", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "to", "type": {"type": "long", "logicalType": "time-micros"}},
    ],
}


def precise(number: int, at: int, to: int) -> bytes:
    """A value as a writer makes it that does not look at the precision."""
    unscaled = number.to_bytes(3, "big", signed=True)
    plain = {
        "type": "record",
        "name": "precise",
        "fields": [
            {"name": "price", "type": ["null", "bytes"]},
            {"name": "rate", "type": {"type": "fixed", "name": "two", "size": 3}},
            {"name": "again", "type": "two"},
            {"name": "at", "type": "int"},
            {"name": "to", "type": "long"},
        ],
    }
    body = io.BytesIO()
    row = {"price": unscaled, "rate": unscaled, "again": unscaled, "at": at, "to": to}
    fastavro.schemaless_writer(body, fastavro.parse_schema(plain), row)
    return struct.pack(">bI", 0, 7) + body.getvalue()


def test_decimals_have_all_digits_and_times_of_day_are_within_one(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SCHEMAS, 7, PRECISE)
    money = pa.decimal128(9, 2)
    times = [("at", pa.time32("ms")), ("to", pa.time64("us"))]
    schema = pa.schema([("price", money), ("rate", money), ("again", money), *times])
    last = precise(-123_456, 86_399_999, 86_399_999_999)
    wrong = precise(1, -1, 0), precise(1, 0, -1), precise(1, 86_400_000, 0)
    found = Avro(schema, registry.url).decode([last, *wrong])
    exact, end = decimal.Decimal("-1234.56"), dt.time(23, 59, 59, 999_000)
    assert found.rows.to_pylist() == [
        {"price": exact, "rate": exact, "again": exact, "at": end, "to": dt.time.max}
    ]
    assert [*found.rejected] == [1, 2, 3]
    assert found.rejected[2] == "raised ValueError: has -1 us for a time of day, which is none"


def test_what_is_no_value_of_a_known_schema_is_rejected_alone(registry: Registry) -> None:
    unknown = struct.pack(">bI", 0, 99) + b"x"
    bad = [b"", b"{}", unknown, order(1, "a")[:-1], order(1, "a") + b"x", value(3, {"value": "x"})]
    decoder = Avro(SCHEMA, registry.url)
    for one in bad:
        found = decoder.decode([order(3, "c"), one, order(4, "d")])
        assert found.rows["key"].to_pylist() == ["c", "d"], one
        assert [*found.rejected] == [1], one
    assert "unknown schema 99" in decoder.decode([unknown]).rejected[0]


def test_an_unknown_number_is_asked_for_once_in_a_batch_and_again_after_some_seconds(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    unknown, decoder = struct.pack(">bI", 0, 99) + b"x", Avro(SCHEMA, registry.url)
    values = [order(1, "a"), unknown, *[order(2, "b")] * 5, unknown]
    assert [*decoder.decode(values).rejected] == [1, 7]
    assert [*decoder.decode([unknown]).rejected] == [0]
    assert registry.asked == [1, *[99] * avro_values.ASKS_MAX]
    assert caplog.messages == [f"schema registry {registry.url}: has no schema 99"]
    monkeypatch.setattr(avro_values, "UNKNOWN_SECONDS", 0.0)
    monkeypatch.setitem(SCHEMAS, 99, FIRST)
    known = struct.pack(">bI", 0, 99) + order(3, "c")[5:]
    assert decoder.decode([known]).rows["key"].to_pylist() == ["c"]


@pytest.mark.parametrize("status", [503, 404])
def test_a_registry_that_is_away_or_refuses_makes_the_source_away(
    registry: Registry, status: int
) -> None:
    registry.status = status  # a page that is not there is no schema that is unknown
    with pytest.raises(SourceAwayError, match=rf"cannot be reached \(answers {status}\)"):
        Avro(SCHEMA, registry.url).decode([order(1, "a")])
    with pytest.raises(SourceAwayError, match=r"reached \(.*Connection refused\); see that it is"):
        Avro(SCHEMA, "http://127.0.0.1:1").decode([order(1, "a")])


@pytest.mark.parametrize(
    ("status", "remedy"), [(401, "see its credentials"), (403, "let its user read schemas")]
)
def test_a_registry_that_refuses_its_user_says_so(
    registry: Registry, status: int, remedy: str
) -> None:
    registry.status = status
    with pytest.raises(SourceAwayError, match=rf"\(answers {status}\); {remedy}"):
        Avro(SCHEMA, registry.url).decode([order(1, "a")])


def test_a_registry_whose_certificate_is_not_trusted_says_so(tmp_path: Path) -> None:
    with (
        tls_servers.tls_server(tls_servers.tls_files(tmp_path)) as (host, port),
        pytest.raises(SourceAwayError, match=r"certificate verify failed.*; let the nodes trust"),
    ):
        Avro(SCHEMA, f"https://{host}:{port}").decode([order(1, "a")])


UNKNOWN = struct.pack(">bI", 0, 99) + b"x"


@pytest.mark.parametrize(
    "said", [b'{"error_code":40403}', b'{"error_code":404}', b'{"error_code":"40403"}']
)
def test_a_registry_may_word_otherwise_that_it_has_no_such_schema(
    said: bytes, registry: Registry
) -> None:
    registry.unknown = said
    found = Avro(SCHEMA, registry.url).decode([order(1, "a"), UNKNOWN])
    assert "unknown schema 99" in found.rejected[1]


@pytest.mark.parametrize("said", [b"<html>", b'{"message":"no route"}', b'["error_code"]', b"404"])
def test_a_page_that_is_not_there_is_not_what_a_registry_says(
    said: bytes, registry: Registry
) -> None:
    registry.unknown = said
    with pytest.raises(SourceAwayError, match="answers 404"):
        Avro(SCHEMA, registry.url).decode([UNKNOWN])


def test_a_registry_that_dies_within_an_answer_is_away(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(answering: Answering) -> None:
        answering.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{")

    monkeypatch.setattr(Answering, "do_GET", half)
    with pytest.raises(SourceAwayError, match=r"cannot be reached \(IncompleteRead\)"):
        Avro(SCHEMA, registry.url).decode([order(1, "a")])


def test_a_schema_that_is_none_of_avro_is_asked_for_once(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(SCHEMAS, 5, {"type": "record", "name": "order", "fields": [{"name": "x"}]})
    of_others = struct.pack(">bI", 0, 5) + b"x"
    decoder = Avro(SCHEMA, registry.url)
    found = decoder.decode([order(1, "a"), *[of_others] * 9, order(2, "b")])
    assert [*found.rejected] == [*range(1, 10)]
    assert all("has schema 5, which cannot be read" in why for why in found.rejected.values())
    assert found.rows["key"].to_pylist() == ["a", "b"]
    assert registry.asked == [1, 5]
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(
    "schema", [{"type": "array"}, {"type": "nosuch"}, None, 5, {"type": {}}], ids=str
)
def test_what_is_nothing_like_a_schema_is_asked_for_once_as_well(
    schema: Any, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SCHEMAS, 5, schema)
    of_others = struct.pack(">bI", 0, 5) + b"x"
    assert len(Avro(SCHEMA, registry.url).decode([of_others] * 9).rejected) == 9
    assert registry.asked == [5]


@pytest.mark.parametrize("error", [MemoryError, OSError, ImportError])
def test_what_fails_on_the_node_is_no_fault_of_a_schema(
    error: type[Exception], registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = Avro(SCHEMA, registry.url)
    with monkeypatch.context() as failing:
        failing.setattr(fastavro, "parse_schema", mock.Mock(side_effect=error))
        with pytest.raises(error):
            decoder._schema(1)
    assert decoder.decode([order(1, "a")]).rows.num_rows == 1


def test_credentials_are_read_where_they_are_needed_and_sent_nowhere_else(
    registry: Registry, tmp_path: Path
) -> None:
    (tmp_path / "user").write_text(USER + "\n")
    registry.wants = "Basic " + base64.b64encode(USER.encode()).decode()
    decoder = Avro(SCHEMA, registry.url, FromFile(str(tmp_path / "user")))
    sent = pickle.dumps(decoder)
    assert b"swordfish" not in sent
    assert pickle.loads(sent).decode([order(1, "a")]).rows.num_rows == 1
    with pytest.raises(SourceAwayError, match="answers 401"):
        Avro(SCHEMA, registry.url).decode([order(1, "a")])


def test_what_is_no_registry_and_passwords_in_the_open_are_refused() -> None:
    for wrong, text in (
        (Avro(SCHEMA, "registry:8081"), "registry: is 'registry:8081'"),
        (Avro(SCHEMA, "http://a:b@registry"), "registry: has a password"),
        (Avro(SCHEMA, "http://r", "a:b"), "registry: has a password"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InputError, match=text):
            wrong.check("value")
