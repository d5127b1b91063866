"""Files of checkpoints: what is wrong with them is told apart."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rekindle.model.errors import DamagedError, RunError
from rekindle_store import checksummed_file, store_files
from rekindle_store.store_files import Files

NAME = "checkpoints/7/rows-0.state"


@pytest.fixture
def store(tmp_path: Path) -> Files:
    (tmp_path / "store" / "checkpoints" / "7").mkdir(parents=True)
    return store_files.at(tmp_path / "store")


def test_a_file_is_read_as_it_was_sealed(store: Files) -> None:
    store.put({NAME: checksummed_file.seal(2, {"watermark": 5}, b"a line\nand more")})
    head, body = checksummed_file.load(store, NAME, 1, 2)
    assert (head["version"], head["watermark"], body) == (2, 5, b"a line\nand more")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, "is not there"),
        (b"", "has no line that says what it is"),
        (b"[]\nbody", "has no line that says what it is"),
        (b'{"version": 1, "sha256": "0"}\nbody', "does not match its checksum"),
    ],
)
def test_damage_names_the_file_below_the_store(
    store: Files, content: bytes | None, what: str
) -> None:
    if content is not None:
        store.put({NAME: content})
    with pytest.raises(DamagedError, match=f"checkpoints/7/rows-0.state: {what}"):
        checksummed_file.load(store, NAME, 1)


def test_a_newer_version_is_no_damage(store: Files) -> None:
    store.put({NAME: checksummed_file.seal(3, {}, b"body")})
    with pytest.raises(RunError, match="has version 3, known is 2; run the version") as error:
        checksummed_file.load(store, NAME, 1, 2)
    assert not isinstance(error.value, DamagedError)


def test_a_store_that_is_away_is_no_damage(store: Files, tmp_path: Path) -> None:
    (tmp_path / "store").rename(tmp_path / "away")
    with pytest.raises(OSError, match="the store is away"):
        checksummed_file.load(store, NAME, 1)


def test_rows_of_an_earlier_version_with_another_name_of_a_column_are_damage() -> None:
    written = pa.BufferOutputStream()
    pq.write_table(pa.table({"key": [1], "n": [2]}), written)
    data = written.getvalue().to_pybytes()
    assert checksummed_file.check_rows("rows", data).column_names == ["key", "n"]
    with pytest.raises(DamagedError, match=r"has columns \['hgy', 'n'\], and was written with"):
        checksummed_file.check_rows("rows", data.replace(b"key", b"hgy"))
