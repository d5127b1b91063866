"""Records of a fenced driver that reach the store late: they count for nobody, and stop nobody."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from file_stories import (
    Call,
    a_checkpoint_that_comes_after_a_newer_driver_has_started_does_not_count,
    checkpoint,
    commit,
    delayed,
    late_removals_of_a_fenced_driver_remove_nothing_that_counts,
    opened,
    postponed,
)

from rekindle.model.errors import DamagedError, FencedError
from rekindle_spark.output import output_commit
from rekindle_spark.store import commit_summary
from rekindle_spark.store.checkpoint_store import CheckpointStore
from rekindle_spark.store.commit_summary import CommitSummary
from rekindle_store import checkpoint_records, store_integrity
from rekindle_store.checkpoint_records import Seal


def late(older: CheckpointStore, epoch: int, content: dict[str, Any]) -> tuple[str, bytes]:
    """The record of a checkpoint whose request is on its way."""
    on_its_way: list[tuple[str, bytes]] = []
    files = older.files
    older.files = delayed(files, on_its_way)
    older.begin_checkpoint(epoch)
    older.complete_checkpoint(epoch, content)
    older.files = files
    (found,) = on_its_way
    return found


def test_a_late_checkpoint_does_not_count(tmp_path: Path) -> None:
    a_checkpoint_that_comes_after_a_newer_driver_has_started_does_not_count(str(tmp_path))


def test_late_removals_of_a_fenced_driver_remove_nothing_that_counts(tmp_path: Path) -> None:
    late_removals_of_a_fenced_driver_remove_nothing_that_counts(str(tmp_path))


def test_a_checkpoint_that_came_before_the_seal_counts_for_all_later_drivers(
    tmp_path: Path,
) -> None:
    older = opened(str(tmp_path), 6)
    older.begin_checkpoint(5)
    older.complete_checkpoint(5, checkpoint(5, "A", 3, 4, 5))
    for generation in (2, 3, 4):
        history = CheckpointStore(tmp_path).open(float(generation))
        assert history.checkpoint is not None
        assert history.checkpoint["epoch"] == 5
        seal = json.loads((tmp_path / "commits" / f"{generation - 1}.json").read_text())
        assert seal["checkpoints"] == [5]


def test_a_late_checkpoint_counts_for_no_later_driver(tmp_path: Path) -> None:
    older = opened(str(tmp_path), 6)
    name, data = late(older, 5, checkpoint(5, "A", 3, 4, 5))
    CheckpointStore(tmp_path).open(2.0)
    older.files.create(name, data)
    for generation in (3, 4, 5):
        store = CheckpointStore(tmp_path)
        assert store.open(float(generation)).checkpoint is None
        assert store.read().checkpoint is None


def test_a_late_checkpoint_is_passed_over_and_keeps_no_older_one_alive(tmp_path: Path) -> None:
    older = opened(str(tmp_path), 9)
    older.begin_checkpoint(2)
    older.complete_checkpoint(2, checkpoint(2, "A"))
    name, data = late(older, 5, checkpoint(5, "A", 3, 4, 5))
    _, other = late(older, 7, checkpoint(7, "A", 6, 7))
    newer = CheckpointStore(tmp_path)
    newer.open(2.0)
    newer.files.create(name, data)
    newer.files.create("checkpoints/7.json", other)
    made = []
    for epoch in (5, 6, 8):  # the first of these bears the number of a late one
        newer.begin_checkpoint(epoch)
        made.append(newer.complete_checkpoint(epoch, checkpoint(epoch, "B")))
    assert made == [False, True, True]
    found = [path.name for path in (tmp_path / "checkpoints").glob("*.json")]
    assert sorted(found) == ["6.json", "7.json", "8.json"]
    newer.begin_checkpoint(9)
    newer.complete_checkpoint(9, checkpoint(9, "B"))
    found = [path.name for path in (tmp_path / "checkpoints").glob("*.json")]
    assert sorted(found) == ["8.json", "9.json"]


def test_a_checkpoint_that_is_given_up_lets_nothing_go_of_what_runs_again(tmp_path: Path) -> None:
    older = opened(str(tmp_path), 9)
    name, data = late(older, 5, checkpoint(5, "A"))
    newer = CheckpointStore(tmp_path)
    newer.open(2.0)
    newer.files.create(name, data)
    left = {"outputs": [["rows.dead-letters/0", 4, 1, "A-4", "A"]]}
    newer.commit({**commit("A", 3, 4), **left, "choices": [["rows.dead-letters/0", 4, [1], []]]})
    before = newer.fold.record()
    newer.begin_checkpoint(5)
    assert not newer.complete_checkpoint(5, checkpoint(5, "B"))
    assert newer.fold.record() == before
    assert newer.fold.has_digests
    newer.begin_checkpoint(6)
    assert newer.complete_checkpoint(6, checkpoint(6, "B"))
    assert (newer.fold.has_digests, newer.fold.choices) == (False, {})
    record = newer.read().checkpoint
    assert record is not None
    assert commit_summary.from_record(record) == newer.fold


def test_of_two_drivers_the_older_one_makes_no_way_for_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = opened(str(tmp_path), 6)
    newer = CheckpointStore(tmp_path)
    newer.open(2.0)
    newer.begin_checkpoint(5)
    newer.complete_checkpoint(5, checkpoint(5, "B"))
    monkeypatch.setattr(older, "check_generation", lambda: None)  # it had looked before
    with pytest.raises(FencedError, match=r"checkpoints/5\.json is there already"):
        older.complete_checkpoint(5, checkpoint(5, "A"))


def branch(step: str) -> dict[str, Any]:
    return {"chain": "rows", "step": step, "partition": "rows/0", "epoch": 1, "text": "it raises"}


def late_branch(older: CheckpointStore, step: str) -> tuple[str, bytes]:
    """The record of a branch whose request is on its way."""
    on_its_way: list[tuple[str, bytes]] = []
    files = older.files
    older.files = delayed(files, on_its_way, "branches")
    older.log_branch(branch(step))
    older.files = files
    (found,) = on_its_way
    return found


def left_out(place: Path) -> list[str]:
    return [record["step"] for record in CheckpointStore(place).read().branches]


def test_a_late_branch_is_in_the_way_of_none_that_a_newer_driver_logs_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = opened(str(tmp_path), 1)
    newer = CheckpointStore(tmp_path)
    newer.open(2.0)
    create = newer.files.create

    def overtaken(name: str, data: bytes) -> None:
        monkeypatch.undo()
        with monkeypatch.context() as looked:
            looked.setattr(older, "check_generation", lambda: None)  # it had looked before
            older.log_branch(branch("late"))
        create(name, data)

    monkeypatch.setattr(type(newer.files), "create", lambda _, *args: overtaken(*args))
    newer.log_branch(branch("own"))
    assert [one["step"] for one in newer.read().branches] == ["own"]


def test_a_driver_that_is_replaced_while_it_looks_at_a_late_branch_removes_no_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, data = late_branch(opened(str(tmp_path), 1), "late")
    replaced, newest = CheckpointStore(tmp_path), CheckpointStore(tmp_path)
    replaced.open(2.0)
    replaced.files.create(name, data)
    read = replaced.files.read

    def overtaken(wanted: str) -> bytes:
        found = read(wanted)
        if wanted == name:
            monkeypatch.undo()
            newest.open(3.0)
            newest.log_branch(branch("own"))
        return found

    monkeypatch.setattr(type(replaced.files), "read", lambda _, wanted: overtaken(wanted))
    with pytest.raises(FencedError, match="generation 3 has started"):
        replaced.log_branch(branch("other"))
    assert left_out(tmp_path) == ["own"]
    assert [one["step"] for one in CheckpointStore(tmp_path).open(4.0).branches] == ["own"]
    assert store_integrity.check(newest.files).damages == []


def test_a_branch_that_comes_after_the_seal_is_left_out_by_nobody(tmp_path: Path) -> None:
    older = opened(str(tmp_path), 1)
    older.log_branch(branch("known"))
    name, data = late_branch(older, "late")
    newer = CheckpointStore(tmp_path)
    assert [one["step"] for one in newer.open(2.0).branches] == ["known"]
    newer.files.create(name, data)
    assert left_out(tmp_path) == ["known"]
    assert store_integrity.check(newer.files).damages == []
    newer.log_branch(branch("own"))
    third = CheckpointStore(tmp_path).open(3.0)
    assert [one["step"] for one in third.branches] == ["known", "own"]


def test_a_branch_that_comes_after_a_savepoint_has_joined_the_others_stops_no_start(
    tmp_path: Path,
) -> None:
    older = opened(str(tmp_path), 1)
    older.log_branch(branch("first"))
    older.log_branch(branch("second"))
    name, data = late_branch(older, "late")
    newer = CheckpointStore(tmp_path)
    newer.open(2.0)
    newer.join_branches(2.0)
    newer.files.create(name, data)
    assert name == "branches/3.json"
    assert store_integrity.check(newer.files).damages == []
    third = CheckpointStore(tmp_path)
    assert third.open(3.0).branches == []
    for step in ("one", "two", "three"):  # the last of these passes over the late one's number
        third.log_branch(branch(step))
    assert left_out(tmp_path) == ["one", "two", "three"]
    fourth = CheckpointStore(tmp_path)
    assert [one["step"] for one in fourth.open(4.0).branches] == ["one", "two", "three"]
    fourth.log_branch(branch("four"))
    assert left_out(tmp_path) == ["one", "two", "three", "four"]
    assert store_integrity.check(fourth.files).damages == []
    (tmp_path / "branches/6.json").unlink()  # that of "three"
    with pytest.raises(DamagedError, match=r"branches/6\.json: is not there"):
        CheckpointStore(tmp_path).read()


def test_a_driver_that_is_replaced_while_it_joins_branches_removes_none_of_the_next_one(
    tmp_path: Path,
) -> None:
    older = opened(str(tmp_path), 1)
    older.log_branch(branch("first"))
    older.log_branch(branch("second"))
    replaced, newest = CheckpointStore(tmp_path), CheckpointStore(tmp_path)
    replaced.open(2.0)
    calls = list[Call]()
    replaced.files = postponed(replaced.files, calls, "remove", "create")
    replaced.join_branches(2.0)
    assert [one["step"] for one in newest.open(3.0).branches] == ["first", "second"]
    newest.join_branches(3.0)
    newest.log_branch(branch("own"))
    for call in calls:
        with suppress(FileExistsError):
            call()
    assert left_out(tmp_path) == ["own"]
    assert store_integrity.check(newest.files).damages == []


def test_an_input_that_a_newer_driver_has_fixed_fences_one_that_does_not_see_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = opened(str(tmp_path), 1)
    newer = CheckpointStore(tmp_path)
    newer.open(2.0)
    newer.log_offsets(2, {"offsets": {"rows": [1, 2]}})
    monkeypatch.setattr(older, "check_generation", lambda: None)  # as a folder may hide it
    with pytest.raises(FencedError, match=r"offsets/2\.json is there already"):
        older.log_offsets(2, {"offsets": {"rows": [1, 9]}})


def test_which_branches_count_is_known_from_the_fold_of_a_checkpoint_as_well(
    tmp_path: Path,
) -> None:
    older = opened(str(tmp_path), 1)
    name, data = late_branch(older, "late")
    newer = CheckpointStore(tmp_path)
    newer.open(2.0)
    newer.begin_checkpoint(1)
    newer.complete_checkpoint(1, checkpoint(1, "A"))
    newer.files.create(name, data)
    assert left_out(tmp_path) == []


def test_where_the_release_before_has_sealed_the_log_all_branches_count() -> None:
    seal = {"generation": 2, "plan_epoch": 0, "finished": {}, "outputs": [], "checkpoints": [5]}
    fold = CommitSummary()
    fold.take_in(1, seal)
    again = commit_summary.from_record({"fold": fold.record()}).seal
    assert again == fold.seal
    record = {"generation": 1, **branch("known")}
    assert checkpoint_records.counting_branches({1: record}, again) == {1: record}
    assert checkpoint_records.counting_branches({1: record}, Seal(2)) == {}


def test_what_counts_already_is_not_owed_a_second_time() -> None:
    owed = {**commit("A", 3, 4, 5), "checkpoint": 5, "late": [["rows/0", 3, 1], ["rows/0", 5, 2]]}
    owed["outputs"].append(["r/0", 4, 1, "A-4", "A"])
    fold = CommitSummary()
    fold.take_in(1, commit("B", 3, 4))
    left = output_commit.without_committed(owed, fold, {"r/0": 4})
    assert left["outputs"] == [["q/0", 5, 1, "A-5", "A"]]
    assert left["late"] == [["rows/0", 5, 2]]
