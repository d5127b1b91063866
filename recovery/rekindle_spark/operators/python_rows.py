"""Arrow columns as rows of Python values, as users' functions take them, and back.

Called by `stateful`, whose users see rows one by one: what is done here is done for every row.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from types import NoneType
from typing import Any, cast

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
    if kinds.is_integer(kind):
        # With the type given, Arrow would cut 1.5 down to 1 without a word.
        array = pa.array(values)
        numbers = (kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_null)
        if not any(is_kind(array.type) for is_kind in numbers):
            raise TypeError(f"found {array.type}")
        return array.cast(kind)
    return pa.array(values, kind)
