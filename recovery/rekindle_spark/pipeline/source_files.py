"""The Parquet file of a source: the very one that the run began with, or an error that names it.

A host that starts later opens the file anew. Were it another one by then, rows of both would be
taken for one input. So a file is told by its size and a digest of its content, which goes to hosts
with the pipeline; a change in its place is noticed before rows that were read after it count.
Called by `replay`.
"""

import os
from dataclasses import dataclass, field
from hashlib import blake2b

import pyarrow as pa
import pyarrow.parquet as pq

from rekindle.model.errors import InputError, first_line

# All of a small file counts; of a large one both ends, the end with the places and the extremes of
# all its columns, and stretches in between.
STRETCH_BYTES, STRETCHES = 1 << 18, 64


@dataclass(frozen=True, slots=True)
class Identity:
    """What tells a file from another: its size, and a digest of what it holds."""

    bytes: int
    digest: str


@dataclass(slots=True)
class SourceFile:
    """A file that is opened when it is first needed; `identity` is known once it was opened."""

    path: str
    identity: Identity | None = None
    _file: pq.ParquetFile | None = field(init=False, default=None)
    _handle: pa.OSFile | None = field(init=False, default=None)
    _stamp: tuple[int, int] = field(init=False, default=(0, 0))

    def open(self) -> pq.ParquetFile:
        """The file, opened. Raises InputError where it is not there, no Parquet, or another one."""
        if self._file is None:
            try:
                # not mapped into memory: a file that is cut short would end the process
                self._handle = pa.OSFile(self.path)
                self._stamp = self._stamped()
                found = _identity(self._handle)
                self._handle.seek(0)
                if self.identity is not None and self.identity != found:
                    raise self._replaced()
                # old files' times of 96 bits: a microsecond fits all years, a nanosecond does not
                opened = pq.ParquetFile(self._handle, coerce_int96_timestamp_unit="us")
            except (OSError, pa.ArrowException) as error:
                raise InputError(
                    where=f"source file {self.path}",
                    what=f"cannot be read as Parquet ({first_line(error)})",
                    remedy="bring it back, or write it as a Parquet file",
                ) from error
            self.identity, self._file = found, opened
        return self._file

    def row_group(self, group: int, columns: list[str]) -> pa.Table:
        """The rows of a group, of these columns in their order. Raises InputError."""
        opened = self.open()
        try:
            table = opened.read_row_group(group, columns=columns)
        except (OSError, pa.ArrowException) as error:
            self._check_unchanged()
            raise InputError(
                where=f"source file {self.path}, row group {group}",
                what=f"cannot be read ({first_line(error)})",
                remedy="write the file anew, as it was",
            ) from error
        self._check_unchanged()
        return table.select(columns)

    def _check_unchanged(self) -> None:
        if self._stamped() != self._stamp:
            raise self._replaced()

    def _stamped(self) -> tuple[int, int]:
        assert self._handle is not None
        found = os.fstat(self._handle.fileno())
        return found.st_size, found.st_mtime_ns

    def _replaced(self) -> InputError:
        return InputError(
            where=f"source file {self.path}",
            what="is not the one that the run began with: it was replaced, cut or changed since",
            remedy="put the file back as it was, or run with an empty store and a file that stays",
        )


def _identity(handle: pa.OSFile) -> Identity:
    size, digest = handle.size(), blake2b(digest_size=16)
    step = max(STRETCH_BYTES, -(-size // STRETCHES))
    for begin in range(0, size, step):
        handle.seek(begin)
        digest.update(handle.read(min(STRETCH_BYTES, size - begin)))
    handle.seek(max(0, size - STRETCH_BYTES))
    digest.update(handle.read(STRETCH_BYTES))
    return Identity(size, digest.hexdigest())
