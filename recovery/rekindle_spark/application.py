"""What the parts of one driver share: program, store, progress, settings, events.

Two threads use it, the epoch loop and the catch-up loop; `lock` guards everything that both
change. It holds and hands over; deciding is done where it is used.
"""

import json
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from rekindle.modes import ON
from rekindle.protocol.messages import Mode
from rekindle.settings import Settings
from rekindle_spark.arrivals import Arrivals, Cut
from rekindle_spark.budget import Budget
from rekindle_spark.exchange import Exchange
from rekindle_spark.pace import Pace
from rekindle_spark.poison import ENDING
from rekindle_spark.program import Program
from rekindle_spark.progress import Progress, Readers
from rekindle_spark.store import Store

__all__ = ["Application", "EventLog", "Moves", "Staged", "open_events"]

WAITING_BYTES_MAX = 1 << 20


def open_events(path: Path) -> TextIO:
    """Open an event file to append lines.

    A driver that was killed while it wrote may have left a torn line. It is ended here, so that
    readers find it alone, before the first event of a higher generation.
    """
    with path.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
    return path.open("a")


@dataclass(slots=True)
class EventLog:
    """Writes events.jsonl: one line per event, `at` in seconds since 1970.

    While there is no room for them events wait, up to a limit; later ones are dropped.
    """

    file: TextIO
    generation: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: bytes = b""

    def write(self, kind: str, **fields: Any) -> None:
        """Append one event."""
        record = {
            "version": 1,
            "at": time.time(),
            "kind": kind,
            "generation": self.generation,
            **fields,
        }
        line = json.dumps(record).encode() + b"\n"
        with self.lock:
            if len(self.waiting) + len(line) <= WAITING_BYTES_MAX:
                self.waiting += line
            with suppress(OSError):  # written with the next one, once there is room again
                self.waiting = self.waiting[os.write(self.file.fileno(), self.waiting) :]

    def dead_letters(self, outputs: Iterable[Sequence[Any]]) -> None:
        """Tell of the dead letters among output files that have become finished."""
        for partition, epoch, rows, *_ in outputs:
            output = partition.rpartition("/")[0]
            if output.endswith(ENDING):
                self.write("dead-letters", step=output.removesuffix(ENDING), epoch=epoch, rows=rows)

    def store_away(self, cause: str | None) -> None:
        """The store cannot be written, or can be again."""
        if cause is None:
            self.write("store-back")
        else:
            self.write("store-away", text=cause)


@dataclass(slots=True)
class Staged:
    """What an epoch has given that may be something else in a repeat: digests and output files by
    partition. It was `unordered`, or it is of uncertain steps alone.

    It counts with the next global checkpoint that has the partition's state, or never.
    """

    unordered: bool = False
    digests: dict[int, str] = field(default_factory=dict)
    outputs: dict[int, list[list[Any]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Moves:
    """Moves that were ordered (partition number -> node); they hold as long as nothing else is lost
    or planned."""

    nodes: Mapping[int, str]
    losses: int
    plan_epoch: int
    reason: str


@dataclass(slots=True)
class Application:
    """The state of one driver. `attempts` counts its jobs, `checkpoint_attempt` is the last of them
    that was to write states for a checkpoint. `staged` holds epochs that are not committed yet,
    `moves` the newest ones that were ordered, `moved_at` the newest epoch when some were made."""

    program: Program
    program_file: str
    store: Store
    exchange: Exchange
    settings: Settings
    events: EventLog
    progress: Progress
    arrivals: Arrivals
    cuts: dict[int, Cut]
    digests: dict[tuple[int, int], str]
    committed: dict[str, int]
    pace: Pace
    budget: Budget
    newest: int = 0
    plan_epoch: int = 0
    losses: int = 0
    executors: dict[str, str] = field(default_factory=dict)
    claimed: set[int] = field(default_factory=set)
    failure: Exception | None = None
    stopping: bool = False
    paused: bool = False
    sheds: bool = False
    buffering: Mode = ON
    ordering: Mode = ON
    staged: dict[int, Staged] = field(default_factory=dict)
    attempts: int = 0
    checkpoint_attempt: int = 0
    moves: Moves | None = None
    moved_at: int = -1
    readers: Readers = field(default_factory=Readers)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def remove(self, shuffles: Iterable[int]) -> None:
        """Remove shuffles that nobody needs, as soon as no job on its way reads them."""
        with self.lock:
            free = self.readers.sift(shuffles)
        self.exchange.remove(free)

    def offsets(self, epoch: int) -> Mapping[str, Any]:
        """Source offsets of an epoch, as requests carry them."""
        cut = self.cuts[epoch]
        return {name: [*pair, cut.watermark] for name, pair in cut.offsets.items()}

    def next_header(self) -> dict[str, Any]:
        """The fields that every request of the next job has."""
        self.attempts += 1
        runtime = self.settings.runtime
        return {
            "version": 1,
            "program": [self.program.hash, self.program_file],
            "generation": self.store.generation,
            "plan_epoch": self.plan_epoch,
            "attempt": self.attempts,
            "moved_at": self.moved_at,
            "ordering": self.ordering,
            "dead_letters": [runtime.dead_letter_tries, runtime.dead_letters_max],
            "store": self.store.files.place,
            "memory_bytes_max": runtime.host_memory_bytes_max,
        }

    def names(self, numbers: Any) -> list[str]:
        """Partition names of numbers."""
        return [self.program.partition_names[number] for number in sorted(numbers)]
