"""Decoding: what one value gives depends on that value alone, and none is lost."""

import datetime as dt
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.model.errors import ColumnError, InputError
from rekindle_spark.connectors import decoding
from rekindle_spark.connectors.decoding import Bytes, Csv, Json

SCHEMA = pa.schema([("key", pa.string()), ("value", pa.int64())])
GOOD = st.builds(
    lambda key, value: json.dumps({"key": key, "value": value}).encode(),
    st.text(max_size=5),
    st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
)
BAD = st.sampled_from(
    [
        b"",
        b" \n",
        b"null",
        b"[]",
        b'{"key":',
        b'1}{"key":"a"}',
        b'{"value":1}{"value":2}',
        b'{"value":1}\n{"value":2}',
        b'{"value":1.5}',
        b'{"value":"1"}',
        b'{"value":99999999999999999999}',
        b'{"value":1,"value":2}',
        b'{"key":"\xff"}',
        b'{"key":{}}',
        b"{}}",
        b'{"key":"a"} x',
        b'{"key":"a\nb"}',
    ]
)


@given(st.lists(st.one_of(GOOD, BAD), max_size=12))
def test_a_value_gives_the_same_alone_as_among_others(values: list[bytes]) -> None:
    together = Json(SCHEMA).decode(values)
    assert sorted([*together.places, *together.rejected]) == [*range(len(values))]
    assert together.places == sorted(together.places)
    assert together.rows.schema.equals(SCHEMA)
    rows = dict(zip(together.places, together.rows.to_pylist(), strict=True))
    for place, value in enumerate(values):
        alone = Json(SCHEMA).decode([value])
        assert alone.rows.to_pylist() == ([rows[place]] if place in rows else [])


FIELDS = st.sampled_from(
    ["", "a", '""', '"a, b"', '"a""b"', '"', "1", "-7", "1.5", " 1", "é", "x\r"]
)
TIMES = st.sampled_from(
    ["", "2026-01-02", "2026-01-02T03:04:05", "2026-01-02 03:04:05.5Z", "2026-01-02T03:04:05+02:00"]
)


@given(st.lists(st.tuples(TIMES, FIELDS, FIELDS, st.sampled_from(["", ",", ",x"])), max_size=8))
def test_a_line_of_csv_gives_the_same_alone_as_among_others(
    rows: list[tuple[str, str, str, str]],
) -> None:
    schema = pa.schema([("at", pa.timestamp("us")), *SCHEMA])
    values = [f"{at},{key},{value}{more}".encode() for at, key, value, more in rows]
    together = Csv(schema).decode(values)
    assert sorted([*together.places, *together.rejected]) == [*range(len(values))]
    found = dict(zip(together.places, together.rows.to_pylist(), strict=True))
    for place, value in enumerate(values):
        alone = Csv(schema).decode([value])
        assert alone.rows.to_pylist() == ([found[place]] if place in found else [])


def test_csv_has_values_of_their_types_and_nothing_is_cast() -> None:
    schema = pa.schema([("at", pa.timestamp("us")), *SCHEMA])
    names = ("value", "other", "at", "key")
    lines = [b"1;x;1000;a", b';;2000;""', b"3;x;;"]
    read = Csv(schema, {"at": "ms"}, ";", names).decode(lines).rows.to_pylist()
    assert [(row["at"], row["key"], row["value"]) for row in read] == [
        (dt.datetime(1970, 1, 1, 0, 0, 1), "a", 1),
        (dt.datetime(1970, 1, 1, 0, 0, 2), "", None),
        (None, None, 3),
    ]
    zoned = Csv(schema).decode([b"2026-01-02T03:04:05+02:00,a,1", b"2026-01-02,a,1"]).rows["at"]
    assert zoned.to_pylist() == [dt.datetime(2026, 1, 2, 1, 4, 5), dt.datetime(2026, 1, 2)]


@given(st.lists(GOOD, max_size=8))
def test_whole_objects_are_all_rows(values: list[bytes]) -> None:
    found = Json(SCHEMA).decode(values)
    assert found.rows.to_pylist() == [json.loads(value) for value in values]


def test_every_bad_value_is_rejected_with_a_reason() -> None:
    for value in (b"", b'{"value":"1"}', b'{"value":1}{"value":2}', b'{"key":"\xff"}'):
        found = Json(SCHEMA).decode([b'{"value":7}', value, b'{"value":8}'])
        assert found.rows["value"].to_pylist() == [7, 8]
        assert found.places == [0, 2]
        assert [*found.rejected] == [1]
        assert found.rejected[1]


def test_line_breaks_are_blanks_between_tokens_and_refused_in_texts() -> None:
    found = Json(SCHEMA).decode([b'{"key":"a\nb"}', b'{\n"key":\r\n"a"\n}', b'{"key":"a\rb"}'])
    assert found.rows["key"].to_pylist() == ["a"]
    assert [*found.rejected] == [0, 2]


def test_absent_fields_are_null_and_others_are_ignored() -> None:
    found = Json(SCHEMA).decode([b'{"other":[1],"value":3}', b"{}", b' {"key":"\\u00fc"} '])
    assert found.rows.to_pylist() == [
        {"key": None, "value": 3},
        {"key": None, "value": None},
        {"key": "ü", "value": None},
    ]


def test_times_are_texts_or_numbers_of_a_unit() -> None:
    schema = pa.schema([("at", pa.timestamp("us")), ("seen", pa.timestamp("us", "UTC"))])
    decoder = Json(schema, units={"at": "ms"})
    decoder.check("value")
    found = decoder.decode([b'{"at":1700000000123,"seen":"2024-01-02T03:04:05+02:00"}'])
    assert found.rows.to_pylist() == [
        {
            "at": dt.datetime(2023, 11, 14, 22, 13, 20, 123_000),
            "seen": dt.datetime(2024, 1, 2, 1, 4, 5, tzinfo=dt.UTC),
        }
    ]
    assert [*decoder.decode([b'{"at":9223372036854775807}']).rejected] == [0]


NUMBERS = pa.schema([("key", pa.string()), ("short", pa.float32()), ("long", pa.float64())])


@pytest.mark.parametrize(
    ("decoder", "good", "bad"),
    [
        (Json(NUMBERS), b'{"key":"inf","short":-Infinity}', b'{"key":"inf","short":1e39}'),
        (Json(NUMBERS), b'{"long":1e300}', b'{"long":1e400}'),
        (Csv(NUMBERS), b"inf,-Infinity,", b"inf,1e39,"),
        (Csv(NUMBERS), b"a,,INF", b"a,,-1e400"),
    ],
    ids=["json-short", "json-long", "csv-short", "csv-long"],
)
def test_a_number_that_is_too_large_for_its_type_is_no_infinity(
    decoder: Json | Csv, good: bytes, bad: bytes
) -> None:
    found = decoder.decode([bad, good, bad, good])
    assert (found.places, [*found.rejected]) == ([1, 3], [0, 2])


def test_numbers_in_lists_and_objects_are_no_infinities_either() -> None:
    inner = pa.struct([("x", pa.list_(pa.float32()))])
    decoder = Json(pa.schema([("a", inner)]))
    found = decoder.decode([b'{"a":{"x":[1,1e39]}}', b'{"a":{"x":[Infinity]}}', b'{"a":null}'])
    assert found.places == [1, 2]
    assert found.rows.to_pylist() == [{"a": {"x": [float("inf")]}}, {"a": None}]
    assert "too large for its type" in found.rejected[0]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.uint16()], ids=str)
def test_hexadecimal_digits_are_no_number_of_csv(kind: pa.DataType) -> None:
    decoder = Csv(pa.schema([("key", pa.string()), ("n", kind)]))
    found = decoder.decode([b"0xFF,1", b"a,0xFF", b"b, 0X1", b"0x1,2"])
    assert found.rows.to_pylist() == [{"key": "0xFF", "n": 1}, {"key": "0x1", "n": 2}]
    assert found.rejected == dict.fromkeys(
        (1, 2), "raised ValueError: column 'n': has a number in hexadecimal digits"
    )


def test_a_time_counted_in_hexadecimal_digits_is_none() -> None:
    decoder = Csv(pa.schema([("at", pa.timestamp("us"))]), units={"at": "s"})
    assert [*decoder.decode([b"0xFFFFFFFFFFFFFFFF", b"1"]).rejected] == [0]


def test_numbers_of_a_function_are_no_times() -> None:
    schema = pa.schema([("at", pa.timestamp("us"))])
    found = Bytes(schema, lambda values: pa.table({"at": [1] * len(values)})).decode([b"1"])
    why = "column 'at': has int64, and no unit of these: give it as timestamp[us]"
    assert found.rejected == {0: f"raised ValueError: {why}"}


def test_a_type_of_a_function_that_is_wrong_for_all_values_ends_the_step() -> None:
    schema = pa.schema([("at", pa.timestamp("us"))])

    def counts(values: pa.BinaryArray) -> pa.Table:
        return pa.table({"at": values.cast(pa.string()).cast(pa.int64())})

    with pytest.raises(ColumnError, match=r"of these; give it as timestamp\[us\] in the function"):
        Bytes(schema, counts).decode([b"1", b"2"])


def test_a_byte_order_mark_is_part_of_the_first_value_as_of_any_other() -> None:
    value = "\ufeffa,1".encode()
    found = Csv(SCHEMA).decode([value, value])
    assert found.rows["key"].to_pylist() == ["\ufeffa", "\ufeffa"]


def test_a_row_may_be_larger_than_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "CHUNK_BYTES_MAX", 100)
    large = json.dumps({"key": "x" * 3_000_000, "value": 1}).encode()
    found = Json(SCHEMA).decode([b'{"value":0}', large, b'{"value":2}'])
    assert found.rows["value"].to_pylist() == [0, 1, 2]


def test_types_that_json_does_not_give_are_refused_with_the_column() -> None:
    for kind in (pa.duration("us"), pa.date32(), pa.binary(), pa.list_(pa.time64("us"))):
        with pytest.raises(InputError, match="value: column 'x': has the type"):
            Json(pa.schema([("x", kind)])).check("value")
    with pytest.raises(InputError, match="units of 'value': is of a column that is no timestamp"):
        Json(SCHEMA, units={"value": "ms"}).check("value")


def test_a_function_makes_rows_of_bytes_and_values_for_which_it_raises_are_rejected() -> None:
    def numbers(values: pa.BinaryArray) -> pa.Table:
        return pa.table(
            {"key": values.cast(pa.string()), "value": values.cast(pa.string()).cast(int64)}
        )

    int64 = pa.int64()
    decoder = Bytes(SCHEMA, numbers)
    decoder.check("value")
    found = decoder.decode([b"1", b"x", b"3"])
    assert found.rows["value"].to_pylist() == [1, 3]
    assert "raised ArrowInvalid" in found.rejected[1]


def test_numbers_of_a_function_that_are_too_large_are_no_rows() -> None:
    schema = pa.schema([("x", pa.float32()), ("in", pa.map_(pa.string(), pa.list_(pa.float32())))])

    def doubles(values: pa.BinaryArray) -> pa.Table:
        numbers = [float(one.as_py()) for one in values]
        inner = pa.map_(pa.string(), pa.list_(pa.float64()))
        nested = pa.array([[("a", [number])] for number in numbers], inner)
        return pa.table({"x": numbers, "in": nested})

    found = Bytes(schema, doubles).decode([b"1.5", b"1e39", b"inf"])
    assert found.rows["x"].to_pylist() == [1.5, float("inf")]
    assert found.rejected == {
        1: "raised ValueError: column 'x': has a number that is too large for its type"
    }


def test_a_function_that_gives_other_rows_than_values_is_at_fault() -> None:
    def none(_: Any) -> pa.Table:
        return SCHEMA.empty_table()

    found = Bytes(SCHEMA, none).decode([b"1", b"2"])
    assert [*found.rejected] == [0, 1]
