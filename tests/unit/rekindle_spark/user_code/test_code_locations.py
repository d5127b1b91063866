"""Where users' code is: the file and line of functions, and of what they raise."""

import functools
import json
from pathlib import Path

import pyarrow as pa
import pytest

import rekindle_spark
from rekindle_spark.user_code import code_locations

HERE = Path(__file__)


def fails() -> None:
    raise ValueError("bad")


def helper() -> None:
    fails()


class Callable:
    def __call__(self) -> None: ...

    def method(self) -> None: ...


def line_of(text: str) -> int:
    lines = HERE.read_text().splitlines()
    return 1 + next(number for number, line in enumerate(lines) if text in line)


def named(function: object) -> str:
    return code_locations.defined_at(function).split(" (")[0]


def test_the_last_frame_of_a_users_file_is_the_place() -> None:
    with pytest.raises(ValueError) as caught:
        helper()
    place = f"{code_locations.shown_file(str(HERE))}:{line_of('raise ValueError')}"
    assert code_locations.raised_at(caught.value) == f"fails ({place})"


def test_a_librarys_frames_are_passed_over() -> None:
    def reads() -> None:
        json.loads("{")

    with pytest.raises(ValueError) as caught:
        reads()
    assert code_locations.raised_at(caught.value).startswith("reads (")


def test_a_comprehension_goes_by_the_function_around_it() -> None:
    def divides() -> None:
        [1 // number for number in (1, 0)]

    with pytest.raises(ZeroDivisionError) as caught:
        divides()
    assert code_locations.raised_at(caught.value).startswith("divides (")


def test_what_no_users_code_raised_has_no_place() -> None:
    assert code_locations.raised_at(ValueError()) == ""


def test_functions_of_every_kind_are_found() -> None:
    for function in (Callable(), functools.partial(Callable())):
        assert named(function) == "__call__"
    assert named(Callable().method) == "method"
    assert named(functools.partial(helper)) == "helper"
    assert code_locations.defined_at(helper).endswith(f":{line_of('def helper')})")
    for function in (len, Callable, rekindle_spark, code_locations.place, pa.table, 3):
        assert code_locations.defined_at(function) == ""


def test_a_file_below_the_current_folder_has_a_short_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(tmp_path / "folder" / "machines.py")
    assert code_locations.shown_file(file) == file
    monkeypatch.chdir(tmp_path)
    assert code_locations.place(file, 7) == "folder/machines.py:7"


def test_a_host_whose_folder_a_function_changes_names_files_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_locations, "_folders", [""])
    monkeypatch.chdir(tmp_path)
    code_locations.keep_folder()
    monkeypatch.chdir("/")
    assert code_locations.shown_file("/srv/machines.py") == "/srv/machines.py"
    assert code_locations.shown_file(str(tmp_path / "machines.py")) == "machines.py"
