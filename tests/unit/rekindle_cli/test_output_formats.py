"""Rows as a table, JSON lines, CSV and Parquet, whatever they hold."""

import datetime
import decimal
import io
import json
import uuid
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rekindle.model.errors import InputError, RunError
from rekindle_cli import output_formats

ROWS = pa.table({"n": [1, 20], "name": ["a", None]})
ODD = pa.table(
    {
        "at": pa.array([0, None], pa.timestamp("us")),
        "there": pa.array([0, None], pa.timestamp("ms", "Europe/Paris")),
        "day": pa.array([1, None], pa.date32()),
        "time": pa.array([1, None], pa.time64("us")),
        "took": pa.array([1_500, None], pa.duration("ms")),
        "price": pa.array([decimal.Decimal("1.10"), None]),
        "data": pa.array([b"\xff\x00", None]),
        "list": pa.array([[1, None], None], pa.list_(pa.int64())),
        "pair": pa.array([{"a": datetime.datetime(2020, 1, 1)}, None]),
        "word": pa.array(["w", None]).dictionary_encode(),
        "large": pa.array([2**63 - 1, None]),
        "share": pa.array([float("nan"), None]),
        "flag": pa.array([True, None]),
        "none": pa.nulls(2),
    }
)
TEXTS = {
    "at": "1970-01-01T00:00:00.000000",
    "there": "1970-01-01T00:00:00.000Z",
    "day": "1970-01-02",
    "time": "00:00:00.000001",
    "took": 1.5,
    "price": "1.10",
    "data": "/wA=",
    "list": [1, None],
    "pair": {"a": "2020-01-01T00:00:00"},
    "word": "w",
    "large": 2**63 - 1,
    "share": None,
    "flag": True,
    "none": None,
}


def shown(name: str, *tables: pa.Table, on_terminal: bool = False) -> str:
    rows = output_formats.text_rows(name, on_terminal=on_terminal)
    return b"".join(data for table in tables for data in rows.of(table)).decode()


def test_a_table_has_a_header_once_and_numbers_on_the_right() -> None:
    assert shown("table", ROWS, ROWS) == " n  name\n 1  a\n20\n 1  a\n20\n"


def test_a_column_gets_wider_and_no_value_is_cut() -> None:
    long = pa.table({"n": [3], "name": ["x" * 200]})
    assert shown("table", ROWS, long).splitlines()[3:] == [" 3  " + "x" * 200]


def test_wide_characters_take_the_room_that_they_have_on_a_terminal() -> None:
    table = pa.table({"text": ["日本", "abcd"], "n": [1, 2]})
    assert shown("table", table) == "text  n\n日本  1\nabcd  2\n"


def test_other_columns_get_a_header_of_their_own() -> None:
    assert shown("table", ROWS, pa.table({"more": [1]})).endswith("20\n\nmore\n   1\n")


def test_a_table_of_no_rows_is_its_header() -> None:
    assert shown("table", ROWS.slice(0, 0)) == "n  name\n"
    assert shown("csv", ROWS.slice(0, 0)) == "n,name\n"
    assert shown("json", ROWS.slice(0, 0)) == ""


def test_what_a_terminal_would_obey_is_escaped_in_a_table() -> None:
    table = pa.table({"\x1b[2J": ["\x1b]0;title\x07", "a\u202eb\nc\x9b"]})
    text = shown("table", table)
    assert text == "\\x1b[2J\n\\x1b]0;title\\x07\na\\u202eb\\nc\\x9b\n"


@pytest.mark.parametrize("name", ["json", "csv"])
def test_json_and_csv_are_escaped_on_a_terminal_alone(name: str) -> None:
    table = pa.table({"text": ["\x7f\x9b2J\u202e😀\U000e0001"]})
    assert shown(name, table, on_terminal=True).replace("\n", "").isprintable()
    assert "\x9b" in shown(name, table)
    if name == "json":
        assert json.loads(shown(name, table, on_terminal=True)) == {
            "text": table["text"][0].as_py()
        }


def test_json_has_a_line_for_each_row_and_text_for_what_it_does_not_know() -> None:
    first, second = map(json.loads, shown("json", ODD).splitlines())
    assert first == TEXTS
    assert second == dict.fromkeys(ODD.column_names)


def test_csv_tells_nothing_from_an_empty_text_and_is_read_back() -> None:
    table = pa.table({"text": ["", None, 'a "quoted", word', "two\nlines"], "n": [1, 2, 3, None]})
    text = shown("csv", table, table)
    assert text.splitlines()[:3] == ["text,n", '"",1', ",2"]
    found = pl.read_csv(io.StringIO(text))
    assert found["n"].to_list() == [1, 2, 3, None] * 2
    assert found["text"].to_list()[:4] == ["", None, 'a "quoted", word', "two\nlines"]


def test_csv_and_tables_show_every_kind_of_value() -> None:
    header, first, second = shown("csv", ODD).splitlines()
    assert header == ",".join(ODD.column_names)
    assert first.startswith("1970-01-01T00:00:00.000000,1970-01-01T00:00:00.000Z,1970-01-02,")
    assert second == "," * (ODD.num_columns - 1)
    assert '[1,null]  {"a":"2020-01-01T00:00:00"}  w' in shown("table", ODD)


def test_a_moment_that_no_calendar_has_is_shown_all_the_same() -> None:
    table = pa.table({"at": pa.array([2**62], pa.timestamp("us"))})
    for name in ("table", "csv", "json"):
        assert str(2**62) in shown(name, table)
    nested = pa.table({"at": pa.array([[2**62]], pa.list_(pa.timestamp("us")))})
    with pytest.raises(InputError, match=r"cannot show a value .*; choose parquet"):
        shown("json", nested)


def test_types_that_are_stored_as_others_are_shown_as_what_they_are() -> None:
    number = uuid.UUID(int=2**127 + 255)
    table = pa.table(
        {
            "id": pa.array([number], pa.uuid()),
            "is": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1], pa.int8())),
            "of": pa.array(['{"a":1}'], pa.json_()),
        }
    )
    assert shown("table", table).splitlines()[1].split() == [str(number), "true", '{"a":1}']
    assert json.loads(shown("json", table)) == {"id": str(number), "is": True, "of": '{"a":1}'}
    assert shown("csv", table).splitlines()[1] == f'{number},true,"{{""a"":1}}"'


@pytest.mark.parametrize("name", ["csv", "parquet"])
def test_columns_that_change_are_refused_where_the_format_has_one_header(
    name: str, tmp_path: Path
) -> None:
    changed = pa.table({"n": ["x"], "name": ["y"]})
    with pytest.raises(InputError, match="changed from n int64, name string to n string, name"):
        output_formats.write_file(tmp_path / "rows", name, [ROWS, changed])
    assert list(tmp_path.iterdir()) == []
    assert len(shown("json", ROWS, changed).splitlines()) == 3


@pytest.mark.parametrize("name", ["table", "json", "csv", "parquet"])
def test_a_file_takes_its_place_when_it_is_whole(name: str, tmp_path: Path) -> None:
    file = tmp_path / "rows"
    file.write_text("before")
    seen = []

    def tables() -> object:
        yield ROWS
        seen.append(file.read_text())
        yield ROWS

    output_formats.write_file(file, name, tables())
    assert seen == ["before"]
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]
    if name == "parquet":
        assert pq.read_table(file).equals(pa.concat_tables([ROWS, ROWS]))
    else:
        assert file.read_bytes() == shown(name, ROWS, ROWS).encode()


def test_small_tables_become_large_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_formats, "GROUP_ROWS", 100)
    output_formats.write_file(tmp_path / "rows", "parquet", [ROWS] * 120)
    found = pq.ParquetFile(tmp_path / "rows").metadata
    assert (found.num_rows, found.num_row_groups) == (240, 3)


def test_an_error_leaves_the_file_as_it_was_and_nothing_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("before")

    def tables() -> object:
        yield ROWS
        raise InputError(where="store", what="is damaged", remedy="restore it")

    with pytest.raises(InputError, match="store: is damaged"):
        output_formats.write_file(file, "csv", tables())
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]


def test_a_link_to_a_file_stays_a_link(tmp_path: Path) -> None:
    file, link = tmp_path / "rows.csv", tmp_path / "link.csv"
    link.symlink_to(file)
    output_formats.write_file(link, "csv", [ROWS])
    assert link.is_symlink()
    assert file.read_text() == "n,name\n1,a\n20,\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/dev/null", "--output /dev/null: is no regular file"),
        (".", "is no regular file"),
        ("none/rows.csv", r"cannot be written \(No such file or directory\); name a file in"),
    ],
)
def test_what_is_no_place_for_a_file_is_refused(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        output_formats.write_file(tmp_path / name, "csv", [ROWS])


def test_no_room_for_a_file_is_an_error_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(RunError, match=r"cannot be written \(No space left on device\)"):
        output_formats.write_file(tmp_path / "rows.csv", "csv", [ROWS])
    assert list(tmp_path.iterdir()) == []
