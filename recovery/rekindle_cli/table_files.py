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

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from rekindle.model import path_kinds
from rekindle.model.errors import InputError, first_line

# What pyarrow raises for content that is not what it should be.
UNREADABLE = (pa.ArrowException, ValueError, KeyError)


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
    if isinstance(value, Decimal) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    return value


def _read_parquet(file: Path, schema: pa.Schema) -> pa.Table:
    with pq.ParquetFile(file) as opened:
        there = set(opened.schema_arrow.names)
        table = opened.read(columns=[name for name in schema.names if name in there])
    for place, name in enumerate(table.column_names):
        try:
            column = table[name].cast(schema.field(name).type)
        except pa.ArrowException as error:
            raise ValueError(f"column {name!r}: {error}") from error
        table = table.set_column(place, schema.field(name), column)
    return table


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
    try:
        return pyarrow.csv.read_csv(file, read_options=reading, convert_options=converting)
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
    options = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    return pyarrow.json.read_json(file, parse_options=options)


READERS: dict[str, Callable[[Path, pa.Schema], pa.Table]] = {
    ".parquet": _read_parquet,
    ".csv": _read_csv,
    ".jsonl": _read_json,
    ".ndjson": _read_json,
    ".json": _read_json,
}
ENDINGS = tuple(READERS)
