"""Aggregates of windows in two halves: partial values that add up, and their result.

Nulls are ignored as in SQL. Sums of integers and decimals are exact: those of 64-bit integers have
128 bits until a window closes, so that a mean is right wherever the sum goes, and a total that does
not fit its type is told (Overflow) whatever was added first. Float sums are added in the order of
the rows, first within one producer's epoch. A NaN makes a sum and a mean NaN and is above all
numbers. Called by `windows`.

A sum of 128 bits is its lower 64, and how often it went over: by how many times 2**64 it differs
from these, as a number of their type. That is nought for nearly all data, and told for all columns
at once by their least and greatest value.
"""

import decimal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from rekindle.model.errors import refuse
from rekindle_spark.operators import arrow_columns, grouping
from rekindle_spark.operators.arrow_columns import Integers
from rekindle_spark.operators.grouping import RowGroups
from rekindle_spark.user_code import argument_checks

FUNCTIONS = ("count", "sum", "min", "max", "mean")
DECIMAL_DIGITS_MAX = 38


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`function` (count, sum, min, max or mean) of a column; `count` without column counts rows."""

    function: str
    column: str | None = None

    def parts(self, schema: pa.Schema) -> tuple["Partial", ...]:
        """The partial values that the result is made of, the main one first."""
        if self.column is None:
            return (ROWS,)
        if self.function not in ("sum", "mean"):
            return (Partial(self.function, self.column),)
        word, count = _word(schema.field(self.column).type), Partial("count", self.column)
        parts = Partial("sum", self.column, word), count
        return (*parts, OVER) if word else parts

    def kind(self, schema: pa.Schema) -> pa.DataType:
        """The type of the result."""
        if self.function == "mean":
            return pa.float64()
        kind = self.parts(schema)[0].kind(schema)
        if self.function == "sum" and kinds.is_decimal(kind):
            return pa.decimal128(DECIMAL_DIGITS_MAX, kind.scale)
        return kind


@dataclass(frozen=True, slots=True)
class Partial:
    """A partial value: `function` rows, count, sum, min or max, shared between aggregates; or
    `over`: how often sums have gone over 64 bits, of all for which `word` says what these are."""

    function: str
    column: str | None = None
    word: str = ""

    @property
    def name(self) -> str:
        """Its column in combined tables."""
        return f"#{self.function}" if self.column is None else f"#{self.function} {self.column}"

    def kind(self, schema: pa.Schema) -> pa.DataType:
        """Its type."""
        if self.function in ("rows", "count"):
            return pa.int64()
        kind = schema.field(self.column).type
        if self.function != "sum":
            return kind
        if kinds.is_decimal(kind):
            return pa.decimal256(WIDE_DECIMAL, kind.scale)
        if kinds.is_floating(kind):
            return pa.float64()
        return pa.uint64() if self.word == UNSIGNED else pa.int64()


ROWS, OVER = Partial("rows"), Partial("over")


def check(where: str, aggregates: Any, schema: pa.Schema) -> None:
    """Refuse what is not aggregates by name, of columns that they can take."""
    remedy = 'give at least one by its name, as {"n": count()}'
    argument_checks.check_kind(where, aggregates, Mapping, remedy)
    if not aggregates:
        refuse(where, "is empty", remedy)
    for name, aggregate in aggregates.items():
        if not isinstance(name, str) or not name:
            refuse(where, f"has the name {argument_checks.shown(name)}", "use texts as names")
        _check_aggregate(f"{where}: {name}", aggregate, schema)


def _check_aggregate(where: str, aggregate: Any, schema: pa.Schema) -> None:
    remedy = "use count(), or total, mean, smallest or largest of a column"
    argument_checks.check_kind(where, aggregate, Aggregate, remedy)
    function, column = aggregate.function, aggregate.column
    if function not in FUNCTIONS:
        what = f"has the function {argument_checks.shown(function)}"
        refuse(where, what, f"use one of: {', '.join(FUNCTIONS)}")
    if column is None:
        if function != "count":
            refuse(where, f"{function} has no column", "name the column to aggregate")
        return
    arrow_columns.check_columns(where, schema, [column])
    kind = schema.field(column).type
    if function in ("min", "max"):
        arrow_columns.check_keys(where, schema, [column])
    if function in ("sum", "mean"):
        _check_number(where, column, kind)


def _check_number(where: str, column: str, kind: pa.DataType) -> None:
    what = f"column {column!r} has type {kind}"
    if kinds.is_decimal256(kind):
        refuse(where, what, "make it a decimal of at most 38 digits in a map before")
    if not (kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind)):
        refuse(where, what, "use a column of integers, floats or decimals")


def _word(kind: pa.DataType) -> str:
    """What the 64 bits of a sum are where few values can leave them; else nothing."""
    if kinds.is_int64(kind):
        return SIGNED
    return UNSIGNED if kinds.is_uint64(kind) else ""


def partials(aggregates: Mapping[str, Aggregate], schema: pa.Schema) -> tuple[Partial, ...]:
    """The partial values of all aggregates, each once: the number of rows first, OVER last."""
    parts = [part for aggregate in aggregates.values() for part in aggregate.parts(schema)]
    found = dict.fromkeys([ROWS, *parts])
    return tuple(sorted(found, key=lambda part: part == OVER))


def fields(parts: Sequence[Partial], schema: pa.Schema) -> list[pa.Field]:
    """The columns of combined tables for some partial values of rows with that schema."""
    over = pa.field(OVER.name, pa.binary(8 * len(_wide(parts))))
    return [over if part == OVER else pa.field(part.name, part.kind(schema)) for part in parts]


@dataclass(frozen=True, slots=True)
class PartialLayout:
    """What is known of partial values before there are rows: `names` of their columns, and of those
    that are sums of whole numbers their places and words, from rows and from partial values."""

    parts: tuple[Partial, ...]
    names: tuple[str, ...]
    summed: tuple[int, ...]
    merged: tuple[int, ...]
    words: tuple[str, ...]
    wide: int


def layout(parts: tuple[Partial, ...], schema: pa.Schema) -> PartialLayout:
    """The layout of partial values of rows with that schema."""
    names = tuple(part.name for part in parts)
    added = [part.function in ("rows", "count", "sum") for part in parts]
    whole = [part != OVER and kinds.is_integer(part.kind(schema)) for part in parts]
    merged = tuple(i for i, _ in enumerate(parts) if added[i] and whole[i])
    summed = tuple(i for i in merged if parts[i].function == "sum")
    words = tuple(part.word for part in parts)
    return PartialLayout(parts, names, summed, merged, words, len(_wide(parts)))


def combine(how: PartialLayout, table: pa.Table, groups: RowGroups) -> list[pa.Array]:
    """The partial values per group from rows as they come."""
    rows = pa.array(np.bincount(groups.ids, minlength=groups.count))
    arrays: dict[str, pa.Array] = {}
    made: list[Any] = []
    numbers: list[arrow_columns.Integers] = []
    for place, part in enumerate(how.parts):
        if part.column is None:
            made.append(rows)
            continue
        array = arrays.get(part.column)
        if array is None:
            array = arrays[part.column] = arrow_columns.whole(table[part.column])
        if place in how.summed:
            numbers.append(arrow_columns.integers(array))
            made.append(None)
        else:
            made.append(_combined(part, array, groups, rows))
    return _with_sums(how, how.summed, made, numbers, None, groups)


def _combined(part: Partial, array: pa.Array, groups: RowGroups, rows: pa.Array) -> pa.Array:
    if part.function == "count":
        present = arrow_columns.valid(array)
        if present is None:
            return rows
        return pa.array(np.bincount(groups.ids[present], minlength=groups.count))
    if part.function != "sum":
        return grouping.extreme(groups, array, part.function == "min")
    if kinds.is_decimal(array.type):
        return decimals(groups, array)
    return pa.array(grouping.add(groups, _floats(array)))


def merge(how: PartialLayout, table: pa.Table, groups: RowGroups) -> list[pa.Array]:
    """The partial values per group from partial values."""
    made: list[Any] = []
    numbers: list[arrow_columns.Integers] = []
    over = None
    for place, name in enumerate(how.names):
        array, part = arrow_columns.whole(table[name]), how.parts[place]
        if place in how.merged:
            numbers.append(arrow_columns.integers(array))
            made.append(None)
        elif part.function in ("min", "max"):
            made.append(grouping.extreme(groups, array, part.function == "min"))
        elif part.function == "over":
            over = over_counts(array)
            made.append(None)
        elif kinds.is_decimal(array.type):
            made.append(decimals(groups, array))
        else:
            made.append(pa.array(grouping.add(groups, array.to_numpy())))
    return _with_sums(how, how.merged, made, numbers, over, groups)


def _with_sums(
    how: PartialLayout,
    places: Sequence[int],
    made: list[Any],
    numbers: Sequence[arrow_columns.Integers],
    over: arrow_columns.Integers | None,
    groups: RowGroups,
) -> list[pa.Array]:
    """All partial values: those that are made, and sums of whole numbers in their places."""
    if numbers:
        words = [how.words[place] for place in places]
        added, over = whole_numbers(groups, np.array(numbers), words, over)
        for place, row in zip(places, added, strict=True):
            unsigned = how.words[place] == UNSIGNED
            made[place] = pa.array(row.view(np.uint64) if unsigned else row)
    if how.wide:
        made[-1] = over_column(over, how.wide, groups.count)
    return made


def _wide(parts: Sequence[Partial]) -> list[Partial]:
    """The sums that may leave 64 bits, as OVER has them."""
    return [part for part in parts if part.word]


def completed(parts: Sequence[Partial], table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Partial values of a state that was written before sums had 128 bits, as these are now."""
    if table.schema.equals(schema):
        return table
    if OVER in parts and OVER.name not in table.column_names:
        over = over_column(None, len(_wide(parts)), table.num_rows)
        table = table.append_column(OVER.name, over)
    arrays = [
        pa.array(arrow_columns.integers(arrow_columns.whole(column)).view(np.uint64))
        if kinds.is_uint64(field.type) and kinds.is_int64(column.type)
        else column
        for field, column in zip(schema, table.columns, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def result(
    aggregate: Aggregate, parts: Sequence[Partial], table: pa.Table, schema: pa.Schema
) -> pa.Array:
    """The aggregate per row of a table of the partial values `parts` of rows with that schema.
    Raises Overflow for a sum that does not fit its type."""
    main_part, *rest = aggregate.parts(schema)
    main = arrow_columns.whole(table[main_part.name])
    if not rest:
        return main
    counts = arrow_columns.whole(table[rest[0].name]).to_numpy()
    if kinds.is_decimal(main.type):
        return _decimals(aggregate, main, counts)
    if kinds.is_floating(main.type):
        values = main.to_numpy()
        values = values / np.maximum(counts, 1) if aggregate.function == "mean" else values
        return pa.array(values, mask=counts == 0)
    low, signed, over = arrow_columns.integers(main), main_part.word != UNSIGNED, None
    if main_part.word:
        all_over = over_counts(arrow_columns.whole(table[OVER.name]))
        over = None if all_over is None else all_over[_wide(parts).index(main_part)]
    if aggregate.function == "mean":
        return pa.array(quotients(low, over, signed, counts), mask=counts == 0)
    if over is not None and over.any():
        raise Overflow(int(np.flatnonzero(over)[0]), main_part.column or "")
    return pa.array(low if signed else low.view(np.uint64), mask=counts == 0)


def _decimals(aggregate: Aggregate, main: pa.Array, counts: np.ndarray) -> pa.Array:
    """Sums of decimals with as many digits as there may be, or their means."""
    numbers, scale = unscaled(main), main.type.scale
    if aggregate.function == "mean":
        divisors = (max(1, count) * 10**scale for count in counts.tolist())
        means = [number / by for number, by in zip(numbers, divisors, strict=True)]
        return pa.array(np.array(means, np.float64), mask=counts == 0)
    for row, number in enumerate(numbers):
        if abs(number) >= 10**DECIMAL_DIGITS_MAX:
            raise Overflow(row, aggregate.column or "")
    present = pa.array(counts != 0)
    nothing = pa.scalar(None, main.type)
    return pc.if_else(present, main, nothing).cast(pa.decimal128(DECIMAL_DIGITS_MAX, scale))


def _floats(array: pa.Array) -> np.ndarray:
    """Values as float64, nulls as 0."""
    filled = array.fill_null(0) if array.null_count else array
    return np.asarray(filled, np.float64)


INT64_MAX = 2**63 - 1
LOWER = np.int64(2**32 - 1)
# Columns in which nothing has gone over are kept for the next: with 256 of five sums 10 MiB.
CACHED_ROWS_MAX = 1000
# What the lower 64 bits of a sum of 128 are.
SIGNED, UNSIGNED = "signed", "unsigned"
# What sums of decimals are kept in: 10**38 rows of 38 digits would not fill it.
WIDE_DECIMAL = 76
EXACT = decimal.Context(prec=WIDE_DECIMAL + 1, traps=[])


class Overflow(ArithmeticError):
    """The sum of a column in a `row` of partial values does not fit its type."""

    def __init__(self, row: int, column: str) -> None:
        super().__init__(row, column)
        self.row, self.column = row, column


def whole_numbers(
    groups: RowGroups, values: Integers, words: Sequence[str], over: Integers | None
) -> tuple[Integers, Integers | None]:
    """Sums per group of several columns of int64, which are the rows of `values`.

    `words` says of each column what its 64 bits are (uint64 goes by its bits), and is empty where
    its sums cannot leave them. `over` has for each column that can, how often its values have gone
    over; None is nowhere. So with what is returned.
    """
    if over is None and _fit(values, words):
        return grouping.add_all(groups, values), None
    wide = [place for place, word in enumerate(words) if word]
    sums = grouping.add_all(groups, values)
    gone = np.zeros((len(wide), groups.count), np.int64)
    for row, place in enumerate(wide):
        before = None if over is None else over[row]
        gone[row] = _over(groups, values[place], sums[place], words[place] == SIGNED, before)
    return sums, gone if gone.any() else None


def over_column(over: Integers | None, columns: int, rows: int) -> pa.Array:
    """How often the sums of some columns have gone over, as one column of bytes."""
    if over is None and rows <= CACHED_ROWS_MAX:
        return _nowhere(columns, rows)
    if over is None:
        return _column(np.zeros(rows * columns, np.int64), columns, rows)
    return _column(np.ascontiguousarray(over.T), columns, rows)


@lru_cache(maxsize=256)
def _nowhere(columns: int, rows: int) -> pa.Array:
    """Nearly always the same for so many rows."""
    return _column(np.zeros(rows * columns, np.int64), columns, rows)


def _column(data: Integers, columns: int, rows: int) -> pa.Array:
    buffer = pa.py_buffer(data.astype("<i8", copy=False))
    return pa.Array.from_buffers(pa.binary(8 * columns), rows, [None, buffer])


def over_counts(array: pa.Array) -> Integers | None:
    """The inverse of `over_column`: a row for each column, or None where none has gone over."""
    columns, data = array.type.byte_width // 8, array.buffers()[1]
    found = np.frombuffer(data, "<i8", len(array) * columns, array.offset * array.type.byte_width)
    return found.reshape(len(array), columns).T if found.any() else None


def quotients(low: Integers, over: Integers | None, signed: bool, counts: Integers) -> np.ndarray:
    """Sums by their counts, as float64; each is the number that is nearest."""
    divisors = np.maximum(counts, 1)
    least, greatest = (int(low.min()), int(low.max())) if len(low) else (0, 0)
    is_small = max(greatest, -least) < 2**53 and (signed or least >= 0)
    if over is None and is_small:
        return np.asarray(low / divisors)
    numbers = (low if signed else low.view(np.uint64)).tolist()
    gone = [0] * len(low) if over is None else over.tolist()
    wholes = (number + (times << 64) for number, times in zip(numbers, gone, strict=True))
    means = [whole / count for whole, count in zip(wholes, divisors.tolist(), strict=True)]
    return np.array(means, np.float64)


def decimals(groups: RowGroups, array: pa.Array) -> pa.Array:
    """Sums of decimals, exact, with 76 digits and the scale of `array`; nulls count as nothing."""
    scale = array.type.scale
    sums = [0] * groups.count
    for group, number in zip(groups.ids.tolist(), unscaled(array), strict=True):
        sums[group] += number
    numbers = [EXACT.scaleb(decimal.Decimal(number), -scale) for number in sums]
    return pa.array(numbers, pa.decimal256(WIDE_DECIMAL, scale))


def unscaled(array: pa.Array) -> list[int]:
    """Decimals without their point, as Python's whole numbers; nulls as 0."""
    width = array.type.byte_width
    data = bytes(array.buffers()[1])[array.offset * width : (array.offset + len(array)) * width]
    numbers = [
        int.from_bytes(data[place : place + width], "little", signed=True)
        for place in range(0, len(data), width)
    ]
    if array.null_count:
        for row in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist():
            numbers[row] = 0
    return numbers


def _fit(values: Integers, words: Sequence[str]) -> bool:
    """Whether no sum of some of these values can leave 64 bits."""
    if values.size == 0 or not any(words):
        return True
    least, rows = int(values.min()), values.shape[1]
    if least < 0 and UNSIGNED in words:
        return False  # a number above 2**63, perhaps
    return bool(max(int(values.max()), -least) * rows <= INT64_MAX)


def _over(
    groups: RowGroups, values: Integers, sums: Integers, signed: bool, before: Integers | None
) -> Integers:
    """How often the sums of one column have gone over, by adding halves of numbers."""
    bottoms = grouping.add(groups, values & LOWER)
    tops = grouping.add(groups, values >> 32 & LOWER)
    # each is below 2**32 for each row, so neither leaves 63 bits
    carried = (tops + (bottoms >> 32)) >> 32
    if not signed:
        return np.asarray(carried if before is None else carried + grouping.add(groups, before))
    words = values >> 63 if before is None else (values >> 63) + before
    return np.asarray(grouping.add(groups, words) + carried - (sums >> 63))
