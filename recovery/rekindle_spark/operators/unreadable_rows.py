"""Rows that Python has values for: text that is no UTF-8 and years above 9999 are none.

Where a user's function is to be given such a row, the row is at fault, as if the function had
raised for it. Called by `stateful` once rows could not be had as Python's values.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from rekindle_spark.operators import arrow_columns, state_tables
from rekindle_spark.operators.arrow_columns import Integers
from rekindle_spark.user_code.dead_letter_sieve import Sieve


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
