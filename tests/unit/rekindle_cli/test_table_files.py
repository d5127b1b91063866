"""Rows of files that people have: each value is what the file says, or the file is refused."""

import datetime as dt
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rekindle.model.errors import InputError
from rekindle_cli import table_files

SCHEMA = pa.schema([("land", pa.string()), ("degrees", pa.float64())])


def read(file: Path, text: str) -> pa.Table:
    file.write_text(text)
    return table_files.read("--input rows", file, SCHEMA)


def test_only_an_empty_value_of_csv_is_null(tmp_path: Path) -> None:
    words = ["NA", "null", "nan", "N/A", '""', ""]
    text = "land,degrees\n" + "".join(f"{word},nan\n" for word in words)
    table = read(tmp_path / "lands.csv", text + "DE,\n")
    assert table["land"].to_pylist() == ["NA", "null", "nan", "N/A", "", None, "DE"]
    assert str(table["degrees"].to_pylist()) == str([float("nan")] * len(words) + [None])


def test_a_column_that_is_there_twice_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"lands\.csv: has more than one column 'land'; it needs"):
        read(tmp_path / "lands.csv", "land,degrees,land\nDE,20,FR\n")


NUMBERS = pa.schema([("at", pa.timestamp("us")), ("n", pa.int8()), ("x", pa.float32())])
AT = "2024-05-01T00:00:00"


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("rows.csv", f"at,n,x\n{AT},0xFF,1\n", "column 'n': has a number in hexadecimal digits"),
        ("rows.csv", f"at,n,x\n{AT},1,1e39\n", "has a number that is too large for its type"),
        ("rows.jsonl", f'{{"at":"{AT}","n":1,"x":1e39}}\n', "has a number that is too large"),
    ],
    ids=["hexadecimal", "csv", "json"],
)
def test_a_number_that_would_be_read_as_another_is_refused(
    name: str, text: str, why: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(InputError, match=why):
        table_files.read("--input rows", file, NUMBERS)


def test_numbers_of_other_files_are_what_they_are(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(f"at,id,n,x\n{AT},0xFF,-1,inf\n")
    assert table_files.read("--input rows", file, NUMBERS)["n"].to_pylist() == [-1]


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (pa.array([1]), "column 'at': has int64, and no unit of these"),
        (pa.array([1_001], pa.timestamp("ns")), "column 'at': has times with nanoseconds"),
    ],
    ids=["number", "old"],
)
def test_times_that_would_be_read_as_others_are_refused(
    column: pa.Array, why: str, tmp_path: Path
) -> None:
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"at": column}), file, use_deprecated_int96_timestamps=True)
    with pytest.raises(InputError, match=why):
        table_files.read("--input rows", file, pa.schema([NUMBERS.field("at")]))


def test_old_times_of_any_year_are_read(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    last = pa.array([dt.datetime(9999, 12, 31)], pa.timestamp("us"))
    pq.write_table(pa.table({"at": last}), file, use_deprecated_int96_timestamps=True)
    found = table_files.read("--input rows", file, pa.schema([NUMBERS.field("at")]))
    assert found["at"].combine_chunks().equals(last)


def test_rows_with_values_that_python_has_none_for_are_shown_all_the_same() -> None:
    number = uuid.UUID(int=1)
    late = pa.array([2**60], pa.int64()).view(pa.timestamp("us"))
    lists = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), late)
    table = pa.table({"id": pa.array([number], pa.uuid()), "at": late, "all": lists, "n": [1]})
    (row,) = table_files.plain(table_files.rows(table))
    assert str(2**60) in row.pop("at")
    assert str(2**60) in row.pop("all")
    assert row == {"id": str(number), "n": 1}
