"""Writes the output of one query partition to a topic, each epoch exactly once.

    open ──fences older writers──► marker ──► write: begin, records, marker of the epoch,
                                                │      all acknowledged in time, commit
                                                │ an error that is none for good
                                                └──► the writer is thrown away, and opened anew

The *marker* is an offset that the transaction commits for a consumer group of this query partition:
the epoch, and beside it the commit record that named it. So either the records of an epoch are
there and the marker says so, or neither is. Opening a writer aborts what an older one of the same
name has left open, and the broker refuses that one from then on. So what the marker says then is
what holds. Called by `sink_publishing`.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from rekindle.model.errors import FencedError, InputError, RekindleError, RunError, SinkAwayError
from rekindle_spark.connectors import kafka_options
from rekindle_spark.connectors.kafka_options import ErrorNote
from rekindle_spark.connectors.kafka_sink import KafkaSink, SinkRecords

OPEN_SECONDS_MAX = 20.0
STUCK_SECONDS = 5.0  # behind the limit of a call that should have kept it
ASK_SECONDS_MAX = 10.0
COMMIT_SECONDS_MAX = 30.0
# A broker aborts a transaction that is open for longer than this option of the client says. All of
# it has to be acknowledged within a share of that: the commit has to be in time too.
TIMEOUT, TIMEOUT_MS, TIMEOUT_SHARE = "transaction.timeout.ms", 60_000, 0.8
FLUSH_SECONDS = 0.5
UNFINISHED_SECONDS_MAX = 3.0
# The topic's first partition stands for the query partition: each topic has one.
MARKED = 0
NO_OFFSET = -1001
PRODUCER = {
    "enable.idempotence": True,
    "delivery.report.only.error": True,
    "partitioner": "murmur2_random",  # as Java's clients place keys
    # Measured: with the default of 100 ms a transaction behind another one waits that long.
    "retry.backoff.ms": 5,
    "retry.backoff.max.ms": 50,
    # send_offsets_to_transaction waits for so long whatever it is told (librdkafka #5456).
    "socket.timeout.ms": 10_000,
}
# Answers of brokers while they settle who coordinates a group.
UNSETTLED = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS")
UNSETTLED_SECONDS = 0.1
# That the group is refused is reported meanwhile, so the first call for its offset is a short one.
LOOK_SECONDS = 2.0
FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
# What no waiting will mend, beside refused credentials and rights.
LASTING = (
    "MSG_SIZE_TOO_LARGE",
    "INVALID_RECORD",
    "INVALID_TIMESTAMP",
    "RECORD_LIST_TOO_LARGE",
    "OFFSET_METADATA_TOO_LARGE",
    "INVALID_TRANSACTION_TIMEOUT",
)
# What may pass where the sink was there before: a broker that has just started may not know yet who
# has the right to the group.
PASSING = (
    *kafka_options.PASSING,
    "GROUP_AUTHORIZATION_FAILED",
    # of a secret that is renewed: each client reads it anew, and a mounted one follows late
    "_AUTHENTICATION",
    "SASL_AUTHENTICATION_FAILED",
)
# With these the client refuses calls while a transaction has failed. They do not say why.
CLOSED = ("_STATE", "_FATAL")
TIMED_OUT = "_TIMED_OUT"


@dataclass(frozen=True, slots=True)
class EpochMarker:
    """The newest epoch of a query partition that is in the topic, and the commit record that named
    it; zeros where none is. `store` is the identity of the store that has it, empty before the
    first start on one. `read` is the number of a commit record up to which the topic has all that
    the log names for the query partition, `record` the fingerprint of that one
    (`commit_log.fingerprint`). Without them that is known up to `commit` alone."""

    epoch: int = 0
    commit: int = 0
    store: str = ""
    read: int = 0
    record: str = ""


@dataclass(slots=True)
class TransactionalWriter:
    """Writes as `name`, which is its transactional id and the group of its marker. `index` is the
    query partition. `partition` is where records without a key go, None until it is open. A topic
    that was there before, which `is_known`, and is not now may come back: it is away. So it is
    while one of PASSING refuses it. Within `seconds_max` the broker has to acknowledge all records
    of a transaction."""

    sink: KafkaSink
    where: str
    name: str
    index: int
    is_known: bool = False
    note: ErrorNote = field(default_factory=ErrorNote)
    partition: int | None = None
    seconds_max: float = TIMEOUT_SHARE * TIMEOUT_MS / 1_000
    refused: list[Any] = field(default_factory=list)
    _producer: Any = None
    _group: Any = None

    def open(self) -> EpochMarker | None:
        """Fence older writers of this name; what the marker says, None where there is none.

        Raises SinkAwayError where Kafka cannot be reached now, RunError where it refuses,
        InputError where it has no such topic.
        """
        self.close()
        self.note, self.refused = ErrorNote(), []
        library, sink = kafka_options.library(), self.sink
        given = kafka_options.configuration(self.where, sink.servers, sink.options, self.note)
        with self._meaning():
            own = {"transactional.id": self.name, "on_delivery": self._delivered}
            producer = library.Producer({**PRODUCER, **given, **own})
            timeout_ms = int(given.get(TIMEOUT, TIMEOUT_MS))  # the client has taken it
            self.seconds_max = TIMEOUT_SHARE * timeout_ms / 1_000
            self.partition = self.index % self._count(given)
            try:
                producer.init_transactions(OPEN_SECONDS_MAX)
            finally:
                producer.poll(0)  # for the note
            marker = self._read_marker(given)
        self.note.clear()
        self._producer = producer
        return marker

    def mark(self, marker: EpochMarker) -> None:
        """Set the marker in a transaction without records."""
        self.write([], marker)

    def write(self, batches: list[SinkRecords], marker: EpochMarker) -> None:
        """Write records and the marker of their newest epoch, together or not at all.

        Raises FencedError where a newer writer has been opened, SinkAwayError where it is not known
        what has come of it, RunError where the records are refused. It has to be opened anew after
        each of these.
        """
        producer = self._producer
        assert producer is not None, "not open"
        self._producer = None  # until this has gone well
        try:
            with self._meaning():
                producer.poll(0)  # what the client reported before explains nothing that comes now
                self.note.clear()
                self.refused = []
                self._transact(producer, batches, marker)
        except (FencedError, SinkAwayError):
            raise
        except RunError:
            self._abort(producer)
            raise
        self._producer, self.is_known = producer, True

    def close(self) -> None:
        """Let go of the producer, and of what it has not written."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()

    def _transact(self, producer: Any, batches: list[SinkRecords], marker: EpochMarker) -> None:
        producer.begin_transaction()
        try:
            self._fill(producer, batches, marker)
            producer.commit_transaction(COMMIT_SECONDS_MAX)
        except kafka_options.library().KafkaException as error:
            if error.args[0].name() in CLOSED:
                # Where the transaction has failed this raises its error, without asking a broker.
                # It begins and commits nothing.
                producer.begin_transaction()
            raise

    def _fill(self, producer: Any, batches: list[SinkRecords], marker: EpochMarker) -> None:
        """Give records and marker to the client, and wait until the records are acknowledged."""
        sent = _Sent(self.where, producer, self.seconds_max, batches, marker.epoch)
        for records in batches:
            self._produce(producer, records, sent)
        offsets, group = [self._place(marker)], self._group
        self._within(
            ASK_SECONDS_MAX + STUCK_SECONDS,
            lambda: producer.send_offsets_to_transaction(offsets, group, ASK_SECONDS_MAX),
        )
        while producer.flush(FLUSH_SECONDS) and not self.refused:
            sent.check()

    def _within(self, seconds: float, call: Callable[[], object]) -> None:
        """Make a call that may never return: after a broker was away the client can wait without
        end for the group's coordinator, whatever limit it is given (librdkafka #5456, #5511).

        Raises SinkAwayError then. The thread of the call stays behind with its producer, which the
        next writer fences.
        """
        ended, errors = threading.Event(), list[BaseException]()

        def run() -> None:
            try:
                call()
            except BaseException as error:
                errors.append(error)
            finally:
                ended.set()

        threading.Thread(target=run, name="sink-offsets", daemon=True).start()
        if not ended.wait(seconds):
            raise _unreached(self.where, f"no answer within {seconds:.0f} s")
        for error in errors:
            raise error

    def _abort(self, producer: Any) -> None:
        """Readers of committed records wait behind what is open, until it times out."""
        with suppress(kafka_options.library().KafkaException):
            producer.abort_transaction(ASK_SECONDS_MAX)

    def _produce(self, producer: Any, records: SinkRecords, sent: "_Sent") -> None:
        own: dict[str, Any] = {} if records.keys is not None else {"partition": self.partition}
        keys = records.keys if records.keys is not None else [None] * len(records.values)
        for value, key in zip(records.values, keys, strict=True):
            while True:
                try:
                    producer.produce(self.sink.topic, value, key, **own)
                    break
                except BufferError:  # its queue is full
                    producer.poll(0.1)
                    if self.refused:
                        raise kafka_options.library().KafkaException(self.refused[0]) from None
                    sent.check()
            producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        """A record was not written: the first error says why."""
        del message
        if error is not None and error.name() not in ("_PURGE_QUEUE", "_PURGE_INFLIGHT"):
            self.refused.append(error)

    def _place(self, marker: EpochMarker | None = None) -> Any:
        """The marker's place, with what it is to say."""
        library = kafka_options.library()
        if marker is None:
            return library.TopicPartition(self.sink.topic, MARKED)
        said = _encoded(marker)
        return library.TopicPartition(self.sink.topic, MARKED, marker.epoch, metadata=said)

    def _read_marker(self, given: dict[str, Any]) -> EpochMarker | None:
        """What the group says; it has no members, and nobody subscribes."""
        with self._consumer(given, "read_committed") as consumer:
            try:
                found = self._committed(consumer)
            except kafka_options.library().KafkaException as error:
                is_silent = error.args[0].name() == TIMED_OUT and not self._is_refusal_noted
                if is_silent and self._is_unfinished(given):
                    raise self._hanging() from error
                raise
            self._group = consumer.consumer_group_metadata()
        if found.offset == NO_OFFSET:
            return None
        return _decoded(self.where, int(found.offset), found.metadata)

    @contextmanager
    def _consumer(self, given: dict[str, Any], isolation: str) -> Iterator[Any]:
        own = {"group.id": self.name, "enable.auto.commit": False, "isolation.level": isolation}
        consumer = kafka_options.library().Consumer({**given, **own})
        try:
            yield consumer
        finally:
            kafka_options.take_note(consumer, self.note)
            consumer.close()

    def _is_unfinished(self, given: dict[str, Any]) -> bool:
        """Whether the broker sends the marker only to a reader that does not wait for the end of
        transactions."""
        with self._consumer(given, "read_uncommitted") as consumer:
            try:
                found = consumer.committed([self._place()], UNFINISHED_SECONDS_MAX)[0]
            except kafka_options.library().KafkaException:
                return False
            return found.error is None

    def _committed(self, consumer: Any) -> Any:
        """The group's offset. Who coordinates a group of a new cluster, or of a broker that has
        just started, is not settled at once: it is asked again for a while."""
        library, seconds = kafka_options.library(), LOOK_SECONDS
        deadline = time.monotonic() + ASK_SECONDS_MAX
        while True:
            left = min(seconds, deadline - time.monotonic())
            try:
                found = consumer.committed([self._place()], max(0.1, left))[0]
                if found.error is None:
                    return found
                error = library.KafkaException(found.error)
            except library.KafkaException as raised:
                error = raised
            kafka_options.take_note(consumer, self.note)
            name, is_over = error.args[0].name(), time.monotonic() > deadline
            if name not in (*UNSETTLED, TIMED_OUT) or is_over or self._is_refusal_noted:
                raise error
            if name == TIMED_OUT:
                seconds = ASK_SECONDS_MAX
            else:
                time.sleep(UNSETTLED_SECONDS)

    def _count(self, given: dict[str, Any]) -> int:
        """How many partitions the topic has. It is described: that makes no topic."""
        library = kafka_options.library()
        admin = kafka_options.admin_library().AdminClient(given)
        asked = admin.describe_topics(
            library.TopicCollection([self.sink.topic]), request_timeout=ASK_SECONDS_MAX
        )
        try:
            return len(asked[self.sink.topic].result().partitions)
        finally:
            admin.poll(0)  # for the note

    @contextmanager
    def _meaning(self) -> Iterator[None]:
        """Turn errors of the client into what they mean."""
        library = kafka_options.library()
        try:
            yield
        except library.KafkaException as error:
            cause = error.args[0]
            if cause.name() == kafka_options.INVALID:
                raise kafka_options.of_error(self.where, cause, self.note) from error
            for one in (cause, *self.refused):
                if one.name() in FENCED:
                    raise self._fenced() from error
                if one.name() in LASTING or self._is_final(one.name()):
                    raise self._refused(one.name(), one.str() or one.name()) from error
            if self._is_final(self.note.name):
                raise self._refused(self.note.name, self.note.text) from error
            if cause.name() == "UNKNOWN_TOPIC_OR_PART":
                raise self._unknown() from error
            raise self._away(cause) from error

    def _fenced(self) -> FencedError:
        return FencedError(
            where=self.where,
            what="is written by a newer writer, and the broker refuses this one",
            remedy="nothing is to be done where another driver of this store has taken over",
        )

    @property
    def _is_refusal_noted(self) -> bool:
        """Whether the client has reported that it is refused: it is asked no further. A certificate
        of one broker says nothing of the others, where the sink has been written to."""
        noted = self.note.name
        return noted in kafka_options.REFUSALS and not (
            self.is_known and noted == kafka_options.TLS
        )

    def _is_final(self, name: str) -> bool:
        """Whether an error refuses the sink at once, and does not count as absence."""
        is_passing = self.is_known and name in PASSING
        return name in kafka_options.REFUSALS and not is_passing

    def _refused(self, name: str, why: str) -> RunError:
        remedy = kafka_options.REMEDIES.get(name, "see the topic's settings and the sink's options")
        return RunError(
            where=self.where,
            what=f"Kafka refuses the records or the writer ({why})",
            remedy=f"{remedy}; what is committed stays, and is written by the next start",
        )

    def _unknown(self) -> RekindleError:
        kind = SinkAwayError if self.is_known else InputError
        return kind(
            where=self.where,
            what="is not there",
            remedy="make the topic first, or mend the name",
        )

    def _hanging(self) -> SinkAwayError:
        return SinkAwayError(
            where=self.where,
            what=f"the marker of {self.name} is in a transaction that Kafka has not finished",
            remedy="see that all brokers are there; if it stays so, find the transaction with "
            "`kafka-transactions.sh find-hanging` and abort it",
        )

    def _away(self, error: Any) -> SinkAwayError:
        detail = f"; {self.note.text}" if self.note.text else ""
        why = f"{error.str() or error.name()}{detail}"
        names = [one.name() for one in (error, *self.refused)]
        return _unreached(self.where, why, kafka_options.remedy_of_absence(self.note.name, *names))


@dataclass(slots=True)
class _Sent:
    """Watches how the broker acknowledges what a transaction has sent, up to an epoch."""

    where: str
    producer: Any
    seconds_max: float
    batches: Sequence[SinkRecords]
    epoch: int
    left: int = 0
    began: float = field(default_factory=time.monotonic)
    acknowledged_at: float = field(default_factory=time.monotonic)

    def check(self) -> None:
        """Raise SinkAwayError where nothing is acknowledged any more, or not all of it in time."""
        now, left = time.monotonic(), len(self.producer)
        if left != self.left:
            self.left, self.acknowledged_at = left, now
        if now - self.acknowledged_at > COMMIT_SECONDS_MAX:
            raise _unreached(self.where, f"nothing acknowledged for {COMMIT_SECONDS_MAX:.0f} s")
        if now - self.began > self.seconds_max:
            raise self._late()

    def _late(self) -> SinkAwayError:
        rows = sum(len(one.values) for one in self.batches)
        size = sum(one.bytes for one in self.batches)
        return SinkAwayError(
            where=self.where,
            what=f"a transaction of {len(self.batches):,} epochs up to {self.epoch}, of {rows:,} "
            f"records and {size / 1e6:,.1f} MB, was not acknowledged within "
            f"{self.seconds_max:.0f} s",
            remedy="see that its brokers keep up; an epoch of a query partition is one "
            f"transaction: make epochs smaller, or raise {TIMEOUT} in the sink's options, up to "
            "the brokers' transaction.max.timeout.ms",
        )


def _unreached(where: str, why: str, remedy: str = "") -> SinkAwayError:
    return SinkAwayError(
        where=where,
        what=f"Kafka cannot be reached ({why})",
        remedy=remedy or kafka_options.remedy_of_absence(),
    )


def _encoded(marker: EpochMarker) -> str:
    """What a marker says beside its epoch. Version 1 had no `read` and `record` at first, and its
    readers take no notice of them."""
    read = {"read": marker.read, "record": marker.record} if marker.record else {}
    return json.dumps({"version": 1, "commit": marker.commit, "store": marker.store, **read})


def _decoded(where: str, epoch: int, metadata: str | None) -> EpochMarker:
    try:
        said = json.loads(metadata or "")
        if said["version"] == 1:
            read, record = int(said.get("read", 0)), str(said.get("record", ""))
            return EpochMarker(epoch, int(said["commit"]), str(said["store"]), read, record)
    except (ValueError, KeyError, TypeError):
        pass
    raise RunError(
        where=where,
        what="has a marker that this version has not written",
        remedy="give the sink another topic, or run the version that wrote it",
    )
