"""The event log of a run, line by line, for readers that follow it.

Kinds and fields are in docs/formats.md. Nothing here decides by it: what counts is in the store.
What gets too long is set aside, as events.jsonl.1 and so on, and goes in the end: a driver lives
for months. Readers (`rekindle_cli.jsonl_tail`) follow it over that.
"""

import json
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from rekindle_spark.driver import driver_clock
from rekindle_spark.user_code.dead_letter_sieve import ENDING

WAITING_BYTES_MAX, TOGETHER_BYTES = 1 << 20, 1 << 16
# Event files that there are at most: the one that is written, and those that were set aside.
FILES_MAX = 4


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


def set_aside(path: Path, number: int) -> Path:
    """The file with events of before, by how many are newer; the highest number goes next."""
    return path.with_name(f"{path.name}.{number}")


@dataclass(slots=True)
class EventLog:
    """Writes events.jsonl: one line per event, `at` in seconds since 1970.

    While there is no room for them events wait, up to a limit; later ones are dropped. All files
    together get little larger than `bytes_max`; 0: no file is set aside. `away_at` is since when
    the checkpoint store does not answer.
    """

    file: TextIO
    generation: int
    bytes_max: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: bytearray = field(default_factory=bytearray)
    size_bytes: int = field(init=False)
    away_at: float | None = None

    def __post_init__(self) -> None:
        self.size_bytes = os.fstat(self.file.fileno()).st_size
        path = Path(self.file.name)
        if path.is_symlink() or not path.is_file():  # /dev/stdout, or a pipe, stays what it is
            self.bytes_max = 0

    def write(self, kind: str, **fields: Any) -> None:
        """Append one event."""
        self.write_each(kind, [fields])

    def write_each(self, kind: str, events: Iterable[Mapping[str, Any]]) -> None:
        """Append events of one kind that have happened at once, with few calls of the system."""
        common = {
            "version": 1,
            "at": driver_clock.now(),
            "kind": kind,
            "generation": self.generation,
        }
        lines = [json.dumps({**common, **fields}).encode() + b"\n" for fields in events]
        with self.lock:
            for line in lines:
                if len(self.waiting) + len(line) <= WAITING_BYTES_MAX:
                    self.waiting += line
                if len(self.waiting) >= TOGETHER_BYTES:
                    self._write()
            self._write()

    def _write(self) -> None:
        with suppress(OSError):  # written with the next one, once there is room again
            written = os.write(self.file.fileno(), self.waiting)
            del self.waiting[:written]
            self.size_bytes += written
        if 0 < self.bytes_max <= self.size_bytes * FILES_MAX and not self.waiting:
            self.size_bytes = 0  # where a file cannot be set aside, it is tried that much later
            with suppress(OSError):
                self._set_aside()

    def _set_aside(self) -> None:
        """Begin a new file under the same name, and descriptor."""
        path = Path(self.file.name)
        for number in range(FILES_MAX - 1, 0, -1):
            newer = path if number == 1 else set_aside(path, number - 1)
            if newer.exists():
                newer.replace(set_aside(path, number))
        with open_events(path) as file:
            os.dup2(file.fileno(), self.file.fileno(), inheritable=False)

    def dead_letters(self, outputs: Iterable[Sequence[Any]]) -> None:
        """Tell of the dead letters among output files that have become finished."""
        for name, epoch, rows, *_ in outputs:
            output, _, index = name.rpartition("/")
            if output.endswith(ENDING):
                step = output.removesuffix(ENDING)
                told = {"step": step, "partition": f"{step}/{index}", "epoch": epoch, "rows": rows}
                self.write("dead-letters", **told)

    def steps_begun(self, checkpoint: Mapping[str, Any] | None) -> None:
        """Tell of the steps that begin where a changed pipeline goes on from a savepoint."""
        if checkpoint is not None and checkpoint.get("begun"):
            self.write("steps-begun", epoch=checkpoint["epoch"], steps=checkpoint["begun"])

    def store_away(self, cause: str | None) -> None:
        """The store cannot be written, or can be again."""
        if cause is None:
            self.away_at = None
            self.write("store-back")
        else:
            self.away_at = self.away_at or driver_clock.now()
            self.write("store-away", text=cause)
