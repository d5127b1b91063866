"""The list of a source's files: of which place it is, and that it is none of another one."""

from pathlib import Path

import pytest
from file_inputs import ends, everything, lines, source, values

from rekindle.model import record_format
from rekindle.model.errors import InputError
from rekindle_spark.connectors import file_folders, file_listing
from rekindle_spark.connectors.file_source import FileSource
from rekindle_store import store_files


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    for name in ("in", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text(lines(1) if name == "in" else lines(7, 8))
    return tmp_path / "in"


def check(found: FileSource, inputs: Path) -> None:
    """As a driver does before it takes a generation."""
    found.check_records(store_files.at(inputs.parent / "store"), "orders")


def record(inputs: Path, number: int) -> Path:
    return inputs.parent / f"store/listings/orders/{number}.json"


def test_another_folder_on_the_same_store_is_refused_though_names_are_the_same(
    inputs: Path,
) -> None:
    assert values(everything(source(inputs))) == [1]
    check(source(inputs), inputs)
    moved = source(inputs.parent / "other")
    with pytest.raises(InputError) as refused:
        check(moved, inputs)
    said = str(refused.value)
    assert said.startswith(f"step orders: files at {inputs.parent / 'other'}: are others than")
    assert f"which are at {inputs}" in said
    assert "give the step another name" in said
    with pytest.raises(InputError, match="are others than"):
        ends(moved)
    assert not record(inputs, 2).exists()


def test_the_place_stays_known_once_records_were_put_together(
    inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_listing, "RECORDS_MIN", 1)
    found = source(inputs)
    for number in range(2, 5):
        (inputs / f"{number}").write_text(lines(number))
        found.commit({"0": ends(found)["0"][1]})
    ends(found)
    names = sorted(path.name for path in record(inputs, 1).parent.iterdir())
    assert names[0] != "1.json"
    with pytest.raises(InputError, match="are others than"):
        check(source(inputs.parent / "other"), inputs)


def test_an_older_list_without_a_place_is_taken_and_gets_one_with_its_next_record(
    inputs: Path,
) -> None:
    ends(source(inputs))
    path = record(inputs, 1)
    content = record_format.decode("listing", path.read_bytes(), "here")
    assert content.pop("place") == str(inputs)
    path.write_bytes(record_format.encode("listing", content))
    check(source(inputs.parent / "other"), inputs)
    found = source(inputs)
    check(found, inputs)
    (inputs / "b").write_text(lines(2))
    assert values(everything(found)) == [1, 2]
    with pytest.raises(InputError, match="are others than"):
        check(source(inputs.parent / "other"), inputs)
    (inputs / "c").write_text(lines(3))
    assert values(everything(found)) == [1, 2, 3]
    assert "place" not in record_format.decode("listing", record(inputs, 3).read_bytes(), "here")


def test_a_bucket_is_the_same_place_however_it_is_written() -> None:
    places = {file_folders.at(name).place for name in ("s3://in/orders", "S3://in/orders/")}
    assert places == {"s3://in/orders"}
