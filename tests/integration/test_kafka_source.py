"""The source of Kafka on a real broker, without Spark: ranges, absences, what is gone."""

import datetime as dt
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import broker
import pyarrow as pa
import pytest
from broker import Broker
from confluent_kafka import TopicPartition

from rekindle.model.errors import DataLossError, InputError, SourceAwayError
from rekindle_local import process_sets
from rekindle_spark.connectors import kafka_ranges
from rekindle_spark.connectors.kafka import LATEST, Kafka
from rekindle_spark.driver import source_intake
from rekindle_spark.driver.source_intake import Intake, Intakes, Lost, SourceAnswer
from rekindle_spark.executor import source_reading
from rekindle_spark.pipeline.unbounded_source import SKIP, SourceTerms

LIMIT_SECONDS = 120.0


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all tests; each has topics of its own."""
    started = Broker(folder=tmp_path_factory.mktemp("broker"), jars=broker.jars())
    try:
        started.start()
        yield started
    finally:
        started.close()


def source(kafka: Broker, *topics: str, **given: object) -> Kafka:
    columns = ("kafka_offset", "kafka_timestamp", "kafka_timestamp_type", "kafka_key")
    return Kafka(kafka.servers, topics=topics, columns=columns, **given)  # type: ignore[arg-type]


def read(found: Kafka, partition: str, start: int, end: int) -> pa.Table:
    return found.read(partition, start, end).rows


def test_ranges_have_committed_records_alone_whatever_takes_offsets_between_them(
    kafka: Broker,
) -> None:
    kafka.make_topic("mixed")
    kafka.produce_transaction("mixed", 0, [b"a", b"b", b"c"])
    kafka.produce_transaction("mixed", 0, [b"x", b"y"], commits=False)
    kafka.produce("mixed", 0, [b"d", b"e"], key=b"k")
    kafka.produce_transaction("mixed", 0, [b"f"])
    found = source(kafka, "mixed")
    end = found.latest_offsets()["mixed/0"].latest
    values = read(found, "mixed/0", 0, end)["kafka_value"].to_pylist()
    assert values == [b"a", b"b", b"c", b"d", b"e", b"f"]
    offsets = read(found, "mixed/0", 0, end)["kafka_offset"].to_pylist()
    for start in range(end + 1):
        for stop in range(start, end + 1):
            wanted = [offset for offset in offsets if start <= offset < stop]
            got = read(found, "mixed/0", start, stop)["kafka_offset"].to_pylist()
            assert got == wanted, (start, stop)


def test_what_an_open_transaction_holds_back_is_not_there_yet(kafka: Broker) -> None:
    from confluent_kafka import Producer

    kafka.make_topic("open")
    kafka.produce("open", 0, [b"a"])
    settings = {"bootstrap.servers": kafka.servers, "transactional.id": "open", "log_level": "2"}
    producer = Producer(settings)
    producer.init_transactions(LIMIT_SECONDS)
    producer.begin_transaction()
    producer.produce("open", b"b", partition=0)
    producer.flush(LIMIT_SECONDS)
    kafka.produce("open", 0, [b"c"])
    found = source(kafka, "open")
    assert found.latest_offsets()["open/0"].latest == 1
    producer.commit_transaction(LIMIT_SECONDS)
    # it has returned once its coordinator knows: the partition is told after that
    assert process_sets.await_condition(
        lambda: found.latest_offsets()["open/0"].latest > 1, limit_seconds=LIMIT_SECONDS
    )
    end = found.latest_offsets()["open/0"].latest
    assert read(found, "open/0", 0, end)["kafka_value"].to_pylist() == [b"a", b"b", b"c"]


def test_reading_begins_where_it_is_wanted_and_new_partitions_are_seen(kafka: Broker) -> None:
    kafka.make_topic("growing.one")
    kafka.produce("growing.one", 0, [b"a", b"b"])
    pattern = Kafka(kafka.servers, pattern=r"growing\..*", start=LATEST)
    assert pattern.initial_offsets() == {"growing.one/0": 2}
    kafka.add_partitions("growing.one", 2)
    kafka.make_topic("growing.two")
    kafka.make_topic("growing-three")
    there = pattern.latest_offsets()
    assert [*there] == ["growing.one/0", "growing.one/1", "growing.two/0"]
    assert there["growing.one/1"].oldest == there["growing.one/1"].latest == 0


def test_a_topic_that_is_made_anew_has_another_identity(kafka: Broker) -> None:
    kafka.make_topic("again")
    found = source(kafka, "again")
    before = found.latest_offsets()["again/0"].identity
    kafka.delete_topic("again")
    assert found.latest_offsets() == {}
    kafka.make_topic("again")
    assert found.latest_offsets()["again/0"].identity != before
    with pytest.raises(InputError, match="has no topic 'nowhere'"):
        source(kafka, "nowhere").latest_offsets()


def test_records_of_a_topic_that_was_recreated_are_not_those_that_are_logged(
    kafka: Broker,
) -> None:
    kafka.make_topic("twice")
    kafka.produce("twice", 0, [b"a", b"b"])
    found = source(kafka, "twice")
    identity = found.latest_offsets()["twice/0"].identity
    logged = [("twice/0", 0, 2, identity)]
    rows = source_reading.read(found, logged, lambda given: given, time.time()).rows
    assert rows["kafka_value"].to_pylist() == [b"a", b"b"]
    kafka.delete_topic("twice")
    kafka.make_topic("twice")
    kafka.produce("twice", 0, [b"c", b"d", b"e"])
    with pytest.raises(DataLossError, match="topic twice: was recreated, and records of the one"):
        source_reading.read(source(kafka, "twice"), logged, lambda given: given, time.time())


def test_a_pattern_leaves_out_the_topics_of_kafka_itself(kafka: Broker) -> None:
    kafka.make_topic("plain")
    kafka.produce_transaction("plain", 0, [b"a"])
    there = kafka.admin.list_topics(timeout=LIMIT_SECONDS).topics
    assert "__transaction_state" in there
    found = Kafka(kafka.servers, pattern=".*").latest_offsets()
    assert "plain/0" in found
    assert not [name for name in found if name.startswith("__")]


def test_offsets_that_have_expired_are_told_and_cannot_be_read(kafka: Broker) -> None:
    kafka.make_topic("short")
    kafka.produce("short", 0, [b"%d" % n for n in range(10)])
    found = source(kafka, "short")
    assert read(found, "short/0", 0, 3).num_rows == 3
    at = TopicPartition("short", 0, 6)
    admin = kafka.admin
    admin.delete_records([at])[at].result()
    assert found.latest_offsets()["short/0"].oldest == 6
    with pytest.raises(DataLossError, match="topic short, partition 0: has not all records"):
        read(found, "short/0", 0, 3)
    assert read(found, "short/0", 6, 10)["kafka_value"].to_pylist() == [b"6", b"7", b"8", b"9"]


def test_both_kinds_of_timestamps_are_read(kafka: Broker) -> None:
    kafka.make_topic("created")
    kafka.make_topic("appended", message_timestamp_type="LogAppendTime")
    for topic, kind in (("created", "create"), ("appended", "append")):
        kafka.produce(topic, 0, [b"a"], timestamp=1_700_000_000_123)
        row = read(source(kafka, topic), f"{topic}/0", 0, 1).to_pylist()[0]
        assert row["kafka_timestamp_type"] == kind
        is_given = row["kafka_timestamp"].replace(tzinfo=dt.UTC).timestamp() == 1_700_000_000.123
        assert is_given == (kind == "create")


def test_records_of_other_peoples_producers_are_as_they_were_written(kafka: Broker) -> None:
    headers = [("trace", b"1"), ("trace", None), ("größe", b""), ("", b"\xff")]
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topic = f"of-{codec}"
        kafka.make_topic(topic, compression_type=codec if codec != "none" else "uncompressed")
        kafka.produce(topic, 0, [b"a" * 1_000, None, b""], headers=headers)
        kafka.produce(topic, 0, [b"timeless"], timestamp=-1)
        columns = ("kafka_headers", "kafka_timestamp", "kafka_timestamp_type", "kafka_key")
        found = Kafka(kafka.servers, [topic], columns=columns, tombstones=True)
        rows = read(found, f"{topic}/0", 0, 4).to_pylist()
        assert [row["kafka_value"] for row in rows] == [b"a" * 1_000, None, b"", b"timeless"]
        given = [(one["name"], one["value"]) for one in rows[1]["kafka_headers"]]
        assert given == headers
        assert [row["kafka_timestamp"] is None for row in rows] == [False, False, False, True]
        assert rows[3]["kafka_timestamp_type"] is None
        assert {row["kafka_key"] for row in rows} == {None}


def test_large_records_are_read(kafka: Broker) -> None:
    kafka.make_topic("large", max_message_bytes="20000000")
    value = b"x" * 10_000_000
    kafka.produce("large", 0, [b"a", value, b"c"])
    found = read(source(kafka, "large"), "large/0", 0, 3)["kafka_value"].to_pylist()
    assert found == [b"a", value, b"c"]


def test_a_log_that_was_cut_back_is_told_by_its_end_and_by_the_epoch_of_its_leader(
    kafka: Broker,
) -> None:
    kafka.make_topic("cut")
    for number in range(10):
        kafka.produce("cut", 0, [b"%d" % number])  # a batch each
    found = source(kafka, "cut")
    intake = Intake("numbers", SourceTerms(on_data_loss=SKIP), source_intake.beginning(100.0))
    intakes = Intakes({"numbers": intake})
    intake.heed(SourceAnswer(101.0, found.latest_offsets()))
    assert intakes.cut(101.0, 10)["numbers"].spans[0][1:3] == [0, 10]
    assert read(found, "cut/0", 0, 10).num_rows == 10
    kafka.kill()
    cut_back(kafka.folder / "data" / "cut-0" / "00000000000000000000.log", 7)
    kafka.start()
    there = answered(found)
    assert there["cut/0"].latest == 7
    for at in (102.0, 117.0):
        intake.heed(SourceAnswer(at, there))
        told = intakes.cut(at, 10)["numbers"]
    assert told.lost == (Lost("cut/0", 10, 10, "its log was cut back to offset 7"),)
    kafka.produce("cut", 0, [b"new"] * 5)
    intake.heed(SourceAnswer(118.0, found.latest_offsets()))
    assert intakes.cut(118.0, 10)["numbers"].spans[0][1:3] == [7, 12]
    # a node that goes on where it has ended would leave out what was written before that
    with pytest.raises(DataLossError, match="partition 0: has not all records of offsets 10 to 12"):
        read(found, "cut/0", 10, 12)
    assert read(found, "cut/0", 7, 12)["kafka_value"].to_pylist() == [b"new"] * 5


def cut_back(log: Path, batches: int) -> None:
    """Leave so many batches of a partition's log; each says its length behind its offset."""
    data, end = log.read_bytes(), 0
    for _ in range(batches):
        end += 12 + int.from_bytes(data[end + 8 : end + 12], "big")
    os.truncate(log, end)


def test_offsets_are_committed_to_the_group(kafka: Broker) -> None:
    from confluent_kafka import Consumer

    kafka.make_topic("grouped")
    kafka.produce("grouped", 0, [b"a", b"b"])
    found = source(kafka, "grouped", group="watched")
    found.latest_offsets()
    found.commit({"grouped/0": 1})
    consumer = Consumer({"bootstrap.servers": kafka.servers, "group.id": "watched"})
    assert consumer.committed([TopicPartition("grouped", 0)], LIMIT_SECONDS)[0].offset == 1
    consumer.close()


def answered(found: Any) -> Any:
    """The latest offsets; asked for again while the broker is away, as drivers do."""
    limit = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < limit:
        with suppress(SourceAwayError):
            return found.latest_offsets()
        time.sleep(0.5)
    raise AssertionError("the broker does not come back")


def test_a_broker_that_is_down_is_away_and_back_with_all_that_it_had(
    kafka: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.make_topic("lasting")
    kafka.produce("lasting", 0, [b"a", b"b"])
    found = source(kafka, "lasting")
    there = found.latest_offsets()
    assert read(found, "lasting/0", 0, 1).num_rows == 1
    kafka.kill()
    monkeypatch.setattr(kafka_ranges, "SILENT_SECONDS_MAX", 2.0)
    with pytest.raises(SourceAwayError, match="Kafka cannot be reached"):
        found.latest_offsets()
    # prefetched records do not count: what is read again comes from the broker
    with pytest.raises(SourceAwayError, match="topic lasting, partition 0: gave nothing for 2 s"):
        read(found, "lasting/0", 0, 1)
    kafka.start()
    assert answered(found) == there
    monkeypatch.setattr(kafka_ranges, "SILENT_SECONDS_MAX", 20.0)
    assert read(found, "lasting/0", 0, 2)["kafka_value"].to_pylist() == [b"a", b"b"]
