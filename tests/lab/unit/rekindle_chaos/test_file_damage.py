"""Bits that are flipped in files of a trial, and ends that are cut off."""

import random
from pathlib import Path

import pytest

from rekindle_chaos import file_damage


def write_checkpoints(store: Path, number: int) -> None:
    """Checkpoints 1 to a number, with a state each."""
    (store / "checkpoints").mkdir(parents=True)
    for epoch in range(1, number + 1):
        (store / f"checkpoints/{epoch}.json").write_text('{"whole": true}')
        (store / f"checkpoints/{epoch}").mkdir()
        (store / f"checkpoints/{epoch}/state").write_bytes(bytes(100))


@pytest.mark.parametrize("seed", range(20))
def test_one_bit_of_a_file_is_another_one(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(50))
    assert file_damage.flip(path, random.Random(seed))
    found = path.read_bytes()
    assert len(found) == 50
    assert sum(byte.bit_count() for byte in found) == 1


def test_what_is_empty_or_has_gone_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert not file_damage.flip(tmp_path / "empty", random.Random(1))
    assert not file_damage.flip(tmp_path / "gone", random.Random(1))


def test_blocks_of_a_node_are_damaged_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "blockmgr" / "0a"
    folder.mkdir(parents=True)
    names = ("shuffle_1_2_0.data", "shuffle_1_2_0.index", "other.data")
    changed: set[str] = set()
    for seed in range(10):
        for name in names:
            (folder / name).write_bytes(bytes(8))
        assert file_damage.flip_exchange(tmp_path, random.Random(seed)) == 1
        (one,) = (name for name in names if (folder / name).read_bytes() != bytes(8))
        changed.add(one)
    assert changed == {"shuffle_1_2_0.data", "shuffle_1_2_0.index"}


def test_a_state_of_the_newest_of_several_checkpoints_is_damaged(tmp_path: Path) -> None:
    write_checkpoints(tmp_path, 11)
    assert file_damage.flip_state(tmp_path, random.Random(1))
    states = sorted(tmp_path.glob("checkpoints/*/state"))
    assert [path.parent.name for path in states if path.read_bytes() != bytes(100)] == ["11"]


def test_the_only_checkpoint_is_left_alone(tmp_path: Path) -> None:
    write_checkpoints(tmp_path, 1)
    assert not file_damage.flip_state(tmp_path, random.Random(1))
    file_damage.cut_checkpoint(tmp_path)
    assert (tmp_path / "checkpoints/1.json").read_text() == '{"whole": true}'


def test_the_end_of_the_newest_record_is_cut_off(tmp_path: Path) -> None:
    write_checkpoints(tmp_path, 10)
    file_damage.cut_checkpoint(tmp_path)
    cut = [path.name for path in tmp_path.glob("checkpoints/*.json") if len(path.read_text()) < 15]
    assert cut == ["10.json"]
