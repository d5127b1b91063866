"""Output files: not in the store before all are put there, the same when written again."""

import decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rekindle.model.errors import InputError, StepError
from rekindle_spark.output.sink_files import SinkFiles, check_schema
from rekindle_store import store_files
from rekindle_testing.runtime_builders import watched_flushes

ROWS = pa.table({"n": [1, 2, 3]})
TOO_LATE = 2**31 * 86_400_000  # the first day that Parquet has no number for, in milliseconds


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for query in ("delays", "routes"):
        (tmp_path / "outputs" / query).mkdir(parents=True)
    return tmp_path


def write(store: Path) -> None:
    outputs = SinkFiles(store_files.at(store))
    for query, name in (("delays", "0-1"), ("delays", "0-2"), ("routes", "0-1")):
        outputs.write(query, f"{name}.parquet", ROWS)
    outputs.put_in_place()


def names(store: Path) -> list[str]:
    return sorted(path.relative_to(store).as_posix() for path in store.glob("outputs/*/*"))


def test_a_file_is_in_the_store_only_once_it_is_put_in_place(store: Path) -> None:
    outputs = SinkFiles(store_files.at(store))
    outputs.write("delays", "0-1.parquet", ROWS)
    assert names(store) == []
    outputs.put_in_place()
    assert names(store) == ["outputs/delays/0-1.parquet"]
    assert pq.read_table(store / "outputs" / "delays" / "0-1.parquet").equals(ROWS)


def test_each_file_and_then_each_folder_is_put_on_disk_once(store: Path) -> None:
    with watched_flushes() as flushed:
        write(store)
    assert [path.parent.name for path in flushed[:3]] == ["delays", "delays", "routes"]
    assert flushed[3:] == [store / "outputs" / "delays", store / "outputs" / "routes"]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([b"a", b"\xff"]).view(pa.string()),
        pa.array([0, 5]).view(pa.date64()),
        pa.array([0, TOO_LATE]).view(pa.date64()),
        pa.array([[0], [TOO_LATE]]).cast(pa.list_(pa.timestamp("ms"))).view(pa.list_(pa.date64())),
        pa.array([0, 86_400], pa.int32()).view(pa.time32("s")),
        pa.array([0, -1]).view(pa.time64("us")),
        pa.array([decimal.Decimal(1), decimal.Decimal(100)], pa.decimal128(3)).view(
            pa.decimal128(2)
        ),
    ],
    ids=lambda array: str(array.type),
)
def test_a_value_that_is_none_of_its_type_is_told_with_its_column(
    store: Path, values: pa.Array
) -> None:
    outputs = SinkFiles(store_files.at(store))
    table = pa.table({"n": [1, 2], "x": values})
    with pytest.raises(StepError, match=r"query delays, column 'x'.*none of type"):
        outputs.write("delays", "0-1.parquet", table)
    for kept in ("delays.dead-letters", "delays.late", "delays.late-left", "delays.late-right"):
        outputs.write(kept, "0-1.parquet", table)
    outputs.write("delays", "0-1.parquet", table[:1])


def test_days_that_would_come_back_as_others_do_not_wait_for_a_branch(tmp_path: Path) -> None:
    outputs = SinkFiles(store_files.at(tmp_path))
    outputs.keep_waiting("dear", "0-1.parquet", pa.table({"x": pa.array([b"\xff"]).view("string")}))
    for wrong in (5, TOO_LATE):
        table = pa.table({"x": pa.array([wrong]).view(pa.date64())})
        with pytest.raises(StepError, match="query dear, column 'x'"):
            outputs.keep_waiting("dear", "0-1.parquet", table)


def test_files_that_are_written_again_are_the_same_files(store: Path) -> None:
    write(store)
    before = {name: (store / name).read_bytes() for name in names(store)}
    write(store)
    assert {name: (store / name).read_bytes() for name in names(store)} == before


@pytest.mark.parametrize(
    "kind",
    [
        pa.struct([]),
        pa.list_(pa.struct([])),
        pa.month_day_nano_interval(),
        pa.run_end_encoded(pa.int32(), pa.string()),
        pa.binary(0),
    ],
)
def test_a_column_that_parquet_cannot_hold_is_refused_by_its_name(kind: pa.DataType) -> None:
    schema = pa.schema([("n", pa.int64()), ("odd", kind)])
    with pytest.raises(
        InputError, match=r"^step out: column 'odd': has type .*Parquet cannot hold"
    ):
        check_schema("step out", schema)


def test_usual_columns_are_what_parquet_can_hold() -> None:
    kinds = [
        pa.bool_(),
        pa.decimal128(20, 3),
        pa.duration("us"),
        pa.list_(pa.struct([("x", pa.float32())])),
        pa.map_(pa.string(), pa.int8()),
        pa.timestamp("ns", "UTC"),
    ]
    check_schema("step out", pa.schema([(f"c{i}", kind) for i, kind in enumerate(kinds)]))


def test_rows_that_parquet_cannot_hold_name_the_query(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    outputs = SinkFiles(store_files.at(tmp_path))
    with pytest.raises(StepError, match=r"^query delays: has rows that .* is declared non-null"):
        outputs.write("delays", "0-1.parquet", pa.table([pa.array([None], pa.int64())], schema))


@pytest.mark.parametrize(
    ("rows", "text", "codec"),
    [(1_000, "a", "SNAPPY"), (1_001, "a", "ZSTD"), (100, "a" * 1_000, "ZSTD")],
    ids=["few", "many", "large"],
)
def test_small_files_are_written_with_what_costs_little(
    store: Path, rows: int, text: str, codec: str
) -> None:
    table = pa.table({"n": range(rows), "a.b": [text] * rows, "c": [text.encode()] * rows})
    outputs = SinkFiles(store_files.at(store))
    outputs.write("delays", "0-1.parquet", table)
    outputs.put_in_place()
    file = pq.ParquetFile(store / "outputs" / "delays" / "0-1.parquet")
    columns = [file.metadata.row_group(0).column(place) for place in range(3)]
    assert {column.compression for column in columns} == {codec}
    has_words = [column.has_dictionary_page for column in columns]
    assert has_words == [codec == "ZSTD", True, True]
    assert file.read().equals(table)
