"""Layouts of the same values are one type; what cannot be carried is refused with its column."""

import datetime as dt
import mmap
import re
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given as given_by
from hypothesis import strategies as st

from rekindle.model.errors import ColumnError, InputError
from rekindle_spark.operators import arrow_columns, column_types, row_hash

TEXTS = ["UA", None, "a text that is longer than a view holds by itself", ""]
LAYOUTS = {
    "large": pa.array(TEXTS, pa.large_string()),
    "view": pa.array(TEXTS, pa.string_view()),
    "numbers": pa.array(TEXTS).dictionary_encode(),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3, 4], pa.int32()), pa.array(TEXTS)),
}
UNFIT = {
    "view": pa.string_view(),
    "bytes": pa.binary_view(),
    "numbers": pa.dictionary(pa.int8(), pa.string()),
    "runs": pa.run_end_encoded(pa.int32(), pa.string()),
    "lists": pa.list_view(pa.int8()),
    "interval": pa.month_day_nano_interval(),
    "union": pa.sparse_union([pa.field("a", pa.int8())]),
    "twice": pa.struct([pa.field("a", pa.int8()), pa.field("a", pa.int8())]),
    "tensor": pa.fixed_shape_tensor(pa.int8(), [2]),
    "inside": pa.list_(pa.struct([pa.field("a", pa.string_view())])),
    "bytes of none": pa.list_(pa.binary(0)),
    "list of none": pa.list_(pa.int8(), 0),
    "zone": pa.timestamp("us", "Nowhere/City"),
    "scale": pa.list_(pa.decimal128(5, -2)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_is_given_as_the_plain_one(layout: str) -> None:
    array = LAYOUTS[layout]
    assert column_types.plain(array.type) == pa.string()
    plain = column_types.column(pa.chunked_array([array, array.slice(1, 2)]), pa.string())
    assert plain.to_pylist() == TEXTS + TEXTS[1:3]


def test_layouts_inside_of_others_are_plain_too() -> None:
    inner = pa.struct([pa.field("a", pa.large_list(pa.large_string()), nullable=False)])
    array = pa.array([[{"a": ["x"]}], None], pa.large_list(inner))
    kind = column_types.plain(array.type)
    assert kind == pa.list_(pa.struct([pa.field("a", pa.list_(pa.string()))]))
    assert column_types.column(pa.chunked_array([array]), kind).to_pylist() == array.to_pylist()


VIEWS = pa.array([[1, 2], None, [], [3], [4], None], pa.list_view(pa.int8()))
RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([2, 6], pa.int32()), pa.array([7, None]))


@pytest.mark.parametrize(
    "array",
    [
        pa.ListArray.from_arrays(pa.array([0, 2, 2, 6]), VIEWS),
        pa.array(
            [[[1], None], None, [], [[2, 3], None]], pa.list_view(pa.large_list_view(pa.int8()))
        ),
        pa.FixedSizeListArray.from_arrays(VIEWS, 2),
        pa.array([[[1], None], None, [[2, 3], []]], pa.list_(pa.list_view(pa.int8()), 2)),
        pa.StructArray.from_arrays([VIEWS, RUNS], ["a", "b"]),
        pa.array([{"a": [1]}, None, {"a": None}], pa.struct([("a", pa.list_view(pa.int8()))])),
        pa.ListArray.from_arrays(pa.array([0, 1, 6]), RUNS),
    ],
    ids=lambda array: str(array.type),
)
def test_views_of_lists_and_runs_inside_of_others_have_the_same_values(array: pa.Array) -> None:
    for some in (array, array[1:], array[:0]):
        found = column_types.column(pa.chunked_array([some]), column_types.plain(array.type))
        found.validate(full=True)
        assert found.to_pylist() == some.to_pylist()


MAPS = [[("a", []), ("b", [0])], None, [], [("c", None), ("d", [1, 2])], [("e", [3])]]


@pytest.mark.parametrize("view", [pa.list_view, pa.large_list_view])
def test_views_of_lists_inside_of_a_map_have_the_same_values(
    view: Callable[[pa.DataType], pa.DataType],
) -> None:
    maps = pa.array(MAPS, pa.map_(pa.string(), view(pa.int8())))
    for begin, end in ((0, 5), (0, 1), (1, 4), (4, 5), (5, 5)):
        part = pa.chunked_array([maps[begin:end]])
        found = column_types.column(part, column_types.plain(maps.type))
        found.validate(full=True)
        assert found.to_pylist() == MAPS[begin:end]


@pytest.mark.parametrize("kind", [pa.list_view(pa.int8()), pa.large_list_view(pa.int8())])
def test_views_of_lists_are_lists(kind: pa.DataType) -> None:
    lists = [[1], [], None, [2, 3], None]
    array = pa.array(lists, kind)
    for part, wanted in ((array, lists), (array.slice(1, 3), lists[1:4]), (array[:0], [])):
        made = column_types.column(pa.chunked_array([part]), pa.list_(pa.int8()))
        made.validate(full=True)
        assert made.to_pylist() == wanted


@pytest.mark.parametrize("kind", UNFIT)
def test_what_cannot_be_carried_is_refused_with_its_column(kind: str) -> None:
    schema = pa.schema([("t", pa.timestamp("us")), ("x", UNFIT[kind])])
    with pytest.raises(InputError, match="step s: column 'x': has type"):
        column_types.check("step s", schema)


@pytest.mark.parametrize(
    "zone", ["utc", "europe/berlin", "Europe", "Z", "+0530", "+05", "+5:30", "+24:00", "../UTC"]
)
def test_a_zone_that_arrow_or_python_does_not_know_is_refused_with_spellings(zone: str) -> None:
    schema = pa.schema([("t", pa.timestamp("us", zone))])
    with pytest.raises(InputError, match=r"Europe/Berlin or UTC, or an offset as \+05:30"):
        column_types.check("step s", schema)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Etc/GMT+5", "+05:30", "-23:59"])
def test_a_zone_that_is_taken_is_known_to_arrow_and_python(zone: str) -> None:
    times = pa.array([0], pa.timestamp("us", zone))
    column_types.check("step s", pa.schema([("t", times.type)]))
    (moment,) = times.to_pylist()
    assert pc.hour(times).to_pylist() == [moment.hour]


def test_a_null_where_none_may_be_is_told_with_its_column() -> None:
    schema = pa.schema([pa.field("x", pa.string(), nullable=False)])
    with pytest.raises(pa.ArrowInvalid, match="column 'x' has nulls"):
        column_types.converted(pa.table({"x": LAYOUTS["view"]}), schema)


DECLARED = pa.schema([("at", pa.timestamp("us")), ("n", pa.int64()), ("x", pa.string())])


@pytest.mark.parametrize(
    ("columns", "difference"),
    [
        ({"at": "timestamp[us]", "x": "string"}, "'n' is missing"),
        (
            {"at": "timestamp[us]", "n": "int64", "x": "string", "y": "int8"},
            "'y' is not declared",
        ),
        ({"at": "timestamp[us]", "n": "double", "x": "string"}, "'n' is double and not int64"),
        ({"at": "timestamp[us]", "x": "large_string"}, "'n' is missing"),
        (
            {"x": "large_string", "n": "int64", "at": "timestamp[us]"},
            "the columns have another order: x, n, at",
        ),
        (
            {"x": "string", "n": "int64", "at": "timestamp[us]"},
            "the columns have another order: x, n, at",
        ),
    ],
)
def test_a_schema_that_is_not_the_declared_one_is_told_by_its_columns(
    columns: dict[str, str], difference: str
) -> None:
    given = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in columns.items()])
    assert column_types.difference(given, DECLARED) == difference


def test_of_many_columns_that_differ_the_first_few_are_told() -> None:
    given = pa.schema([*DECLARED, *((f"c{number}", pa.int8()) for number in range(20))])
    told = column_types.difference(given, DECLARED)
    assert told.startswith("'c0' is not declared, ")
    assert told.endswith("'c4' is not declared, and 15 more")
    twice = pa.schema([*DECLARED, ("n", pa.int64())])
    assert column_types.difference(twice, DECLARED) == "'n' is there twice"


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string()])
def test_a_key_goes_to_the_same_partition_in_every_layout(kind: pa.DataType) -> None:
    plain = pa.table({"x": pa.array(TEXTS)})
    other = pa.table({"x": pa.array(TEXTS, kind)})
    assert row_hash.hashes(other, ["x"]).tolist() == row_hash.hashes(plain, ["x"]).tolist()


def test_a_column_that_is_too_large_for_one_batch_is_told_with_its_sizes() -> None:
    chunk = pa.array([b"x" * 2**20] * 64, pa.binary())  # one buffer for all chunks
    table = pa.table({"payload": pa.chunked_array([chunk] * 33)})
    error = arrow_columns._too_large("column 'payload'", table["payload"])
    assert isinstance(error, ColumnError)
    assert error.what.startswith("has 2,214,600,960 bytes in 2,112 rows")
    assert "1,048,580 in each" in error.what
    assert str(error.at("s")).startswith("step s, column 'payload': has ")


def test_large_text_of_more_than_2_gib_is_taken_in_parts_that_count_from_their_own_begin() -> None:
    zeros = pa.py_buffer(mmap.mmap(-1, 2**31 + 100))  # never written, so it takes no memory
    ends = pa.array([0, 2**31 - 100, 2**31 + 99, 2**31 + 100], pa.int64()).buffers()[1]
    large = pa.Array.from_buffers(pa.large_string(), 3, [None, ends, zeros])
    column = column_types.column(pa.chunked_array([large]), pa.string())
    assert column.type == pa.string()
    assert [len(column[place].as_py()) for place in (1, 2)] == [199, 1]


NANOSECONDS = pa.array([1_000, 1_001, None, 2_000, 2_002, 3_000], pa.timestamp("ns"))
OFFSETS = pa.array([0, 1, 2, 2, 4, 6], pa.int32())
NAMES = pa.array([*"abcdef"])


@pytest.mark.parametrize(
    ("array", "rows"),
    [
        (NANOSECONDS, [1, 4]),
        (pa.StructArray.from_arrays([NAMES, NANOSECONDS], ["a", "b"]), [1, 4]),
        (pa.ListArray.from_arrays(OFFSETS, NANOSECONDS), [1, 4]),
        (pa.FixedSizeListArray.from_arrays(NANOSECONDS, 2), [0, 2]),
        (pa.MapArray.from_arrays(OFFSETS, NAMES, NANOSECONDS), [1, 4]),
        (NAMES, []),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "rows",
)
def test_rows_with_nanoseconds_are_found_in_lists_structs_and_maps(
    array: pa.Array, rows: list[int]
) -> None:
    def cut(kind: pa.DataType) -> pa.DataType:
        return pa.timestamp("us") if pa.types.is_timestamp(kind) else kind

    made = array.cast(column_types.replaced(array.type, cut), safe=False)
    assert np.flatnonzero(column_types.are_cut(array, made)).tolist() == rows


@pytest.mark.parametrize(
    "kind",
    [
        pa.map_(pa.string(), pa.int64(), keys_sorted=True),
        pa.list_(pa.map_(pa.string(), pa.int64())),
        pa.list_(pa.field("x", pa.int8(), nullable=False), 2),
        pa.large_list(pa.struct([pa.field("x", pa.int8(), nullable=False)])),
    ],
    ids=str,
)
def test_a_type_of_which_nothing_is_changed_is_the_same_type(kind: pa.DataType) -> None:
    assert column_types.replaced(kind, lambda part: part) == kind


NOON = pa.array([43_200_000_001], pa.int64()).view(pa.timestamp("us"))
DEEP = pa.struct([("x", pa.list_(pa.float32()))])


@pytest.mark.parametrize(
    ("given", "kind", "why"),
    [
        (pa.array([1]), pa.timestamp("us"), "has int64, and no unit of these"),
        (pa.array([[1]]), pa.list_(pa.duration("s")), "has list<item: int64>, and no unit"),
        (NOON, pa.int64(), "has timestamp[us], and no unit of these"),
        (NOON, pa.date32(), "has a value that date32[day] would cut"),
        (NOON, pa.timestamp("s"), "would lose data"),
        (pa.array([2]), pa.bool_(), "has a value that bool would cut"),
        (pa.array([1.005]), pa.decimal128(5, 2), "has a value that decimal128(5, 2) would cut"),
        (pa.array([[1.005]]), pa.list_(pa.decimal128(5, 2)), "that decimal128(5, 2) would cut"),
        (pa.array([[NOON[0].as_py()]]), pa.list_(pa.date32()), "that date32[day] would cut"),
        (
            pa.array([[("a", NOON[0].as_py())]], pa.map_(pa.string(), pa.timestamp("us"))),
            pa.map_(pa.string(), pa.date32()),
            "that date32[day] would cut",
        ),
        (
            pa.array([{"a": 1, "at": NOON[0].as_py()}]),
            pa.struct([("at", pa.date32()), ("a", pa.int8())]),
            "that date32[day] would cut",
        ),
        (
            pa.array([1, 2]).dictionary_encode(),
            pa.timestamp("us"),
            "has int64, and no unit of these: give it as timestamp[us]",
        ),
        (pa.array([[1]]), pa.int64(), "has list<item: int64>, of which Arrow makes no int64: give"),
        (pa.array(["1e39", "-inf"]), pa.float32(), "has a number that is too large for its type"),
        (pa.array([1e39]), pa.float32(), "has a number that is too large for its type"),
        (pa.array([{"x": [1e39]}]), DEEP, "has a number that is too large for its type"),
        (pa.array([1.5]), pa.int64(), "was truncated"),
        (pa.array([2**53 + 1]), pa.float64(), "not in range"),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else str(value),
)
def test_a_value_that_would_be_another_is_told_with_its_column(
    given: pa.Array, kind: pa.DataType, why: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(why)) as caught:
        column_types.exact(pa.table({"x": given}), pa.schema([("x", kind)]))
    assert str(caught.value).startswith("column 'x': ")


def test_a_null_where_none_may_be_is_told_whatever_its_type() -> None:
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    with pytest.raises(ValueError, match="column 'x': has nulls, and may have none"):
        column_types.exact(pa.table({"x": pa.array([None], pa.int64())}), schema)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (pa.array([1, 0]), pa.bool_()),
        (pa.array([0.1]), pa.float32()),
        (pa.array([0.1]), pa.decimal128(5, 2)),
        (pa.array([float("inf")]), pa.float16()),
        (pa.array(["inf", "-Infinity", "1.5", None]), pa.float64()),
        (pa.array([float("inf"), 1.5, None]).dictionary_encode(), pa.float64()),
        (pa.array([[13725.442], None, [0.1, None]]), pa.list_(pa.decimal128(12, 3))),
        (
            pa.array([[("a", 13725.442)], None], pa.map_(pa.string(), pa.float64())),
            pa.map_(pa.string(), pa.decimal128(12, 3)),
        ),
        (pa.array([dt.date(2024, 1, 1)]), pa.timestamp("us")),
        (pa.array([dt.datetime(2024, 1, 1)]), pa.date32()),
        (NOON.cast(pa.timestamp("us", "Europe/Berlin")), pa.timestamp("us")),
        (pa.array(["2024-01-01"]), pa.timestamp("us")),
        (pa.nulls(2), pa.timestamp("us")),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else str(value),
)
def test_a_value_that_another_type_holds_is_taken(given: pa.Array, kind: pa.DataType) -> None:
    made = column_types.exact(pa.table({"x": given}), pa.schema([("x", kind)]))["x"]
    assert made.combine_chunks().equals(given.cast(kind))


@given_by(
    st.lists(st.integers(-(10**9), 10**9), max_size=50),
    st.sampled_from([(pa.float64(), 2), (pa.float64(), 3), (pa.float64(), 6), (pa.float32(), 2)]),
)
def test_each_float_that_is_nearest_to_a_decimal_is_that_decimal(
    counts: list[int], kind: tuple[pa.DataType, int]
) -> None:
    floats, scale = kind
    if floats == pa.float32():
        counts = [count % 100_000 for count in counts]  # a short float has six digits
    decimals = [Decimal(count).scaleb(-scale) for count in counts]
    numbers = pa.array([float(number) for number in decimals], pa.float64()).cast(floats)
    schema = pa.schema([("x", pa.decimal128(18, scale))])
    assert column_types.exact(pa.table({"x": numbers}), schema)["x"].to_pylist() == decimals
