"""The source of Kafka on a real broker, without Spark: ranges, absences, what is gone."""

import datetime as dt
import time
from collections.abc import Iterator
from contextlib import suppress
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
from rekindle_spark.executor import source_reading

LIMIT_SECONDS = 30.0


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
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("open", b"b", partition=0)
    producer.flush(10)
    kafka.produce("open", 0, [b"c"])
    found = source(kafka, "open")
    assert found.latest_offsets()["open/0"].latest == 1
    producer.commit_transaction(10)
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


def test_large_records_are_read(kafka: Broker) -> None:
    kafka.make_topic("large", max_message_bytes="20000000")
    value = b"x" * 10_000_000
    kafka.produce("large", 0, [b"a", value, b"c"])
    found = read(source(kafka, "large"), "large/0", 0, 3)["kafka_value"].to_pylist()
    assert found == [b"a", value, b"c"]


def test_offsets_are_committed_to_the_group(kafka: Broker) -> None:
    from confluent_kafka import Consumer

    kafka.make_topic("grouped")
    kafka.produce("grouped", 0, [b"a", b"b"])
    found = source(kafka, "grouped", group="watched")
    found.latest_offsets()
    found.commit({"grouped/0": 1})
    consumer = Consumer({"bootstrap.servers": kafka.servers, "group.id": "watched"})
    assert consumer.committed([TopicPartition("grouped", 0)], 10)[0].offset == 1
    consumer.close()


def answered(found: Any) -> Any:
    """The latest offsets; asked for again while the broker is away, as drivers do."""
    limit = time.monotonic() + 120
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
