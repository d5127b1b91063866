"""For tests of the runtime: a source to build pipelines of, and a look at what is put on disk."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa


@contextmanager
def watched_flushes() -> Iterator[list[Path]]:
    """The files and folders that this process has put on disk, by their names at that moment."""
    flushed: list[Path] = []
    fsync = os.fsync

    def watched(fd: Any) -> None:
        fsync(fd)
        flushed.append(Path(os.readlink(f"/proc/self/fd/{fd}")))

    os.fsync = watched
    try:
        yield flushed
    finally:
        os.fsync = fsync


@dataclass(frozen=True, slots=True)
class UnreadSource:
    """A source with a schema, whose rows nobody reads."""

    schema: pa.Schema
    event_time: str

    def check(self, step: str) -> None:
        """It is always sound."""

    def read(self, begin: int, end: int) -> pa.Table:
        """There is nothing to read."""
        raise NotImplementedError

    def rows_at(self, event_time: int) -> int:
        """There are no rows."""
        raise NotImplementedError

    def event_time_at(self, offset: int) -> int:
        """There are no rows."""
        raise NotImplementedError
