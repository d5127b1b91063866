"""Tables from files that people have, and back: Parquet, CSV and JSON lines.

A CSV file has a line with the names of its columns; times are as in ISO 8601. Types are those of
the columns that are wanted. Called by the command `test`.
"""

import csv
import math
import os
import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from rekindle.model import path_kinds
from rekindle.model.errors import InputError, first_line
from rekindle_spark.connectors import decoding
from rekindle_spark.operators import arrow_columns, column_types

# What pyarrow raises for content that is not what it should be.
UNREADABLE = (pa.ArrowException, ValueError, KeyError)
# Values of a list that are shown.
SHOWN_MAX = 1_000_000


def read(where: str, file: Path, schema: pa.Schema) -> pa.Table:
    """Read the columns of a schema from a file; other columns are left out.

    Raises InputError, for `where`, that names file and cause.
    """
    reader = READERS.get(file.suffix.lower())
    if reader is None:
        raise InputError(
            where=f"{where}: {file}",
            what=f"has the ending {file.suffix!r}" if file.suffix else "has no ending",
            remedy=f"give a file that ends in {', '.join(ENDINGS)}",
        )
    found = path_kinds.other_than_file(file)
    if found and "not there" not in found:
        raise InputError(where=f"{where}: {file}", what=found, remedy="name another file")
    try:
        table = reader(file, schema)
    except OSError as error:
        cause = os.strerror(error.errno) if error.errno else first_line(error)
        raise InputError(
            where=f"{where}: {file}", what=f"cannot be read ({cause})", remedy="name another file"
        ) from error
    except UNREADABLE as error:
        cause = " ".join(str(error).split())[:300]
        raise InputError(
            where=f"{where}: {file}",
            what=f"does not hold the columns that are wanted ({cause})",
            remedy=f"it needs {', '.join(f'{field.name}: {field.type}' for field in schema)}",
        ) from error
    for name in schema.names:
        times = table.column_names.count(name)
        if times != 1:
            raise InputError(
                where=f"{where}: {file}",
                what=f"has {'more than one' if times else 'no'} column {name!r}",
                remedy=f"it needs {', '.join(schema.names)}",
            )
    return table.select(schema.names)


def row_names(file: Path, rows: int) -> Callable[[int], str]:
    """Make what names a row of a file of so many: by its line, where each row is one."""
    ahead = {".csv": 1, ".parquet": None}.get(file.suffix.lower(), 0)
    with file.open("rb") as opened:
        lines = 0 if ahead is None else sum(bool(line.strip()) for line in opened)
    if ahead is None or lines != rows + ahead:
        return "row {}".format
    return lambda row: f"line {row + ahead + 1}"


def write(file: Path, table: pa.Table) -> None:
    """Write a table as Parquet."""
    pq.write_table(table, file)


def rows(table: pa.Table) -> list[dict[str, Any]]:
    """A table's rows; of a value that Python has none for, such as a time of the year 20,000, the
    text that Arrow shows."""
    try:
        found: list[dict[str, Any]] = table.to_pylist()
        return found
    except (OverflowError, ValueError):
        columns = [[_value(scalar) for scalar in column] for column in table.columns]
        names = table.column_names
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        shown = pa.array([scalar]).to_string(window=SHOWN_MAX, container_window=SHOWN_MAX)
        return " ".join(shown.split())


def plain(value: Any) -> Any:
    """A value of a row as JSON holds it: times as ISO 8601, what else it has not as text."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal | UUID) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    return value


def _read_parquet(file: Path, schema: pa.Schema) -> pa.Table:
    # old files' times of 96 bits: a microsecond fits all years, a nanosecond does not
    with pq.ParquetFile(
        file, coerce_int96_timestamp_unit="us", page_checksum_verification=True
    ) as opened:
        there = set(opened.schema_arrow.names)
        names = [name for name in schema.names if name in there]
        table = opened.read(columns=names)
        old = column_types.old_columns(opened, names)
    if old:
        fine = pq.read_table(file, columns=old)
        for name in old:
            times = arrow_columns.whole(fine[name]), arrow_columns.whole(table[name])
            if column_types.are_cut(*times).any():
                raise ValueError(f"column {name!r}: has times with nanoseconds, as INT96")
    fields = [schema.field(name) for name in table.column_names]
    return column_types.exact(table, pa.schema(fields))


def _read_csv(file: Path, schema: pa.Schema) -> pa.Table:
    kinds = {field.name: field.type for field in schema}
    # nothing but an empty value is null, as where lines are a source: NA is a country, nan a number
    converting = pyarrow.csv.ConvertOptions(
        column_types=kinds,
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    # with threads pyarrow does not say which row is wrong
    reading = pyarrow.csv.ReadOptions(use_threads=False)

    def parsed(other: pa.Schema) -> pa.Table:
        columns = pyarrow.csv.ConvertOptions(column_types=other, include_columns=other.names)
        return pyarrow.csv.read_csv(file, read_options=reading, convert_options=columns)

    try:
        table = pyarrow.csv.read_csv(file, read_options=reading, convert_options=converting)
        wanted = [name for name in kinds if table.column_names.count(name) == 1]
        decoding.check_numbers(table.select(wanted), file.read_bytes(), parsed)
        return table
    except pa.ArrowInvalid as error:
        raise ValueError(_with_names(str(error), file)) from error


def _with_names(said: str, file: Path) -> str:
    """What pyarrow says of a CSV file, with the name of the column and the line."""
    said = re.sub(r"\bRow #(\d+)", r"line \1", said)
    place = re.search(r"CSV column #(\d+)", said)
    if place is None:
        return said
    with file.open(newline="", errors="replace") as opened:
        names = next(csv.reader(opened), [])
    number = int(place[1])
    name = repr(names[number]) if number < len(names) else f"#{number}"
    return said.replace(f"In {place[0]}", f"column {name}")


def _read_json(file: Path, schema: pa.Schema) -> pa.Table:
    if file.stat().st_size == 0:
        return schema.empty_table()

    def parsed(columns: pa.Schema) -> pa.Table:
        options = pyarrow.json.ParseOptions(
            explicit_schema=columns, unexpected_field_behavior="ignore"
        )
        return pyarrow.json.read_json(file, parse_options=options)

    table = parsed(schema)
    decoding.check_floats(table, parsed)
    return table


READERS: dict[str, Callable[[Path, pa.Schema], pa.Table]] = {
    ".parquet": _read_parquet,
    ".csv": _read_csv,
    ".jsonl": _read_json,
    ".ndjson": _read_json,
    ".json": _read_json,
}
ENDINGS = tuple(READERS)
