"""Arrow columns as rows of Python values, as users' functions take them, and back.

Called by `stateful`, whose users see rows one by one: what is done here is done for every row.
Python has no values for text that is no UTF-8 and for years above 9999. Where a user's function is
to be given such a row, the row is at fault, as if the function had raised for it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from math import isfinite
from types import NoneType
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from rekindle_spark.operators import arrow_columns, state_tables
from rekindle_spark.operators.arrow_columns import Integers
from rekindle_spark.user_code.dead_letter_sieve import Sieve

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
WHOLE_TIMES = (pa.timestamp("us"), pa.duration("us"))
BEGIN = datetime(1970, 1, 1)
FLOATS = (float, np.floating)
NUMBERS = (*FLOATS, Decimal)
INTEGERS = frozenset(np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64))
# what has been checked against its type, or has no parts
OWN = (NoneType, pa.Scalar, pa.Array, pa.ChunkedArray)
# Arrow would make lists of the letters, and of what a mask hides
NO_LISTS = (str, bytes, np.ma.MaskedArray)


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
    if kinds.is_integer(kind):
        values = _integers(values)
    array = pa.array(values, kind)
    if kinds.is_temporal(kind):
        _check_times(values, array)
    elif kinds.is_float32(kind) or kinds.is_float16(kind):
        _check_reach(values, array)
    elif kinds.is_nested(kind):
        _check_inside(values, kind)
    return array


def _check_inside(values: Sequence[Any], kind: pa.DataType) -> None:
    """Refuse nested values that Arrow has cut: it does so as with what is not nested."""
    for inner, inner_kind in _inside(values, kind):
        if kinds.is_nested(inner_kind):
            _check_inside(inner, inner_kind)
        elif kinds.is_integer(inner_kind):
            _integers(inner)
        else:
            typed(inner, inner_kind)


def _inside(
    values: Sequence[Any], kind: pa.DataType
) -> Iterator[tuple[Sequence[Any], pa.DataType]]:
    """What is in nested values, by its type, where Arrow may have cut it. Arrow's own values have
    their types."""
    own = {found for found in set(map(type, values)) if issubclass(found, OWN)}
    present = [value for value in values if type(value) not in own] if own else values
    if kinds.is_struct(kind):
        yield from _fields(present, kind)
    elif kinds.is_map(kind):
        items = [value.items() if isinstance(value, Mapping) else value for value in present]
        pairs = [pair for given in items for pair in given]
        yield pairs, pa.struct([kind.key_field, kind.item_field])
    else:
        if any(issubclass(found, NO_LISTS) for found in set(map(type, present))):
            wrong = next(value for value in present if isinstance(value, NO_LISTS))
            raise TypeError(f"found {wrong!r:.60}, which is no list")
        if _may_be_cut(kind.value_type):
            yield _items(present, kind.value_type), kind.value_type


def _fields(rows: Sequence[Any], kind: pa.DataType) -> Iterator[tuple[Sequence[Any], pa.DataType]]:
    """What is in the fields of structs. Arrow passes over fields that a struct does not have."""
    names = {field.name for field in kind.fields}
    are_tuples = all(issubclass(found, tuple) for found in set(map(type, rows)))
    if not are_tuples:
        rows = [
            dict(zip(kind.names, row, strict=True)) if isinstance(row, tuple) else dict(row)
            for row in rows
        ]
        for row in rows:
            if not row.keys() <= names:
                raise TypeError(f"found {row!r:.60}, which has fields that {kind} has not")
    for place, field in enumerate(kind.fields):
        if _may_be_cut(field.type):
            cells = [row[place] if are_tuples else row.get(field.name) for row in rows]
            yield cells, field.type


def _items(lists: Sequence[Any], kind: pa.DataType) -> list[Any]:
    """What is in lists, but for arrays of numpy that Arrow takes over as they are: there may be
    many numbers in them. It flattens others, for lists of a fixed size."""
    exact = _dtypes(kind)
    items: list[Any] = []
    for given in lists:
        if not isinstance(given, np.ndarray):
            items.extend(given)
        elif given.dtype not in exact:
            items.extend(given.ravel())
    return items


def _may_be_cut(kind: pa.DataType) -> bool:
    """Whether Arrow makes other values of some than they are, without an error."""
    return bool(
        kinds.is_integer(kind)
        or kinds.is_temporal(kind)
        or kinds.is_float32(kind)
        or kinds.is_float16(kind)
        or kinds.is_nested(kind)
    )


@lru_cache(maxsize=256)
def _dtypes(kind: pa.DataType) -> frozenset[np.dtype[Any]]:
    """Of which types of numpy's Arrow cuts nothing, or raises an error of its own."""
    if kinds.is_integer(kind):
        return INTEGERS
    if kinds.is_float32(kind) or kinds.is_float16(kind):
        return frozenset([np.dtype(kind.to_pandas_dtype())])
    if kinds.is_timestamp(kind) or kinds.is_duration(kind):
        letter = "M" if kinds.is_timestamp(kind) else "m"
        return frozenset([np.dtype(f"{letter}8[{kind.unit}]")])
    return frozenset()


def _check_reach(values: Sequence[Any], array: pa.Array) -> None:
    """Refuse numbers of which a short float makes infinity."""
    numbers = array.to_numpy(zero_copy_only=False).astype(np.float64)
    for place in np.flatnonzero(np.isinf(numbers)).tolist():
        if not isinstance(values[place], pa.Scalar) and not np.isinf(float(values[place])):
            raise TypeError(f"found {values[place]!r:.60}, for which {array.type} is too short")
    if kinds.is_float16(array.type):  # of longer ones Arrow tells it
        for given, kept in zip(values, numbers.tolist(), strict=True):
            if isinstance(given, int | np.integer) and given != kept:
                raise TypeError(f"found {given!r:.60}, of which {array.type} keeps {kept}")


def _check_times(values: Sequence[Any], array: pa.Array) -> None:
    """Refuse times that a coarse type has cut, as Arrow does without a word, and numbers that are
    no time of a day or no whole day, which would be read as others."""
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
    array.validate(full=True)


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


def _integers(values: Sequence[Any]) -> Sequence[Any]:
    """Values for a column of integers."""
    if set(map(type, values)) <= {int, NoneType}:
        return values
    return [_integer(value) for value in values]


def _integer(value: Any) -> int | pa.Scalar | None:
    """A value for a column of integers, by itself: Arrow would cut 1.5 down to 1 without a word,
    or, without the type, take True for 1 where no number is beside it. Of its own scalars it
    takes those of the very type."""
    if value is None or isinstance(value, pa.Scalar):
        return value
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    whole = isinstance(value, NUMBERS) and isfinite(value) and value == int(value)
    if isinstance(value, bool) or not (whole or isinstance(value, int | np.integer)):
        raise TypeError(f"found {value!r:.60}")
    return int(value)


def places(rows: pa.Table, due: Integers, sieve: Sieve | None, error: Exception) -> Integers:
    """The places in `due`, of rows, without those that cannot be read, which become dead letters.

    Raises StepError that names row and column where there are none, and `error` where all of the
    rows can be read one by one.
    """
    wrong = _unreadable(state_tables.select_rows(rows, due))
    if not wrong or sieve is None:
        raise error
    for place, why in sorted(wrong.items()):
        row = int(due[place])
        sieve.alone(rows.slice(row, 1), partial(_raise, why), row, always=True)
    return np.delete(due, list(wrong))


def _raise(error: Exception) -> None:
    raise error


def _unreadable(table: pa.Table) -> dict[int, Exception]:
    """The rows with values that Python has none for, each with an error that names the column."""
    found: dict[int, Exception] = {}
    for name in table.column_names:
        for row, error in _failing(arrow_columns.whole(table[name])):
            said = f"column {name!r}: {error}" if str(error) else f"column {name!r}"
            found.setdefault(row, ValueError(said))
    return found


def _failing(array: pa.Array) -> Iterator[tuple[int, Exception]]:
    """Places of values that cannot be had in Python."""
    spans = [(0, len(array))]
    while spans:
        begin, end = spans.pop()
        try:
            arrow_columns.python_values(array.slice(begin, end - begin))
        except Exception as error:
            if end - begin == 1:
                yield begin, error
            else:
                middle = (begin + end) // 2
                spans += [(begin, middle), (middle, end)]
