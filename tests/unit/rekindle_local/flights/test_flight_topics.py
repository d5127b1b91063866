"""Flights as records of topics: the rows of a replay, in its order, and sinks for all queries."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle_local.flights import flight_data, flight_pipeline, flight_topics
from rekindle_local.flights.flight_topics import PARTITIONS, FlightRecords
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.replay import Replay

YEAR_FRACTION = 0.01
# More than the rows of four days.
ROWS = 9_000


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Flights of four days, which repeat."""
    path = tmp_path_factory.mktemp("flights")
    flight_data.prepare(path, YEAR_FRACTION)
    return path


def taken(records: FlightRecords) -> Iterator[tuple[str, int, str]]:
    for rows in (1, 0, 699, ROWS - 700):
        yield from records.take(rows)


def test_records_are_the_rows_of_a_replay_in_its_order(directory: Path) -> None:
    records = FlightRecords(directory)
    found: dict[tuple[str, int], list[dict[str, object]]] = {}
    for name, partition, value in taken(records):
        found.setdefault((name, partition), []).append(json.loads(value))
    assert sum(records.written.values()) == sum(map(len, found.values())) == ROWS
    for name, partitions in PARTITIONS.items():
        path = directory / flight_data.file_name(name)
        period = flight_data.repeat_every_seconds(path)
        replay = Replay(str(path), event_time="event_time", repeat_every_seconds=period)
        assert records.written[name] > replay.file_rows, "one lap and more"
        rows = replay.read(0, records.written[name])
        times = rows["event_time"].cast("int64")
        wanted = rows.set_column(rows.schema.names.index("event_time"), "event_time", times)
        for partition in range(partitions):
            assert found[name, partition] == wanted.to_pylist()[partition::partitions]


def test_all_sources_come_together_in_order_of_event_time(directory: Path) -> None:
    times = [json.loads(value)["event_time"] for *_, value in taken(FlightRecords(directory))]
    assert times == sorted(times)


def test_each_query_has_a_topic_with_a_partition_for_each_of_its_own(directory: Path) -> None:
    built = program.build(flight_pipeline.build(directory, servers="127.0.0.1:1"))
    sinks = {sink.name: sink.to for chain in built.chains for sink in chain.sinks}
    assert set(sinks) == set(flight_pipeline.QUERY_KEYS)
    assert all(sink is not None and sink.topic == name for name, sink in sinks.items())
    topics = flight_topics.topics(built)
    assert set(topics) == {*flight_data.SOURCES, *sinks}
    replayed = program.build(flight_pipeline.build(directory))
    assert {chain.name: chain.parallelism for chain in built.chains} == {
        chain.name: chain.parallelism for chain in replayed.chains
    }
