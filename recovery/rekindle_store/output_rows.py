"""The rows of an output file that a commit record names, wherever they lie by now.

    OutputRows.table(commit, name, rows) ──► its own file
                                      └────► a part of a file of many (`compacted_outputs`)
    outputs(files) ──► where the rows of all output are, for who reads files with another engine

Readers take one output file after the other. What was put together lies in the order of commits, so
the files that were read last are kept: each is fetched once, and each group of rows unpacked once.
"""

import base64
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate

import pyarrow as pa
import pyarrow.parquet as pq

from rekindle.model.errors import DamagedError, first_line
from rekindle_store import commit_log
from rekindle_store.compacted_outputs import DataFile, Part, Places, output_names
from rekindle_store.store_files import Files

# Data files that are kept, and groups of rows of each.
FILES_MAX, GROUPS_MAX = 2, 2
PIECE_ROWS = 1024
UNREADABLE = (pa.ArrowException, OSError, ValueError)
# Where Arrow keeps its own schema in a Parquet file.
ARROW_SCHEMA = b"ARROW:schema"
REMEDY = "restore it from a copy of the store"
WHAT_LENGTH_MAX = 300


@dataclass(frozen=True, slots=True)
class CommittedOutput:
    """What a commit record says of the output of a query partition and epoch: the rows are `rows`
    ones of the file `name`, from `first_row` on, or all of the file if that is None. `named` is the
    name in the record, below the store."""

    query_partition: str
    epoch: int
    rows: int
    commit: int
    committed_at: float
    named: str
    name: str
    first_row: int | None

    @property
    def query(self) -> str:
        """The query's name."""
        return self.query_partition.rpartition("/")[0]


@dataclass(slots=True)
class OpenedFile:
    """A Parquet file in memory; `ends` are the rows up to the end of each of its groups."""

    where: str
    parquet: pq.ParquetFile
    ends: list[int]
    groups: OrderedDict[int, pa.Table] = field(default_factory=OrderedDict)

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return self.ends[-1] if self.ends else 0

    def group(self, number: int) -> pa.Table:
        """A group of rows. Raises DamagedError where a page does not match its checksum."""
        table = self.groups.get(number)
        if table is None:
            try:
                table = self.parquet.read_row_group(number)
            except UNREADABLE as error:
                raise _unreadable(self.where, error) from error
            self.groups[number] = table
            while len(self.groups) > GROUPS_MAX:
                self.groups.popitem(last=False)
        return table

    def table(self) -> pa.Table:
        """All its rows. Raises DamagedError as `group`, and keeps none."""
        try:
            return self.parquet.read()
        except UNREADABLE as error:
            raise _unreadable(self.where, error) from error

    def pieces(self) -> Iterator[pa.Table]:
        """All its rows, `PIECE_ROWS` at a time, so that a file that is small because its rows are
        alike takes little memory. Raises DamagedError as `group`, and keeps none."""
        schema = self.parquet.schema_arrow
        if not self.rows:
            yield schema.empty_table()
        try:
            for batch in self.parquet.iter_batches(PIECE_ROWS):
                yield pa.Table.from_batches([batch], schema)
        except UNREADABLE as error:
            raise _unreadable(self.where, error) from error

    def slice(self, first: int, rows: int) -> pa.Table:
        """So many rows from one on."""
        found, at = [], bisect_right(self.ends, first)
        while rows and at < len(self.ends):
            table = self.group(at)
            begin = first - (self.ends[at] - table.num_rows)
            found.append(table.slice(begin, rows))
            first, rows = first + found[-1].num_rows, rows - found[-1].num_rows
            at += 1
        return pa.concat_tables(found) if found else self.parquet.schema_arrow.empty_table()


def opened(where: str, data: bytes | memoryview) -> OpenedFile:
    """A Parquet file from its content, at a place for messages. Raises DamagedError for what is
    none, and where a column has another name than it was written with."""
    try:
        parquet = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        names, written = parquet.schema_arrow.names, _names_written(parquet)
    except UNREADABLE as error:
        raise _unreadable(where, error) from error
    if names != (names if written is None else written):
        what = f"has columns {names}, and was written with {written}"
        raise DamagedError(where=where, what=what[:WHAT_LENGTH_MAX], remedy=REMEDY)
    about = parquet.metadata
    sizes = (about.row_group(number).num_rows for number in range(about.num_row_groups))
    return OpenedFile(where, parquet, list(accumulate(sizes)))


def _names_written(parquet: pq.ParquetFile) -> list[str] | None:
    """The names of the columns, as Arrow keeps them beside Parquet's: the footer has no checksum.
    None where nothing was kept."""
    kept = (parquet.metadata.metadata or {}).get(ARROW_SCHEMA)
    if kept is None:
        return None
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(kept, validate=True)))
    names: list[str] = schema.names
    return names


@dataclass(slots=True)
class OutputRows:
    """Reads output files of one store. May be used by several threads."""

    files: Files
    places: Places
    _recent: OrderedDict[str, OpenedFile] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def table(self, commit: int, name: str, rows: int) -> pa.Table:
        """The rows of an output file that a commit record names, with so many rows.

        Raises DamagedError where they are not there or not whole, and OSError while the store is
        away.
        """
        return self.places.of(
            commit,
            name,
            lambda part: self._own(commit, name, rows) if part is None else self._part(part),
        )

    def _own(self, commit: int, name: str, rows: int) -> pa.Table:
        where = f"{self.files.place}/{name}"
        table = opened(where, self.files.read(name)).table()
        if table.num_rows != rows:
            what = f"has {table.num_rows} rows, where commit record {commit} says {rows}"
            raise DamagedError(where=where, what=what, remedy=REMEDY)
        return table

    def _part(self, part: Part) -> pa.Table:
        # Who waits here would else fetch the same file.
        with self._lock:
            return self._opened(part.file).slice(part.first_row, part.rows)

    def _opened(self, file: DataFile) -> OpenedFile:
        found = self._recent.get(file.name)
        if found is None:
            where = f"{self.files.place}/{file.name}"
            found = opened(where, self.files.read(file.name))
            if found.rows != file.rows:
                what = f"has {found.rows} rows, where its index says {file.rows}"
                raise DamagedError(where=where, what=what, remedy=REMEDY)
            self._recent[file.name] = found
            while len(self._recent) > FILES_MAX:
                self._recent.popitem(last=False)
        return found


def outputs(files: Files) -> Iterator[CommittedOutput]:
    """All output of a store, as often as commit records name it, in the order in which it came to
    count. For checks: nobody else has to know records. Raises as `commit_log.commits`."""
    places = Places(files)
    for number, record in commit_log.commits(files):
        named = zip(record["outputs"], output_names(record), strict=True)
        for (query_partition, epoch, *_), (_, name, rows) in named:
            part = places.part(number, name)
            yield CommittedOutput(
                query_partition,
                epoch,
                rows,
                number,
                record.get("at", 0.0),
                name,
                name if part is None else part.file.name,
                None if part is None else part.first_row,
            )


def _unreadable(where: str, error: Exception) -> DamagedError:
    what = f"cannot be read ({first_line(error)})"
    return DamagedError(where=where, what=what, remedy=REMEDY)
