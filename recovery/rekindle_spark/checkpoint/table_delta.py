"""The difference between two tables: stretches of old rows, and new rows.

Works for the tables of any operator, as it knows nothing of keys: rows are told apart by two hashes
of their content, and their order is kept. So a checkpoint writes what has changed, and the table
that is put together again is the very same. Pure; `state_files` writes and reads it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from rekindle_spark.operators.arrow_columns import whole

Hashes = npt.NDArray[np.uint64]
SEEDS = (1, 2)
FRESH = -1
WORDS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
# of splitmix64
PLACE_FACTOR, ITEM_FACTOR = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
SHIFT = np.uint64(27)


@dataclass(frozen=True, slots=True)
class Marks:
    """Two hashes of each row of a table. They hold within one process."""

    first: Hashes
    second: Hashes

    def __len__(self) -> int:
        return len(self.first)


def marks(table: pa.Table) -> Marks:
    """The marks of a table's rows. Every value counts by its bits: 0.0 and -0.0 are two, and so are
    two kinds of NaN, wherever they are in a column.

    Raises polars' or Arrow's errors for types that cannot be hashed.
    """
    return Marks(*(_row_hashes(table.columns, table.num_rows, seed) for seed in SEEDS))


def changes(before: Marks, after: Marks, table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Runs and fresh rows of `table`, whose marks are `after`.

    A run is `begin`, the row of the table before at which it begins, or -1 for fresh rows, and
    `rows`, their number.
    """
    places = _places(before, after)
    breaks = np.flatnonzero(np.diff(places) != np.where(places[:-1] == FRESH, 0, 1)) + 1
    begins = np.concatenate([[0], breaks]) if len(places) else np.zeros(0, np.int64)
    begins = begins.astype(np.int64)
    rows = np.diff(np.concatenate([begins, [len(places)]])) if len(places) else begins
    runs = pa.table({"begin": places[begins], "rows": rows.astype(np.int64)})
    return runs, table.take(pa.array(np.flatnonzero(places == FRESH)))


def apply(table: pa.Table, runs: pa.Table, fresh: pa.Table) -> pa.Table:
    """The table that `changes` was given, from the one before it."""
    begins, rows = runs["begin"].to_numpy(), runs["rows"].to_numpy()
    is_fresh = begins == FRESH
    taken = np.cumsum(np.where(is_fresh, rows, 0)) - np.where(is_fresh, rows, 0)
    starts = np.where(is_fresh, table.num_rows + taken, begins)
    offsets = np.cumsum(rows) - rows
    numbers = np.repeat(starts - offsets, rows) + np.arange(rows.sum())
    return pa.concat_tables([table, fresh]).take(pa.array(numbers)).combine_chunks()


def _places(before: Marks, after: Marks) -> npt.NDArray[np.int64]:
    """Where each row stood before; -1 where it did not."""
    if not len(before):
        return np.full(len(after), FRESH, np.int64)
    order = np.lexsort((before.second, before.first))
    found = np.searchsorted(before.first[order], after.first)
    candidates = order[np.minimum(found, len(order) - 1)]
    same = (before.first[candidates] == after.first) & (before.second[candidates] == after.second)
    return np.where(same, candidates, FRESH).astype(np.int64)


def _row_hashes(columns: Sequence[pa.ChunkedArray | pa.Array], rows: int, seed: int) -> Hashes:
    """A hash of the values that a row has in some columns."""
    parts = [part for column in columns for part in _parts(whole(column), seed)]
    if not parts or not rows:
        return np.zeros(rows, np.uint64)
    frame = pl.from_arrow(pa.table(parts, names=[str(place) for place in range(len(parts))]))
    assert isinstance(frame, pl.DataFrame)
    return frame.hash_rows(seed=seed).to_numpy()


def _parts(array: pa.Array, seed: int) -> list[pa.Array]:
    """A column as columns of whole numbers and bytes, of which polars changes nothing: it hashes
    0.0 as -0.0, and makes milliseconds of seconds, which then may be another's."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _parts(array.storage, seed)
    if kinds.is_null(kind):
        return []
    if kinds.is_struct(kind):
        inner = [part for child in array.flatten() for part in _parts(child, seed)]
        return [array.is_valid(), *inner]
    if kinds.is_nested(kind):
        return _list_parts(array, seed)
    if kinds.is_string(kind) or kinds.is_large_string(kind):
        return [array.cast(pa.large_binary())]
    if kinds.is_decimal(kind) and kind.bit_width > 64:
        return [array.view(pa.binary(kind.byte_width))]
    if kinds.is_primitive(kind) and not kinds.is_boolean(kind):
        return [array.view(WORDS[kind.bit_width])]
    return [array]


def _list_parts(array: pa.Array, seed: int) -> list[pa.Array]:
    """Of lists and maps how long each is, and a hash of its items in their order."""
    kind = array.type
    if kinds.is_map(kind):
        entries = pa.struct([kind.key_field, kind.item_field])
        array = array.cast(pa.list_(pa.field("entries", entries, nullable=False)))
    lengths = pc.list_value_length(array)
    sizes = np.asarray(lengths.fill_null(0)).astype(np.int64)
    items = array.flatten()
    hashed = _row_hashes([items], len(items), seed)
    ends = np.cumsum(sizes)
    places = np.arange(len(items)) - np.repeat(ends - sizes, sizes)
    turned = (hashed ^ (places.astype(np.uint64) * PLACE_FACTOR)) * ITEM_FACTOR
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(turned ^ (turned >> SHIFT))])
    return [lengths, pa.array(sums[ends] - sums[ends - sizes])]
