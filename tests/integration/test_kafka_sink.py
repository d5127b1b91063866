"""Sinks of Kafka on a real broker, without Spark: each epoch is in the topic once, or not yet."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import broker
import pytest
import relayed
from broker import Broker
from confluent_kafka import Producer, TopicPartition
from output_stores import Writer, rows

from rekindle.model.errors import FencedError, InputError, RunError, SinkAwayError
from rekindle_local import process_sets
from rekindle_local.demo import topic_witness
from rekindle_spark.connectors import kafka_transactions
from rekindle_spark.connectors.kafka_sink import KafkaSink, SinkRecords
from rekindle_spark.connectors.kafka_transactions import EpochMarker, TransactionalWriter
from rekindle_spark.output import sink_declarations
from rekindle_spark.output.sink_publishing import SinkIdentity, SinkPublisher
from rekindle_store import commit_log, store_copies, store_files

LIMIT_SECONDS = 120.0
# A writer that has written, and not committed, when it is killed.
KILLED = """
import sys, time
from rekindle_spark.connectors.kafka_sink import KafkaSink, SinkRecords
from rekindle_spark.connectors.kafka_transactions import EpochMarker, TransactionalWriter
servers, topic = sys.argv[1:]
writer = TransactionalWriter(KafkaSink(servers, topic), "killed", f"writer-{topic}-0", 0)
writer.open()
writer.write([SinkRecords([b'{"n": 1}'])], EpochMarker(1, 5))
writer._producer.begin_transaction()
writer._producer.produce(topic, b'{"n": 2}', partition=writer.partition)
writer._producer.flush()
print("written", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all tests; each has topics of its own."""
    started = Broker(folder=tmp_path_factory.mktemp("broker"), jars=broker.jars())
    try:
        started.start()
        yield started
    finally:
        started.close()


def writer(kafka: Broker, topic: str, index: int = 0) -> TransactionalWriter:
    sink = KafkaSink(kafka.servers, topic)
    return TransactionalWriter(sink, f"topic {topic}", f"writer-{topic}-{index}", index)


def assert_read(kafka: Broker, topic: str, wanted: list[Any]) -> None:
    """A consumer of committed records reads these. A commit returns once its coordinator knows of
    it; the topic's partition is told after that."""

    def found() -> list[Any]:
        return [value["n"] for _, _, value in relayed.read(kafka, topic)]

    process_sets.await_condition(lambda: len(found()) >= len(wanted), limit_seconds=LIMIT_SECONDS)
    assert found() == wanted


def record(number: int) -> SinkRecords:
    return SinkRecords([json.dumps({"n": number}).encode()])


def test_a_writer_that_is_opened_learns_which_epoch_is_in(kafka: Broker) -> None:
    kafka.make_topic("marked")
    first = writer(kafka, "marked")
    assert first.open() is None
    first.mark(EpochMarker())
    first.write([record(1), record(2)], EpochMarker(4, 17))
    first.write([], EpochMarker(5, 18))
    second = writer(kafka, "marked")
    assert second.open() == EpochMarker(5, 18)
    second.mark(EpochMarker(5, 18, "here", 30, "fedcba9876543210"))
    assert second.open() == EpochMarker(5, 18, "here", 30, "fedcba9876543210")
    assert writer(kafka, "marked", index=1).open() is None
    assert_read(kafka, "marked", [1, 2])


def test_the_broker_refuses_a_writer_once_a_newer_one_is_open(kafka: Broker) -> None:
    kafka.make_topic("fenced")
    old, new = writer(kafka, "fenced"), writer(kafka, "fenced")
    old.open()
    old.write([record(1)], EpochMarker(1, 5))
    assert new.open() == EpochMarker(1, 5)
    with pytest.raises(FencedError, match="a newer writer"):
        old.write([record(2)], EpochMarker(2, 6))
    new.write([record(2)], EpochMarker(2, 7))
    assert_read(kafka, "fenced", [1, 2])
    assert writer(kafka, "fenced").open() == EpochMarker(2, 7)


def test_what_a_killed_writer_had_not_committed_is_not_there_and_holds_up_nobody(
    kafka: Broker,
) -> None:
    kafka.make_topic("killed")
    command = [sys.executable, "-c", KILLED, kafka.servers, "killed"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == b"written\n"
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    next_one = writer(kafka, "killed")
    assert next_one.open() == EpochMarker(1, 5)
    next_one.write([record(3)], EpochMarker(2, 6))
    assert_read(kafka, "killed", [1, 3])


def test_what_kafka_will_never_take_is_refused_with_its_cause_and_leaves_nothing_open(
    kafka: Broker,
) -> None:
    kafka.make_topic("strict", max_message_bytes="2000")
    one = writer(kafka, "strict")
    one.open()
    with pytest.raises(RunError, match="Kafka refuses the records or the writer") as refused:
        one.write([record(1), SinkRecords([b"x" * 10_000])], EpochMarker(1, 5))
    assert not isinstance(refused.value, SinkAwayError | FencedError)
    kafka.produce("strict", 0, [b'{"n": 7}'])
    assert_read(kafka, "strict", [7])
    with pytest.raises(InputError, match="is not there; make the topic first"):
        writer(kafka, "nowhere").open()
    gone = TransactionalWriter(KafkaSink(kafka.servers, "gone"), "topic gone", "gone-0", 0, True)
    with pytest.raises(SinkAwayError, match="is not there"):
        gone.open()
    sink = KafkaSink(kafka.servers, "strict", options={"no.such.option": 1})
    with pytest.raises(InputError, match=r"does not take an option .*no\.such\.option"):
        TransactionalWriter(sink, "topic strict", "writer-strict-0", 0).open()


def test_a_broker_that_is_away_is_no_end_and_leaves_no_doubt(
    kafka: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.make_topic("lasting")
    one = writer(kafka, "lasting")
    one.open()
    one.write([record(1)], EpochMarker(1, 5))
    kafka.await_settled()
    kafka.kill()
    monkeypatch.setattr(kafka_transactions, "OPEN_SECONDS_MAX", 3.0)
    monkeypatch.setattr(kafka_transactions, "ASK_SECONDS_MAX", 3.0)
    monkeypatch.setattr(kafka_transactions, "COMMIT_SECONDS_MAX", 3.0)
    with pytest.raises(SinkAwayError, match="Kafka cannot be reached"):
        one.write([record(2)], EpochMarker(2, 6))
    with pytest.raises(SinkAwayError, match="Kafka cannot be reached"):
        one.open()
    kafka.start()
    monkeypatch.undo()
    assert reopened(one) == EpochMarker(1, 5)
    one.write([record(2)], EpochMarker(2, 6))
    assert_read(kafka, "lasting", [1, 2])


def test_an_epoch_that_takes_too_long_is_not_there_and_the_next_one_is(
    kafka: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.make_topic("large")
    one = writer(kafka, "large")
    one.open()
    monkeypatch.setattr(kafka_transactions, "FLUSH_SECONDS", 0.001)
    one.seconds_max = 0.001
    large = [SinkRecords([b"x" * 500_000] * 40), record(1)]
    with pytest.raises(SinkAwayError, match="2 epochs up to 7, of 41 records and"):
        one.write(large, EpochMarker(7, 5))
    assert reopened(one) is None
    one.seconds_max = 60.0
    one.write([record(2)], EpochMarker(8, 6))
    assert_read(kafka, "large", [2])


def test_a_transaction_that_kafka_does_not_finish_is_named(kafka: Broker) -> None:
    kafka.make_topic("hanging")
    one = writer(kafka, "hanging")
    one.open()
    one.write([], EpochMarker(1, 5))
    # another producer has the group's offset in its open transaction
    other = Producer({"bootstrap.servers": kafka.servers, "transactional.id": "other"})
    other.init_transactions(LIMIT_SECONDS)
    other.begin_transaction()
    offsets = [TopicPartition("hanging", 0, 2)]
    other.send_offsets_to_transaction(offsets, one._group, LIMIT_SECONDS)
    with pytest.raises(
        SinkAwayError, match="in a transaction that Kafka has not finished"
    ) as found:
        one.open()
    assert "kafka-transactions.sh find-hanging" in str(found.value)
    other.abort_transaction(LIMIT_SECONDS)
    assert reopened(one) == EpochMarker(1, 5)


def test_a_transaction_that_stays_open_is_named_by_who_reads_to_the_end(
    kafka: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_witness, "OPEN_SECONDS_MAX", 3.0)
    kafka.make_topic("open")
    one = writer(kafka, "open")
    one.open()
    one.write([record(1), record(2)], EpochMarker(1, 5))
    kafka.await_markers("open", 0)
    other = Producer({"bootstrap.servers": kafka.servers, "transactional.id": "open"})
    other.init_transactions(LIMIT_SECONDS)
    other.begin_transaction()
    other.produce("open", b"{}", partition=0)
    other.flush(LIMIT_SECONDS)
    # offset 2 is the end of the first transaction
    with pytest.raises(RunError, match="a transaction is open from offset 3") as found:
        topic_witness.read(kafka.servers, "open", 0)
    assert "kafka-transactions.sh find-hanging" in found.value.remedy
    other.abort_transaction(LIMIT_SECONDS)
    monkeypatch.undo()
    assert len(topic_witness.read(kafka.servers, "open", 0)) == 2


def reopened(one: TransactionalWriter) -> EpochMarker | None:
    """The marker, once a broker that starts answers."""
    end = time.monotonic() + LIMIT_SECONDS
    while True:
        try:
            return one.open()
        except SinkAwayError:
            assert time.monotonic() < end


class Following:
    """A publisher of the query `hourly` of a store, with two query partitions."""

    def __init__(self, kafka: Broker, store: Path, topic: str, marked: int = 0) -> None:
        self.said: list[str] = []
        found = store_files.at(store)
        identity, origins = commit_log.identity(found), commit_log.copied_from(found)
        place = SinkIdentity("hourly", f"following-{topic}", 2, marked, identity, origins)
        sink = KafkaSink(kafka.servers, topic)
        self.publisher = SinkPublisher(
            sink, place, store_files.at(store), lambda: None, lambda kind, _: self.said.append(kind)
        )

    def until(self, newest: int) -> None:
        """Follow the log up to a commit record, and end."""
        self.publisher.wake(newest)
        self.publisher.start()
        done = process_sets.await_condition(
            lambda: self.publisher.done >= newest or self.publisher.failure is not None,
            limit_seconds=LIMIT_SECONDS,
        )
        self.publisher.stop()
        if self.publisher.failure is not None:
            raise self.publisher.failure
        assert done


def test_what_is_committed_is_in_the_topic_once_whoever_goes_on(
    kafka: Broker, tmp_path: Path
) -> None:
    kafka.make_topic("followed", 2)
    store = Writer(tmp_path)
    for epoch in range(1, 4):
        store.commit(
            store.put("hourly", 0, epoch, rows(epoch)),
            store.put("busiest", 0, epoch, rows(-1)),
        )
    Following(kafka, tmp_path, "followed").until(2)
    Following(kafka, tmp_path, "followed", marked=2).until(3)
    # epochs of one partition behind those of another, and several in a record
    store.commit(*(store.put("hourly", 1, epoch, rows(epoch * 10)) for epoch in (1, 2, 3)))
    store.commit(store.put("hourly", 0, 4, rows(4, 5)))
    Following(kafka, tmp_path, "followed", marked=2).until(5)
    Following(kafka, tmp_path, "followed", marked=2).until(5)
    assert process_sets.await_condition(
        lambda: len(relayed.read(kafka, "followed")) >= 8, limit_seconds=LIMIT_SECONDS
    )
    found = relayed.read(kafka, "followed")
    assert [value["n"] for at, _, value in found if at == 0] == [1, 2, 3, 4, 5]
    assert [value["n"] for at, _, value in found if at == 1] == [10, 20, 30]


def test_a_marker_that_is_gone_and_an_older_store_end_the_run(
    kafka: Broker, tmp_path: Path
) -> None:
    kafka.make_topic("lost", 1)
    newer = Writer(tmp_path / "newer")
    newer.epoch("hourly", 0, 1, 1)
    store_copies.copy(str(tmp_path / "newer"), str(tmp_path / "older"))
    newer.epoch("hourly", 0, 2, 2)
    Following(kafka, tmp_path / "newer", "lost").until(2)
    with pytest.raises(RunError, match="which this checkpoint store has not"):
        Following(kafka, tmp_path / "older", "lost").until(1)
    older = Writer(tmp_path / "older")  # which seals the log
    older.epoch("hourly", 0, 3, 3)
    with pytest.raises(RunError, match="which this checkpoint store has not"):
        Following(kafka, tmp_path / "older", "lost").until(3)
    admin = kafka.admin
    groups = [f"following-lost-{index}" for index in range(2)]
    for one in admin.delete_consumer_groups(groups).values():
        one.result()
    with pytest.raises(RunError, match="has lost the marker"):
        Following(kafka, tmp_path / "newer", "lost", marked=2).until(2)
    assert_read(kafka, "lost", [1, 2])


def test_a_copy_of_the_store_goes_on_and_the_store_itself_then_ends(
    kafka: Broker, tmp_path: Path
) -> None:
    kafka.make_topic("moved")
    store = Writer(tmp_path / "store")
    store.epoch("hourly", 0, 1, 1)
    Following(kafka, tmp_path / "store", "moved").until(1)
    store_copies.copy(str(tmp_path / "store"), str(tmp_path / "copy"))
    copied = Writer(tmp_path / "copy")
    copied.epoch("hourly", 0, 2, 2)
    Following(kafka, tmp_path / "copy", "moved", marked=2).until(3)
    store.epoch("hourly", 0, 2, 3)
    with pytest.raises(RunError, match="is written from another store, a copy of this one"):
        Following(kafka, tmp_path / "store", "moved", marked=2).until(2)
    assert_read(kafka, "moved", [1, 2])


def test_a_topic_that_is_deleted_is_waited_for_and_has_lost_its_marker_when_it_is_back(
    kafka: Broker, tmp_path: Path
) -> None:
    kafka.make_topic("going.v1")
    store = Writer(tmp_path)
    store.epoch("hourly", 0, 1, 1)
    Following(kafka, tmp_path, "going.v1").until(1)
    one = TransactionalWriter(KafkaSink(kafka.servers, "going.v1"), "topic", "w", 0, is_known=True)
    one.open()
    kafka.delete_topic("going.v1")
    with pytest.raises(SinkAwayError):
        one.write([record(2)], EpochMarker(2, 2))
    with pytest.raises(SinkAwayError, match=r"is not there.*make the topic first"):
        one.open()
    kafka.make_topic("going.v1")
    kafka.await_forgotten("following-going.v1-0")
    store.epoch("hourly", 0, 2, 2)
    with pytest.raises(RunError, match="has lost the marker"):
        Following(kafka, tmp_path, "going.v1", marked=2).until(2)
    assert relayed.read(kafka, "going.v1") == []


def test_records_of_one_byte_and_of_ten_million_are_written_where_the_options_say_so(
    kafka: Broker,
) -> None:
    kafka.make_topic("sizes.v1_a-b", max_message_bytes="20000000")
    values = [b"1", b"x" * 10_000_000, b"", b"2"]
    one = writer(kafka, "sizes.v1_a-b")
    one.open()
    with pytest.raises(RunError, match=r"Kafka refuses the records .*Message size too large"):
        one.write([SinkRecords(values)], EpochMarker(1, 1))
    sink = KafkaSink(kafka.servers, "sizes.v1_a-b", options={"message.max.bytes": 20_000_000})
    larger = TransactionalWriter(sink, "topic", "writer-sizes-0", 0)
    larger.open()
    larger.write([SinkRecords(values)], EpochMarker(1, 1))
    assert topic_witness.read(kafka.servers, "sizes.v1_a-b", 0) == values


def test_a_first_start_marks_its_topics_and_a_later_one_asks_nobody(kafka: Broker) -> None:
    kafka.make_topic("declared")
    sink = KafkaSink(kafka.servers, "declared")
    own = sink_declarations.prepare("flights", {"hourly": (sink, 2)}, {})
    name = own["hourly"]["declared"]["name"]
    for index in range(2):
        marked = TransactionalWriter(sink, "topic", f"{name}-{index}", index)
        assert marked.open() == EpochMarker()
    away = KafkaSink("127.0.0.1:1", "declared")
    again = sink_declarations.prepare("flights", {"hourly": (away, 2)}, own)
    assert again == own
    wider = sink_declarations.prepare("flights", {"hourly": (sink, 3)}, own)
    assert wider == {"hourly": {"declared": {"name": name, "partitions": 3}}}
    missing = KafkaSink(kafka.servers, "missing")
    with pytest.raises(InputError, match=r"topic missing at .*: is not there"):
        sink_declarations.prepare("flights", {"hourly": (missing, 2)}, {})
