"""Exact sums per group: of whole numbers in 128 bits, and of decimals.

A sum of 128 bits is its lower 64, and how often it went over: by how many times 2**64 it differs
from these, as a number of their type. That is nought for nearly all data, and told for all columns
at once by their least and greatest value. Called by `aggregates`.
"""

import decimal
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from rekindle_spark.operators import grouping
from rekindle_spark.operators.arrow_columns import Integers
from rekindle_spark.operators.grouping import RowGroups

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
