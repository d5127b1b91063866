"""Layouts of the same values are one type; what cannot be carried is refused with its column."""

import mmap
from collections.abc import Callable

import pyarrow as pa
import pytest

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
