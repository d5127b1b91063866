"""Arrow columns as rows of Python values, as users' functions take them, and back.

Called by `stateful`, whose users see rows one by one: what is done here is done for every row.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
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
BEGIN = datetime(1970, 1, 1)
FLOATS = (float, np.floating)


def tuples(held: Sequence[pa.ChunkedArray | pa.Array], rows: int) -> list[Value]:
    """Columns of so many rows as a tuple for each row."""
    if not held:
        return [()] * rows
    return list(zip(*(arrow_columns.python_values(column) for column in held), strict=True))


def identities(held: Sequence[pa.ChunkedArray | pa.Array], rows: int) -> list[Value]:
    """Keys as what dicts may find them by: times with a zone as those of UTC. Python takes the two
    hours that a clock shows twice, when it is set back, for one."""
    return tuples([_in_utc(column) for column in held], rows)


def _in_utc(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    kind = column.type
    zoned = kinds.is_timestamp(kind) and kind.tz is not None
    return column.cast(pa.timestamp(kind.unit, "UTC")) if zoned else column


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
    where they are of another, or it would hold others than these."""
    if kinds.is_integer(kind) and not set(map(type, values)) <= {int, NoneType}:
        values = [_integer(value) for value in values]
    array = pa.array(values, kind)
    if kinds.is_temporal(kind):
        _check_times(values, array)
    elif kinds.is_float32(kind) or kinds.is_float16(kind):
        _check_reach(values, array)
    elif kinds.is_nested(kind):
        for inner, inner_kind in _inside(values, kind):
            typed(inner, inner_kind)
    return array


def _inside(values: Sequence[Any], kind: pa.DataType) -> Iterator[tuple[list[Any], pa.DataType]]:
    """What is in nested values, by its type: Arrow cuts that as it cuts what is not nested, and
    passes over fields that a struct does not have. Arrow's own values have their types."""
    present = [v for v in values if v is not None and not isinstance(v, pa.Scalar | pa.Array)]
    if kinds.is_struct(kind):
        fields = {field.name: field.type for field in kind.fields}
        rows = [
            dict(zip(fields, value, strict=True)) if isinstance(value, tuple) else dict(value)
            for value in present
        ]
        for row in rows:
            if not row.keys() <= fields.keys():
                raise TypeError(f"found {row!r:.60}, which has fields that {kind} has not")
        for name, inner in fields.items():
            yield [row.get(name) for row in rows], inner
    elif kinds.is_map(kind):
        items = [value.items() if isinstance(value, Mapping) else value for value in present]
        pairs = [pair for given in items for pair in given]
        yield [key for key, _ in pairs], kind.key_type
        yield [item for _, item in pairs], kind.item_type
    else:
        for value in present:
            if isinstance(value, str | bytes):
                raise TypeError(f"found {value!r:.60}, which is no list")
        yield [item for value in present for item in value], kind.value_type


def _check_reach(values: Sequence[Any], array: pa.Array) -> None:
    """Refuse numbers of which a short float makes infinity."""
    numbers = array.to_numpy(zero_copy_only=False).astype(np.float64)
    for place in np.flatnonzero(np.isinf(numbers)).tolist():
        if not isinstance(values[place], pa.Scalar) and not np.isinf(float(values[place])):
            raise TypeError(f"found {values[place]!r:.60}, for which {array.type} is too short")


def _check_times(values: Sequence[Any], array: pa.Array) -> None:
    """Refuse times that a coarse type has cut, as Arrow does without a word."""
    if array.type in WHOLE_TIMES and not any(issubclass(t, FLOATS) for t in set(map(type, values))):
        return
    for given, kept in zip(values, array, strict=True):
        if given is None or isinstance(given, pa.Scalar):
            continue
        if isinstance(given, FLOATS):
            is_cut = not float(given).is_integer()
        else:
            is_cut = _differs(given, kept.as_py())
        if is_cut:
            raise TypeError(f"found {given!r:.60}, of which {array.type} keeps {kept!s:.40}")


def _differs(given: Any, kept: Any) -> bool:
    """Whether a time is another one now; whole numbers, of the type's unit, are as they are."""
    if isinstance(given, datetime) and isinstance(kept, date) and not isinstance(kept, datetime):
        kept = datetime.combine(kept, time())
    if isinstance(given, datetime) and isinstance(kept, datetime):
        return _instant(given) != _instant(kept)
    return type(given) is type(kept) and bool(given != kept)


def _instant(moment: datetime) -> timedelta:
    """The time since 1970, by which times of all zones compare: Python finds one that a clock shows
    twice unlike any of another zone. One without a zone is taken for UTC, as Arrow does."""
    return moment.replace(tzinfo=None) - BEGIN - (moment.utcoffset() or timedelta())


def _integer(value: Any) -> int | None:
    """A value for a column of integers, by itself: Arrow would cut 1.5 down to 1 without a word,
    or, without the type, take True for 1 where no number is beside it."""
    if value is None:
        return None
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    if isinstance(value, bool) or not (whole or isinstance(value, int | np.integer)):
        raise TypeError(f"found {value!r:.60}")
    return int(value)
