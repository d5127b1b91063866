"""Damaged checkpoints: which one a driver goes on from, and where it must not go on."""

from pathlib import Path

import pytest
from stores import FINISHED, kept, states, with_states

from rekindle.model import record_format
from rekindle.model.errors import DamagedError, RunError
from rekindle_spark.store.checkpoint_store import CheckpointStore
from rekindle_spark.store.store_retry import StoreRetry


def test_the_checkpoint_before_a_damaged_one_is_gone_on_from(tmp_path: Path) -> None:
    store = with_states(tmp_path, 1, 2)
    store.complete_checkpoint(1, states("rows/0"))
    store.complete_checkpoint(2, states("rows/0"))
    (tmp_path / "checkpoints" / "2.json").write_text("{")
    history = store.read()
    assert history.checkpoint is not None
    assert history.checkpoint["epoch"] == 1
    assert list(history.offsets) == [1, 2]


def test_input_that_only_an_older_checkpoint_needs_may_be_damaged(tmp_path: Path) -> None:
    store = with_states(tmp_path, 1, 2, 3)
    store.complete_checkpoint(1, states("rows/0"))
    store.complete_checkpoint(2, states("rows/0"))
    (tmp_path / "offsets" / "1.json").write_text("{")
    assert list(store.read().offsets) == [2, 3]
    (tmp_path / "offsets" / "3.json").write_text("{")
    with pytest.raises(DamagedError, match=r"offsets/3\.json: is no JSON"):
        store.read()


def test_damage_is_not_passed_over_where_output_has_become_public_with_it(tmp_path: Path) -> None:
    store = with_states(tmp_path, 1, 2)
    store.complete_checkpoint(1, states("rows/0"))
    store.complete_checkpoint(2, states("rows/0"))
    store.commit({**FINISHED, "checkpoint": 2})
    (tmp_path / "checkpoints" / "2.json").write_text("{")
    with pytest.raises(DamagedError, match=r"checkpoints/2\.json: is no JSON; restore it"):
        store.read()


def test_a_store_whose_checkpoints_are_all_damaged_is_refused(tmp_path: Path) -> None:
    store = with_states(tmp_path, 1)
    store.complete_checkpoint(1, states("rows/0"))
    (tmp_path / "checkpoints" / "1.json").write_text("[]")
    with pytest.raises(DamagedError, match=r"checkpoints/1\.json: is no JSON object"):
        store.read()


@pytest.mark.parametrize(
    "flipped",
    [(b'"version":1', b'"version":3'), (b"1764456463.1234567", b"1764456463e1234567")],
    ids=["version", "number"],
)
def test_a_checkpoint_with_a_flipped_byte_is_passed_over_for_the_one_before(
    tmp_path: Path, flipped: tuple[bytes, bytes]
) -> None:
    store = with_states(tmp_path, 1, 2)
    store.complete_checkpoint(1, states("rows/0"))
    store.complete_checkpoint(2, {**states("rows/0"), "at": 1764456463.1234567})
    path = tmp_path / "checkpoints" / "2.json"
    sound = path.read_bytes()
    path.write_bytes(sound.replace(*flipped))
    assert path.read_bytes() != sound
    history = store.read()
    assert history.checkpoint is not None
    assert history.checkpoint["epoch"] == 1


def test_a_name_that_is_listed_and_never_there_is_waited_for_and_then_refused(
    tmp_path: Path,
) -> None:
    """A link to nothing, or a list of a server that is not up to date."""
    with_states(tmp_path, 1)
    (tmp_path / "checkpoints" / "2.json").symlink_to(tmp_path / "nothing")
    store = CheckpointStore(tmp_path, StoreRetry(0.0))
    with pytest.raises(RunError, match=r"could not be reached or written for 0 s \(.*/2\.json"):
        store.read()


def test_a_checkpoint_of_a_newer_version_is_refused_and_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = with_states(tmp_path, 1, 2)
    store.complete_checkpoint(1, states("rows/0"))
    store.complete_checkpoint(2, states("rows/0"))
    path = tmp_path / "checkpoints" / "2.json"
    content = record_format.decode("checkpoint", path.read_bytes(), path.name)
    monkeypatch.setitem(record_format.VERSIONS, "checkpoint", 2)
    path.write_bytes(record_format.encode("checkpoint", content))
    monkeypatch.undo()
    with pytest.raises(RunError, match="run the version of Rekindle that wrote it"):
        store.read()


def test_a_checkpoint_with_a_damaged_file_is_set_aside_for_the_one_before(tmp_path: Path) -> None:
    store = with_states(tmp_path, 1, 2)
    store.complete_checkpoint(1, states("rows/0"))
    store.complete_checkpoint(2, states("rows/0"))
    damage = DamagedError(where="checkpoints/2/rows-0.state", what="is not there", remedy="restore")
    assert "start again: checkpoint 1 is gone on from" in str(store.set_aside(damage))
    history = store.read()
    assert history.checkpoint is not None
    assert history.checkpoint["epoch"] == 1
    assert store.set_aside(damage) is damage, "there is none before"


def test_a_checkpoint_is_not_set_aside_for_one_that_needs_the_same_file(tmp_path: Path) -> None:
    store = with_states(tmp_path, 1, 2)
    store.complete_checkpoint(1, states("rows/0"))
    store.complete_checkpoint(2, {**states(), "older": {"rows/0": 1}, "inputs": []})
    damage = DamagedError(where="checkpoints/1/rows-0.state", what="is not there", remedy="restore")
    assert store.set_aside(damage) is damage
    assert store.read().checkpoint is not None


DAMAGED_STATE = DamagedError(
    where="checkpoints/2/counts-0.state", what="does not match its checksum", remedy="restore"
)


def in_an_outage(directory: Path) -> CheckpointStore:
    """Checkpoints 3 to 5 have the state of `counts` from checkpoint 2."""
    store = with_states(directory, 1, 2, 3, 4, 5)
    for epoch in (1, 2):
        store.complete_checkpoint(epoch, states("rows/0", "counts/0"))
    for epoch in (3, 4, 5):
        store.complete_checkpoint(epoch, {**states("rows/0"), "older": {"counts/0": 2}})
    return store


def test_in_a_long_outage_the_checkpoint_before_it_is_kept_for_a_damaged_state(
    tmp_path: Path,
) -> None:
    store = in_an_outage(tmp_path)
    records = [name for name in kept(tmp_path) if name.endswith(".json")]
    assert records == ["1.json", "4.json", "5.json"]
    error = store.set_aside(DAMAGED_STATE)
    assert "start again: checkpoint 1 is gone on from" in str(error)
    history = store.read()
    assert history.checkpoint is not None
    assert history.checkpoint["epoch"] == 1
    assert list(history.offsets) == [1, 2, 3, 4, 5]


def test_a_checkpoint_without_any_file_of_a_state_written_as_changes_is_kept_where_there_is_one(
    tmp_path: Path,
) -> None:
    """First `counts` is behind, then `rows`, of which the newest state builds on one of before."""
    store = with_states(tmp_path, *range(1, 10))
    for epoch in (1, 2):
        store.complete_checkpoint(epoch, states("rows/0", "counts/0"))
    for epoch in (3, 4, 5):
        store.complete_checkpoint(epoch, {**states("rows/0"), "older": {"counts/0": 2}})
    chains = {"rows/0": [5, 6]}
    store.complete_checkpoint(6, {**states("rows/0"), "older": {"counts/0": 2}, "chains": chains})
    for epoch in (7, 8, 9):
        older = {"older": {"rows/0": 6}, "chains": chains}
        store.complete_checkpoint(epoch, {**states("counts/0"), **older})
    records = [name for name in kept(tmp_path) if name.endswith(".json")]
    assert records == ["1.json", "8.json", "9.json"]
    damage = DamagedError(where="checkpoints/5/rows-0.state", what="is cut short", remedy="restore")
    assert "start again: checkpoint 1 is gone on from" in str(store.set_aside(damage))


def test_a_state_written_as_changes_has_one_before_that_lacks_the_newest_changes(
    tmp_path: Path,
) -> None:
    store = with_states(tmp_path, 1, 2, 3, 4, 5)
    chains = {"counts/0": [1, 2]}
    store.complete_checkpoint(1, states("rows/0", "counts/0"))
    store.complete_checkpoint(2, {**states("rows/0", "counts/0"), "chains": chains})
    for epoch in (3, 4, 5):
        older = {"older": {"counts/0": 2}, "chains": chains}
        store.complete_checkpoint(epoch, {**states("rows/0"), **older})
    first = DamagedError(where="checkpoints/1/counts-0.state", what="is gone", remedy="restore")
    assert store.set_aside(first) is first, "all build on it"
    assert "checkpoint 1 is gone on from" in str(store.set_aside(DAMAGED_STATE))


def test_after_a_long_outage_two_checkpoints_are_kept_again(tmp_path: Path) -> None:
    store = in_an_outage(tmp_path)
    for epoch in (6, 7):
        store.begin_checkpoint(epoch)
        store.complete_checkpoint(epoch, states("rows/0", "counts/0"))
    assert [name for name in kept(tmp_path) if name.endswith(".json")] == ["6.json", "7.json"]


def test_checkpoints_of_an_outage_are_not_set_aside_where_output_has_become_public_with_one(
    tmp_path: Path,
) -> None:
    store = in_an_outage(tmp_path)
    store.commit({**FINISHED, "checkpoint": 2})
    assert store.set_aside(DAMAGED_STATE) is DAMAGED_STATE
