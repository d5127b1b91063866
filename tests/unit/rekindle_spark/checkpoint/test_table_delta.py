"""What has changed in a table: it is the very same again, and small where little has changed."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle_spark.checkpoint import table_delta

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("at", pa.timestamp("us")),
        ("value", pa.float64()),
        ("many", pa.list_(pa.int64())),
    ]
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.none() | st.sampled_from(["a", "b", ""]),
            "at": st.none() | st.integers(0, 3),
            "value": st.none() | st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf]),
            "many": st.none() | st.lists(st.none() | st.integers(0, 2), max_size=2),
        }
    ),
    max_size=12,
)


def table(rows: list[dict[str, object]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def again(before: pa.Table, after: pa.Table) -> tuple[pa.Table, pa.Table, pa.Table]:
    """`after` put together from `before`, with the runs and fresh rows that it took."""
    runs, fresh = table_delta.changes(table_delta.marks(before), table_delta.marks(after), after)
    return table_delta.apply(before, runs, fresh), runs, fresh


def exact(found: pa.Table) -> list[object]:
    """Rows with floats by their bits."""
    bits = found["value"].combine_chunks().view(pa.int64())
    return found.drop_columns(["value"]).append_column("bits", bits).to_pylist()


@given(ROWS, ROWS)
def test_a_table_is_the_same_again_to_the_last_bit(
    old: list[dict[str, object]], new: list[dict[str, object]]
) -> None:
    found, runs, fresh = again(table(old), table(new))
    assert found.schema == SCHEMA
    assert exact(found) == exact(table(new))
    assert sum(runs["rows"].to_pylist()) == len(new)
    assert fresh.num_rows <= len(new)


def test_what_has_stayed_is_told_in_a_few_runs() -> None:
    numbers = np.arange(10_000)
    before = pa.table({"number": numbers})
    after = pa.table({"number": np.concatenate([numbers[100:5_000], [77_777], numbers[5_001:]])})
    runs, fresh = table_delta.changes(table_delta.marks(before), table_delta.marks(after), after)
    assert runs.to_pylist() == [
        {"begin": 100, "rows": 4_900},
        {"begin": -1, "rows": 1},
        {"begin": 5_001, "rows": 4_999},
    ]
    assert fresh["number"].to_pylist() == [77_777]


def test_tables_without_rows_or_columns_are_no_exception() -> None:
    assert again(table([]), table([]))[0].num_rows == 0
    nothing = pa.table({})
    assert again(nothing, nothing)[0].num_rows == 0


FLOATS = pa.list_(pa.float64())
ALIKE = {
    "zeros in lists": (pa.array([[0.0]], FLOATS), pa.array([[-0.0]], FLOATS)),
    "zeros in structs": (pa.array([{"a": 0.0}]), pa.array([{"a": -0.0}])),
    "zeros in maps": (
        pa.array([[("a", 0.0)]], pa.map_(pa.string(), pa.float64())),
        pa.array([[("a", -0.0)]], pa.map_(pa.string(), pa.float64())),
    ),
    "items in other lists": (pa.array([[1, 2], [3]]), pa.array([[1], [2, 3]])),
    "no list": (pa.array([[]], FLOATS), pa.array([None], FLOATS)),
    "no struct": (
        pa.array([None], pa.struct([("a", pa.int8())])),
        pa.array([{"a": None}], pa.struct([("a", pa.int8())])),
    ),
    "seconds that overflow as milliseconds": (
        pa.array([5], pa.timestamp("s")),
        pa.array([2**61 + 5], pa.timestamp("s")),
    ),
    "durations": (pa.array([5], pa.duration("s")), pa.array([2**61 + 5], pa.duration("s"))),
}


@pytest.mark.parametrize("case", ALIKE)
def test_values_that_are_alike_but_not_the_same_are_fresh(case: str) -> None:
    one, other = (pa.table({"x": array}) for array in ALIKE[case])
    runs, fresh = table_delta.changes(table_delta.marks(one), table_delta.marks(other), other)
    assert table_delta.apply(one, runs, fresh)["x"].to_string() == other["x"].to_string()
    assert fresh.num_rows == other.num_rows


@pytest.mark.parametrize("case", ALIKE)
def test_what_has_stayed_is_found_whatever_its_type(case: str) -> None:
    table = pa.table({"x": ALIKE[case][0]})
    runs, fresh = table_delta.changes(table_delta.marks(table), table_delta.marks(table), table)
    assert (runs.num_rows, fresh.num_rows) == (1, 0)
