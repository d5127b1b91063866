"""Versions of partition states in a host, their checkpoints in the store, and durable input.

A version is kept under its epoch and never changed. The newest finished one and what is newer
stay; older ones go. Checkpoints are written by one background thread; what it has put into the
store is acknowledged with the next report. Nothing here decides which version is right: the driver
does.

    checkpoints/EPOCH/OPERATOR-INDEX.state   a whole state, or what has changed since the file of an
                                             earlier checkpoint (`table_delta`)
    checkpoints/EPOCH/OPERATOR-INDEX.input   durable input: frames of some epochs for one partition

Durable input is written by a host whatever partitions it owns, from what it is handed, and read by
the host that brings the partition back. Which frames they are the driver knows (`restore_points`).
Formats: docs/formats.md.
"""

import queue
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from rekindle_spark import intervals
from rekindle_spark.checkpoint import table_delta
from rekindle_spark.checkpoint.table_delta import Marks
from rekindle_spark.executor import frames
from rekindle_spark.executor.frames import Frame
from rekindle_spark.executor.job_activity import CHECKPOINTS, Activity, Entry
from rekindle_spark.executor.partition import Incomplete, PartitionState, initial
from rekindle_spark.pipeline.program import Chain, Program
from rekindle_spark.user_code import dead_letter_sieve
from rekindle_store import checksummed_file
from rekindle_store.store_files import Files
from rekindle_store.transfers import Moved, unwatched

WHOLE, CHANGED = 1, 2
INPUT_VERSION = 1
# How often who waits for a load of another looks whether bytes come.
JOINED_SECONDS = 0.5
# Files that a state is made of at most, and bytes of changes as a share of the whole state.
FILES_MAX = 8
CHANGES_SHARE_MAX = 0.5
# Of smaller states finding out what has changed costs more than it saves.
SMALL_BYTES = 1 << 16
# Files go to the store together, which is sooner done, once they are so much: memory holds them.
TOGETHER_BYTES_MIN = 32 << 20


@dataclass(slots=True)
class Loading:
    """A state on its way from the store, and how many pieces of it have come."""

    state: "Future[PartitionState]" = field(default_factory=Future)
    pieces: int = 0

    def come(self, size: int, moved: Moved) -> None:
        """Bytes have come, for who began it and for who has joined."""
        self.pieces += 1
        moved(size)

    def joined(self, moved: Moved) -> PartitionState:
        """The state, once it is there; `moved` is called as long as bytes come."""
        seen = self.pieces
        while True:
            if not wait([self.state], JOINED_SECONDS).not_done:
                return self.state.result()
            if self.pieces != seen:
                seen = self.pieces
                moved(0)


@dataclass(slots=True)
class Versions:
    """States of one partition by epoch; `newest` are the highest plan epoch that has placed it
    here, and the newest job that has run it: what an older one makes of it comes too late."""

    newest: tuple[int, int] = (0, 0)
    by_epoch: dict[int, PartitionState] = field(default_factory=dict)
    loading: dict[int, "Loading"] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def loaded(
        self, epoch: int, load: Callable[[Moved], PartitionState], moved: Moved
    ) -> PartitionState:
        """The version of an epoch, loaded where it is not here: once, however many ask for it.

        A job that is issued again finds the load of the one before on its way and waits for that.
        Raises what `load` raises; who asks then loads anew.
        """
        with self.lock:
            if epoch in self.by_epoch:
                return self.by_epoch[epoch]
            known = self.loading.get(epoch)
            own = self.loading.setdefault(epoch, Loading())
        if known is not None:
            return known.joined(moved)
        try:
            state = load(lambda size: own.come(size, moved))
        except BaseException as error:
            with self.lock:
                del self.loading[epoch]
            own.state.set_exception(error)
            raise
        with self.lock:
            self.by_epoch[epoch] = state
            del self.loading[epoch]
        own.state.set_result(state)
        return state

    def keep_from(self, epoch: int) -> None:
        """Forget the versions before `epoch`."""
        for old in [known for known in list(self.by_epoch) if known < epoch]:
            self.by_epoch.pop(old, None)


@dataclass(frozen=True, slots=True)
class Writing:
    """A state to be written to a file; it is immutable, so processing goes on meanwhile.

    `attempt` is the job's that made it, `base` the epoch of the partition's state in the newest
    global checkpoint.
    """

    files: Files
    name: str
    chain: Chain
    partition: int
    epoch: int
    attempt: int
    base: int
    state: PartitionState


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """What is known of a file that was written: the marks of its tables, of how many files its
    state is made, and how many bytes of changes are among them."""

    marks: Sequence[Marks]
    files: int
    changed_bytes: int


@dataclass(slots=True)
class Checkpoints:
    """Writes states to the store in the background; `taken` hands over acknowledgements.

    `known` is what later files may build on, by partition and epoch.
    """

    pending: "queue.Queue[Writing]" = field(default_factory=queue.Queue)
    written: "queue.Queue[dict[str, Any]]" = field(default_factory=queue.Queue)
    known: dict[int, dict[int, WrittenFile]] = field(default_factory=dict)
    activity: Activity = field(default_factory=Activity)

    def start(self) -> None:
        """Start the writer thread; it ends with the process."""
        threading.Thread(target=self._write_all, name="checkpoints", daemon=True).start()

    def submit(self, writing: Writing) -> None:
        """Queue a state."""
        self.pending.put(writing)

    def taken(self) -> list[dict[str, Any]]:
        """Acknowledgements since the last call."""
        return [self.written.get() for _ in range(self.written.qsize())]

    def give_back(self, acknowledgements: Iterable[dict[str, Any]]) -> None:
        """These could not be reported: the next report has them."""
        for done in acknowledgements:
            self.written.put(done)

    def forget(self, partitions: Iterable[int]) -> None:
        """These are somebody else's now."""
        for partition in partitions:
            self.known.pop(partition, None)

    def _write_all(self) -> None:
        while True:
            batch = [self.pending.get()]
            batch += [self.pending.get() for _ in range(self.pending.qsize())]
            for done in self.write(batch):
                self.written.put(done)

    def write(self, batch: list[Writing]) -> list[dict[str, Any]]:
        """Write states now; acknowledgements of all of them, whatever is raised."""
        try:
            with self.activity.entry(CHECKPOINTS) as entry:
                return self._write(batch, entry)
        except BaseException as error:  # the thread outlives it, and the checkpoint is given up
            traceback.print_exc()
            return [
                {
                    "partition": writing.partition,
                    "epoch": writing.epoch,
                    "attempt": writing.attempt,
                    "failed": dead_letter_sieve.raised(error),
                }
                for writing in batch
            ]

    def _write(self, batch: list[Writing], entry: Entry) -> list[dict[str, Any]]:
        """Acknowledgements of states; whatever goes wrong, the thread must outlive it."""
        acknowledged: list[dict[str, Any]] = []
        together: list[tuple[Writing, bytes, dict[str, Any]]] = []
        size = 0
        for writing in batch:
            done: dict[str, Any] = {
                "partition": writing.partition,
                "epoch": writing.epoch,
                "attempt": writing.attempt,
            }
            acknowledged.append(done)
            entry.begin(f"writing {writing.name}")
            try:
                described, data = self._sealed(writing)
            except BaseException as error:  # a panic of a native library is no Exception
                done["failed"] = f"state of {writing.chain.name}: {dead_letter_sieve.raised(error)}"
                continue
            done |= described
            together.append((writing, data, done))
            size += len(data)
            if size >= TOGETHER_BYTES_MIN:
                _put(together, entry.sign)
                together, size = [], 0
        _put(together, entry.sign)
        return acknowledged

    def _sealed(self, writing: Writing) -> tuple[dict[str, Any], bytes]:
        """What has changed where that is worth it, else the whole state: what to acknowledge, and
        the file's content."""
        known = self.known.pop(writing.partition, {})
        before = known.get(writing.base)
        tables = writing.chain.root.function.dump(writing.state.operator)
        marks = _marks(tables)
        parts = None if before is None or marks is None else _changes(before, marks, tables)
        if parts is None or before is None:
            data, size = seal(tables, writing.state.watermark)
            done, kept = {"bytes": size}, WrittenFile(marks or (), 1, 0)
        else:
            data, size = seal(parts, writing.state.watermark, base=writing.base)
            done = {"bytes": size, "base": writing.base}
            kept = WrittenFile(marks or (), before.files + 1, before.changed_bytes + size)
        if marks is not None:
            based = {} if before is None else {writing.base: before}
            self.known[writing.partition] = {**based, writing.epoch: kept}
        return done, data


def seal(tables: Sequence[pa.Table], watermark: int, base: int | None = None) -> tuple[bytes, int]:
    """A file's content, and the bytes of its body. Format: docs/formats.md.

    `tables` are those of the operator's state; with `base` runs and fresh rows of each.
    """
    parts = []
    for table in tables:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        parts.append(sink.getvalue().to_pybytes())
    body = b"".join(parts)
    head: dict[str, Any] = {"watermark": watermark, "sizes": [len(part) for part in parts]}
    if base is None:
        return checksummed_file.seal(WHOLE, head, body), len(body)
    return checksummed_file.seal(CHANGED, {**head, "base": base}, body), len(body)


def load(
    files: Files, name: str, chain: Chain, epoch: int, moved: Moved = unwatched
) -> PartitionState:
    """Read a state back, from all files that it is made of; `checksummed_file.load` says what it
    raises."""
    if epoch == 0:
        return initial(chain)
    watermark, tables = read(files, name, moved)
    return PartitionState(watermark, chain.root.function.load(tables))


def read(files: Files, name: str, moved: Moved = unwatched) -> tuple[int, list[pa.Table]]:
    """Watermark and tables of a state. Raises what `checksummed_file.load` raises."""
    head, body = checksummed_file.load(files, name, WHOLE, CHANGED, moved=moved)
    parts, position = [], 0
    for size in head["sizes"]:
        with pa.ipc.open_stream(pa.py_buffer(bytes(body[position : position + size]))) as reader:
            parts.append(reader.read_all())
        moved(0)
        position += size
    if head["version"] == WHOLE:
        return head["watermark"], parts
    _, before = read(files, f"checkpoints/{head['base']}/{name.rpartition('/')[2]}", moved)
    changed = zip(before, parts[::2], parts[1::2], strict=True)
    return head["watermark"], [
        table_delta.apply(table, runs, fresh) for table, runs, fresh in changed
    ]


def chosen_frames(
    program: Program,
    partition: int,
    wanted: Mapping[int, tuple[int, ...]],
    received: Mapping[tuple[int, int], Sequence[Frame]],
) -> list[Frame]:
    """The frames of `wanted`, {producer: stretches of epochs}, among those received by (target,
    epoch), in order of epoch, edge and producer. Raises Incomplete where one is absent."""
    keys = sorted(
        (epoch, edge.index, producer)
        for edge, producer in program.producers(partition)
        for epoch in intervals.numbers(wanted.get(producer, ()))
    )
    found = {
        (epoch, frame.edge, frame.producer): frame
        for epoch in {epoch for epoch, _, _ in keys}
        for frame in received.get((partition, epoch), ())
    }
    for key in keys:
        if key not in found:
            name = program.partition_names[key[2]]
            text = f"no frame of {name} in epoch {key[0]} to be preserved"
            raise Incomplete(text, (key[2], key[0]))
    return [found[key] for key in keys]


def save_frames(files: Files, name: str, kept: Iterable[Frame], moved: Moved = unwatched) -> int:
    """Put frames into a file; gives its bytes. The folder must be there."""
    body = b"".join(frames.raw(frame) for frame in kept)
    files.put({name: checksummed_file.seal(INPUT_VERSION, {}, body)}, moved)
    return len(body)


def load_frames(
    files: Files, name: str, first: int, last: int, moved: Moved = unwatched
) -> list[Frame]:
    """The frames of some epochs. Raises what `checksummed_file.load` raises."""
    _, body = checksummed_file.load(files, name, INPUT_VERSION, moved=moved)
    return [frame for frame in frames.frames(body) if first <= frame.epoch <= last]


def _put(together: Sequence[tuple[Writing, bytes, dict[str, Any]]], moved: Moved) -> None:
    """Put the files of states of one store into it; where that fails, all their acknowledgements
    say so."""
    if not together:
        return
    try:
        together[0][0].files.put({writing.name: data for writing, data, _ in together}, moved)
    except BaseException as error:
        said = str(error) if isinstance(error, OSError) else dead_letter_sieve.raised(error)
        for _, _, done in together:
            done["failed"] = said


def _marks(tables: Sequence[pa.Table]) -> list[Marks] | None:
    """Of all tables; None where it is not worth it, or a column cannot be hashed."""
    if sum(table.nbytes for table in tables) < SMALL_BYTES:
        return None
    try:
        return [table_delta.marks(table) for table in tables]
    except KeyboardInterrupt:
        raise
    except BaseException:  # whatever a library makes of a type: the whole state is written then
        return None


def _changes(
    before: WrittenFile, marks: Sequence[Marks], tables: Sequence[pa.Table]
) -> list[pa.Table] | None:
    """Runs and fresh rows of each table; None where the whole state is as good."""
    if before.files >= FILES_MAX or len(before.marks) != len(marks):
        return None
    parts = [
        part
        for was, now, table in zip(before.marks, marks, tables, strict=True)
        for part in table_delta.changes(was, now, table)
    ]
    changed = before.changed_bytes + sum(part.nbytes for part in parts)
    whole = sum(table.nbytes for table in tables)
    return parts if changed <= whole * CHANGES_SHARE_MAX else None
