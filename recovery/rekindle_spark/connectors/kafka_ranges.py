"""Reads ranges of a Kafka partition's offsets: all records that are committed, and no others.

Offsets have gaps: markers of transactions and aborted records take some. So a range is complete
when a record behind it has come, when the client's position has passed it, or at the partition's
end. A process keeps a consumer for each partition that it reads, which goes on where it has ended:
a new position costs ten times as much. What consumers fetch before anybody asks for it is bounded:
all of them together stay within the process's prefetch budget. Called by `kafka`.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rekindle.model.errors import DataLossError, SourceAwayError
from rekindle_spark.connectors import kafka_options
from rekindle_spark.connectors.kafka_options import ErrorNote
from rekindle_spark.pipeline.unbounded_source import prefetch

READERS_MAX = 32
# What a consumer may fetch before it is asked for. With less than the most it waits for brokers
# more often; the least still holds a batch of records as large as brokers take by default.
QUEUED_BYTES_MAX, QUEUED_BYTES_MIN = 16 << 20, 1 << 20
QUEUED = "queued.max.messages.kbytes"
MESSAGES_MAX, POLL_SECONDS = 10_000, 0.05
# A broker that restarts is back after some seconds; who waits for longer holds up an epoch.
SILENT_SECONDS_MAX = 10.0
# Expired, or cut off: a leader was elected that lacked what the one before had.
GONE = ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE", "_LOG_TRUNCATION")
CONSUMER = {
    "group.id": "rekindle",  # wanted by the client, and used for nothing here
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "fetch.queue.backoff.ms": kafka_options.FETCH_BACKOFF_MS,
    "fetch.wait.max.ms": 100,
}


@dataclass(frozen=True)
class PartitionAddress:
    """A partition of a topic, and how its servers are reached; `options` are pairs, in order."""

    servers: str
    topic: str
    partition: int
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def place(self) -> str:
        """As messages name it."""
        return f"topic {self.topic}, partition {self.partition}"


@dataclass(slots=True)
class _Reader:
    """A consumer of one partition. `position` is the next offset that it gives; `waiting` are
    records that came with the range before, and lie behind it. It fetches up to `queued_bytes`
    before it is asked for them. `stale` is where the client was before it was sent elsewhere: it
    says so until another thread of its own has followed."""

    address: PartitionAddress
    consumer: Any
    note: ErrorNote
    queued_bytes: int = 0
    position: int | None = None
    waiting: list[Any] = field(default_factory=list)
    stale: int | None = None
    is_fresh: bool = True
    lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, start: int, end: int) -> Iterator[list[Any]]:
        """Yield the records of [start, end), some at a time, in their order."""
        if self.position != start:
            self._seek(start)
        self.position = None  # until the range is complete
        found = [one for one in self.waiting if one.offset() < end]
        self.waiting = self.waiting[len(found) :]
        reached = found[-1].offset() + 1 if found else start
        if found:
            yield found
        heard_at = time.monotonic()
        while reached < end and not self.waiting:
            batch = self.consumer.consume(min(MESSAGES_MAX, end - reached), POLL_SECONDS)
            found, passed = self._sorted(batch, start, end)
            if found:
                yield found
            at = max(passed, self._client_position(), found[-1].offset() + 1 if found else 0)
            if at > reached:
                reached, heard_at = at, time.monotonic()
                self.note.clear()
            elif time.monotonic() - heard_at > SILENT_SECONDS_MAX:
                raise self._silent(reached)
        self.position = end

    def close(self) -> None:
        """Give the consumer back, once nobody reads with it."""
        with self.lock:
            self.consumer.close()

    def _seek(self, start: int) -> None:
        library, address = kafka_options.library(), self.address
        self.waiting = []
        self.stale = None if self.is_fresh else self._said_position()
        self.is_fresh = False
        self.consumer.assign([library.TopicPartition(address.topic, address.partition, start)])

    def _sorted(self, batch: list[Any], start: int, end: int) -> tuple[list[Any], int]:
        """The records of the range; those behind it wait. And how far the client has looked."""
        found: list[Any] = []
        passed = 0
        for message in batch:
            error = message.error()
            if error is None:
                (found if message.offset() < end else self.waiting).append(message)
            elif error.name() == "_PARTITION_EOF":
                passed = max(passed, message.offset())
            elif error.name() in GONE:
                raise self._expired(start, end)
            elif error.name() == "GROUP_AUTHORIZATION_FAILED":
                continue  # the group is used for nothing
            elif error.fatal() or error.name() in kafka_options.REFUSALS:
                raise kafka_options.of_error(self.address.place, error, self.note, is_running=True)
            else:  # it may pass; where it does not, it says why nothing comes
                self.note(error)
        return found, passed

    def _client_position(self) -> int:
        """The next offset that the client would give; it passes what is no record. 0 as long as
        that may be from before it was sent elsewhere: else a range would seem to be complete."""
        at = self._said_position()
        if at == self.stale:
            return 0
        self.stale = None
        return max(0, at)

    def _said_position(self) -> int:
        library, address = kafka_options.library(), self.address
        at = library.TopicPartition(address.topic, address.partition)
        return int(self.consumer.position([at])[0].offset)

    def _silent(self, reached: int) -> SourceAwayError:
        detail = f" ({self.note.text})" if self.note.text else ""
        return SourceAwayError(
            where=self.address.place,
            what=f"gave nothing for {SILENT_SECONDS_MAX:.0f} s at offset {reached}{detail}",
            remedy="see that the topic's brokers are there, and can be reached from the nodes",
        )

    def _expired(self, start: int, end: int) -> DataLossError:
        return DataLossError(
            where=self.address.place,
            what=f"has not all records of offsets {start} to {end} any more, which are logged",
            remedy="keep records longer than outages last; begin again with an empty store",
        )


_readers: "OrderedDict[PartitionAddress, _Reader]" = OrderedDict()
_readers_lock = threading.Lock()


def messages(address: PartitionAddress, start: int, end: int) -> Iterator[list[Any]]:
    """Yield the records of the offsets [start, end), some at a time.

    Raises SourceAwayError where none come for SILENT_SECONDS_MAX or Kafka refuses to give them,
    DataLossError where offsets have expired. A host does not know whether they were ever given:
    what is refused from the beginning the driver sees at its start.
    """
    if start >= end:
        return
    reader = _reader(address)
    with reader.lock:
        try:
            yield from reader.read(start, end)
        except SourceAwayError:
            _let_go(reader)
            raise
        finally:
            if reader.position is None:  # what it would give next is not known
                reader.waiting = []


def _let_go(reader: _Reader) -> None:
    """Let go of one that gave nothing: a new one reads secrets again, and knows no old servers."""
    with _readers_lock:
        if _readers.get(reader.address) is reader:
            del _readers[reader.address]


def _reader(address: PartitionAddress) -> _Reader:
    """The process's reader of a partition; the one not used for longest goes."""
    old = []
    with _readers_lock:
        reader = _readers.pop(address, None)
        if reader is None:
            note = ErrorNote()
            given = kafka_options.configuration(
                address.place, address.servers, dict(address.options), note
            )
            queued = _queued_bytes([one.queued_bytes for one in _readers.values()])
            own = {**CONSUMER, QUEUED: queued >> 10}
            consumer = kafka_options.library().Consumer({**given, **own})
            reader = _Reader(address, consumer, note, queued)
        _readers[address] = reader
        while len(_readers) > READERS_MAX:
            old.append(_readers.popitem(last=False)[1])
    for one in old:
        one.close()
    return reader


def _queued_bytes(others: Sequence[int]) -> int:
    """What one more consumer may fetch ahead beside these: a quarter of what is left of the
    process's budget, for nobody knows how many there will be."""
    bytes_max = prefetch.bytes_max
    if bytes_max is None:
        return QUEUED_BYTES_MAX
    left = bytes_max - sum(others)
    return max(QUEUED_BYTES_MIN, min(QUEUED_BYTES_MAX, left // 4))
