"""The benchmark of Kafka without a broker: the same rows by all ways, turns, and bars."""

from pathlib import Path

import pyarrow.compute as pc
import pytest

from rekindle.model.errors import RunError
from rekindle_bench import kafka_benchmark, kafka_measurement
from rekindle_bench.kafka_measurement import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    OURS,
    SCHEMA,
    KafkaMeasurement,
)
from rekindle_spark.connectors import kafka_sink
from rekindle_spark.connectors.decoding import Json
from rekindle_spark.connectors.kafka_sink import KafkaSink
from rekindle_spark.output.sink_publishing import TransactionSize


def test_all_decoders_give_the_same_rows() -> None:
    table = kafka_measurement.rows(5, 505)
    values = kafka_sink.json_objects(table)
    assert 90 <= sum(map(len, values)) / len(values) <= 130
    for decode in (kafka_measurement._polars, kafka_measurement._pyarrow):
        assert decode(values).cast(SCHEMA).equals(table)
    assert Json(SCHEMA).decode(values).rows.equals(table)
    assert pc.sum(table[kafka_measurement.SUMMED]).as_py() == sum(range(5, 505))


def test_both_ways_to_write_take_the_same_epochs_together() -> None:
    sink, size = KafkaSink("b:9092", "t"), TransactionSize()
    tables = [kafka_measurement.rows(n * 10_000, (n + 1) * 10_000) for n in range(6)]
    found = [
        [file.epoch for file, _ in one] for one in kafka_measurement._stretches(sink, tables, size)
    ]
    assert [epoch for one in found for epoch in one] == [1, 2, 3, 4, 5, 6]
    assert len(found) == 6, "a mebibyte is less than two epochs, and nobody notes that it is quick"


def test_another_way_begins_in_each_round() -> None:
    orders = [kafka_benchmark.in_turn(("a", "b", "c"), number) for number in range(4)]
    assert [one[0] for one in orders] == ["a", "b", "c", "a"]
    assert all(sorted(one) == ["a", "b", "c"] for one in orders)


def readings(*cpu_seconds: float) -> list[dict[str, KafkaMeasurement]]:
    plain = {"polars": KafkaMeasurement(1.0, 1.5, 7), "pyarrow": KafkaMeasurement(1.0, 1.2, 7)}
    return [{OURS: KafkaMeasurement(9.0, cpu, 7), **plain} for cpu in cpu_seconds]


def writings(*seconds: float) -> list[dict[str, KafkaMeasurement]]:
    plain = KafkaMeasurement(1.8, 1.0, 100)
    return [
        {EXACTLY_ONCE: KafkaMeasurement(one, 1.0, 100), AT_LEAST_ONCE: plain} for one in seconds
    ]


def test_bars_are_about_medians_beside_the_fastest_of_the_others(tmp_path: Path) -> None:
    found = kafka_benchmark.judge(
        readings(2.0, 1.0, 12.0), writings(2.0, 1.9, 9.0), 100, "command", tmp_path
    )
    assert [one["value"] for one in found["bars"]] == ["0.60", "0.90"]
    assert [one["met"] for one in found["bars"]] == [True, True]
    missed = kafka_benchmark.judge(
        readings(2.1, 2.1, 2.1), writings(2.1, 2.1, 2.1), 100, "command", tmp_path
    )
    assert [one["met"] for one in missed["bars"]] == [False, False]
    few = kafka_benchmark.judge(readings(1.0), writings(1.0), 100, "command", tmp_path)
    assert [one["met"] for one in few["bars"]] == [False, False]


def test_ways_that_have_other_rows_are_not_compared(tmp_path: Path) -> None:
    wrong = writings(2.0, 2.0, 2.0)
    wrong[1][EXACTLY_ONCE] = KafkaMeasurement(1.0, 1.0, 101)
    with pytest.raises(RunError, match="not the same rows: exactly-once 101, at-least-once 100"):
        kafka_benchmark.judge(readings(1.0, 1.0, 1.0), wrong, 100, "command", tmp_path)
