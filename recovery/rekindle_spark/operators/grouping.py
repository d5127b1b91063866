"""Rows with equal keys, and rows in order, in numpy.

Groups are numbered in the order in which their keys first appear, so that nothing depends on a
hash table's inner order. Called by the operators. Not with polars or Acero: they cost 0.1 to 0.4 ms
for five rows (this a tenth), and their order of summing floats is theirs to change.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from rekindle_spark.operators import arrow_columns
from rekindle_spark.operators.arrow_columns import Integers, Mask

CODE_MAX = 2**62
INT64_MAX = 2**63 - 1
# A table of so many places for each row is filled sooner than a hash table.
SPARSE_MAX, TABLE_MIN = 4, 1024
# Up to so many rows one call that adds up all columns takes less time than a call for each.
ROWS_AT_ONCE_MAX = 4_096


@dataclass(frozen=True, slots=True)
class RowGroups:
    """`ids`: the group of each row; `first`: the first row of each group."""

    ids: Integers
    first: Integers

    @property
    def count(self) -> int:
        """Number of groups."""
        return len(self.first)


@dataclass(frozen=True, slots=True)
class Ordered:
    """An array as int64 `values` with the same order (nulls: any value, and not in `valid`).

    A NaN is above all numbers, as in Spark. `dictionary` holds the sorted distinct values of
    types that are not numbers.
    """

    values: Integers
    valid: Mask | None
    kind: pa.DataType
    dictionary: pa.Array | None = None

    def decode(self, values: Integers, present: Mask) -> pa.Array:
        """Other int64 values of this order as an array; null where not `present`."""
        values, mask = np.where(present, values, 0), ~present
        if self.dictionary is not None:
            return self._of_kind(self.dictionary.take(pa.array(values, mask=mask)))
        if kinds.is_floating(self.kind):
            floats = _flip_negative(values).view(np.float64)
            return pa.array(floats.astype(self.kind.to_pandas_dtype()), self.kind, mask=mask)
        if kinds.is_uint64(self.kind):
            return pa.array((values ^ arrow_columns.INT64_MIN).view(np.uint64), mask=mask)
        if kinds.is_temporal(self.kind):
            width = np.int32 if self.kind.bit_width == 32 else np.int64
            return pa.array(values.astype(width), mask=mask).view(self.kind)
        return pa.array(values, mask=mask).cast(self.kind)

    def _of_kind(self, array: pa.Array) -> pa.Array:
        """What `arrow_columns.comparable` has made of values, as what they were."""
        if isinstance(self.kind, pa.BaseExtensionType):
            return pa.ExtensionArray.from_storage(self.kind, array)
        return array if array.type == self.kind else array.cast(self.kind)


def group(keys: Sequence[pa.Array | Integers], rows: int) -> RowGroups:
    """Group rows by equal keys: a null equals a null, a NaN a NaN, and 0.0 equals -0.0."""
    ids, distinct = np.zeros(rows, np.int64), 1
    for key in keys:
        codes, size = _spread(key)
        if distinct * size > CODE_MAX:
            codes, size = _codes(key)
        if distinct * size > CODE_MAX:
            ids, distinct = _codes(ids)
        ids = ids * size + codes if distinct > 1 else codes
        distinct *= size
    return _numbered(ids, distinct, rows)


def add(groups: RowGroups, values: np.ndarray) -> np.ndarray:
    """Sums per group of int64 or float64 values, added in the order of the rows."""
    if values.dtype == np.float64:
        return np.bincount(groups.ids, weights=values, minlength=groups.count)
    sums = np.zeros(groups.count, np.int64)
    np.add.at(sums, groups.ids, values)
    return sums


def add_all(groups: RowGroups, values: Integers) -> Integers:
    """Sums per group of several columns of int64, which are the rows of `values`."""
    if groups.count == values.shape[1]:  # each is alone
        return values
    sums = np.zeros((len(values), groups.count), np.int64)
    if values.shape[1] > ROWS_AT_ONCE_MAX:
        for column, total in zip(values, sums, strict=True):
            np.add.at(total, groups.ids, column)
        return sums
    places = groups.ids + np.arange(0, sums.size, groups.count)[:, None]
    np.add.at(sums.reshape(-1), places.reshape(-1), values.reshape(-1))
    return sums


def extreme(groups: RowGroups, array: pa.Array, smallest: bool) -> pa.Array:
    """The smallest or largest value per group, nulls ignored; null where there is none."""
    ordered = order_values(array)
    ids, values = groups.ids, ordered.values
    seen = np.ones(groups.count, bool)
    if ordered.valid is not None:
        ids, values = ids[ordered.valid], values[ordered.valid]
        seen = np.bincount(ids, minlength=groups.count) > 0
    best = np.full(groups.count, INT64_MAX if smallest else -INT64_MAX - 1, np.int64)
    (np.minimum if smallest else np.maximum).at(best, ids, values)
    return ordered.decode(best, seen)


def order_values(array: pa.Array) -> Ordered:
    """Map an array to int64 so that the order stays; see `Ordered`."""
    present, kind = arrow_columns.valid(array), array.type
    if kinds.is_floating(kind):
        plain = arrow_columns.canonical(array)
        filled = plain.fill_null(0) if plain.null_count else plain
        bits = filled.to_numpy(zero_copy_only=False).astype(np.float64).view(np.int64)
        return Ordered(_flip_negative(bits), present, kind)
    if arrow_columns.has_integers(kind):
        values = arrow_columns.integers(array)
        return Ordered(
            values ^ arrow_columns.INT64_MIN if kinds.is_uint64(kind) else values, present, kind
        )
    encoded = arrow_columns.comparable(array).dictionary_encode()
    order = pc.array_sort_indices(encoded.dictionary).to_numpy()
    ranks = np.zeros(max(1, len(order)), np.int64)
    ranks[order] = np.arange(len(order))
    codes = encoded.indices.fill_null(0) if encoded.null_count else encoded.indices
    dictionary = encoded.dictionary.take(pa.array(order))
    return Ordered(ranks[codes.to_numpy()], present, kind, dictionary)


def sort_rows(keys: Sequence[tuple[pa.Array, bool]]) -> Integers:
    """Row numbers in the order of `keys` (column, descending), nulls last, ties as they stand."""
    levels: list[Integers | Mask] = []
    for array, descending in keys:
        ordered = order_values(arrow_columns.whole(array))
        values = ~ordered.values if descending else ordered.values
        if ordered.valid is not None:
            levels.append(~ordered.valid)
            values = np.where(ordered.valid, values, 0)
        levels.append(values)
    return np.lexsort(levels[::-1])


def expand(counts: Integers) -> tuple[Integers, Integers]:
    """For counts (2, 0, 3): the item of each (0, 0, 2, 2, 2) and its place (0, 1, 0, 1, 2)."""
    items = np.repeat(np.arange(len(counts)), counts)
    places = np.arange(len(items)) - np.repeat(np.cumsum(counts) - counts, counts)
    return items, places


def _codes(key: pa.Array | Integers) -> tuple[Integers, int]:
    """Equal values as equal numbers, from 0 on in the order in which they first appear."""
    if isinstance(key, np.ndarray):
        array = pa.array(key)
    else:
        array = arrow_columns.canonical(arrow_columns.comparable(key))
    encoded = array.dictionary_encode("encode")
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


def _spread(key: pa.Array | Integers) -> tuple[Integers, int]:
    """Equal values as equal numbers from 0 on, not all of which need appear: of whole numbers that
    costs a fraction of `_codes`."""
    if isinstance(key, np.ndarray):
        values = key
    elif key.null_count or not arrow_columns.has_integers(key.type):
        return _codes(key)
    else:
        values = arrow_columns.integers(key)
    least = int(values.min()) if len(values) else 0
    return values - least, int(values.max()) - least + 1 if len(values) else 1


def _numbered(ids: Integers, distinct: int, rows: int) -> RowGroups:
    """Groups of rows with equal `ids`, which are below `distinct`."""
    if distinct > SPARSE_MAX * rows + TABLE_MIN:
        ids, distinct = _codes(ids)
    groups = np.full(distinct, -1)
    groups[ids[::-1]] = np.arange(rows - 1, -1, -1)
    first = np.sort(groups[groups >= 0])
    groups[ids[first]] = np.arange(len(first))
    return RowGroups(groups[ids], first)


def _flip_negative(bits: Integers) -> Integers:
    """IEEE bits to integers of the same order; its own inverse."""
    return bits ^ ((bits >> 63) & INT64_MAX)
