"""Output files: whole and on disk before they get their names, the same when written again."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rekindle_spark.outputs import Outputs
from rekindle_spark.testing import watched_flushes

ROWS = pa.table({"n": [1, 2, 3]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for query in ("delays", "routes"):
        (tmp_path / query).mkdir()
    return tmp_path


def write(folder: Path) -> None:
    outputs = Outputs(folder)
    for query, name in (("delays", "0-1"), ("delays", "0-2"), ("routes", "0-1")):
        outputs.write(query, f"{name}.parquet", ROWS)
    outputs.put_in_place()


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.glob("*/*"))


def test_a_file_has_its_name_only_once_it_is_put_in_place(folder: Path) -> None:
    outputs = Outputs(folder)
    outputs.write("delays", "0-1.parquet", ROWS)
    assert not (folder / "delays" / "0-1.parquet").exists()
    assert not list(folder.glob("*/*.parquet"))
    outputs.put_in_place()
    assert names(folder) == ["delays/0-1.parquet"]
    assert pq.read_table(folder / "delays" / "0-1.parquet").equals(ROWS)


def test_each_file_and_then_each_folder_is_put_on_disk_once(folder: Path) -> None:
    with watched_flushes() as flushed:
        write(folder)
    assert [path.parent.name for path in flushed[:3]] == ["delays", "delays", "routes"]
    assert flushed[3:] == [folder / "delays", folder / "routes"]


def test_files_that_are_written_again_are_the_same_files(folder: Path) -> None:
    write(folder)
    before = {name: (folder / name).read_bytes() for name in names(folder)}
    write(folder)
    assert {name: (folder / name).read_bytes() for name in names(folder)} == before


def test_two_that_write_the_same_file_at_once_do_not_meet(folder: Path) -> None:
    one, other = Outputs(folder), Outputs(folder)
    for outputs in (one, other):
        outputs.write("delays", "0-1.parquet", ROWS)
    one.put_in_place()
    other.put_in_place()
    assert names(folder) == ["delays/0-1.parquet"]
