"""Columns as rows of Python values and back: what fits a type, and what comes back the same."""

from collections.abc import Iterator
from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

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
    (pa.int64(), Decimal(2**62 + 1), True),
    (pa.int64(), Decimal("1.5"), False),
    (pa.int64(), Decimal("Infinity"), False),
    (pa.int64(), Decimal("sNaN"), False),
    (pa.int64(), np.array(7), True),
    (pa.int64(), np.array(1.5), False),
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


BERLIN = ZoneInfo("Europe/Berlin")
SHOWN_TWICE = datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN)
PAIR = pa.struct([("a", pa.int64())])
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAMED_MAP = pa.map_(pa.field("word", pa.string(), nullable=False), pa.field("count", pa.int64()))
# What Arrow would cut, leave out or make infinite, and what is as it was given.
OTHERS = [
    (pa.float16(), 2049),
    (pa.time64("us"), time(1, tzinfo=UTC)),
    (pa.time32("s"), 86_400),
    (pa.time64("us"), -1),
    (pa.date64(), 5),
    (pa.list_(pa.int64()), [1.5]),
    (pa.list_(pa.int64()), [True]),
    (pa.list_(pa.list_(pa.int8())), [[1], [2.5]]),
    (pa.list_(pa.string()), "text"),
    (pa.list_(pa.timestamp("s")), [datetime(2024, 1, 1, 0, 0, 0, 500_000)]),
    (pa.map_(pa.string(), pa.int64()), {"a": 1.5}),
    (pa.map_(pa.int64(), pa.string()), [(1.5, "a")]),
    (PAIR, {"a": 1.5}),
    (PAIR, (1.5,)),
    (PAIR, [("a", 1.5)]),
    (PAIR, {"A": 1}),
    (PAIR, {"a": 1, "b": 2}),
    (pa.list_(PAIR), [{"a": 1}, {"b": 1}]),
    (pa.map_(pa.string(), pa.int64()), [{"key": "a", "value": 1.5}]),
    (pa.map_(pa.string(), pa.float64()), [{"key": "a", "value": 1.5, "other": 2}]),
    (pa.map_(pa.string(), pa.list_(pa.int8())), {"a": [1.5]}),
    (pa.list_(pa.list_(pa.float64())), [b"ab"]),
    (pa.list_(pa.int64()), np.array([1.0, 1.5])),
    (pa.list_(pa.int64(), 2), np.array([[1.0], [1.5]])),
    (pa.list_(pa.float32()), np.array([1e300])),
    (pa.list_(pa.float64()), np.ma.array([1.0, 2.0], mask=[False, True])),
    (pa.timestamp("us"), 5.5),
    (pa.date32(), 5.7),
    (pa.duration("s"), 1.5),
    (pa.time32("s"), np.float64(1.5)),
    (pa.float32(), 1e300),
    (pa.float16(), -1e6),
]
SAME = [
    (pa.list_(pa.int64()), [1, None, 2.0], [1, None, 2]),
    (pa.list_(pa.float32()), [float("inf"), 1.5], [float("inf"), 1.5]),
    (pa.map_(pa.string(), pa.int64()), {"a": 1}, [("a", 1)]),
    (PAIR, {}, {"a": None}),
    (PAIR, (1,), {"a": 1}),
    (pa.list_(PAIR), [{"a": 1}, None], [{"a": 1}, None]),
    (pa.timestamp("us"), 5.0, datetime(1970, 1, 1, 0, 0, 0, 5)),
    (pa.timestamp("ms", "UTC"), SHOWN_TWICE, datetime(2024, 10, 27, 0, 30, tzinfo=UTC)),
    (pa.timestamp("ms"), SHOWN_TWICE.replace(fold=1), datetime(2024, 10, 27, 1, 30)),
    (pa.float32(), float("-inf"), float("-inf")),
    (pa.int64(), pa.scalar(1), 1),
    (pa.list_(pa.int64()), [pa.scalar(1), 2], [1, 2]),
    (pa.list_(pa.int64()), pa.chunked_array([[1], [2]]), [1, 2]),
    (pa.list_(pa.int64()), [Decimal(1)], [1]),
    (pa.list_(pa.int64()), {1}, [1]),
    pytest.param(pa.list_(pa.int64()), memoryview(b"\1\2"), [1, 2], id="a memoryview"),
    (pa.list_(pa.float32(), 4), np.array([[1, 2], [3, 4]], np.float32), [1.0, 2.0, 3.0, 4.0]),
    (pa.list_(pa.int64(), 4), np.array([[1.0, 2.0], [3.0, 4.0]]), [1, 2, 3, 4]),
    (pa.list_(pa.timestamp("us", "UTC")), np.array([5], "M8[us]"), [EPOCH.replace(microsecond=5)]),
    (PAIR, {"a": pa.scalar(1)}, {"a": 1}),
    (pa.map_(pa.string(), pa.int64()), [{"key": "a", "value": 1}], [("a", 1)]),
    (pa.map_(pa.string(), pa.int64()), [{"key": "a"}], [("a", None)]),
    (NAMED_MAP, [{"word": "a", "count": pa.scalar(1)}], [("a", 1)]),
]


@pytest.mark.parametrize(("kind", "value"), OTHERS, ids=str)
def test_a_value_that_would_become_another_one_is_refused(kind: pa.DataType, value: Any) -> None:
    with pytest.raises(
        (TypeError, pa.ArrowInvalid), match=r"found|got bool|acceptable|whole number of days"
    ):
        python_rows.typed([None, value], kind)


@pytest.mark.parametrize(("kind", "value", "kept"), SAME, ids=str)
def test_a_value_that_fits_is_as_it_was_given(kind: pa.DataType, value: Any, kept: Any) -> None:
    assert python_rows.typed([None, value], kind).to_pylist() == [None, kept]


class UnreadList(list[Any]):
    """A list whose items only Arrow takes."""

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("each item is looked at")


class UnreadArray(np.ndarray[Any, Any]):
    """An array whose numbers only Arrow takes."""

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("each number is looked at")

    def ravel(self, *_: Any) -> Any:
        raise AssertionError("each number is looked at")


UNREAD = [
    (pa.list_(pa.float64()), UnreadList([1.5, None])),
    (pa.list_(pa.string()), UnreadList(["a"])),
    (pa.map_(pa.string(), pa.list_(pa.float64())), {"a": UnreadList([1.5])}),
    (pa.list_(pa.float64()), np.array([1.5]).view(UnreadArray)),
    (pa.list_(pa.int64()), np.array([1]).view(UnreadArray)),
    (pa.list_(pa.int64()), np.array([1], np.int32).view(UnreadArray)),
    (pa.list_(pa.float32()), np.array([1.5], np.float32).view(UnreadArray)),
    (pa.list_(pa.timestamp("us")), np.array([1], "M8[us]").view(UnreadArray)),
    (pa.struct([("a", pa.list_(pa.float64()))]), {"a": UnreadList([1.5])}),
]


@pytest.mark.parametrize(("kind", "value"), UNREAD, ids=str)
def test_what_arrow_cannot_cut_is_not_looked_at_one_by_one(kind: pa.DataType, value: Any) -> None:
    assert len(python_rows.typed([None, value], kind)) == 2
