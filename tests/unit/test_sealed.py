"""Files of checkpoints: whole or not there, and what is wrong with them is told apart."""

import os
from pathlib import Path

import pytest

from rekindle.errors import DamagedError, RunError
from rekindle_spark import sealed


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoints" / "7"
    folder.mkdir(parents=True)
    return folder / "rows-0.state"


def test_a_file_is_read_as_it_was_written(path: Path) -> None:
    sealed.save(path, 2, {"watermark": 5}, b"a line\nand more")
    head, body = sealed.load(path, 1, 2)
    assert (head["version"], head["watermark"], body) == (2, 5, b"a line\nand more")
    assert list(path.parent.iterdir()) == [path]


def test_what_could_not_be_written_takes_no_room(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_room)
    with pytest.raises(OSError, match="No space left"):
        sealed.save(path, 1, {}, b"body")
    assert list(path.parent.iterdir()) == []


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
    path: Path, content: bytes | None, what: str
) -> None:
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DamagedError, match=f"checkpoints/7/rows-0.state: {what}"):
        sealed.load(path, 1)


def test_a_newer_version_is_no_damage(path: Path) -> None:
    sealed.save(path, 3, {}, b"body")
    with pytest.raises(RunError, match="has version 3, known is 2; run the version") as error:
        sealed.load(path, 1, 2)
    assert not isinstance(error.value, DamagedError)


def test_a_store_that_is_away_is_no_damage(path: Path) -> None:
    path.parents[1].rename(path.parents[2] / "away")
    with pytest.raises(FileNotFoundError):
        sealed.load(path, 1)
