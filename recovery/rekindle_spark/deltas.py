"""What has changed in a table since another: stretches of rows that were there, and fresh rows.

Works for the tables of any operator, as it knows nothing of keys: rows are told apart by two hashes
of their content, and their order is kept. So a checkpoint writes what has changed, and the table
that is put together again is the very same. Pure; `states` writes and reads it.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.types as kinds

__all__ = ["Marks", "apply", "changes", "marks"]

Hashes = npt.NDArray[np.uint64]
SEEDS = (1, 2)
FRESH = -1
RUN_BYTES = 16


@dataclass(frozen=True, slots=True)
class Marks:
    """Two hashes of each row of a table. They hold within one process."""

    first: Hashes
    second: Hashes

    def __len__(self) -> int:
        return len(self.first)


def marks(table: pa.Table) -> Marks:
    """The marks of a table's rows.

    Raises polars' or Arrow's errors for types that cannot be hashed. Floats count by their bits.
    """
    columns = [_plain(column) for column in table.columns]
    frame = pl.from_arrow(pa.table(columns, names=[str(n) for n in range(len(columns))]))
    assert isinstance(frame, pl.DataFrame)
    if not frame.width or not frame.height:
        empty = np.zeros(table.num_rows, np.uint64)
        return Marks(empty, empty)
    return Marks(*(frame.hash_rows(seed=seed).to_numpy() for seed in SEEDS))


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


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floats as their bits: 0.0 and -0.0 are two, and so are two kinds of NaN."""
    if not kinds.is_floating(column.type):
        return column
    bits = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[column.type.bit_width]
    return pa.chunked_array([chunk.view(bits) for chunk in column.chunks], bits)
