"""Calls of Kafka's client that never return: the writer goes on without them."""

import threading
from typing import Any

import pytest

from rekindle.model.errors import SinkAwayError
from rekindle_spark.connectors import kafka_transactions
from rekindle_spark.connectors.kafka_sink import KafkaSink, SinkRecords
from rekindle_spark.connectors.kafka_transactions import EpochMarker, TransactionalWriter


class StuckProducer:
    """Waits for a coordinator that never answers, as librdkafka does after a broker was away."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.released = threading.Event()

    def begin_transaction(self) -> None:
        self.calls.append("begin")

    def produce(self, *_: Any, **__: Any) -> None:
        self.calls.append("produce")

    def poll(self, _: float) -> None: ...

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
