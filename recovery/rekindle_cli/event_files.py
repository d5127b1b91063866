"""Event files that another process writes, followed line by line.

Knows nothing of what the events mean. `rekindle run` and the demo follow their driver's.
"""

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["EventFile"]


@dataclass(slots=True)
class EventFile:
    """A file of JSON objects, one a line, that grows."""

    path: Path
    _read: int = 0
    _rest: bytes = b""

    @classmethod
    def at_end(cls, path: Path) -> "EventFile":
        """Follow a file from its present end on: what is there already is of earlier runs."""
        return cls(path, path.stat().st_size if path.exists() else 0)

    def fresh(self) -> list[dict[str, Any]]:
        """Events since the last call; a line that is not complete yet is left for the next."""
        found = []
        for line in self.fresh_lines():
            with suppress(ValueError):  # a process that was killed may have left a torn one
                found.append(json.loads(line))
        return found

    def fresh_lines(self) -> list[bytes]:
        """Lines since the last call, whatever they hold."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        self._read += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines
