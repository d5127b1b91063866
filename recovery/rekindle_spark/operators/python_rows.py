"""Arrow columns as rows of Python values, as users' functions take them, and back.

Called by `stateful`, whose users see rows one by one: what is done here is done for every row.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, cast

import pyarrow as pa
import pyarrow.types as kinds

from rekindle_spark.operators import columns

__all__ = ["Rows", "Value", "as_dicts", "tuples", "typed"]

Value = tuple[Any, ...]
Rows = list[dict[str, Any]]


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
