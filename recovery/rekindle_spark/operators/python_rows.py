"""Arrow columns as rows of Python values, as users' functions take them, and back.

Called by `stateful`, whose users see rows one by one: what is done here is done for every row.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time
from functools import lru_cache
from types import NoneType
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from rekindle_spark.operators import arrow_columns

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
# of these no part of a value of Python's is lost
WHOLE_TIMES = (pa.timestamp("us"), pa.time64("us"), pa.duration("us"))


def tuples(held: Sequence[pa.ChunkedArray | pa.Array], rows: int) -> list[Value]:
    """Columns of so many rows as a tuple for each row."""
    if not held:
        return [()] * rows
    return list(zip(*(arrow_columns.python_values(column) for column in held), strict=True))


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
    array = pa.array(values, kind)
    if kinds.is_temporal(kind) and kind not in WHOLE_TIMES:
        _check_times(values, array)
    return array


def _check_times(values: Sequence[Any], array: pa.Array) -> None:
    """Refuse times that a coarse type has cut, as Arrow does without a word."""
    for given, kept in zip(values, array, strict=True):
        if given is not None and not isinstance(given, pa.Scalar) and _differs(given, kept.as_py()):
            raise TypeError(
                f"found {given!r:.60}, of which {array.type} keeps {kept.as_py()!s:.40}"
            )


def _differs(given: Any, kept: Any) -> bool:
    """Whether a time is another one now; numbers, which are in the type's unit, are as they are."""
    if isinstance(given, datetime) and isinstance(kept, date) and not isinstance(kept, datetime):
        kept = datetime.combine(kept, time())
    if isinstance(given, datetime) and isinstance(kept, datetime):
        return _instant(given) != _instant(kept)
    return type(given) is type(kept) and bool(given != kept)


def _instant(moment: datetime) -> datetime:
    """A time without a zone is taken for one of UTC, as Arrow does."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _integer(value: Any) -> int | None:
    """A value for a column of integers, by itself: Arrow would cut 1.5 down to 1 without a word,
    or, without the type, take True for 1 where no number is beside it."""
    if value is None:
        return None
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    if isinstance(value, bool) or not (whole or isinstance(value, int | np.integer)):
        raise TypeError(f"found {value!r:.60}")
    return int(value)
