"""Rows of files that people have: each value is what the file says, or the file is refused."""

from pathlib import Path

import pyarrow as pa
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
