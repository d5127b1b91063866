"""States as tables and back, and tables in one piece.

Called by the operators for checkpoints; writes nothing itself (see `state_files`).
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from rekindle_spark.operators.arrow_columns import Integers, Mask


def concatenate(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables of one schema below one another, in one chunk per column."""
    filled = [table for table in tables if table.num_rows]
    if not filled:
        return tables[0]
    joined = filled[0] if len(filled) == 1 else pa.concat_tables(filled)
    return joined.combine_chunks()


def select_rows(table: pa.Table, rows: Integers | Mask) -> pa.Table:
    """A copy of rows given as a mask or by number, which keeps no larger buffer alive."""
    return table.take(pa.array(np.flatnonzero(rows) if rows.dtype == bool else rows))


def dump_scalars(**scalars: int) -> pa.Table:
    """Whole numbers as a table of one row."""
    return pa.table({name: pa.array([value], pa.int64()) for name, value in scalars.items()})


def load_scalars(table: pa.Table) -> dict[str, int]:
    """The inverse of `dump_scalars`."""
    return {name: int(table[name][0].as_py()) for name in table.column_names}
