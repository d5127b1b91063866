"""Versions of partition states in a host, and their checkpoints in the store.

A version is kept under its epoch and never changed. The newest finished one and what is newer
stay; older ones go. Checkpoints are written by one background thread; what it has put on disk is
acknowledged with the next report. Nothing here decides which version is right: the driver does.
"""

import queue
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from rekindle_spark import disk, sealed
from rekindle_spark.partition import State, initial
from rekindle_spark.program import Chain

__all__ = ["Checkpoints", "Versions", "Writing", "load"]

CHECKPOINT_VERSION = 1


@dataclass(slots=True)
class Versions:
    """States of one partition by epoch, and the plan epoch that placed it here."""

    plan_epoch: int = 0
    by_epoch: dict[int, State] = field(default_factory=dict)

    def keep_from(self, epoch: int) -> None:
        """Forget the versions before `epoch`."""
        for old in [known for known in list(self.by_epoch) if known < epoch]:
            self.by_epoch.pop(old, None)


@dataclass(frozen=True, slots=True)
class Writing:
    """A state to be written to `path`; it is immutable, so processing goes on meanwhile."""

    path: Path
    chain: Chain
    partition: int
    epoch: int
    state: State


@dataclass(slots=True)
class Checkpoints:
    """Writes states to the store in the background; `taken` hands over acknowledgements."""

    pending: "queue.Queue[Writing]" = field(default_factory=queue.Queue)
    written: "queue.Queue[dict[str, Any]]" = field(default_factory=queue.Queue)

    def start(self) -> None:
        """Start the writer thread; it ends with the process."""
        threading.Thread(target=self._write_all, name="checkpoints", daemon=True).start()

    def submit(self, writing: Writing) -> None:
        """Queue a state."""
        self.pending.put(writing)

    def taken(self) -> list[dict[str, Any]]:
        """Acknowledgements since the last call."""
        found = []
        while not self.written.empty():
            found.append(self.written.get())
        return found

    def _write_all(self) -> None:
        while True:
            batch = [self.pending.get()]
            while not self.pending.empty():
                batch.append(self.pending.get())
            for done in _write(batch):
                self.written.put(done)


def _write(batch: list[Writing]) -> list[dict[str, Any]]:
    """Acknowledgements of states; whatever goes wrong, the thread must outlive it."""
    acknowledged = []
    for writing in batch:
        done: dict[str, Any] = {"partition": writing.partition, "epoch": writing.epoch}
        try:
            done["bytes"] = save(writing.path, writing.chain, writing.state)
        except Exception as error:
            done["failed"] = str(error)
        acknowledged.append(done)
    try:
        for folder in {writing.path.parent for writing in batch}:
            disk.flush(folder)
    except OSError as error:
        for done in acknowledged:
            done.setdefault("failed", str(error))
    return acknowledged


def save(path: Path, chain: Chain, state: State) -> int:
    """Write one state atomically; returns its size in bytes. Format: docs/formats.md.

    The folder must be there, and be flushed afterwards.
    """
    tables = chain.root.function.dump(state.operator)
    parts = []
    for table in tables:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        parts.append(sink.getvalue().to_pybytes())
    body = b"".join(parts)
    head = {"watermark": state.watermark, "sizes": [len(part) for part in parts]}
    sealed.save(path, CHECKPOINT_VERSION, head, body)
    return len(body)


def load(path: Path, chain: Chain, epoch: int) -> State:
    """Read a state back. Raises what `sealed.load` raises."""
    if epoch == 0:
        return initial(chain)
    head, body = sealed.load(path, CHECKPOINT_VERSION)
    tables, position = [], 0
    for size in head["sizes"]:
        with pa.ipc.open_stream(pa.py_buffer(body[position : position + size])) as reader:
            tables.append(reader.read_all())
        position += size
    return State(head["watermark"], chain.root.function.load(tables))
