"""Arrow columns as rows of Python values, as users' functions take them, and back.

Called by `stateful`, whose users see rows one by one: what is done here is done for every row.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from types import NoneType
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from rekindle_spark.operators import columns

__all__ = ["Rows", "Value", "are_exact", "as_dicts", "tuples", "typed"]

Value = tuple[Any, ...]
Rows = list[dict[str, Any]]

# what values of an Arrow type are in Python
EXACT = {
    pa.bool_(): bool,
    pa.int32(): int,
    pa.int64(): int,
    pa.float64(): float,
    pa.string(): str,
    pa.timestamp("us"): datetime,
}


def tuples(held: Sequence[pa.ChunkedArray | pa.Array], rows: int) -> list[Value]:
    """Columns of so many rows as a tuple for each row."""
    if not held:
        return [()] * rows
    return list(zip(*(columns.python_values(column) for column in held), strict=True))


@lru_cache(maxsize=256)
def as_dicts(names: tuple[str, ...]) -> Callable[[list[Value]], Rows]:
    """What makes dicts of tuples, in the order of `names`: a literal for these very columns,
    compiled, which takes a third of the time that `dict(zip(names, row))` does."""
    cells = [f"cell_{place}" for place in range(len(names))]
    row = ", ".join(f"{name!r}: {cell}" for name, cell in zip(names, cells, strict=True))
    made = eval(f"lambda rows: [{{{row}}} for {', '.join(cells)}, in rows]")
    return cast(Callable[[list[Value]], Rows], made)


def are_exact(rows: Sequence[Value], schema: pa.Schema) -> bool:
    """Whether rows that fit a schema would come back from a table as the very same values."""
    held = zip(zip(*rows, strict=True), schema, strict=True) if rows else ()
    return all(_is_exact(values, field.type) for values, field in held)


def _is_exact(values: Value, kind: pa.DataType) -> bool:
    found = set(map(type, values)) - {NoneType}
    if not found <= {EXACT.get(kind)}:
        return False
    if datetime not in found:
        return True
    return all(value is None or (value.tzinfo is None and not value.fold) for value in values)


def typed(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values as an array of a type; raises TypeError, ValueError, OverflowError or ArrowException
    where they are of another."""
    if kinds.is_integer(kind) and not set(map(type, values)) <= {int, NoneType}:
        values = [_integer(value) for value in values]
    return pa.array(values, kind)


def _integer(value: Any) -> int | None:
    """A value for a column of integers, by itself: Arrow would cut 1.5 down to 1 without a word,
    or, without the type, take True for 1 where no number is beside it."""
    if value is None:
        return None
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    if isinstance(value, bool) or not (whole or isinstance(value, int | np.integer)):
        raise TypeError(f"found {value!r:.60}")
    return int(value)
