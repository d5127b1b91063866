"""Event files that another process writes, followed line by line.

Knows nothing of what the events mean. `rekindle run` and the demo follow their driver's. Who writes
a file may set it aside, as FILE.1 and so on, and begin a new one: it is read to its end first.
"""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path
from typing import Any, BinaryIO


@dataclass(slots=True)
class EventFile:
    """A file of JSON objects, one a line, that grows."""

    path: Path
    _read: int = 0
    _rest: bytes = b""
    _known: tuple[int, int] | None = None

    @classmethod
    def at_end(cls, path: Path) -> "EventFile":
        """Follow a file from its present end on: what is there already is of earlier runs."""
        if not path.exists():
            return cls(path)
        now = path.stat()
        return cls(path, now.st_size, _known=(now.st_dev, now.st_ino))

    def fresh(self) -> list[dict[str, Any]]:
        """Events since the last call; a line that is not complete yet is left for the next."""
        found = []
        for line in self.fresh_lines():
            with suppress(ValueError):  # a process that was killed may have left a torn one
                found.append(json.loads(line))
        return found

    def fresh_lines(self) -> list[bytes]:
        """Lines since the last call, whatever they hold."""
        with ExitStack() as stack:
            for file in self._files(stack):
                self._rest += self._fresh_of(file)
        *lines, self._rest = self._rest.split(b"\n")
        return lines

    def _files(self, stack: ExitStack) -> list[BinaryIO]:
        """The file that was read last, and those that have been begun since, the oldest first; only
        the newest where that one is not there any more, or none has been read.

        They are opened from the newest on: a file that is set aside meanwhile is met twice, and
        none is missed.
        """
        found: list[BinaryIO] = []
        for path in self._paths():
            with suppress(FileNotFoundError):
                file = stack.enter_context(path.open("rb"))
                if not found or _identity(file) not in map(_identity, found):
                    found.append(file)
                if _identity(file) == self._known:
                    return found[::-1]
        return found[:1]

    def _paths(self) -> Iterator[Path]:
        yield self.path
        if self._known is not None:
            older = (self.path.with_name(f"{self.path.name}.{number}") for number in count(1))
            yield from takewhile(Path.exists, older)

    def _fresh_of(self, file: BinaryIO) -> bytes:
        identity = _identity(file)
        if identity != self._known:
            if self._known is not None:
                self._read = 0
            self._known = identity
        file.seek(self._read)
        data = file.read()
        self._read += len(data)
        return data


def _identity(file: BinaryIO) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino
