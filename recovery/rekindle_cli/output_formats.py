"""Rows as a table for people, JSON lines, CSV or Parquet, one Arrow table after the other.

`rekindle output` calls it. What a format cannot hold becomes text: moments in ISO 8601, decimals as
they are, bytes in base64, lists and structs as JSON; durations become seconds. Control characters
are escaped wherever a terminal would obey them.
"""

import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.cells import cell_len

from rekindle.model.errors import InputError, RunError, printable

FORMATS = ("table", "json", "csv", "parquet")
# A column is padded up to this width; longer values are whole all the same.
WIDTH_MAX = 60
# Rows that become Python values together.
CHUNK_ROWS = 10_000
# A row group, and the rows of small files that are in memory until there are so many.
GROUP_ROWS = 100_000
GAP = "  "
DATE_AND_TIME = re.compile(r"^(\d+-\d\d-\d\d) ")
UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class RowWriter(Protocol):
    """Turns tables into bytes, in order."""

    def of(self, table: pa.Table) -> Iterator[bytes]:
        """Yield the bytes of a table's rows, with a header where one is due."""


class TableRows:
    """Columns side by side, for people. They get wider as wider values come."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._columns: list[str] | None = None
        self._widths: list[int] = []

    def of(self, table: pa.Table) -> Iterator[bytes]:
        """See `RowWriter`. Other columns than before get a header of their own."""
        if self._columns != table.column_names:
            again = self._columns is not None
            self._columns, self._widths = table.column_names, [0] * table.num_columns
            yield from self._lines(table, header=True, again=again)
            return
        yield from self._lines(table, header=False, again=False)

    def _lines(self, table: pa.Table, *, header: bool, again: bool) -> Iterator[bytes]:
        names = [_printable(name) for name in table.column_names]
        right = [_is_number(column.type) for column in table.columns]
        for number, chunk in enumerate(_chunks(table)):
            columns = [_shown(column) for column in _plain(chunk, nested_as_text=True).columns]
            self._widen(names, columns)
            if header and not number:
                line = self._line(names, right)
                yield self._encoded(f"\n{line}\n" if again else f"{line}\n")
            if chunk.num_rows:
                lines = (self._line(cells, right) for cells in zip(*columns, strict=True))
                yield self._encoded("".join(f"{line}\n" for line in lines))

    def _widen(self, names: list[str], columns: list[list[str]]) -> None:
        found = (
            max(map(cell_len, (name, *cells))) for name, cells in zip(names, columns, strict=True)
        )
        self._widths = [
            min(WIDTH_MAX, max(known, width))
            for known, width in zip(self._widths, found, strict=True)
        ]

    def _line(self, cells: Iterable[str], right: list[bool]) -> str:
        padded = []
        for cell, width, is_right in zip(cells, self._widths, right, strict=True):
            space = " " * (width - cell_len(cell))
            padded.append(space + cell if is_right else cell + space)
        return GAP.join(padded).rstrip()

    def _encoded(self, text: str) -> bytes:
        return text.encode(self._encoding, errors="backslashreplace")


class JsonRows:
    """One JSON object a line, in UTF-8. What is no number to JSON, as NaN, is null."""

    def __init__(self, *, on_terminal: bool) -> None:
        self._on_terminal = on_terminal
        self._encoder = msgspec.json.Encoder(enc_hook=str)

    def of(self, table: pa.Table) -> Iterator[bytes]:
        """See `RowWriter`."""
        for chunk in _chunks(table):
            columns = [_values(column) for column in _plain(chunk, nested_as_text=False).columns]
            names = chunk.column_names
            rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
            data = self._encoder.encode_lines(rows)
            if self._on_terminal:
                text = "".join(map(_json_escaped, data.decode()))
                data = text.encode()
            yield data


class CsvRows:
    """CSV with a header, in UTF-8; null is nothing, an empty text is two quotes."""

    def __init__(self, *, on_terminal: bool) -> None:
        self._on_terminal = on_terminal
        self._schema: pa.Schema | None = None

    def of(self, table: pa.Table) -> Iterator[bytes]:
        """See `RowWriter`. Raises InputError for other columns than before."""
        import polars as pl

        is_first = self._schema is None
        self._schema = _same(self._schema, table.schema)
        for chunk in _chunks(table):
            frame = pl.from_arrow(_plain(chunk, nested_as_text=True))
            assert isinstance(frame, pl.DataFrame)
            text = frame.write_csv(include_header=is_first)
            is_first = False
            yield (printable(text) if self._on_terminal else text).encode()


class ParquetRows:
    """A Parquet file, whole once it is closed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._writer: pq.ParquetWriter | None = None
        self._schema: pa.Schema | None = None
        self._waiting: list[pa.Table] = []

    def write(self, table: pa.Table) -> None:
        """Add rows. Raises InputError for other columns than before."""
        self._schema = _same(self._schema, table.schema)
        self._waiting.append(table)
        if sum(table.num_rows for table in self._waiting) >= GROUP_ROWS:
            self._write()

    def close(self) -> None:
        """Write what is left, and the end of the file."""
        self._write()
        if self._writer is not None:
            self._writer.close()

    def _write(self) -> None:
        if self._writer is None and self._schema is not None:
            self._writer = pq.ParquetWriter(self._path, self._schema, compression="zstd")
        if self._writer is not None and self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=GROUP_ROWS)
        self._waiting = []


def text_rows(name: str, *, on_terminal: bool = False, encoding: str = "utf-8") -> RowWriter:
    """The rows of a format other than Parquet; `encoding` is of a table for people."""
    match name:
        case "json":
            return JsonRows(on_terminal=on_terminal)
        case "csv":
            return CsvRows(on_terminal=on_terminal)
        case _:
            return TableRows(encoding)


def write_file(file: Path, name: str, tables: Iterable[pa.Table]) -> None:
    """Write all rows to a file, which takes the place of what is there once it is whole.

    Raises InputError where it cannot be made, RunError where there is no room for it.
    """
    target = Path(os.path.realpath(file))
    if target.exists() and not target.is_file():
        raise InputError(
            where=f"--output {file}", what="is no regular file", remedy="name another one"
        )
    unfinished = target.with_name(f".{target.name}.{uuid.uuid4().hex}.unfinished")
    try:
        unfinished.open("xb").close()
    except OSError as error:
        raise InputError(
            where=f"--output {file}",
            what=f"cannot be written ({error.strerror})",
            remedy="name a file in a folder that is there and may be written",
        ) from error
    try:
        _write(unfinished, name, tables)
        unfinished.replace(target)
    except OSError as error:
        raise RunError(
            where=f"--output {file}",
            what=f"cannot be written ({error.strerror or error})",
            remedy="make room where it goes, or name another file",
        ) from error
    finally:
        with suppress(OSError):
            unfinished.unlink()


def _write(path: Path, name: str, tables: Iterable[pa.Table]) -> None:
    if name == "parquet":
        parquet = ParquetRows(str(path))
        for table in tables:
            parquet.write(table)
        parquet.close()
        return
    rows = text_rows(name)
    with path.open("wb") as opened:
        for table in tables:
            opened.writelines(rows.of(table))


def _same(before: pa.Schema | None, now: pa.Schema) -> pa.Schema:
    if before is not None and not now.equals(before):
        raise InputError(
            where="--format",
            what="takes the same columns in all rows, and they were changed "
            f"from {_columns(before)} to {_columns(now)}",
            remedy="choose json, or begin behind the change with --since EPOCH",
        )
    return now


def _columns(schema: pa.Schema) -> str:
    return _printable(", ".join(f"{field.name} {field.type}" for field in schema))


def _chunks(table: pa.Table) -> Iterator[pa.Table]:
    """Parts of a table, one at least."""
    for begin in range(0, max(1, table.num_rows), CHUNK_ROWS):
        yield table.slice(begin, CHUNK_ROWS)


def _plain(table: pa.Table, *, nested_as_text: bool) -> pa.Table:
    """The table with columns of booleans, numbers and texts alone; others may stay nested."""
    columns = [_plain_column(column, nested_as_text) for column in table.columns]
    return pa.table(columns, names=table.column_names)


def _plain_column(column: pa.ChunkedArray, nested_as_text: bool) -> pa.ChunkedArray:
    kind = column.type
    if kind == pa.uuid():
        return _texts(column, str)
    if isinstance(kind, pa.BaseExtensionType):
        plain = pa.bool_() if kind.extension_name == "arrow.bool8" else kind.storage_type
        return _plain_column(column.cast(kind.storage_type).cast(plain), nested_as_text)
    if pa.types.is_dictionary(kind):
        return _plain_column(column.cast(kind.value_type), nested_as_text)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return column
    if pa.types.is_timestamp(kind):
        return _moments(column)
    if pa.types.is_duration(kind):
        return pc.divide(column.cast(pa.int64()).cast(pa.float64(), safe=False), UNITS[kind.unit])
    if pa.types.is_nested(kind):
        if not nested_as_text:
            return column
        encode = msgspec.json.Encoder(enc_hook=str).encode
        return _texts(column, lambda value: encode(value).decode())
    if _is_binary(kind):
        return _texts(column, lambda value: msgspec.json.decode(msgspec.json.encode(value)))
    return column.cast(pa.large_string())


def _texts(column: pa.ChunkedArray, text: Callable[[Any], str]) -> pa.ChunkedArray:
    values = [None if value is None else text(value) for value in _values(column)]
    return pa.chunked_array([pa.array(values, pa.large_string())])


def _moments(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Moments as 2013-01-01T05:00:00.000000, those of a time zone in UTC with a Z behind."""
    kind = column.type
    if kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit, "UTC"))
    text = column.cast(pa.large_string())
    return pc.replace_substring_regex(text, DATE_AND_TIME.pattern, r"\1T")


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def _is_number(kind: pa.DataType) -> bool:
    is_number = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(check(kind) for check in is_number)


def _values(column: pa.ChunkedArray) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError) as error:  # a moment in a list, of a year that Python lacks
        raise InputError(
            where="--format",
            what=f"cannot show a value ({error})",
            remedy="choose parquet, with --output FILE",
        ) from error
    return values


def _shown(column: pa.ChunkedArray) -> list[str]:
    return ["" if value is None else _printable(_text(value)) for value in column.to_pylist()]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    """As in a Python literal, where a terminal would obey it or show nothing."""
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode()


def _json_escaped(character: str) -> str:
    if character.isprintable() or character == "\n":
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
