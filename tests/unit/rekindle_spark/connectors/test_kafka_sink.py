"""Sinks of Kafka without a broker: what they refuse, and the records that rows become."""

import json
import pickle
from typing import Any

import pyarrow as pa
import pytest

from rekindle.model.errors import InputError, RunError
from rekindle_spark.connectors import kafka_sink
from rekindle_spark.connectors.kafka_sink import KafkaSink, json_objects
from rekindle_spark.pipeline.steps import Pipeline
from rekindle_spark.testing.table_source import TableSource

ROWS = pa.table(
    {
        "at": pa.array([1, 2], pa.timestamp("us")),
        "key": ["a", None],
        "n": [1, 2],
    }
)


def first_byte_of_each(table: pa.Table) -> pa.Array:
    return pa.array([key and key[:1] for key in table["key"].to_pylist()], pa.string())


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"servers": " "}, "KafkaSink: servers: is ' '"),
        ({"topic": ["a"]}, "KafkaSink: topic of type list: is no name"),
        ({"topic": "a b"}, "KafkaSink: topic 'a b': is no name"),
        ({"value": "json"}, "KafkaSink: value: is 'json'; give a function of a table"),
        ({"patience_seconds": -1}, "KafkaSink: patience_seconds: is -1"),
        ({"options": {"transactional.id": "x"}}, "'transactional.id': is set by Rekindle"),
        ({"options": {"sasl.password": "x"}}, "option 'sasl.password': is a secret"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(given: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError) as refused:
        KafkaSink(**{"servers": "b:9092", "topic": "t", **given})
    assert text in str(refused.value)


def test_a_sink_takes_an_option_that_is_set_for_sources_alone() -> None:
    options = {"queued.max.messages.kbytes": 1_000}
    assert KafkaSink("b:9092", "t", options=options).options == options


@pytest.mark.parametrize(
    ("to", "text"),
    [
        ("t", "step late: to: is 't'; give a KafkaSink"),
        (
            KafkaSink("b:9092", "t", key="k"),
            "step late: to: key 'k': is no column; name one of: at",
        ),
        (KafkaSink("b:9092", "t", key="n"), "step late: to: key 'n': has the type int64"),
        (KafkaSink("b:9092", "t"), "step late: to: column 'raw': has the type binary"),
    ],
)
def test_a_query_refuses_a_sink_that_its_rows_do_not_fit(to: Any, text: str) -> None:
    raw = ROWS.append_column("raw", pa.array([b"", b""], pa.binary()))
    stream = Pipeline("relayed").source("rows", TableSource(raw, "at"))
    with pytest.raises(InputError) as refused:
        stream.sink("late", to=to)
    assert text in str(refused.value)


def test_rows_become_objects_with_the_key_that_a_column_has() -> None:
    sink = pickle.loads(pickle.dumps(KafkaSink("b:9092", "t", key="key")))
    records = sink.records("late", ROWS)
    assert records.keys == [b"a", None]
    assert records.values == [
        b'{"at":"1970-01-01T00:00:00.000001","key":"a","n":1}',
        b'{"at":"1970-01-01T00:00:00.000002","key":null,"n":2}',
    ]
    assert KafkaSink("b:9092", "t").records("late", ROWS).keys is None


def test_a_function_gives_values_and_null_is_a_record_without_one() -> None:
    records = KafkaSink("b:9092", "t", value=first_byte_of_each).records("late", ROWS)
    assert records.values == [b"a", None]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (lambda _: 1 // 0, "raised ZeroDivisionError"),
        (lambda table: table, "gave no array with a value for each row"),
        (lambda table: table["key"][:1], "gave no array with a value for each row"),
        (lambda table: table["n"], "gave values of type int64, not texts or bytes"),
    ],
)
def test_a_function_that_fails_is_named_with_its_query(value: Any, text: str) -> None:
    with pytest.raises(RunError, match="query late: value of its KafkaSink") as refused:
        KafkaSink("b:9092", "t", value=value).records("late", ROWS)
    assert text in str(refused.value)


def test_text_that_is_no_utf_8_is_no_value() -> None:
    text = pa.array([b"\xff"]).view(pa.string())
    for column in (text, pa.ListArray.from_arrays(pa.array([0, 1]), text)):
        with pytest.raises(UnicodeDecodeError):
            json_objects(pa.table({"x": column}))


def test_times_that_python_cannot_hold_are_null_and_all_others_as_they_are() -> None:
    late = 253_402_300_800_000_000  # the first moment of year 10000
    moments = pa.array([0, late, None, -62_135_596_800_000_001], pa.timestamp("us"))
    days = pa.array([0, 2_932_897, None, -719_163], pa.date32())
    nested = pa.array([[0, late], [], None, [late]], pa.list_(pa.timestamp("us", "UTC")))
    inside = pa.StructArray.from_arrays([moments, days], names=["m", "d"])
    table = pa.table({"at": moments, "day": days, "all": nested, "in": inside, "n": [1, 2, 3, 4]})
    found = [json.loads(one) for one in json_objects(table)]
    first, day = "1970-01-01T00:00:00", "1970-01-01"
    nothing = {"m": None, "d": None}
    assert found == [
        {"at": first, "day": day, "all": [f"{first}Z", None], "in": {"m": first, "d": day}, "n": 1},
        {"at": None, "day": None, "all": [], "in": nothing, "n": 2},
        {"at": None, "day": None, "all": None, "in": nothing, "n": 3},
        {"at": None, "day": None, "all": [None], "in": nothing, "n": 4},
    ]


def test_objects_are_the_same_however_many_are_made_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = pa.table({"n": pa.array(range(25)), "at": pa.array([10**15] * 25, pa.timestamp("s"))})
    whole = json_objects(table)
    monkeypatch.setattr(kafka_sink, "ROWS_AT_ONCE", 10)
    assert json_objects(table) == whole
    assert len(whole) == 25
    assert json_objects(table.slice(0, 0)) == []
