"""Rows as JSON objects: which types have a form, and which one."""

import datetime as dt
import decimal
import json

import pyarrow as pa
import pytest

from rekindle.model.errors import InputError
from rekindle_spark.connectors import kafka_sink
from rekindle_spark.connectors.decoding import Json


def test_each_row_is_one_object_with_all_its_columns_in_their_order() -> None:
    moment = dt.datetime(2024, 2, 29, 12, 30, 0, 250_000)
    table = pa.table(
        {
            "n": pa.array([2**63 - 1, None], pa.int64()),
            "x": pa.array([0.5, float("nan")]),
            "text": ["ä\n", ""],
            "at": pa.array([moment, None], pa.timestamp("us")),
            "zoned": pa.array([moment, None], pa.timestamp("ms", "UTC")),
            "fine": pa.array([1_709_209_800_000_000_001, None], pa.timestamp("ns")),
            "finer": pa.array([1_709_209_800_000_000_001, None], pa.timestamp("ns", "UTC")),
            "day": pa.array([moment.date(), None]),
            "price": pa.array([decimal.Decimal("1.10"), None], pa.decimal128(9, 2)),
            "kind": pa.array(["a", "b"]).dictionary_encode(),
            "nested": pa.array([{"list": [1, 2]}, None]),
        }
    )
    kafka_sink.check_json("sink", table.schema)
    first, second = kafka_sink.json_objects(table)
    assert json.loads(first) == {
        "n": 2**63 - 1,
        "x": 0.5,
        "text": "ä\n",
        "at": "2024-02-29T12:30:00.250000",
        "zoned": "2024-02-29T12:30:00.250000Z",
        "fine": "2024-02-29T12:30:00.000000001",
        "finer": "2024-02-29T12:30:00.000000001Z",
        "day": "2024-02-29",
        "price": "1.10",
        "kind": "a",
        "nested": {"list": [1, 2]},
    }
    assert list(json.loads(second)) == table.schema.names
    assert {name: value for name, value in json.loads(second).items() if value is not None} == {
        "text": "",
        "kind": "b",
    }
    assert b"\n" not in first


def test_a_source_reads_what_a_sink_has_written() -> None:
    schema = pa.schema(
        [("at", pa.timestamp("us")), ("key", pa.string()), ("n", pa.int64()), ("x", pa.float64())]
    )
    table = pa.table([[1_000_001, None], ["k", None], [-1, None], [0.1, None]], schema=schema)
    assert Json(schema).decode(kafka_sink.json_objects(table)).rows == table


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.duration("us"),
        pa.map_(pa.string(), pa.int64()),
        pa.list_(pa.timestamp("ns")),
        pa.struct([("a", pa.binary())]),
        pa.time64("ns"),
        pa.month_day_nano_interval(),
    ],
    ids=str,
)
def test_what_has_no_form_is_refused_with_its_column(kind: pa.DataType) -> None:
    with pytest.raises(InputError, match=r"column 'c': has the type .* not written as JSON"):
        kafka_sink.check_json("step late: to", pa.schema([("c", kind)]))
