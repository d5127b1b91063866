"""Follows the commit log, and writes what it names to the sinks that queries have beside files.

    commit record ──output_commit.publish──► woken ──► files of the next records, by query partition
                                                      └──► one transaction each, side by side

A commit record says what counts, whatever was lost, held back or run again before. So what is
written is what readers of the store get: uncertain rows come with their checkpoint, and nothing is
taken back. A writer that is opened learns from its marker which epoch is in, and goes on behind it.
Now and then all markers are set again with how far the log has been read, so that the next opening
does not begin with the last output of the quietest query partition.
A sink that is away holds up no epoch; what is to be written lies in the store. Called by
`driver_main`. Decided in docs/decisions/0048-sinks-follow-the-commit-log.md.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from rekindle.model.errors import (
    DamagedError,
    FencedError,
    InputError,
    RekindleError,
    RunError,
    SinkAwayError,
)
from rekindle_spark.connectors.kafka_sink import KafkaSink, SinkRecords
from rekindle_spark.connectors.kafka_transactions import (
    TIMEOUT,
    EpochMarker,
    TransactionalWriter,
)
from rekindle_spark.driver import driver_clock
from rekindle_spark.store.store_retry import StoreRetry
from rekindle_spark.user_code import dead_letter_sieve
from rekindle_store import commit_log
from rekindle_store.committed_files import NamedFile, OutputLog
from rekindle_store.output_rows import OutputRows
from rekindle_store.store_files import Files

RETRY_SECONDS = 1.0
JOIN_SECONDS = 5.0
# A broker keeps offsets of a group without members for seven days, by default.
MARK_SECONDS = 6 * 3600.0
# So many commit records are read within a second or two, which an opening then takes at most.
MARK_RECORDS = 2_000
# Query partitions of a sink that are written side by side.
WRITERS_MAX = 16
# Of what lies behind: so much goes into one transaction, but an epoch as a whole. A topic that
# takes 350 kB of a query partition in a second has that many bytes within the time that a
# transaction may be open for; for a slower one they become fewer. A start begins with few: a
# transaction that is not finished costs all of that time, one that is too small next to nothing.
ROWS_MAX, FILES_MAX = 100_000, 64
BYTES_MAX, BYTES_FIRST, BYTES_MIN = 16 << 20, 1 << 20, 64 << 10
# Of that time: what takes longer than the first is too much, what less than the other too little.
LONG_SHARE, SHORT_SHARE = 1 / 4, 1 / 16

Say = Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class SinkIdentity:
    """Of whom the writers of a sink are: `name` of all of them, how many query partitions there
    are or were, and of how many a marker has to be there. `store` is the identity of the store that
    is written from, `origins` those of the stores of which it is a copy, or a copy of a copy."""

    query: str
    name: str
    partitions: int
    marked: int
    store: str = ""
    origins: tuple[str, ...] = ()

    def writer(self, sink: KafkaSink, index: int) -> TransactionalWriter:
        """The writer of a query partition."""
        where = f"query {self.query}: topic {sink.topic} at {sink.servers}"
        is_known = index < self.marked
        return TransactionalWriter(sink, where, f"{self.name}-{index}", index, is_known)


@dataclass(slots=True)
class TopicPosition:
    """How far a query partition is in its topic, by its marker, and whether the commit log was seen
    to say the same."""

    where: str
    marker: EpochMarker
    is_confirmed: bool = False

    def __post_init__(self) -> None:
        self.is_confirmed = not self.marker.epoch

    def begin(self, record: str) -> int:
        """The number of the commit record behind which the log is to be read, where it has
        `record` as the fingerprint of the one up to which the marker says that it was read.

        With another one there this log is not the one that was read, as after a store was restored
        from an older copy: then all behind the marker's own commit record counts.
        """
        if record and record == self.marker.record:
            self.is_confirmed = True  # it was, before `read` was set
            return self.marker.read
        self.marker = replace(self.marker, read=0, record="")
        return max(0, self.marker.commit - 1)  # that one may name later epochs too

    def read_up_to(self, commit: int, record: str) -> EpochMarker:
        """The marker, where all up to a commit record with this fingerprint is in the topic."""
        if self.marker.read >= commit:
            return self.marker
        return replace(self.marker, read=commit, record=record)

    def due(self, files: Iterable[NamedFile]) -> list[NamedFile]:
        """Those of the files, in the order of the log, that are still to be written.

        Raises RunError where the log goes on without what the marker names.
        """
        found = []
        for file in files:
            if file.epoch > self.marker.epoch:
                self.check()
                found.append(file)
            elif (file.epoch, file.commit) == (self.marker.epoch, self.marker.commit):
                self.is_confirmed = True
        return found

    def check_begun(self, newest: int) -> None:
        """Raise RunError where the marker names a later commit record than the newest one that was
        there when the driver began: what it commits since may get the same number."""
        if self.marker.commit > newest:
            self.is_confirmed = False
            self.check()

    def check(self) -> None:
        """Raise RunError where the log, which has been read up to behind the marker's commit record
        or to its end, did not have what the marker says."""
        if not self.is_confirmed:
            raise RunError(
                where=self.where,
                what=f"has epoch {self.marker.epoch} of commit record {self.marker.commit}, which "
                "this checkpoint store has not",
                remedy="the store is an older copy of the one that was written from: go on with "
                "that one, or give the sink another topic",
            )


@dataclass(slots=True)
class TransactionSize:
    """How many bytes of records go into one transaction of a query partition."""

    bytes_max: int = BYTES_FIRST

    def shrink(self) -> None:
        """One was not finished, or took long."""
        self.bytes_max = max(BYTES_MIN, self.bytes_max // 2)

    def note(self, length: int, seconds: float, seconds_max: float) -> None:
        """One of so many bytes took so many seconds, and may be open for so many. That a small one
        is quick says nothing about a larger one."""
        if seconds > LONG_SHARE * seconds_max:
            self.shrink()
        elif seconds < SHORT_SHARE * seconds_max and 2 * length >= self.bytes_max:
            self.bytes_max = min(BYTES_MAX, 2 * self.bytes_max)


def transactions(
    epochs: Iterable[tuple[NamedFile, SinkRecords]], size: TransactionSize
) -> Iterator[list[tuple[NamedFile, SinkRecords]]]:
    """Stretches of epochs of a query partition, each for one transaction. An epoch is never
    divided: readers of what is committed get all of it or nothing."""
    stretch, rows, length = list[tuple[NamedFile, SinkRecords]](), 0, 0
    for file, records in epochs:
        too_much = rows + file.rows > ROWS_MAX or length + records.bytes > size.bytes_max
        if stretch and (too_much or len(stretch) == FILES_MAX):
            yield stretch
            stretch, rows, length = [], 0, 0
        stretch.append((file, records))
        rows, length = rows + file.rows, length + records.bytes
    if stretch:
        yield stretch


def side_by_side(work: Sequence[Callable[[], None]]) -> None:
    """Do all of it, some at a time, whatever comes of one; then raise the worst of their errors.

    Not by an executor: its threads hold up the end of a process while they wait for a broker.
    """
    left, errors = deque(work), list[BaseException]()

    def run() -> None:
        with suppress(IndexError):
            while True:
                errors.extend(_raised_by(left.popleft()))

    others = min(WRITERS_MAX, len(work)) - 1
    threads = [threading.Thread(target=run, name="sink-writer", daemon=True) for _ in range(others)]
    for thread in threads:
        thread.start()
    run()
    for thread in threads:
        thread.join()
    for error in sorted(errors, key=lambda error: isinstance(error, SinkAwayError)):
        raise error


def _raised_by(work: Callable[[], None]) -> list[BaseException]:
    try:
        work()
    except dead_letter_sieve.USERS_ERRORS as error:
        return [error]
    return []


@dataclass(slots=True)
class SinkPublisher:
    """A thread that writes one query's output to its sink. `newest` is the number of the newest
    commit record, `begun` what it was when the driver began, `done` that of the last whose output
    is in the topic. `check_generation` raises FencedError where a newer driver has started;
    `patience` is that for the store.

    `away_since` has, by query partition, since when nothing of it could be written, and `failing`
    the partitions that the newest attempt failed for. `away_kinds` are the events that have said
    why not all is written, and `wanted` is the commit record up to which it has been tried: the
    sink is back once that is written."""

    sink: KafkaSink
    place: SinkIdentity
    files: Files
    check_generation: Callable[[], None]
    say: Say
    patience: StoreRetry = field(default_factory=StoreRetry)
    newest: int = 0
    begun: int = 0
    is_opened: bool = False
    done: int = -1
    failure: RekindleError | None = None
    away_since: dict[int, float] = field(default_factory=dict)
    failing: set[int] = field(default_factory=set)
    away_kinds: set[str] = field(default_factory=set)
    wanted: int = 0
    ended: bool = False
    marked_at: float = 0.0
    written: dict[int, TopicPosition] = field(default_factory=dict)
    writers: dict[int, TransactionalWriter] = field(default_factory=dict)
    sizes: dict[int, TransactionSize] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)
    thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self.begun = self.newest
        name = f"sink-{self.place.query}"
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """Have the thread end once it has done what it is at."""
        with self.changed:
            self.ended = True
            self.changed.notify_all()
        if self.thread is not None:
            self.thread.join(JOIN_SECONDS)

    def wake(self, newest: int) -> None:
        """There is a newer commit record."""
        with self.changed:
            self.newest = max(self.newest, newest)
            self.changed.notify_all()

    def _run(self) -> None:
        """What the thread does."""
        while not self.ended and self.failure is None:
            try:
                self._follow()
            except SinkAwayError as error:
                self._note_away(error, "sink-away")
            except FencedError as error:
                self._note_fenced(error)
            except dead_letter_sieve.USERS_ERRORS as error:
                self.failure = _failure(self.place.query, error)
            self._wait(RETRY_SECONDS)

    def _follow(self) -> None:
        """Open the writers, and write what the commit log names from there on."""
        self.patience.through(self.check_generation)  # an older driver is not to fence a newer one
        self._open()
        self.marked_at = 0.0
        marked = self._begin()
        log = OutputLog(self.files, self.place.query, last=marked)
        rows = OutputRows(self.files, log.places)
        while not self.ended:
            is_late = driver_clock.now() - self.marked_at > MARK_SECONDS
            is_due = is_late or log.last - marked >= MARK_RECORDS
            # a store that is refused is not to make the right one strange to the topic
            if is_due and all(one.is_confirmed for one in self.written.values()):
                self._mark(log.last)
                marked = log.last
            if log.last >= self.newest:
                self._caught_up(log.last)
                continue
            found = self._look(log)
            if found:
                self.wanted = max(self.wanted, log.last)
                self._write(found, rows)
                if log.last >= self.wanted:
                    self._note_back()
            elif found is None:
                self._wait(RETRY_SECONDS)  # the record is on its way into a segment

    def _begin(self) -> int:
        """The number of the commit record behind which the log is to be read: up to there each
        query partition has all of its output in the topic."""
        numbers = {one.marker.read for one in self.written.values()}
        records = {number: self._fingerprint(number) for number in numbers}
        return min(one.begin(records[one.marker.read]) for one in self.written.values())

    def _fingerprint(self, number: int) -> str:
        if not number:
            return ""
        return self.patience.through(partial(commit_log.fingerprint, self.files, number))

    def _look(self, log: OutputLog) -> list[NamedFile] | None:
        """The files that the next commit records name, once the store can be read."""

        def look() -> list[NamedFile] | None:
            try:
                return log.look()
            except DamagedError:
                raise
            except RunError as error:
                if isinstance(error.__cause__, OSError):
                    raise error.__cause__ from None
                raise

        return self.patience.through(look)

    def _open(self) -> None:
        indices = range(self.place.partitions)
        if not self.writers:
            self.writers = {index: self.place.writer(self.sink, index) for index in indices}
        self._each({index: partial(self._open_part, index) for index in indices})
        self.is_opened = True

    def _open_part(self, index: int) -> None:
        writer = self.writers[index]
        marker = self._expected(index, writer.where, writer.open())
        position = TopicPosition(writer.where, marker)
        if not self.is_opened:  # this driver has written nothing yet
            position.check_begun(self.begun)
        self.written[index] = position

    def _expected(self, index: int, where: str, marker: EpochMarker | None) -> EpochMarker:
        if marker is None and index < self.place.marked:
            raise RunError(
                where=where,
                what="has lost the marker that says which epoch is in (consumer group "
                f"{self.writers[index].name})",
                remedy="it goes with a topic that is recreated, and after offsets.retention.minutes"
                " without a driver: give the sink another topic, which gets all output",
            )
        known = ("", self.place.store, *self.place.origins)
        if marker is not None and marker.store not in known:
            raise RunError(
                where=where,
                what="is written from another store, a copy of this one",
                remedy="go on with that one, or give the sink another topic",
            )
        return marker or EpochMarker()

    def _mark(self, commit: int) -> None:
        """Set all markers again, where all up to a commit record is written: the broker forgets
        what is not set for days, drivers of other stores see by it who writes now, and the next
        opening reads the log from there."""
        record = self._fingerprint(commit)
        work = dict[int, Callable[[], None]]()
        for index, one in self.written.items():
            marker = replace(one.read_up_to(commit, record), store=self.place.store)
            work[index] = partial(self.writers[index].mark, marker)
        self._each(work)
        self.marked_at = driver_clock.now()

    def _write(self, found: Sequence[NamedFile], rows: OutputRows) -> None:
        """Write files of some commit records, each query partition's by its own writer."""
        by_index: dict[int, list[NamedFile]] = {}
        for file in found:
            by_index.setdefault(file.partition, []).append(file)
        self._each({one[0]: partial(self._write_part, rows, *one) for one in by_index.items()})

    def _each(self, work: Mapping[int, Callable[[], None]]) -> None:
        """Do the work of query partitions side by side, and note which of them fail."""
        failing = self.failing = set[int]()

        def attempt(index: int) -> None:
            try:
                work[index]()
            except (SinkAwayError, FencedError):
                failing.add(index)
                raise

        side_by_side([partial(attempt, index) for index in work])

    def _write_part(self, rows: OutputRows, index: int, files: Sequence[NamedFile]) -> None:
        written, writer = self.written[index], self.writers[index]
        size = self.sizes.setdefault(index, TransactionSize())
        due = written.due(files)
        # a transaction is begun once its records are made: the store may be away meanwhile
        epochs = ((file, self._records(rows, file)) for file in due)
        for stretch in transactions(epochs, size):
            newest = stretch[-1][0]
            marker = EpochMarker(newest.epoch, newest.commit, self.place.store)
            began = driver_clock.now()
            try:
                writer.write([records for _, records in stretch], marker)
            except (SinkAwayError, FencedError):
                # a broker fences the writer of a transaction that was open for too long
                size.shrink()
                raise
            length = sum(records.bytes for _, records in stretch)
            size.note(length, driver_clock.now() - began, writer.seconds_max)
            written.marker = marker
            self.away_since.pop(index, None)

    def _records(self, rows: OutputRows, file: NamedFile) -> SinkRecords:
        return self.sink.records(self.place.query, self._table(rows, file))

    def _table(self, rows: OutputRows, file: NamedFile) -> pa.Table:
        """The rows of a file, which may lie in one of many by now."""
        return self.patience.through(partial(rows.table, file.commit, file.name, file.rows))

    def _caught_up(self, commit: int) -> None:
        """All up to a commit record is written: wait for the next one."""
        for one in self.written.values():
            one.check()
        self._note_back()
        with self.changed:
            self.done = commit
            self.changed.wait_for(lambda: self.ended or self.newest > commit, MARK_SECONDS)

    def _wait(self, seconds: float) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.ended, seconds)

    def _note_away(self, error: RekindleError, kind: str) -> None:
        now = driver_clock.now()
        since = min((self.away_since.setdefault(index, now) for index in self.failing), default=now)
        if kind not in self.away_kinds:
            self.away_kinds.add(kind)
            self.say(kind, {"query": self.place.query, "text": error.text})
        seconds = now - since
        if seconds > self.sink.patience_seconds:
            self.failure = RunError(
                where=error.where,
                what=f"could not be {'reached' if kind == 'sink-away' else 'written'} for "
                f"{seconds:.0f} s ({error.what})",
                remedy=f"{error.remedy}; then start again: what is committed is written then",
            )

    def _note_back(self) -> None:
        """All that was tried is written, or nothing is left: to be opened is no sign of it."""
        self.away_since.clear()
        if self.away_kinds:
            self.away_kinds = set()
            self.say("sink-back", {"query": self.place.query})

    def _note_fenced(self, error: FencedError) -> None:
        """By a newer driver of the store, which ends this one. Or by an older one that was stopped
        and went on, and ends when it looks for newer drivers; by the driver of a copy; or by the
        broker, for a transaction that was open for too long. Then it is tried again, with the
        patience that there is for a sink that is away."""
        try:
            self.patience.through(self.check_generation)
        except FencedError:
            self.failure = error
        except dead_letter_sieve.USERS_ERRORS as other:
            self.failure = _failure(self.place.query, other)
        else:
            name = self.place.name
            remedy = (
                f"see that no driver of another copy of this store writes as {name}; where none "
                "does, the broker has aborted a transaction that was open for too long: see that "
                f"its brokers keep up, or raise {TIMEOUT} in the sink's options"
            )
            again = RunError(where=error.where, what=error.what, remedy=remedy)
            self._note_away(again, "sink-fenced")


@dataclass(slots=True)
class SinkPublishers:
    """All publishers of a driver; most drivers have none."""

    publishers: tuple[SinkPublisher, ...] = ()

    def start(self, newest: int) -> None:
        """Start them, with the number of the newest commit record."""
        for one in self.publishers:
            one.wake(newest)
            one.start()

    def wake(self, newest: int) -> None:
        """There is a newer commit record."""
        for one in self.publishers:
            one.wake(newest)

    def check(self) -> None:
        """Raise what one has failed with."""
        for one in self.publishers:
            if one.failure is not None:
                raise one.failure

    @property
    def are_done(self) -> bool:
        """Whether all that is committed is written. Raises what one has failed with."""
        self.check()
        return all(one.done >= one.newest for one in self.publishers)

    def stop(self) -> None:
        """End them. What they have not written, the next driver does."""
        for one in self.publishers:
            one.stop()


def _failure(query: str, error: BaseException) -> RekindleError:
    if isinstance(error, InputError):  # a store that cannot be read ends a run
        return RunError(where=error.where, what=error.what, remedy=error.remedy)
    if isinstance(error, RekindleError):
        return error
    return RunError(
        where=f"query {query}",
        what=f"its sink {dead_letter_sieve.raised(error)}",
        remedy="mend the sink and start again: committed output stays",
    )
