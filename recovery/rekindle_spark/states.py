"""Versions of partition states in a host, and their checkpoints in the store.

A version is kept under its epoch and never changed. The newest finished one and what is newer
stay; older ones go. Checkpoints are written by one background thread; what it has written is
acknowledged with the next report. Nothing here decides which version is right: the driver does.
"""

import json
import os
import queue
import threading
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa

from rekindle.errors import RunError
from rekindle_spark.partition import State, initial
from rekindle_spark.program import Chain

__all__ = ["Checkpoints", "Versions", "load"]

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


@dataclass(slots=True)
class Checkpoints:
    """Writes states to the store in the background; `taken` hands over acknowledgements."""

    pending: "queue.Queue[tuple[Path, Chain, int, int, State]]" = field(default_factory=queue.Queue)
    written: "queue.Queue[dict[str, Any]]" = field(default_factory=queue.Queue)

    def start(self) -> None:
        """Start the writer thread; it ends with the process."""
        threading.Thread(target=self._write_all, name="checkpoints", daemon=True).start()

    def submit(self, path: Path, chain: Chain, partition: int, epoch: int, state: State) -> None:
        """Queue a state; it is immutable, so processing goes on meanwhile."""
        self.pending.put((path, chain, partition, epoch, state))

    def taken(self) -> list[dict[str, Any]]:
        """Acknowledgements since the last call."""
        found = []
        while not self.written.empty():
            found.append(self.written.get())
        return found

    def _write_all(self) -> None:
        while True:
            path, chain, partition, epoch, state = self.pending.get()
            done: dict[str, Any] = {"partition": partition, "epoch": epoch}
            try:
                done["bytes"] = save(path, chain, state)
            except Exception as error:  # the thread must outlive any state
                done["failed"] = str(error)
            self.written.put(done)


def save(path: Path, chain: Chain, state: State) -> int:
    """Write one state atomically; returns its size in bytes. Format: docs/formats.md."""
    tables = chain.root.function.dump(state.operator)
    parts = []
    for table in tables:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        parts.append(sink.getvalue().to_pybytes())
    body = b"".join(parts)
    head = {
        "version": CHECKPOINT_VERSION,
        "watermark": state.watermark,
        "sizes": [len(part) for part in parts],
        "sha256": sha256(body).hexdigest(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("wb") as file:
        file.write(json.dumps(head).encode() + b"\n" + body)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    return len(body)


def load(path: Path, chain: Chain, epoch: int) -> State:
    """Read a state back. Raises RunError when the file is absent or damaged."""
    if epoch == 0:
        return initial(chain)
    try:
        head_line, _, body = path.read_bytes().partition(b"\n")
        head = json.loads(head_line)
    except (OSError, ValueError) as error:
        raise _damaged(path, str(error)) from error
    if head.get("version") != CHECKPOINT_VERSION or sha256(body).hexdigest() != head["sha256"]:
        raise _damaged(path, "has another version or checksum")
    tables, position = [], 0
    for size in head["sizes"]:
        with pa.ipc.open_stream(pa.py_buffer(body[position : position + size])) as reader:
            tables.append(reader.read_all())
        position += size
    return State(head["watermark"], chain.root.function.load(tables))


def _damaged(path: Path, what: str) -> RunError:
    return RunError(
        where=f"checkpoint {path.name}",
        what=f"cannot be read: {what}",
        remedy="restore the checkpoint store, or start from an older checkpoint",
    )
