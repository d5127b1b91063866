"""A publisher that follows a commit log: from where it reads, and what a topic has in the end."""

import errno
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from compacted_stores import Log, finish, log_of, make_small
from output_stores import Writer, rows

from rekindle.model.errors import FencedError, RekindleError, RunError, SinkAwayError
from rekindle_spark.connectors.kafka_sink import KafkaSink, SinkRecords
from rekindle_spark.connectors.kafka_transactions import EpochMarker
from rekindle_spark.driver import driver_clock
from rekindle_spark.output import sink_publishing
from rekindle_spark.output.sink_publishing import (
    SinkIdentity,
    SinkPublisher,
    TransactionSize,
    side_by_side,
)
from rekindle_spark.store import store_retry
from rekindle_spark.store.store_retry import StoreRetry
from rekindle_store import committed_files, store_files, store_readers
from rekindle_store.committed_files import NamedFile, OutputLog

AWAY = SinkAwayError(where="topic", what="Kafka cannot be reached", remedy="wait")
FENCED = FencedError(where="topic", what="is written by a newer writer", remedy="none")
LIMIT_SECONDS = 60.0


@dataclass
class Topic:
    """What a broker would keep, in place of one. `opening` and `writing` have what the next calls
    raise; what is written with an error in `answers` is there all the same."""

    values: list[bytes | None] = field(default_factory=list)
    marker: EpochMarker | None = None
    opening: list[RekindleError] = field(default_factory=list)
    writing: list[RekindleError] = field(default_factory=list)
    answers: list[RekindleError] = field(default_factory=list)
    opened: int = 0
    written: list[int] = field(default_factory=list)
    seconds_max: float = 48.0
    where: str = "topic"
    name: str = "name-0"

    def open(self) -> EpochMarker | None:
        self.opened += 1
        if self.opening:
            raise self.opening.pop()
        return self.marker

    def mark(self, marker: EpochMarker) -> None:
        self.marker = marker

    def write(self, batches: list[SinkRecords], marker: EpochMarker) -> None:
        if self.writing:
            raise self.writing.pop()
        self.written.append(len(batches))
        self.values += [value for records in batches for value in records.values]
        self.marker = marker
        if self.answers:
            raise self.answers.pop()


@dataclass
class World:
    """A store with a query, a topic, and the publisher between them."""

    store: Writer | Log
    topic: Topic
    said: list[str]
    publisher: SinkPublisher

    def until_done(self) -> None:
        """Wait until all is written, or the publisher has failed; then raise that."""
        publisher = self.publisher
        store = self.store
        publisher.wake(store.commits if isinstance(store, Log) else store.store.commits)
        publisher.start()
        assert publisher.thread is not None
        waited = time.monotonic()
        while publisher.done < publisher.newest and publisher.failure is None:
            publisher.thread.join(0.01)
            assert time.monotonic() - waited < LIMIT_SECONDS
        publisher.stop()
        if publisher.failure is not None:
            raise publisher.failure


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., World]:
    """Makes them, with three epochs that are committed; `newer` is what looks for newer drivers."""
    monkeypatch.setattr(sink_publishing, "RETRY_SECONDS", 0.01)
    topic = Topic()
    monkeypatch.setattr(SinkIdentity, "writer", lambda _self, _sink, _index: topic)

    def make(newer: Callable[[], None] = lambda: None, patience_seconds: float = 60) -> World:
        store = Writer(tmp_path, ("hourly",))
        for epoch in (1, 2, 3):
            store.commit(store.put("hourly", 0, epoch, rows(epoch).select(["n"])))
        said: list[str] = []
        sink = KafkaSink("b:9092", "topic", patience_seconds=patience_seconds)
        place = SinkIdentity("hourly", "name", 1, 0, store="here")
        found = store_files.at(tmp_path)
        publisher = SinkPublisher(sink, place, found, newer, lambda kind, _: said.append(kind))
        return World(store, topic, said, publisher)

    return make


ALL = [b'{"n":1}', b'{"n":2}', b'{"n":3}']


def test_a_sink_that_was_away_gets_all_once_and_it_is_said_once(
    world: Callable[..., World],
) -> None:
    there = world()
    there.topic.opening = [AWAY, AWAY]
    there.until_done()
    assert there.topic.values == ALL
    assert there.topic.marker == EpochMarker(3, 3, "here")
    assert there.said == ["sink-away", "sink-back"]


@pytest.mark.parametrize("is_in", [True, False])
def test_where_the_answer_to_a_commit_is_lost_the_marker_says_what_came_of_it(
    world: Callable[..., World], is_in: bool
) -> None:
    there = world()
    there.topic.answers, there.topic.writing = ([AWAY], []) if is_in else ([], [AWAY])
    there.until_done()
    assert there.topic.values == ALL
    assert there.topic.opened == 2


@pytest.mark.parametrize("which", ["opening", "writing"])
def test_a_sink_that_is_away_for_too_long_ends_the_run(
    world: Callable[..., World], which: str
) -> None:
    there = world(patience_seconds=0)
    setattr(there.topic, which, [AWAY] * 3)
    with pytest.raises(RunError, match="could not be reached for 0 s"):
        there.until_done()
    assert there.topic.values == []


def test_one_that_is_fenced_by_a_newer_driver_ends_and_opens_no_writer_again(
    world: Callable[..., World],
) -> None:
    calls: list[int] = []

    def newer() -> None:
        calls.append(1)
        if len(calls) > 1:
            raise FENCED

    there = world(newer)
    there.topic.writing = [FENCED]
    with pytest.raises(FencedError):
        there.until_done()
    assert (there.topic.values, there.topic.opened) == ([], 1)


def test_a_driver_that_was_replaced_fences_nobody(world: Callable[..., World]) -> None:
    def newer() -> None:
        raise FENCED

    there = world(newer)
    with pytest.raises(FencedError):
        there.until_done()
    assert there.topic.opened == 0


def test_one_that_is_fenced_by_an_older_driver_goes_on(world: Callable[..., World]) -> None:
    there = world()
    there.topic.writing = [FENCED]
    there.until_done()
    assert (there.topic.values, there.topic.opened) == (ALL, 2)
    assert there.said == ["sink-fenced", "sink-back"]


def test_one_that_is_fenced_again_and_again_without_a_newer_driver_ends_in_time(
    world: Callable[..., World],
) -> None:
    there = world(patience_seconds=0.1)
    there.topic.writing = [FENCED] * 10_000
    with pytest.raises(RunError) as ended:
        there.until_done()
    assert not isinstance(ended.value, FencedError)
    assert ended.value.what.startswith("could not be written for ")
    assert ended.value.what.endswith(" s (is written by a newer writer)")
    assert "another copy of this store writes as name; where none does" in ended.value.remedy
    assert "raise transaction.timeout.ms in the sink's options; then" in ended.value.remedy
    assert there.said == ["sink-fenced"]


def test_each_cause_of_an_absence_is_said_once(world: Callable[..., World]) -> None:
    there = world()
    there.topic.writing = [AWAY, FENCED] * 3
    there.until_done()
    assert there.topic.values == ALL
    assert there.said == ["sink-fenced", "sink-away", "sink-back"]


def test_a_sink_is_back_once_what_was_tried_is_written_and_not_once_a_part_of_it_is(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One query partition is written again and again, and the other one is away."""
    there, other = world(patience_seconds=0.2), Topic(name="name-1")
    other.writing = [AWAY] * 10_000
    topics = [there.topic, other]
    monkeypatch.setattr(SinkIdentity, "writer", lambda _self, _sink, index: topics[index])
    there.publisher.place = replace(there.publisher.place, partitions=2)
    assert isinstance(there.store, Writer)
    there.store.commit(there.store.put("hourly", 1, 1, rows(10).select(["n"])))
    monkeypatch.setattr(committed_files, "RECORDS_MAX", 1)
    with pytest.raises(RunError, match="could not be reached"):
        there.until_done()
    assert there.said == ["sink-away"]
    assert (there.topic.values, other.values) == (ALL, [])


def test_an_absence_ends_for_each_query_partition_once_something_of_it_is_written(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each transaction fails once, 40 s after the last: it is slow, and gets on."""
    there, now = world(patience_seconds=60), [1e6]
    monkeypatch.setattr(driver_clock, "now", lambda: now[0])
    monkeypatch.setattr(sink_publishing, "BYTES_MIN", 1)
    there.publisher.sizes[0] = TransactionSize(1)
    topic, write = there.topic, there.topic.write

    def slow(batches: list[SinkRecords], marker: EpochMarker) -> None:
        if topic.opened == len(topic.written) + 1:
            now[0] += 40.0
            raise AWAY
        write(batches, marker)

    monkeypatch.setattr(topic, "write", slow)
    there.until_done()
    assert (topic.values, topic.written, topic.opened) == (ALL, [1, 1, 1], 4)
    assert there.said == ["sink-away", "sink-back"]


@pytest.mark.parametrize("error", [AWAY, FENCED])
def test_a_transaction_that_was_not_finished_is_tried_again_with_less(
    error: RekindleError, world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that aborts one for its time fences its writer."""
    there = world()
    monkeypatch.setattr(sink_publishing, "BYTES_MIN", 1)
    there.publisher.sizes[0] = TransactionSize(2 * len(ALL[0]))
    there.topic.writing = [error]
    there.until_done()
    assert there.topic.values == ALL
    assert there.topic.written[0] == 1
    assert there.publisher.sizes[0].bytes_max > len(ALL[0]), "it was quick then"


def test_a_store_that_is_away_at_the_end_of_the_log_is_said_and_waited_for(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    there, told, look = world(), list[str | None](), OutputLog.look
    errors = [OSError(errno.EIO, "the disk is away")] * 2

    def away(log: OutputLog) -> list[NamedFile] | None:
        with store_readers.reading("store"):
            if errors:
                raise errors.pop()
        return look(log)

    monkeypatch.setattr(OutputLog, "look", away)
    monkeypatch.setattr(store_retry, "RETRY_SECONDS", 0.01)
    there.publisher.patience = StoreRetry(60, told.append)
    there.until_done()
    assert there.topic.values == ALL
    assert told == ["[Errno 5] the disk is away", None]
    errors.append(OSError(errno.EIO, "the disk is away"))
    there.publisher.patience = StoreRetry(0, told.append)
    there.publisher.done, there.publisher.ended = -1, False
    with pytest.raises(RunError, match="could not be reached or written for 0 s"):
        there.until_done()


def test_a_marker_that_should_be_there_and_one_of_a_strange_store_end_the_run(
    world: Callable[..., World],
) -> None:
    there = world()
    there.topic.marker = EpochMarker(2, 2, "elsewhere")
    with pytest.raises(RunError, match="is written from another store"):
        there.until_done()
    there.publisher.failure, there.topic.marker = None, None
    there.publisher.place = SinkIdentity("hourly", "name", 1, marked=1, store="here")
    there.publisher.ended = False
    with pytest.raises(RunError, match="has lost the marker"):
        there.until_done()
    assert there.topic.values == []


@pytest.mark.parametrize("store", ["origin", "origin of it"])
def test_a_copy_goes_on_behind_the_marker_of_each_store_that_it_comes_from(
    world: Callable[..., World], store: str
) -> None:
    there = world()
    there.topic.marker = EpochMarker(2, 2, store)
    origins = ("origin", "origin of it")
    there.publisher.place = replace(there.publisher.place, origins=origins)
    there.until_done()
    assert there.topic.values == ALL[2:]


def test_a_marker_behind_what_was_committed_at_the_start_is_of_a_newer_store(
    world: Callable[..., World],
) -> None:
    there = world()
    there.topic.marker = EpochMarker(3, 3, "here")
    there.topic.opening = [AWAY]
    there.publisher.check_generation = lambda: there.publisher.wake(3)  # commits come meanwhile
    there.publisher.wake(2)
    there.publisher.start()
    assert there.publisher.thread is not None
    there.publisher.thread.join(LIMIT_SECONDS)
    failure = there.publisher.failure
    assert isinstance(failure, RunError)
    assert "which this checkpoint store has not" in failure.what
    assert (there.publisher.newest, there.topic.values) == (3, [])
    there.publisher.failure = None
    there.until_done()  # the same marker, where the log had its record at the start
    assert there.topic.values == []


def test_a_copy_that_is_refused_leaves_the_markers_to_the_right_store(
    world: Callable[..., World],
) -> None:
    """Restarts have given the copy as many records as the marker names."""
    there = world()
    there.topic.marker = marker = EpochMarker(7, 3, "origin")
    there.publisher.place = replace(there.publisher.place, origins=("origin",))
    with pytest.raises(RunError, match="which this checkpoint store has not"):
        there.until_done()
    assert (there.topic.marker, there.topic.values) == (marker, [])


def test_output_that_was_compacted_meanwhile_is_written_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_small(monkeypatch)
    topics = {0: Topic(), 1: Topic()}
    monkeypatch.setattr(SinkIdentity, "writer", lambda _self, _sink, index: topics[index])
    log = log_of(7)
    finish(log.compaction())
    assert log.single_files() == [7]
    place = SinkIdentity("hourly", "name", 2, 0, store="here")
    sink = KafkaSink("b:9092", "topic")
    publisher = SinkPublisher(sink, place, log.files, lambda: None, lambda *_: None)
    World(log, Topic(), [], publisher).until_done()
    for index, topic in topics.items():
        committed = [one for one in log.written if one[0] == f"hourly/{index}"]
        numbers = [number for *_, table in committed for number in table["n"].to_pylist()]
        assert topic.values == [b'{"n":%d}' % number for number in numbers]
        assert topic.marker == EpochMarker(committed[-1][1], committed[-1][2], "here")


@dataclass
class Quiet:
    """A store with a topic for each query partition, the first of which has output in the first
    commit record alone. `looks` are the records behind which each look at the log began."""

    place: Path
    topics: list[Topic] = field(default_factory=lambda: [Topic(), Topic()])
    looks: list[int] = field(default_factory=list)
    store: Writer = field(init=False)

    def __post_init__(self) -> None:
        self.store = Writer(self.place, ("hourly", "busiest"))

    def commit(self, count: int, query: str = "hourly", index: int = 1) -> None:
        """Go on by so many commit records, each with an epoch of a query partition."""
        for _ in range(count):
            epoch = self.store.store.commits + 1
            self.store.commit(self.store.put(query, index, epoch, rows(epoch).select(["n"])))

    def follow(self) -> None:
        """A driver follows the log to its end."""
        place = SinkIdentity("hourly", "name", len(self.topics), 0, store="here")
        sink, files = KafkaSink("b:9092", "topic"), store_files.at(self.place)
        self.looks.clear()
        publisher = SinkPublisher(sink, place, files, lambda: None, lambda *_: None)
        World(self.store, self.topics[0], [], publisher).until_done()

    def numbers(self) -> list[list[int]]:
        """What the topics have."""
        return [[json.loads(value or "")["n"] for value in one.values] for one in self.topics]


@pytest.fixture
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Quiet:
    """It has one commit record. Two are read at a time, and markers are set after each four."""
    made, look = Quiet(tmp_path / "store"), OutputLog.look

    def noted(log: OutputLog) -> list[NamedFile] | None:
        made.looks.append(log.last)
        return look(log)

    monkeypatch.setattr(OutputLog, "look", noted)
    monkeypatch.setattr(SinkIdentity, "writer", lambda _self, _sink, index: made.topics[index])
    monkeypatch.setattr(sink_publishing, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(sink_publishing, "MARK_RECORDS", 4)
    monkeypatch.setattr(committed_files, "RECORDS_MAX", 2)
    made.commit(1, index=0)
    return made


def test_a_start_does_not_read_the_log_from_the_quietest_query_partitions_output_on(
    quiet: Quiet,
) -> None:
    quiet.commit(9)
    quiet.follow()
    quiet.commit(3)
    quiet.follow()
    assert quiet.looks[0] == 8
    quiet.topics[1].writing = [AWAY]  # and so does a writer that is opened again in a run
    quiet.commit(2)
    quiet.follow()
    assert (min(quiet.looks), quiet.topics[0].opened) == (10, 4)
    assert quiet.numbers() == [[1], list(range(2, 16))]


def test_a_query_partition_that_never_had_output_makes_one_start_read_the_whole_log(
    quiet: Quiet,
) -> None:
    quiet.commit(8)
    quiet.follow()
    quiet.topics.append(Topic())
    for begin in (0, 10):
        quiet.commit(1)
        quiet.follow()
        assert quiet.looks[0] == begin
    quiet.commit(1, index=2)
    quiet.follow()
    assert quiet.numbers() == [[1], list(range(2, 12)), [12]]


@pytest.mark.parametrize("others", [1, 8])
def test_a_store_restored_from_an_older_copy_is_not_taken_for_the_one_that_was_read(
    quiet: Quiet, tmp_path: Path, others: int
) -> None:
    """The newer one had no output of the query since. The record up to which it was read is not
    there, or is another one."""
    quiet.commit(3, "busiest")
    shutil.copytree(tmp_path / "store", tmp_path / "older")
    quiet.commit(4, "busiest")
    quiet.follow()
    marker = quiet.topics[0].marker
    assert marker is not None
    assert marker.read == 8
    older = replace(quiet, place=tmp_path / "older")
    older.commit(1, index=0)
    older.commit(others, "busiest")
    older.follow()
    assert older.looks[0] == 0
    assert older.numbers() == [[1, 6], []], "its record 5 is that of the driver's start"


def test_a_marker_of_the_version_before_is_gone_on_from_and_says_more_from_then_on(
    quiet: Quiet,
) -> None:
    quiet.commit(8)
    quiet.topics[0].marker, quiet.topics[1].marker = (
        EpochMarker(1, 1, "here"),
        EpochMarker(4, 4, "here"),
    )
    for begin in (0, 8):
        quiet.follow()
        assert quiet.looks[0] == begin
    assert quiet.numbers() == [[], list(range(5, 10))]


def test_work_side_by_side_is_all_done_and_the_worst_is_raised() -> None:
    done: list[int] = []

    def one(number: int) -> None:
        done.append(number)
        if number == 3:
            raise AWAY
        if number == 20:
            raise FENCED

    with pytest.raises(FencedError):
        side_by_side([lambda number=number: one(number) for number in range(40)])
    assert sorted(done) == list(range(40))
    side_by_side([])
