"""Columns as rows of Python values and back: what fits a type, and what comes back the same."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rekindle_spark.operators import python_rows


def test_rows_are_dicts_whatever_columns_are_called() -> None:
    names = ("it's", 'a "b"\n', "lambda", "{x}")
    assert python_rows.as_dicts(names)([(1, 2, 3, 4), (5, 6, 7, 8)]) == [
        dict(zip(names, row, strict=True)) for row in ((1, 2, 3, 4), (5, 6, 7, 8))
    ]
    assert python_rows.as_dicts(("only",))([(1,), (2,)]) == [{"only": 1}, {"only": 2}]


ALIKE = [
    (pa.int64(), [1, 2**62, None]),
    (pa.float64(), [1.5, None]),
    (pa.float64(), [1, 2]),
    (pa.string(), ["a", None]),
    (pa.int8(), [1]),
    (pa.uint64(), [2**63, None]),
    (pa.timestamp("us"), [datetime(2013, 1, 1), None]),
    (pa.timestamp("us"), [datetime(2013, 1, 1, fold=1)]),
    (pa.timestamp("us"), [datetime(2013, 1, 1, tzinfo=UTC)]),
    (pa.int64(), [None]),
]


@pytest.mark.parametrize(("kind", "values"), ALIKE, ids=str)
def test_values_that_are_said_to_be_exact_come_back_from_a_table_as_they_are(
    kind: pa.DataType, values: list[Any]
) -> None:
    schema = pa.schema([("value", kind)])
    rows = [(value,) for value in values]
    back = python_rows.tuples([python_rows.typed(values, kind)], len(values))
    same = [repr(one) for one in back] == [repr(row) for row in rows]
    exact = python_rows.are_exact(rows, schema)
    assert same or not exact
    assert exact == (same and kind not in (pa.int8(), pa.uint64())), (
        "of other types nothing is said"
    )
    assert python_rows.are_exact([], schema)


INTEGERS = [
    (pa.int64(), True, False),
    (pa.int64(), np.True_, False),
    (pa.int64(), 1.5, False),
    (pa.int64(), float("nan"), False),
    (pa.int64(), "1", False),
    (pa.int64(), 2**63, False),
    (pa.int8(), 300, False),
    (pa.uint64(), -1, False),
    (pa.uint64(), 2**64 - 1, True),
    (pa.int64(), 2**60 + 1, True),
    (pa.int64(), np.int16(7), True),
    (pa.int64(), 2.0, True),
    (pa.int64(), None, True),
]


@pytest.mark.parametrize(("kind", "value", "fits"), INTEGERS, ids=str)
@pytest.mark.parametrize("others", [[], [1], [1.0], [None]], ids=str)
def test_whether_an_integer_fits_does_not_depend_on_what_is_beside_it(
    kind: pa.DataType, value: Any, fits: bool, others: list[Any]
) -> None:
    values = [value, *others]
    if fits:
        assert python_rows.typed(values, kind).to_pylist() == values
        return
    with pytest.raises((TypeError, ValueError, OverflowError)):
        python_rows.typed(values, kind)
