"""Calls of Kafka's client that never return, and transactions that take too long."""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tls_servers

from rekindle.model.errors import FencedError, RunError, SinkAwayError
from rekindle_spark.connectors import kafka_options, kafka_transactions
from rekindle_spark.connectors.kafka_sink import KafkaSink, SinkRecords
from rekindle_spark.connectors.kafka_transactions import EpochMarker, TransactionalWriter

GOLDEN = Path(__file__).parents[3] / "golden" / "markers"


class StuckProducer:
    """Waits for a coordinator that never answers, as librdkafka does after a broker was away."""

    def __init__(self, left: int = 0) -> None:
        self.left = left
        self.reported: list[Callable[[], None]] = []
        self.calls: list[str] = []
        self.released = threading.Event()

    def begin_transaction(self) -> None:
        self.calls.append("begin")

    def produce(self, *_: Any, **__: Any) -> None:
        self.calls.append("produce")

    def poll(self, _: float) -> None:
        while self.reported:
            self.reported.pop(0)()

    def __len__(self) -> int:
        return self.left

    def flush(self, _: float) -> int:
        """What is left: of what it had at first one more is acknowledged with each call."""
        self.left = max(0, self.left - 1)
        return self.left

    def send_offsets_to_transaction(self, *_: Any) -> None:
        self.calls.append("offsets")
        self.released.wait(60)

    def commit_transaction(self, _: float) -> None:
        self.calls.append("commit")


def writer(producer: StuckProducer) -> TransactionalWriter:
    made = TransactionalWriter(KafkaSink("b:9092", "topic"), "topic", "name-0", 0)
    made._producer = producer
    return made


def test_a_call_that_never_returns_is_taken_for_a_broker_that_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_transactions, "ASK_SECONDS_MAX", 0.05)
    monkeypatch.setattr(kafka_transactions, "STUCK_SECONDS", 0.05)
    stuck = StuckProducer()
    one = writer(stuck)
    with pytest.raises(SinkAwayError, match="no answer within"):
        one.write([SinkRecords([b"1"])], EpochMarker(1, 5))
    stuck.released.set()
    assert stuck.calls == ["begin", "produce", "offsets"], "nothing is committed without its epoch"
    with pytest.raises(AssertionError, match="not open"):
        one.write([], EpochMarker(1, 5))


def test_an_answer_in_time_is_followed_by_the_commit() -> None:
    answering = StuckProducer()
    answering.released.set()
    writer(answering).write([SinkRecords([b"1"])], EpochMarker(1, 5))
    assert answering.calls == ["begin", "produce", "offsets", "commit"]


class Failure(Exception):
    """What the client raises."""


class Fault:
    """An error of the client."""

    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        return self._name

    def str(self) -> str:
        return f"words of {self._name}"


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client raises Failure."""
    library = SimpleNamespace(KafkaException=Failure, TopicPartition=lambda *_, **__: None)
    monkeypatch.setattr(kafka_options, "library", lambda: library)


@pytest.mark.usefixtures("failing")
def test_a_refusal_that_has_passed_makes_no_later_outage_final(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer = StuckProducer()
    producer.released.set()
    one = writer(producer)
    one.note(Fault("_AUTHENTICATION"))
    one.write([SinkRecords([b"1"])], EpochMarker(1, 5))
    producer.reported.append(lambda: one.note(Fault("_AUTHENTICATION")))  # between two writes

    def commit(_: float) -> None:
        raise Failure(Fault("_TIMED_OUT"))

    monkeypatch.setattr(producer, "commit_transaction", commit)
    with pytest.raises(SinkAwayError, match="words of _TIMED_OUT"):
        one.write([SinkRecords([b"2"])], EpochMarker(2, 6))


@pytest.mark.usefixtures("failing")
@pytest.mark.parametrize(("is_known", "meaning"), [(True, SinkAwayError), (False, RunError)])
def test_a_password_that_is_renewed_is_no_end_for_a_sink_that_was_there(
    monkeypatch: pytest.MonkeyPatch, is_known: bool, meaning: type[Exception]
) -> None:
    producer = StuckProducer()
    producer.released.set()
    one = writer(producer)
    one.is_known = is_known

    def commit(_: float) -> None:
        one.note(Fault("_AUTHENTICATION"))
        raise Failure(Fault("_TIMED_OUT"))

    monkeypatch.setattr(producer, "commit_transaction", commit)
    monkeypatch.setattr(producer, "abort_transaction", lambda _: None, raising=False)
    with pytest.raises(meaning):
        one.write([SinkRecords([b"1"])], EpochMarker(1, 5))


class ClosedProducer(StuckProducer):
    """Its transaction fails behind the first record. Records and the marker are then refused by a
    name that says nothing, and the next transaction by the error of this one."""

    def __init__(self, name: str, cause: str) -> None:
        StuckProducer.__init__(self)
        self.name, self.cause = name, cause
        self.released.set()

    def begin_transaction(self) -> None:
        self._check(self.cause)
        StuckProducer.begin_transaction(self)

    def produce(self, *_: Any, **__: Any) -> None:
        self._check(self.name)
        StuckProducer.produce(self)

    def send_offsets_to_transaction(self, *_: Any) -> None:
        self._check(self.name)

    def abort_transaction(self, _: float) -> None:
        self.calls.append("abort")

    def _check(self, name: str) -> None:
        if "produce" in self.calls:
            raise Failure(Fault(name))


@pytest.mark.usefixtures("failing")
@pytest.mark.parametrize("values", [[b"1"], [b"1", b"2"]], ids=["at the marker", "at a record"])
@pytest.mark.parametrize(
    ("name", "cause", "kind", "said", "calls"),
    [
        ("_STATE", "INVALID_PRODUCER_EPOCH", FencedError, "by a newer writer", []),
        ("_FATAL", "_FENCED", FencedError, "by a newer writer", []),
        (
            *("_STATE", "TOPIC_AUTHORIZATION_FAILED", RunError),
            *("refuses the records .*words of TOPIC_AUTHORIZATION_FAILED", ["abort"]),
        ),
        ("_STATE", "_TIMED_OUT", SinkAwayError, "words of _TIMED_OUT", []),
    ],
)
def test_what_a_failed_transaction_does_not_take_is_refused_with_its_cause(
    name: str, cause: str, kind: type[RunError], said: str, calls: list[str], values: list[bytes]
) -> None:
    closed = ClosedProducer(name, cause)
    with pytest.raises(RunError, match=said) as refused:
        writer(closed).write([SinkRecords(values)], EpochMarker(1, 5))
    assert type(refused.value) is kind
    assert closed.calls == ["begin", "produce", *calls]


@pytest.mark.usefixtures("failing")
def test_an_error_that_the_client_reports_between_two_writes_has_its_meaning() -> None:
    fenced = StuckProducer()

    def report() -> None:
        raise Failure(Fault("_FENCED"))

    fenced.reported.append(report)
    with pytest.raises(FencedError, match="a newer writer"):
        writer(fenced).write([SinkRecords([b"1"])], EpochMarker(1, 5))
    assert fenced.calls == []


def test_where_nobody_listens_the_client_itself_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_transactions, "ASK_SECONDS_MAX", 0.5)
    with pytest.raises(SinkAwayError, match="Connection refused"):
        TransactionalWriter(KafkaSink("127.0.0.1:1", "topic"), "topic", "name-0", 0).open()


@pytest.mark.parametrize(
    ("name", "marker"),
    [
        ("before-read", EpochMarker(17, 4711, "0123456789abcdef")),
        ("version-1", EpochMarker(17, 4711, "0123456789abcdef", 90_210, "fedcba9876543210")),
    ],
)
def test_a_marker_is_read_as_it_was_once_set_and_set_as_it_was(
    monkeypatch: pytest.MonkeyPatch, name: str, marker: EpochMarker
) -> None:
    metadata = (GOLDEN / f"{name}.json").read_text()
    made = SimpleNamespace(TopicPartition=lambda *at, metadata="": (*at, metadata))
    monkeypatch.setattr(kafka_options, "library", lambda: made)
    assert kafka_transactions._decoded("topic", 17, metadata) == marker
    assert writer(StuckProducer())._place(marker) == ("topic", 0, 17, metadata)


@pytest.mark.parametrize("metadata", [None, "", "{}", '{"version": 2, "commit": 1, "store": ""}'])
def test_a_marker_of_another_version_is_refused(metadata: str | None) -> None:
    with pytest.raises(RunError, match="has a marker that this version has not written"):
        kafka_transactions._decoded("topic", 17, metadata)


class GroupConsumer:
    """Reports what it has met of its group in the place of records; asked for the group's offset it
    only waits, as librdkafka does until it knows who coordinates the group."""

    def __init__(self, *reported: str) -> None:
        self.reported = [SimpleNamespace(error=partial(Fault, name)) for name in reported]
        self.waited: list[float] = []

    def committed(self, _: object, seconds: float) -> None:
        self.waited.append(seconds)
        raise Failure(Fault("_TIMED_OUT"))

    def poll(self, _: float) -> Any:
        return self.reported.pop(0) if self.reported else None

    def close(self) -> None:
        pass


@pytest.mark.usefixtures("failing")
def test_a_group_that_may_not_be_read_is_refused_at_once_and_a_silent_one_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_transactions, "ASK_SECONDS_MAX", 0.05)
    library: Any = kafka_options.library()
    one = writer(StuckProducer())
    refused = GroupConsumer("GROUP_AUTHORIZATION_FAILED")
    library.Consumer = lambda _: refused
    with pytest.raises(RunError, match="words of GROUP_AUTH") as failed, one._meaning():
        one._read_marker({})
    assert type(failed.value) is RunError
    assert failed.value.remedy.startswith("give this user the right to read the consumer group")
    assert len(refused.waited) == 1
    one.note.clear()
    silent = GroupConsumer("_TRANSPORT")
    library.Consumer = lambda _: silent
    with pytest.raises(SinkAwayError, match="words of _TRANSPORT"), one._meaning():
        one._read_marker({})
    assert len(silent.waited) > 1


@pytest.mark.usefixtures("failing")
def test_a_certificate_of_one_broker_ends_no_look_of_a_known_sink_at_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_transactions, "ASK_SECONDS_MAX", 0.05)
    library: Any = kafka_options.library()
    for is_known in (False, True):
        consumer, one = GroupConsumer("_SSL"), writer(StuckProducer())
        library.Consumer, one.is_known = lambda _, made=consumer: made, is_known
        with pytest.raises(RunError, match="words of _SSL"), one._meaning():
            one._read_marker({})
        assert (len(consumer.waited) > 1) == is_known


@pytest.mark.parametrize("is_known", [False, True])
def test_a_certificate_that_is_not_trusted_refuses_a_new_sink_and_others_wait(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_known: bool
) -> None:
    monkeypatch.setattr(kafka_transactions, "ASK_SECONDS_MAX", 0.5)
    other = tls_servers.tls_files(tmp_path / "other").authority
    with tls_servers.tls_server(tls_servers.tls_files(tmp_path / "its")) as (host, port):
        options = {"security.protocol": "SSL", "ssl.ca.location": str(other)}
        sink = KafkaSink(f"{host}:{port}", "topic", options=options)
        with pytest.raises(RunError, match="certificate verify failed") as failed:
            TransactionalWriter(sink, "topic", "name-0", 0, is_known).open()
    assert type(failed.value) is (SinkAwayError if is_known else RunError)
    assert "ssl.ca.location" in failed.value.remedy


@pytest.mark.usefixtures("failing")
@pytest.mark.parametrize("is_an_answer", [False, True])
def test_a_group_that_a_known_sink_may_not_read_for_a_moment_is_away(is_an_answer: bool) -> None:
    library: Any = kafka_options.library()
    one = writer(StuckProducer())
    one.is_known = True
    name = "GROUP_AUTHORIZATION_FAILED"
    consumer: Any = GroupConsumer(name)
    if is_an_answer:
        consumer.reported.clear()
        consumer.committed = lambda *_: [SimpleNamespace(error=Fault(name))]
    library.Consumer = lambda _: consumer
    with pytest.raises(SinkAwayError, match=f"words of {name}") as away, one._meaning():
        one._read_marker({})
    assert away.value.remedy == "give this user the right to read the consumer group"
    assert is_an_answer or len(consumer.waited) == 1, "it is asked again by the next opening"


@pytest.mark.usefixtures("failing")
def test_a_sink_that_was_written_to_once_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    library: Any = kafka_options.library()
    producer: Any = StuckProducer()
    producer.init_transactions = lambda _: None
    library.Producer = lambda _: producer
    monkeypatch.setattr(TransactionalWriter, "_count", lambda *_: 1)
    monkeypatch.setattr(TransactionalWriter, "_read_marker", lambda *_: None)
    producer.purge = lambda: None
    one = writer(producer)
    assert not one.is_known
    one.open()
    assert not one.is_known, "it may be opened, and written to by others alone"
    monkeypatch.setattr(TransactionalWriter, "_transact", lambda *_: None)
    one.mark(EpochMarker(1, 1, "store"))
    assert one.is_known


@pytest.mark.usefixtures("failing")
@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("place", ["the call", "a record", "the note"])
def test_a_certificate_counts_alike_wherever_the_client_reports_it(
    is_known: bool, place: str
) -> None:
    one, tls = writer(StuckProducer()), Fault("_SSL")
    one.is_known = is_known
    cause = tls if place == "the call" else Fault("_TIMED_OUT")
    if place == "a record":
        one.refused = [tls]
    if place == "the note":
        one.note(tls)
    with pytest.raises(RunError) as failed, one._meaning():
        raise Failure(cause)
    assert type(failed.value) is (SinkAwayError if is_known else RunError)
    assert "ssl.ca.location" in failed.value.remedy


class DeafProducer(StuckProducer):
    """Sends to a broker that acknowledges nothing."""

    def flush(self, _: float) -> int:
        return self.left


def test_all_is_acknowledged_before_a_transaction_is_committed() -> None:
    slow = StuckProducer(left=5)
    slow.released.set()
    writer(slow).write([SinkRecords([b"1"])], EpochMarker(1, 5))
    assert (slow.left, slow.calls[-1]) == (0, "commit")


def test_a_transaction_that_is_open_for_too_long_is_not_committed_and_says_its_limit() -> None:
    slow = StuckProducer(left=10**9)
    slow.released.set()
    one = writer(slow)
    one.seconds_max = 0.05
    with pytest.raises(SinkAwayError) as failed:
        one.write([SinkRecords([b"1" * 1_500_000, b"2"])], EpochMarker(7, 5))
    assert "of 1 epochs up to 7, of 2 records and 1.5 MB, was not acknowledged" in failed.value.what
    assert "raise transaction.timeout.ms in the sink's options" in failed.value.remedy
    assert "commit" not in slow.calls


def test_a_broker_that_acknowledges_nothing_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_transactions, "COMMIT_SECONDS_MAX", 0.05)
    deaf = DeafProducer(left=5)
    deaf.released.set()
    with pytest.raises(SinkAwayError, match="nothing acknowledged for 0 s"):
        writer(deaf).write([SinkRecords([b"1"])], EpochMarker(1, 5))
    assert "commit" not in deaf.calls
