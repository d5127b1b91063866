"""Replay sources: Parquet files with event time, read again as if their rows arrived now.

A replay is a row order that never changes: the file's rows as they stand (they must be sorted
by event time), then, where `repeat_every_seconds` is given, the same rows again with event
times shifted by that much, for ever. How fast rows arrive is the driver's matter (`arrivals`).
"""

import os
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rekindle.errors import InputError
from rekindle_spark import arguments
from rekindle_spark.operators.columns import check_columns, check_names
from rekindle_spark.operators.times import duration_microseconds

__all__ = ["Replay"]

ROW_GROUPS_CACHED_MAX = 16


@dataclass(slots=True)
class Replay:
    """One Parquet file as a source; `columns` narrows it, `event_time` names its time column.

    Raises InputError where the file is missing, is no Parquet file or lacks a column; `check`
    where event times are null, not sorted, or would overlap when they repeat.
    """

    path: str | Path
    event_time: str
    columns: tuple[str, ...] | None = None
    repeat_every_seconds: float | None = None
    schema: pa.Schema = field(init=False)
    _file: pq.ParquetFile | None = field(init=False, default=None)
    _times: np.ndarray | None = field(init=False, default=None)
    _starts: np.ndarray | None = field(init=False, default=None)
    _groups: "OrderedDict[int, pa.Table]" = field(init=False, default_factory=OrderedDict)

    def __post_init__(self) -> None:
        _check_path(self.path)
        where = f"source file {self.path}"
        whole = self._open().schema_arrow
        names = whole.names if self.columns is None else self.columns
        check_columns(f"{where}: columns", whole, names)
        check_names(f"{where}: columns", names)
        check_columns(f"{where}: event_time", whole, [self.event_time])
        if self.repeat_every_seconds is not None:
            duration_microseconds(f"{where}: repeat_every_seconds", self.repeat_every_seconds)
        self.columns = tuple(dict.fromkeys([*names, self.event_time]))
        self.schema = pa.schema([_plain(whole.field(name)) for name in self.columns])

    def __getstate__(self) -> tuple[str, str, tuple[str, ...] | None, float | None, bytes]:
        return (
            str(self.path),
            self.event_time,
            self.columns,
            self.repeat_every_seconds,
            self.schema.serialize().to_pybytes(),
        )

    def __setstate__(
        self, saved: tuple[str, str, tuple[str, ...] | None, float | None, bytes]
    ) -> None:
        self.path, self.event_time, self.columns, self.repeat_every_seconds = saved[:4]
        self.schema = pa.ipc.read_schema(pa.py_buffer(saved[4]))
        self._file = self._times = self._starts = None
        self._groups = OrderedDict()

    def check(self, step: str) -> None:
        """Raise InputError naming the step when the file cannot be replayed."""
        where, times = f"step {step}: source file {self.path}", self._event_times()
        if len(times) == 0:
            arguments.refuse(where, "is empty", "write at least one row into it")
        if np.any(times == np.iinfo("int64").min):
            what = f"has rows without event time in {self.event_time!r}"
            remedy = "leave them out when you write the file, or give them a time"
            arguments.refuse(where, what, remedy)
        if np.any(np.diff(times) < 0):
            what = f"is not sorted by {self.event_time!r}"
            arguments.refuse(where, what, "sort the rows by event time when you write the file")
        span = int(times[-1]) - int(times[0])
        if self.repeat_every_seconds is not None and self._period() < span:
            what = f"is {self.repeat_every_seconds}, less than the {span / 1e6} s of the file"
            remedy = "give at least so much, or event times of a lap begin before the last one ends"
            arguments.refuse(f"{where}: repeat_every_seconds", what, remedy)

    @property
    def file_rows(self) -> int:
        """Rows in the file itself."""
        return int(self._open().metadata.num_rows)

    def first(self, rows: int) -> pa.Table:
        """The first rows of the file, at most `rows`, without reading a whole row group."""
        assert self.columns is not None
        batches = self._open().iter_batches(batch_size=rows, columns=list(self.columns))
        batch = next(batches, None)
        if batch is None:
            return self.schema.empty_table()
        return pa.Table.from_batches([batch]).select(list(self.columns)).cast(self.schema)

    def row_group_bytes(self) -> list[int]:
        """The size of each row group's columns that are read, not compressed."""
        metadata = self._open().metadata
        wanted = set(self.columns or ())
        groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
        return [
            sum(
                column.total_uncompressed_size
                for column in map(group.column, range(group.num_columns))
                if column.path_in_schema.partition(".")[0] in wanted
            )
            for group in groups
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
        if self._file is None:
            try:
                # not mapped into memory: a file that is cut short would end the process
                self._file = pq.ParquetFile(self.path)
            except (OSError, pa.ArrowException) as error:
                raise InputError(
                    where=f"source file {self.path}",
                    what=f"cannot be read as Parquet ({error})",
                    remedy="bring it back, or write it as a Parquet file",
                ) from error
        return self._file

    def _event_times(self) -> np.ndarray:
        if self._times is None:
            column = self._open().read([self.event_time])[self.event_time]
            self._times = column.cast(pa.timestamp("us")).to_numpy().astype("int64")
        return self._times

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
            table = self._open().read_row_group(group, columns=list(self.columns))
            table = table.select(list(self.columns)).cast(self.schema)
            self._groups[group] = table
            if len(self._groups) > ROW_GROUPS_CACHED_MAX:
                self._groups.popitem(last=False)
        return table

    def _shift(self, rows: pa.Table, lap: int) -> pa.Table:
        index = rows.schema.get_field_index(self.event_time)
        shift = pa.scalar(lap * self._period(), pa.duration("us"))
        return rows.set_column(index, self.schema.field(index), pc.add(rows[index], shift))


def _check_path(path: object) -> None:
    """Refuse what is not the path of a file."""
    if not isinstance(path, str | Path) or path == "":
        arguments.refuse("Replay: path", f"is {arguments.shown(path)}", "name a Parquet file")
    where = f"source file {path}"
    if os.path.isdir(path):
        arguments.refuse(where, "is a folder", "name one Parquet file")
    if not os.path.isfile(path):
        arguments.refuse(where, "is not there", "check the path, or make the file first")


def _plain(field: pa.Field) -> pa.Field:
    """A field as frames carry it: nullable, and its values instead of numbers in a dictionary."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    return pa.field(field.name, kind)
