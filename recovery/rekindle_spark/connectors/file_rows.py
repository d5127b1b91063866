"""The rows of files: how many there are, and those of a range, as Parquet, JSON lines or CSV.

    contents(folder, file, form)  what a file has, counted once, by the driver when it lists it
    piece(folder, file, form, …)  rows of it, on the nodes: decoded, and those that could not be

A row of a text is a line, so no value has a line break. The places of some lines are kept, so that
nodes read from there. Of a text that is packed (`.gz`) a node unpacks what lies before: it keeps
open what it has read last, with what it has unpacked behind that, and goes on there. So a file is
unpacked once by each reader, and again from its start by a host that is new. Called by
`file_source`.
"""

import csv
import gzip
import io
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rekindle.model.errors import RekindleError, first_line
from rekindle_spark.connectors.decoding import BYTE_ORDER_MARK, WHY_LENGTH_MAX, Csv, Json
from rekindle_spark.connectors.file_folders import FileFolder
from rekindle_spark.operators import arrow_columns, column_types
from rekindle_spark.user_code import dead_letter_sieve

PARQUET, JSON, CSV = "parquet", "json", "csv"
FORMATS = (PARQUET, JSON, CSV)
# Between two places of a text that are kept, at least.
MARK_BYTES = 1 << 20
LINE_BYTES_MAX = 1 << 26
PACKED = ".gz"
# Packings that are known by name, and not read.
OTHERS_PACKED = (".bz2", ".xz", ".zst", ".lz4", ".snappy", ".zip", ".br", ".7z")
# Files that a process keeps open, for so long while nobody reads them, and the size of a row group
# that it keeps with one of Parquet.
OPEN_MAX, IDLE_SECONDS, GROUP_BYTES_MAX = 8, 60.0, 1 << 26
UNPACKING = (gzip.BadGzipFile, EOFError, zlib.error)


@dataclass(frozen=True, slots=True)
class FileForm:
    """How files are read: the format, the declared columns, and for texts units of times; of CSV
    what lies between values, and whether the first line names the columns."""

    format: str
    schema: pa.Schema
    units: Mapping[str, str] = field(default_factory=dict)
    delimiter: str = ","
    header: bool = True

    def decoder(self, names: Sequence[str]) -> Json | Csv:
        """What makes rows of lines; `names` are the columns of a file of CSV."""
        if self.format == JSON:
            return Json(self.schema, self.units)
        return Csv(self.schema, self.units, self.delimiter, names)


@dataclass(frozen=True, slots=True)
class FileContents:
    """What a file has: rows, for texts some of them with their place in bytes, the first and the
    end among these, and the columns that its header names. `error` is why it cannot be read as a
    whole: then it counts as one row, which is rejected. `digest` is of the file's ends, where it
    was opened and needs one."""

    rows: int
    marks: tuple[tuple[int, int], ...] = ()
    columns: tuple[str, ...] = ()
    error: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """Decoded rows of a file with the number of each in it, from 0; and those that could not be:
    by number why, and the line, where there are lines."""

    rows: pa.Table
    numbers: list[int]
    rejected: dict[int, tuple[str, bytes | None]]


def contents(
    folder: FileFolder,
    name: str,
    version: str,
    form: FileForm,
    counted: Callable[[int], None] = lambda _: None,
) -> FileContents:
    """Count what a file has; `counted` is called with each number of bytes. Raises DataLossError
    where it is gone or another one meanwhile, SourceAwayError and RunError as `file_folders`."""
    if name.endswith(OTHERS_PACKED) or (form.format == PARQUET and name.endswith(PACKED)):
        taken = "" if form.format == PARQUET else f"; of packed files those of gzip ({PACKED}) are"
        return _unreadable(f"is packed in a way that is not read{taken}")
    with folder.open(name, version) as file:
        digest = folder.digest_of_ends(file)
        return replace(_contents_of(file, name, form, counted), digest=digest)


def _contents_of(
    file: io.BufferedIOBase, name: str, form: FileForm, counted: Callable[[int], None]
) -> FileContents:
    try:
        if form.format == PARQUET:
            return _parquet_contents(file, form)
        return _lines(_unpacked(file, name), form, counted)
    except RekindleError:
        raise
    except (*UNPACKING, pa.ArrowException, csv.Error, OSError, ValueError) as error:
        kind = {PARQUET: "Parquet", JSON: "JSON lines", CSV: "CSV"}[form.format]
        said = first_line(error)[:WHY_LENGTH_MAX]
        return _unreadable(f"cannot be read as {kind} ({said})")


def schema_of(folder: FileFolder, name: str, version: str) -> pa.Schema:
    """The columns of a Parquet file. Raises ArrowException where it is none."""
    with folder.open(name, version) as file:
        opened: pa.Schema = _parquet(file).schema_arrow
        return opened


def piece(
    folder: FileFolder,
    name: str,
    version: str,
    form: FileForm,
    known: FileContents,
    rows: tuple[int, int],
) -> Piece:
    """The rows [begin, end) of a file. Raises as `contents` does."""
    begin, end = rows
    key = (folder.place, name, version)
    if form.format == PARQUET:
        reader = _readers.taken(key, lambda: _ParquetReader(folder.open(name, version)))
        found = _of_parquet(reader, form.schema, begin, end)
        _readers.given_back(key, reader)
        return found
    place = _mark_before(known, begin)[1]
    opened = _readers.taken(key, lambda: _text(folder.open(name, version), name), place)
    first, lines = _lines_of(opened, known, begin, end)
    if isinstance(opened, _PackedText) and end == known.rows:
        opened.close()  # nobody goes on with it
    else:
        _readers.given_back(key, opened)
    numbers = [n for n, line in enumerate(lines, first) if line.strip()]
    values = [lines[n - first].removesuffix(b"\r") for n in numbers]
    decoded = form.decoder(known.columns).decode(values)
    kept = [numbers[place] for place in decoded.places]
    rejected: dict[int, tuple[str, bytes | None]] = {
        numbers[place]: (why, values[place]) for place, why in decoded.rejected.items()
    }
    return Piece(decoded.rows, kept, rejected)


def _unreadable(error: str) -> FileContents:
    return FileContents(1, error=error)


def _lines(file: io.BufferedIOBase, form: FileForm, counted: Callable[[int], None]) -> FileContents:
    """Count the lines of a text."""
    begin = 0
    columns: tuple[str, ...] = ()
    first = file.readline(LINE_BYTES_MAX)
    if first.startswith(BYTE_ORDER_MARK):
        begin = len(BYTE_ORDER_MARK)
    if form.format == CSV:
        columns = tuple(form.schema.names)
        if form.header:
            columns = _header(first[begin:], form)
            begin = len(first)
    lacking = [name for name in form.schema.names if name not in columns]
    if form.format == CSV and lacking:
        return _unreadable(f"has no column {lacking[0]!r} in its first line")
    doubled = [name for name in form.schema.names if columns.count(name) > 1]
    if doubled:
        return _unreadable(f"has two columns {doubled[0]!r} in its first line")
    file.seek(begin)
    return _counted(file, begin, columns, counted)


def _counted(
    file: io.BufferedIOBase, begin: int, columns: tuple[str, ...], counted: Callable[[int], None]
) -> FileContents:
    rows, position, line_at, last = 0, begin, begin, b"\n"
    marks = [(0, begin)]
    while chunk := file.read(MARK_BYTES):
        counted(len(chunk))
        rows += chunk.count(b"\n")
        newest = chunk.rfind(b"\n")
        if newest >= 0:
            line_at = position + newest + 1
            marks.append((rows, line_at))
        position += len(chunk)
        last = chunk[-1:]
        if position - line_at > LINE_BYTES_MAX:
            what = f"row {rows + 1} has more than {LINE_BYTES_MAX:,} bytes"
            return _unreadable(what)
    if last != b"\n":
        rows += 1
    if marks[-1] != (rows, position):
        marks.append((rows, position))
    return FileContents(rows, tuple(marks) if rows else (), columns)


def _header(line: bytes, form: FileForm) -> tuple[str, ...]:
    text = line.decode().rstrip("\r\n")
    return tuple(next(csv.reader([text], delimiter=form.delimiter), ()))


def _lines_of(
    file: "_Text | _PackedText", known: FileContents, begin: int, end: int
) -> tuple[int, list[bytes]]:
    """The lines [begin, end) of a text."""
    low = _mark_before(known, begin)
    high = min((mark for mark in known.marks if mark[0] >= end), default=low)
    data = file.span(low[1], high[1], _mark_before(known, end)[1])
    lines = data.removesuffix(b"\n").split(b"\n")
    return begin, lines[begin - low[0] : end - low[0]]


def _mark_before(known: FileContents, row: int) -> tuple[int, int]:
    """The last place that is known of a row up to this one."""
    return max((mark for mark in known.marks if mark[0] <= row), default=(0, 0))


def _text(file: io.BufferedIOBase, name: str) -> "_Text | _PackedText":
    return _PackedText(file) if name.endswith(PACKED) else _Text(file)


def _unpacked(file: io.BufferedIOBase, name: str) -> io.BufferedIOBase:
    return gzip.GzipFile(fileobj=file) if name.endswith(PACKED) else file


def _parquet(file: io.BufferedIOBase, unit: str = "us") -> pq.ParquetFile:
    # old files' times of 96 bits: a microsecond fits all years, a nanosecond does not
    return pq.ParquetFile(
        pa.PythonFile(file, mode="r"),
        coerce_int96_timestamp_unit=unit,
        page_checksum_verification=True,
    )


def _parquet_contents(file: io.BufferedIOBase, form: FileForm) -> FileContents:
    opened = _parquet(file)
    given = opened.schema_arrow
    for declared in form.schema:
        count = given.names.count(declared.name)
        if count != 1:
            what = "no column" if not count else "two columns"
            return _unreadable(f"has {what} {declared.name!r}")
        kind = given.field(declared.name).type
        if not _fits(column_types.plain(kind), declared.type):
            what = f"has {kind} in column {declared.name!r}, and {declared.type} is declared"
            return _unreadable(what)
    return FileContents(opened.metadata.num_rows)


def _fits(given: pa.DataType, declared: pa.DataType) -> bool:
    """Whether a declared type can hold what a column of a file has, as far as types say."""
    if given == declared or pa.types.is_null(given):
        return True
    if pa.types.is_timestamp(given):
        return bool(pa.types.is_timestamp(declared))
    if pa.types.is_floating(given):
        return bool(pa.types.is_floating(declared) and declared.bit_width > given.bit_width)
    if pa.types.is_decimal(given) and pa.types.is_decimal(declared):
        whole = declared.precision - declared.scale >= given.precision - given.scale
        return bool(whole and declared.scale >= given.scale)
    if not (pa.types.is_integer(given) and pa.types.is_integer(declared)):
        return False
    wider = declared.bit_width > given.bit_width
    if pa.types.is_signed_integer(declared):
        return bool(wider)
    return bool(wider and pa.types.is_unsigned_integer(given))


def _of_parquet(reader: "_ParquetReader", schema: pa.Schema, begin: int, end: int) -> Piece:
    """Rows [begin, end) of a Parquet file as they are declared. Those of a row group that cannot be
    read are rejected, and those with a value that does not fit."""
    together = Piece(schema.empty_table(), [], {})
    for number, low, high, first in reader.groups(begin, end):
        try:
            table, cut = reader.group(number, schema.names)
            some = _converted(table, schema, (low, high), first)
            some = _without(some, {first + row: why for row, why in cut.items()})
        except (OSError, pa.ArrowException) as error:
            why = f"row group {number} cannot be read ({first_line(error)})"[:WHY_LENGTH_MAX]
            places = range(first + low, first + high)
            some = Piece(schema.empty_table(), [], dict.fromkeys(places, (why, None)))
        rows = pa.concat_tables([together.rows, some.rows])
        numbers = together.numbers + some.numbers
        together = Piece(rows, numbers, together.rejected | some.rejected)
    return together


def _converted(table: pa.Table, schema: pa.Schema, span: tuple[int, int], first: int) -> Piece:
    """Rows of a row group, which begins with row `first` of the file; halves of them where a value
    does not fit."""
    tables, numbers = [schema.empty_table()], list[int]()
    rejected: dict[int, tuple[str, bytes | None]] = {}
    spans = [span]
    while spans:
        begin, end = spans.pop()
        some = table.slice(begin, end - begin)
        made, error = dead_letter_sieve.attempt(
            partial(column_types.converted, some, schema),
        )
        if error is None:
            tables.append(made)
            numbers += range(first + begin, first + end)
        elif end - begin == 1:
            why = dead_letter_sieve.raised(error)[:WHY_LENGTH_MAX]
            rejected[first + begin] = (why, None)
        else:
            middle = (begin + end) // 2
            spans += [(middle, end), (begin, middle)]
    return Piece(pa.concat_tables(tables), numbers, rejected)


def _without(piece: Piece, wrong: Mapping[int, str]) -> Piece:
    """A piece in which some rows are rejected, by their number in the file."""
    if not wrong:
        return piece
    kept = [number for number in piece.numbers if number not in wrong]
    more = {number: (wrong[number], None) for number in piece.numbers if number in wrong}
    mask = pa.array([number not in wrong for number in piece.numbers])
    return Piece(piece.rows.filter(mask), kept, piece.rejected | more)


@dataclass(slots=True, eq=False)
class _Text:
    """A text that is open, and read from any place."""

    file: io.BufferedIOBase
    begin: int = 0

    def span(self, low: int, high: int, needed: int) -> bytes:
        """The bytes [low, high)."""
        del needed
        self.file.seek(low)
        return self.file.read(high - low)

    def close(self) -> None:
        """Close the file."""
        self.file.close()


@dataclass(slots=True, eq=False)
class _PackedText:
    """A packed text that is open. It is unpacked once from its start to its end, where who reads
    goes on where it has stopped: `kept` has the unpacked bytes [begin, end) of that place."""

    packed: io.BufferedIOBase
    file: gzip.GzipFile = field(init=False)
    begin: int = 0
    end: int = 0
    kept: bytes = b""

    def __post_init__(self) -> None:
        self.file = gzip.GzipFile(fileobj=self.packed)

    def span(self, low: int, high: int, needed: int) -> bytes:
        """The unpacked bytes [low, high); of these the ones from `needed` on are kept for the next
        call."""
        if low < self.begin:  # from the start again
            self.begin, self.end, self.kept = low, low, b""
        if low >= self.end:
            self.file.seek(low)
            data = b""
        else:
            data = self.kept[low - self.begin :]
        if high > low + len(data):
            data += self.file.read(high - low - len(data))
        self.begin, self.end = max(low, needed), low + len(data)
        self.kept = data[self.begin - low :]
        return data[: high - low]

    def close(self) -> None:
        """Close both: the one does not close the other."""
        self.file.close()
        self.packed.close()


class _ParquetReader:
    """A Parquet file that is open, with the row group that was read last, unless it is large: a
    part of that costs all of it."""

    begin = 0

    def __init__(self, file: io.BufferedIOBase) -> None:
        self.file = _parquet(file)
        self.old = column_types.old_columns(self.file, self.file.schema_arrow.names)
        self.exact = _parquet(file, "ns") if self.old else self.file
        self.newest: tuple[int, pa.Table, dict[int, str]] | None = None

    def groups(self, begin: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """The row groups of the rows [begin, end): number, what of it, and its first row."""
        metadata, first = self.file.metadata, 0
        for number in range(metadata.num_row_groups):
            after = first + metadata.row_group(number).num_rows
            low, high = max(begin, first), min(end, after)
            if low < high:
                yield number, low - first, high - first, first
            first = after

    def group(self, number: int, names: Sequence[str]) -> tuple[pa.Table, dict[int, str]]:
        """The rows of a group, with these columns in their order; and those of which times were
        cut, by their place in the group why."""
        if self.newest is None or self.newest[0] != number:
            table = self.file.read_row_group(number, columns=list(names), use_threads=False)
            table = table.select(names)
            cut = self._cut(number, table)
            self.newest = (number, table, cut) if table.nbytes <= GROUP_BYTES_MAX else None
            return table, cut
        return self.newest[1:]

    def _cut(self, number: int, table: pa.Table) -> dict[int, str]:
        found: dict[int, str] = {}
        for name in [name for name in self.old if name in table.column_names]:
            exact = self.exact.read_row_group(number, columns=[name], use_threads=False)[name]
            times = arrow_columns.whole(exact), arrow_columns.whole(table[name])
            rows = np.flatnonzero(column_types.are_cut(*times)).tolist()
            found |= dict.fromkeys(rows, f"column {name!r} has nanoseconds, as INT96")
        return found

    def close(self) -> None:
        """Close the file."""
        self.file.close(force=True)


@dataclass(slots=True)
class _Readers:
    """Files that are open in this process and nobody reads now, with the time since when; the ones
    not used for longest go. What a reading fails with is not given back."""

    idle: list[tuple[tuple[str, str, str], Any, float]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    clock: Callable[[], float] = time.monotonic

    def taken(self, key: tuple[str, str, str], opened: Callable[[], Any], place: int = 0) -> Any:
        """A reader of a file, for the caller alone: of several the one that is closest before the
        place in bytes, where reading is to go on, and none that is behind it."""
        with self.lock:
            fitting = [one for one in self.idle if one[0] == key and one[1].begin <= place]
            best = max(fitting, key=lambda one: int(one[1].begin), default=None)
            if best is not None:
                self.idle.remove(best)
        return opened() if best is None else best[1]

    def given_back(self, key: tuple[str, str, str], reader: Any) -> None:
        """Keep it for who reads the file next."""
        now = self.clock()
        with self.lock:
            self.idle.append((key, reader, now))
            kept = [one for one in self.idle if now - one[2] <= IDLE_SECONDS][-OPEN_MAX:]
            old, self.idle = [one for one in self.idle if one not in kept], kept
        for _, one, _ in old:
            one.close()


_readers = _Readers()
