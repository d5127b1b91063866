"""Replay sources: Parquet files with event time, read again as if their rows arrived now.

A replay is a row order that never changes: the file's rows as they stand (they must be sorted
by event time), then, where `repeat_every_seconds` is given, the same rows again with event
times shifted by that much, for ever. How fast rows arrive is the driver's matter (`epoch_cutter`).

Columns are given in plain layouts (`column_types`), event times as microseconds of UTC, where
each of them is a whole one.

The file is the very one that the run began with, or an error names it. A host that starts later
opens the file anew. Were it another one by then, rows of both would be taken for one input. So a
file is told by its size and a digest of its content, which goes to hosts with the pipeline; a
change in its place is noticed before rows that were read after it count.
"""

import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rekindle.model import path_kinds
from rekindle.model.errors import InputError, first_line, refuse
from rekindle_spark.operators import column_types
from rekindle_spark.operators.arrow_columns import TIMESTAMP, check_columns, check_names, whole
from rekindle_spark.operators.watermarks import EARLIEST, LATEST, duration_microseconds
from rekindle_spark.user_code import argument_checks

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
    """A file that is opened when it is first needed; `identity` is known once it was opened.

    Old files' times of 96 bits are read in `unit`: a microsecond fits all years, a nanosecond does
    not.
    """

    path: str
    identity: Identity | None = None
    unit: str = "us"
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
                opened = pq.ParquetFile(
                    self._handle,
                    coerce_int96_timestamp_unit=self.unit,
                    page_checksum_verification=True,
                )
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
        place = f"row group {group}"
        table = self._read(place, lambda: opened.read_row_group(group, columns=columns))
        return table.select(columns)

    def first(self, rows: int, columns: list[str]) -> pa.RecordBatch | None:
        """The first rows, at most so many, without reading a whole group. Raises InputError."""
        opened = self.open()

        def read() -> pa.RecordBatch | None:
            return next(opened.iter_batches(batch_size=rows, columns=columns), None)

        found: pa.RecordBatch | None = self._read("first rows", read)
        return found

    def _read(self, place: str, read: Callable[[], Any]) -> Any:
        """What `read` gives. Raises InputError where the file is damaged, or was changed."""
        try:
            found = read()
        except (OSError, pa.ArrowException) as error:
            self._check_unchanged()
            raise InputError(
                where=f"source file {self.path}, {place}",
                what=f"cannot be read ({first_line(error)})",
                remedy="write the file anew, as it was",
            ) from error
        self._check_unchanged()
        return found

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


ROW_GROUPS_CACHED_MAX = 16


@dataclass(slots=True)
class Replay:
    """One Parquet file as a source; `columns` narrows it, `event_time` names its time column.

    Raises InputError where the file is missing, is no Parquet file, lacks a column or has one of a
    type that cannot be carried, and where it is another one than before; `check` where event times
    are null, not sorted, no whole microseconds, or would overlap when they repeat.
    """

    path: str | Path
    event_time: str
    columns: tuple[str, ...] | None = None
    repeat_every_seconds: float | None = None
    schema: pa.Schema = field(init=False)
    _file: SourceFile = field(init=False)
    _times: np.ndarray | None = field(init=False, default=None)
    _starts: np.ndarray | None = field(init=False, default=None)
    _group_bytes: list[int] | None = field(init=False, default=None)
    _groups: "OrderedDict[int, pa.Table]" = field(init=False, default_factory=OrderedDict)

    def __post_init__(self) -> None:
        _check_path(self.path)
        where = f"source file {self.path}"
        self._file = SourceFile(str(self.path))
        whole = self._open().schema_arrow
        names = whole.names if self.columns is None else self.columns
        check_columns(f"{where}: columns", whole, names)
        check_names(f"{where}: columns", names)
        check_columns(f"{where}: event_time", whole, [self.event_time])
        if self.repeat_every_seconds is not None:
            duration_microseconds(f"{where}: repeat_every_seconds", self.repeat_every_seconds)
        self.columns = tuple(dict.fromkeys([*names, self.event_time]))
        fields = [self._field(whole.field(name)) for name in self.columns]
        self.schema = pa.schema(fields)

    def __getstate__(self) -> tuple[Any, ...]:
        return (
            str(self.path),
            self.event_time,
            self.columns,
            self.repeat_every_seconds,
            self.schema.serialize().to_pybytes(),
            self._file.identity,
        )

    def __setstate__(self, saved: tuple[Any, ...]) -> None:
        self.path, self.event_time, self.columns, self.repeat_every_seconds = saved[:4]
        self.schema = pa.ipc.read_schema(pa.py_buffer(saved[4]))
        self._file = SourceFile(saved[0], saved[5])
        self._times = self._starts = self._group_bytes = None
        self._groups = OrderedDict()

    def check(self, step: str) -> None:
        """Raise InputError naming the step when the file cannot be replayed."""
        where, times = f"step {step}: source file {self.path}", self._event_times()
        if len(times) == 0:
            refuse(where, "is empty", "write at least one row into it")
        absent = np.flatnonzero(times == np.iinfo("int64").min)
        if len(absent):
            what = f"has no event time in {self.event_time!r} in row {absent[0]}"
            remedy = "leave them out when you write the file, or give them a time"
            refuse(where, what, remedy)
        if int(times.min()) < EARLIEST or int(times.max()) > LATEST:
            what = f"has event times in {self.event_time!r} that are no times of any calendar"
            remedy = f"keep them from {EARLIEST:,} to {LATEST:,} microseconds since 1970"
            refuse(where, what, remedy)
        self._check_int96(where)
        earlier = np.flatnonzero(np.diff(times) < 0) + 1
        if len(earlier):
            what = f"is not sorted by {self.event_time!r}: row {earlier[0]} is earlier than"
            refuse(
                where,
                f"{what} the row before",
                "sort the rows by event time when you write the file",
            )
        span = int(times[-1]) - int(times[0])
        if self.repeat_every_seconds is not None and self._period() < span:
            what = f"is {self.repeat_every_seconds}, less than the {span / 1e6} s of the file"
            remedy = "give at least so much, or event times of a lap begin before the last one ends"
            refuse(f"{where}: repeat_every_seconds", what, remedy)

    @property
    def file_rows(self) -> int:
        """Rows in the file itself."""
        return int(self._open().metadata.num_rows)

    def first(self, rows: int) -> pa.Table:
        """The first rows of the file, at most `rows`, without reading a whole row group."""
        assert self.columns is not None
        batch = self._file.first(rows, list(self.columns))
        if batch is None:
            return self.schema.empty_table()
        return self._given(pa.Table.from_batches([batch]))

    def row_group_bytes(self) -> list[int]:
        """The size of each row group's columns that are read, not compressed."""
        if self._group_bytes is None:
            metadata = self._open().metadata
            groups = map(metadata.row_group, range(metadata.num_row_groups))
            leaves = self._leaves()
            self._group_bytes = [
                sum(group.column(leaf).total_uncompressed_size for leaf in leaves)
                for group in groups
            ]
        return self._group_bytes

    def _leaves(self) -> list[int]:
        """The numbers of the file's leaves that are read: they are the same in each row group."""
        physical = self._open().schema
        paths = [physical.column(leaf).path for leaf in range(len(physical))]
        return [
            leaf
            for leaf, path in enumerate(paths)
            if any(column_types.is_of(name, path) for name in self.columns or ())
        ]

    def event_times(self) -> np.ndarray:
        """The event times of the file's rows, in microseconds."""
        return self._event_times()

    def read(self, begin: int, end: int) -> pa.Table:
        """Rows [begin, end) of the replay, at most what there is."""
        pieces = []
        for lap, low, high in self._laps(begin, end):
            rows = self._read_file(low, high)
            pieces.append(rows if lap == 0 else self._shift(rows, lap))
        return pa.concat_tables(pieces) if pieces else self.schema.empty_table()

    def rows_at(self, event_time: int) -> int:
        """Number of rows with event time at most `event_time` (microseconds)."""
        times = self._event_times()
        lap = 0
        if self.repeat_every_seconds:
            lap = max(0, (event_time - int(times[0])) // self._period())
            event_time -= lap * self._period()
        return lap * len(times) + int(np.searchsorted(times, event_time, side="right"))

    def event_time_at(self, offset: int) -> int:
        """Event time (microseconds) of row `offset`; beyond the end, the last one."""
        times = self._event_times()
        if not self.repeat_every_seconds:
            return int(times[min(offset, len(times) - 1)])
        lap, row = divmod(offset, len(times))
        return int(times[row]) + lap * self._period()

    def _period(self) -> int:
        return round((self.repeat_every_seconds or 0) * 1_000_000)

    def _open(self) -> pq.ParquetFile:
        return self._file.open()

    def _field(self, given: pa.Field) -> pa.Field:
        """A column of the file as it is given."""
        if given.name == self.event_time and pa.types.is_timestamp(given.type):
            return pa.field(given.name, TIMESTAMP)
        return column_types.plain_field(given)

    def _event_times(self) -> np.ndarray:
        if self._times is None:
            groups = range(self._open().metadata.num_row_groups)
            pieces = [self._file.row_group(group, [self.event_time]) for group in groups]
            times = [
                self._column(piece[self.event_time], self.event_time).to_numpy() for piece in pieces
            ]
            self._times = np.concatenate(times).astype("int64") if times else np.empty(0, "int64")
        return self._times

    def _given(self, rows: pa.Table) -> pa.Table:
        """Rows of the file as the source gives them."""
        columns = [self._column(rows[name], name) for name in self.schema.names]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _column(self, column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
        """A column as its field in `schema` says. Raises InputError for values that do not fit."""
        kind = self.schema.field(name).type
        try:
            if name == self.event_time and pa.types.is_timestamp(column.type):
                return column.cast(pa.timestamp("us", column.type.tz)).cast(kind)
            return column_types.column(column, kind)
        except pa.ArrowInvalid as error:
            where, what = f"source file {self.path}: column {name!r}", "cannot be read exactly as"
            remedy = "write it with values that can, or as another type"
            refuse(where, f"{what} {kind} ({str(error)[:200]})", remedy)

    def _check_int96(self, where: str) -> None:
        """Refuse times of 96 bits with nanoseconds: they are read as microseconds."""
        fine = SourceFile(self._file.path, self._file.identity, "ns")
        groups = range(self._open().metadata.num_row_groups)
        for name, group in product(
            column_types.old_columns(self._open(), self.columns or ()), groups
        ):
            files = self._file, fine
            cut, exact = (whole(file.row_group(group, [name])[name]) for file in files)
            if column_types.are_cut(exact, cut).any():
                what = f"has times with nanoseconds in {name!r}, as INT96"
                refuse(where, what, "write them as microseconds, or as int64")

    def _laps(self, begin: int, end: int) -> list[tuple[int, int, int]]:
        size = self.file_rows
        if not self.repeat_every_seconds:
            return [(0, begin, min(end, size))] if begin < min(end, size) else []
        laps = []
        while begin < end:
            lap, low = divmod(begin, size)
            high = min(size, low + end - begin)
            laps.append((lap, low, high))
            begin += high - low
        return laps

    def _read_file(self, low: int, high: int) -> pa.Table:
        if self._starts is None:
            metadata = self._open().metadata
            sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
            self._starts = np.concatenate([[0], np.cumsum(sizes)])
        first = int(np.searchsorted(self._starts, low, side="right")) - 1
        pieces = []
        for group in range(first, len(self._starts) - 1):
            start = int(self._starts[group])
            if start >= high:
                break
            table = self._group(group)
            pieces.append(table.slice(max(0, low - start), high - max(low, start)))
        return pa.concat_tables(pieces).slice(0, high - low)

    def _group(self, group: int) -> pa.Table:
        table = self._groups.get(group)
        if table is None:
            assert self.columns is not None
            table = self._given(self._file.row_group(group, list(self.columns)))
            self._groups[group] = table
            if len(self._groups) > ROW_GROUPS_CACHED_MAX:
                self._groups.popitem(last=False)
        return table

    def _shift(self, rows: pa.Table, lap: int) -> pa.Table:
        index = rows.schema.get_field_index(self.event_time)
        shift = pa.scalar(lap * self._period(), pa.duration("us"))
        return rows.set_column(index, self.schema.field(index), pc.add_checked(rows[index], shift))


def _check_path(path: object) -> None:
    """Refuse what is not the path of a file."""
    if not isinstance(path, str | Path) or path == "":
        refuse("Replay: path", f"is {argument_checks.shown(path)}", "name a Parquet file")
    if found := path_kinds.other_than_file(path):
        remedy = "name one Parquet file"
        if "://" in str(path):
            found, remedy = "is an address", "copy it to where all nodes have it, and name that"
        elif "not there" in found:
            remedy = "check the path, or make the file first"
            if not Path(path).is_absolute():
                remedy = "begin the path at Path(__file__).parent, or check it"
        refuse(f"source file {path}", found, remedy)
