"""Output files of sinks: kept until a request has done all else, then put in place together.

    outputs/QUERY/INDEX-EPOCH.parquet

A repeat puts the same rows in the same place, and readers take only what a commit record names, so
nothing here asks whether a file is there already. The driver makes the folders; hosts write the
files and report them when they are in the store.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from rekindle.model.errors import StepError, refuse
from rekindle_spark.operators import arrow_columns, column_types
from rekindle_store import checksummed_file
from rekindle_store.committed_files import DEAD_LETTERS, LATE, LATE_SIDES
from rekindle_store.store_files import Files
from rekindle_store.transfers import Moved, unwatched

# What pyarrow raises for rows or types that Parquet cannot hold.
UNWRITABLE = (pa.ArrowException, ValueError, TypeError, NotImplementedError, OSError)
# Outputs that keep rows as they came: nobody could mend them on their way there.
KEPT_AS_THEY_ARE = (DEAD_LETTERS, LATE, *LATE_SIDES)
# Up to so many rows and bytes in memory zstd, and dictionaries of numbers, take twice the CPU and
# save a third of little.
SMALL_ROWS_MAX, SMALL_BYTES_MAX = 1_000, 1 << 16


@dataclass(slots=True)
class SinkFiles:
    """The files of one request, for the folder `sink_files` of the store."""

    files: Files
    unfinished: dict[str, bytes] = field(default_factory=dict)

    def write(self, query: str, name: str, table: pa.Table) -> None:
        """Make one file, not in the store yet. Raises StepError for rows that Parquet cannot hold,
        such as a null in a column that may have none, and for values that are none of their type,
        such as text that is no UTF-8: readers would refuse them, or take them for others."""
        if not query.endswith(KEPT_AS_THEY_ARE):
            _check_values(query, table)
        self.unfinished[f"outputs/{query}/{name}"] = _content(query, table)

    def keep_waiting(self, branch: str, name: str, table: pa.Table) -> None:
        """Make one file of rows that wait for a branch, not in the store yet. Raises StepError as
        `write` does, but for values that come back as they are."""
        for column in table.schema:
            _check(branch, column.name, table[column.name], _check_days)
        self.unfinished[f"outputs/{branch}/{name}"] = checksummed_file.seal_rows(
            _content(branch, table)
        )

    def put_in_place(self, moved: Moved = unwatched) -> None:
        """Put all files into the store; when this returns, they are there for good."""
        if self.unfinished:
            self.files.put(self.unfinished, moved)


def check_schema(where: str, schema: pa.Schema) -> None:
    """Refuse a schema that Parquet cannot hold; raises InputError that names the column."""
    if _unwritable(schema) is None:
        return
    for column in schema:
        error = _unwritable(pa.schema([column]))
        if error is not None:
            refuse(
                f"{where}: column {column.name!r}",
                f"has type {column.type}, which Parquet cannot hold ({_one_line(error)})",
                "change its type in a map step before, or leave it out",
            )


def is_writable(schema: pa.Schema) -> bool:
    """Whether Parquet can hold a schema."""
    return _unwritable(schema) is None


def _unwritable(schema: pa.Schema) -> Exception | None:
    """Try to write a file without rows; return what that raised."""
    try:
        _parquet(schema.empty_table())
    except UNWRITABLE as error:
        return error
    return None


def _content(query: str, table: pa.Table) -> bytes:
    try:
        return _parquet(table)
    except UNWRITABLE as error:
        raise StepError(
            where=f"query {query}",
            what=f"has rows that cannot be written as Parquet ({_one_line(error)})",
            remedy="change the column in a map before the sink",
        ) from error


def _check_values(query: str, table: pa.Table) -> None:
    for column in table.schema:
        _check(query, column.name, table[column.name], _check_all)


def _check(
    query: str, name: str, column: pa.ChunkedArray, check: Callable[[pa.Array], None]
) -> None:
    try:
        for chunk in column.chunks:
            check(arrow_columns.alone(chunk))
    except pa.ArrowInvalid as error:
        raise StepError(
            where=f"query {query}, column {name!r}",
            what=f"has a value that is none of type {column.type} ({_one_line(error)})",
            remedy="mend the column in a map before the sink, or leave such rows out",
        ) from error


def _check_all(array: pa.Array) -> None:
    array.validate(full=True)
    _check_days(array)


def _check_days(array: pa.Array) -> None:
    if _is_written_otherwise(array.type):
        array.cast(column_types.replaced(array.type, _as_written))


@lru_cache
def _is_written_otherwise(kind: pa.DataType) -> bool:
    return bool(column_types.replaced(kind, _as_written) != kind)


def _as_written(kind: pa.DataType) -> pa.DataType:
    """What Parquet makes of a type: of days in milliseconds the days, and of too many others."""
    return pa.date32() if pa.types.is_date64(kind) else kind


def _parquet(table: pa.Table) -> bytes:
    """The content of a Parquet file with these rows."""
    sink = pa.BufferOutputStream()
    is_small = table.num_rows <= SMALL_ROWS_MAX and table.nbytes <= SMALL_BYTES_MAX
    pq.write_table(
        table,
        sink,
        compression="snappy" if is_small else "zstd",
        use_dictionary=_texts(table.schema) if is_small else True,
        write_page_checksum=True,  # readers find a flipped bit by it
    )
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _texts(schema: pa.Schema) -> list[str]:
    """The columns of text and bytes."""
    kinds = pa.types.is_string, pa.types.is_binary
    return [column.name for column in schema if any(is_of(column.type) for is_of in kinds)]


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
