"""Arrow columns as numpy and Python values, and the checks of columns that users name.

Knows nothing of groups, windows or states. Called by all operators; the checks, which raise
InputError and take the place for its message, by `steps` too.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray

from rekindle.model.errors import ColumnError, refuse
from rekindle_spark.user_code import argument_checks

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
INT64_MIN = np.int64(-(2**63))
INT64, TIMESTAMP = pa.int64(), pa.timestamp("us")
# The first and the last microsecond that Python's datetime has.
PYTHON_EARLIEST, PYTHON_LATEST = -62_135_596_800_000_000, 253_402_300_799_999_999


def whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column as one array."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    try:
        return column.combine_chunks()
    except pa.ArrowInvalid as error:
        raise _too_large(f"a column of type {column.type}", column) from error


def batch(table: pa.Table) -> pa.RecordBatch:
    """A table as one batch. Raises ColumnError where a column is too large for that."""
    batches = table.combine_chunks().to_batches()
    if len(batches) > 1:
        sizes = {name: table[name].nbytes for name in table.column_names}
        name = max(sizes, key=lambda name: sizes[name])
        raise _too_large(f"column {name!r}", table[name])
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _too_large(where: str, column: pa.ChunkedArray) -> ColumnError:
    size, rows = column.nbytes, len(column)
    return ColumnError(
        where=where,
        what=f"has {size:,} bytes in {rows:,} rows at once, {size // max(1, rows):,} in each, and "
        "2,147,483,647 is the most",
        remedy="take fewer rows in an epoch (rows_per_epoch_max), or more partitions",
    )


def valid(array: pa.Array) -> Mask | None:
    """Where an array has values; None when everywhere."""
    if array.null_count == 0:
        return None
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False))


def canonical(array: pa.Array) -> pa.Array:
    """The array with equal floats in equal bits (one zero, one NaN); others as they are."""
    if not kinds.is_floating(array.type):
        return array
    filled = array.fill_null(0) if array.null_count else array
    values = filled.to_numpy(zero_copy_only=False) + 0.0
    values[np.isnan(values)] = np.nan
    present = valid(array)
    return pa.array(values, array.type, mask=None if present is None else ~present)


def comparable(array: pa.Array) -> pa.Array:
    """The array as a type that Arrow compares, sorts and encodes: extensions as what they are
    stored as, decimals of few digits as those of 38."""
    if isinstance(array.type, pa.BaseExtensionType):
        return array.storage
    if kinds.is_decimal32(array.type) or kinds.is_decimal64(array.type):
        return array.cast(pa.decimal128(array.type.precision, array.type.scale))
    return array


def has_integers(kind: pa.DataType) -> bool:
    """Whether `integers` takes a type: booleans, integers, dates, times and durations."""
    if kinds.is_interval(kind):
        return False
    return bool(kinds.is_boolean(kind) or kinds.is_integer(kind) or kinds.is_temporal(kind))


def integers(array: pa.Array) -> Integers:
    """An array's values as int64 (in their own unit, uint64 by its bits); nulls as 0."""
    kind = array.type
    if kind == INT64 and not array.null_count:
        return np.asarray(array)
    if kinds.is_boolean(kind):
        array = array.cast(pa.int8())
    elif kinds.is_temporal(kind):
        array = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    values = np.asarray(array.fill_null(0) if array.null_count else array)
    return values.view(np.int64) if kinds.is_uint64(kind) else values.astype(np.int64, copy=False)


def take(array: pa.Array, rows: Integers) -> pa.Array:
    """Values by their places. Arrow's own call costs 20 us whatever it takes, so where it can be
    told that none is null numpy does it."""
    if array.type == pa.int64() and not array.null_count:
        return pa.array(np.asarray(array)[rows])
    return array.take(pa.array(rows))


def alone(array: pa.Array) -> pa.Array:
    """An array by itself: of nested ones Arrow's checks and casts look at all that lies in the same
    memory, as with rows that were left out."""
    return pa.concat_arrays([array, array[:0]]) if kinds.is_nested(array.type) else array


def python_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """A column's values as Python values, as `to_pylist` has them but several times faster."""
    array = whole(column)
    kind = array.type
    if kinds.is_string(kind) and len(array) > 16:
        encoded = array.dictionary_encode("encode")
        words = np.array([*encoded.dictionary.to_pylist(), None], dtype=object)
        texts: list[Any] = words[encoded.indices.to_numpy()].tolist()
        return texts
    if kinds.is_date64(kind) or kinds.is_time(kind) or kinds.is_nested(kind):
        # of 25 hours Python's value is one of 1 hour, so that two keys would be one
        alone(array).validate(full=True)
    fast = kind == TIMESTAMP or kinds.is_integer(kind) or kinds.is_floating(kind)
    if not fast or array.null_count == len(array):
        return list(array.to_pylist())
    filled = array.fill_null(array.drop_null()[0]) if array.null_count else array
    if kind == TIMESTAMP and len(filled):
        moments = np.asarray(filled.view(pa.int64()))
        if int(moments.min()) < PYTHON_EARLIEST or int(moments.max()) > PYTHON_LATEST:
            raise OverflowError("a time is not in the years 1 to 9999, which Python has")
    values: list[Any] = filled.to_numpy(zero_copy_only=False).tolist()
    present = valid(array)
    if present is not None:
        for row in np.flatnonzero(~present).tolist():
            values[row] = None
    return values


def check_schema(where: str, schema: Any, event_time: Any) -> None:
    """Refuse what is not a schema of distinct names with that event time."""
    argument_checks.check_kind(f"{where}: schema", schema, pa.Schema, "give a pyarrow.Schema")
    check_names(where, schema.names)
    check_event_time(where, schema, event_time)


def check_columns(where: str, schema: pa.Schema, names: Any) -> None:
    """Refuse what is not a list of columns that are there."""
    argument_checks.check_list(where, names)
    for name in names:
        if not isinstance(name, str) or name not in schema.names:
            refuse(
                where,
                f"there is no column {argument_checks.shown(name)}",
                f"name one of: {', '.join(schema.names)}",
            )


def check_event_time(where: str, schema: pa.Schema, name: Any) -> None:
    """Refuse what is not a column of type timestamp[us]."""
    check_columns(f"{where}: event time", schema, [name])
    kind = schema.field(name).type
    if kind != TIMESTAMP:
        refuse(f"{where}: event time {name!r}", f"has type {kind}", "make it timestamp[us]")


def check_keys(where: str, schema: pa.Schema, names: Any, floats: bool = True) -> None:
    """Refuse what is not a list of distinct columns that are there, have an order and a hash."""
    check_columns(where, schema, names)
    check_names(where, names)
    for name in names:
        kind = schema.field(name).type
        if not (has_integers(kind) or (floats and kinds.is_floating(kind)) or _has_bytes(kind)):
            words = "integers, decimals, booleans, times, strings or bytes"
            refuse(
                where,
                f"column {name!r} has type {kind}",
                f"use {words}{', or floats' * floats}",
            )


def _has_bytes(kind: pa.DataType) -> bool:
    """Whether values are text, bytes, decimals or UUIDs, which have an order and a hash."""
    texts = kinds.is_string(kind) or kinds.is_large_string(kind)
    plain = kinds.is_binary(kind) or kinds.is_large_binary(kind)
    fixed = kinds.is_fixed_size_binary(kind) or kinds.is_decimal(kind) or kind == pa.uuid()
    return bool(texts or plain or fixed)


def check_cases(where: str, names: Sequence[str], others: Sequence[str]) -> None:
    """Refuse names that differ only in case: readers of Parquet take them for one column."""
    seen = {name.casefold(): name for name in others}
    for name in names:
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            what = f"is called as {other!r} but for upper and lower case"
            remedy = "rename one in a map before: most readers of Parquet take them for the same"
            refuse(f"{where}: column {name!r}", what, remedy)


def check_no_nanoseconds(where: str, schema: pa.Schema) -> None:
    """Refuse times in nanoseconds, which Python's own values cannot hold: in rows of these they are
    cut, so that different ones are the same, or objects of pandas where that is installed."""
    for field in schema:
        if _has_nanoseconds(field.type):
            refuse(
                where,
                f"column {field.name!r} has type {field.type}, which Python's times cannot hold",
                "make it microseconds, or int64, in a map before",
            )


def _has_nanoseconds(kind: pa.DataType) -> bool:
    if kinds.is_dictionary(kind):
        return _has_nanoseconds(kind.value_type)
    if kinds.is_temporal(kind) and getattr(kind, "unit", "") == "ns":
        return True
    return any(_has_nanoseconds(kind.field(place).type) for place in range(kind.num_fields))


def check_names(where: str, names: Sequence[str]) -> None:
    """Refuse a name that is there twice."""
    for name in names:
        if list(names).count(name) > 1:
            refuse(
                where, f"has more than one column {name!r}", "give each column a name of its own"
            )
