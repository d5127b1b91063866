"""The store: records are made once, a newer driver fences an older one, readers see what stands."""

import errno
import json
import os
from pathlib import Path

import pytest
from stores import FINISHED, cut, kept, logged, opened, states, with_states

from rekindle.model.errors import DamagedError, FencedError, RunError
from rekindle_spark.store.checkpoint_store import CheckpointStore
from rekindle_spark.store.commit_summary import CommitSummary
from rekindle_spark.store.store_retry import StoreRetry
from rekindle_testing.runtime_builders import watched_flushes


def test_a_fresh_store_has_no_history_and_the_first_generation(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "new")
    history = store.open(10.0)
    assert store.generation == 1
    assert (history.offsets, history.fold, history.checkpoint) == ({}, CommitSummary(), None)


def test_a_start_records_what_its_pipeline_puts_out(tmp_path: Path) -> None:
    CheckpointStore(tmp_path).open(10.0, ["hourly", "busiest", "hourly"])
    record = json.loads((tmp_path / "generations/1.json").read_text())
    assert record["outputs"] == ["busiest", "hourly"]
    CheckpointStore(tmp_path).open(20.0)
    assert "outputs" not in json.loads((tmp_path / "generations/2.json").read_text())


def test_of_two_drivers_that_start_at_one_moment_each_has_a_generation_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = CheckpointStore(tmp_path), CheckpointStore(tmp_path)
    create = other.files.create

    def overtaken(name: str, data: bytes) -> None:
        monkeypatch.undo()
        one.open(10.0)
        create(name, data)

    monkeypatch.setattr(type(other.files), "create", lambda _, *args: overtaken(*args))
    other.open(10.0)
    assert (one.generation, other.generation) == (1, 2)


@pytest.mark.parametrize("foreign", [".snapshot", "@eaDir", "lost+found", "7.old"])
def test_folders_of_the_storage_system_are_left_alone(tmp_path: Path, foreign: str) -> None:
    store = with_states(tmp_path, 1, 2, 3)
    stray = tmp_path / "checkpoints" / foreign / "hourly"
    stray.parent.mkdir()
    stray.write_text("")
    for epoch in (1, 2, 3):
        store.complete_checkpoint(epoch, states("rows/0", "counts/0"))
    assert stray.exists()
    assert kept(tmp_path) == sorted(
        [f"{e}/{n}-0.state" for e in (2, 3) for n in ("rows", "counts")]
        + ["2.json", "3.json", f"{foreign}/hourly"]
    )


def test_a_store_has_the_same_identity_for_all_its_drivers(tmp_path: Path) -> None:
    older, newer = opened(tmp_path / "one"), opened(tmp_path / "one")
    assert older.identity() == newer.identity() != ""


def test_reading_changes_nothing(tmp_path: Path) -> None:
    history = CheckpointStore(tmp_path / "new").read()
    assert history.fold == CommitSummary()
    assert not (tmp_path / "new").exists()


def test_the_next_driver_finds_what_the_one_before_has_left(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.log_offsets(1, cut(5))
    first.commit({**FINISHED, "finished": {"rows/0": [1, 1, ["d"]]}})
    first.complete_checkpoint(1, states("rows/0"))
    second = CheckpointStore(tmp_path)
    history = second.open(20.0)
    assert second.generation == 2
    assert history.offsets[1]["offsets"] == {"rows": [0, 5]}
    assert history.fold.last("rows/0") == 1
    assert history.checkpoint is not None
    assert history.checkpoint["program"] == "abc"


def test_a_commit_of_an_older_driver_fails_once_a_newer_has_started(tmp_path: Path) -> None:
    older = opened(tmp_path)
    older.commit(FINISHED)
    newer = opened(tmp_path)
    with pytest.raises(FencedError, match="driver of generation 1: generation 2 has started; let"):
        older.commit(FINISHED)
    newer.commit(FINISHED)
    assert [record["generation"] for record in logged(newer)] == [1, 2, 2]


def test_a_commit_that_was_under_way_while_a_newer_driver_started_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = opened(tmp_path)
    monkeypatch.setattr(older, "check_generation", lambda: None)  # it had looked before
    newer = opened(tmp_path)
    with pytest.raises(FencedError, match="is there already"):
        older.commit(FINISHED)
    newer.commit(FINISHED)


def test_offsets_are_never_rewritten_and_the_newer_driver_adopts_the_older_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = opened(tmp_path)
    newer = opened(tmp_path)
    monkeypatch.setattr(older, "check_generation", lambda: None)  # it had looked before
    assert older.log_offsets(1, cut(5))["offsets"] == {"rows": [0, 5]}
    assert newer.log_offsets(1, cut(9))["offsets"] == {"rows": [0, 5]}
    assert newer.read().offsets[1]["offsets"] == {"rows": [0, 5]}


def test_an_older_driver_logs_no_offsets(tmp_path: Path) -> None:
    older = opened(tmp_path)
    opened(tmp_path)
    with pytest.raises(FencedError, match="let the newer driver go on"):
        older.log_offsets(1, cut(5))


def test_an_older_driver_completes_no_checkpoint(tmp_path: Path) -> None:
    older = opened(tmp_path)
    newer = opened(tmp_path)
    with pytest.raises(FencedError):
        older.complete_checkpoint(4, states("rows/0"))
    assert newer.read().checkpoint is None


def test_a_global_checkpoint_removes_all_but_the_one_before_it(tmp_path: Path) -> None:
    store = with_states(tmp_path, 1, 2, 3, 4)
    for epoch in (1, 3, 4):
        store.complete_checkpoint(epoch, states("rows/0", "counts/0"))
    names = ["counts-0.state", "rows-0.state"]
    folders = [f"{epoch}/{name}" for epoch in (3, 4) for name in names]
    assert kept(tmp_path) == sorted([*folders, "3.json", "4.json"])
    assert list(store.read().offsets) == [3, 4]


def test_what_is_behind_keeps_its_state_and_its_input_through_later_checkpoints(
    tmp_path: Path,
) -> None:
    store = with_states(tmp_path, 1, 2, 3, 4)
    store.complete_checkpoint(1, states("rows/0", "counts/0"))
    inputs = []
    for epoch in (2, 3, 4):
        (tmp_path / "checkpoints" / str(epoch) / "counts-0.input").write_text("input")
        frames = {"rows/0": [epoch, epoch + 1]}
        inputs.append({"checkpoint": epoch, "frames": frames, "partitions": ["counts/0"]})
        behind = {"older": {"counts/0": 1}, "inputs": list(inputs)}
        store.complete_checkpoint(epoch, {**states("rows/0"), **behind})
    assert kept(tmp_path) == [
        "1/counts-0.state",
        "2/counts-0.input",
        "3.json",
        "3/counts-0.input",
        "3/rows-0.state",
        "4.json",
        "4/counts-0.input",
        "4/counts-0.state",
        "4/rows-0.state",
    ]
    assert list(store.read().offsets) == [1, 2, 3, 4]


def test_the_input_of_an_older_state_is_not_needed_any_more(tmp_path: Path) -> None:
    store = with_states(tmp_path, 4, 5, 6, 7)
    store.complete_checkpoint(4, states("rows/0", "counts/0"))
    store.complete_checkpoint(6, {**states("rows/0"), "older": {"counts/0": 4}})
    offsets = tmp_path / "offsets"
    (offsets / "4.json").unlink()
    assert list(store.read().offsets) == [5, 6, 7]
    (offsets / "5.json").unlink()
    with pytest.raises(DamagedError, match=r"offsets/5\.json: is not there"):
        store.read()


def test_a_driver_that_is_fenced_while_it_completes_a_checkpoint_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = opened(tmp_path)
    for epoch in (1, 2):
        older.begin_checkpoint(epoch)
    older.complete_checkpoint(1, states("rows/0"))
    older.log_offsets(1, cut(1))
    link, newer = os.link, CheckpointStore(tmp_path)

    def overtaken(source: Path, path: Path) -> None:
        link(source, path)
        monkeypatch.setattr("os.link", link)
        newer.open(20.0)

    monkeypatch.setattr("os.link", overtaken)
    with pytest.raises(FencedError):
        older.complete_checkpoint(2, states("rows/0"))
    assert sorted(path.name for path in (tmp_path / "checkpoints").glob("1*")) == ["1", "1.json"]
    assert 1 in newer.read().offsets


def test_what_may_not_be_removed_is_told_and_holds_up_no_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = with_states(tmp_path, 1, 2, 3)
    for epoch in (1, 2):
        assert store.complete_checkpoint(epoch, states())
    assert (store.not_removed, store.settled) == ("", 1)
    names = store.files.names

    def refused(folder: str) -> list[str]:
        if folder == "offsets":
            raise PermissionError(errno.EACCES, "Permission denied", folder)
        return names(folder)

    monkeypatch.setattr(store.files, "names", refused)
    assert store.complete_checkpoint(3, states())
    assert "Permission denied" in store.not_removed
    assert store.settled == 2
    monkeypatch.undo()
    store.log_offsets(4, cut(4))
    assert store.complete_checkpoint(4, states())
    assert store.not_removed == ""


def test_a_record_is_on_disk_before_its_name_and_that_before_anything_goes_on(
    tmp_path: Path,
) -> None:
    store = opened(tmp_path)
    with watched_flushes() as flushed:
        store.commit(FINISHED)
    record, folder = flushed
    assert record.parent == folder == tmp_path / "commits"
    assert record.name != "1.json"
    assert sorted(path.name for path in folder.iterdir()) == ["1.json", "segments"]


def test_folders_of_the_store_are_on_disk_each_before_the_next(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "new" / "store")
    with watched_flushes() as flushed:
        store.make_outputs(["delays", "delays"])
    made = tmp_path / "new" / "store" / "outputs"
    assert flushed == [tmp_path, tmp_path / "new", made.parent, made]
    assert [path.name for path in made.iterdir()] == ["delays"]


def test_a_damaged_record_is_named_with_a_remedy(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.commit(FINISHED)
    path = tmp_path / "commits" / "1.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "at": 2.0}))
    with pytest.raises(RunError, match=r"commits/1\.json: does not match its checksum; restore"):
        CheckpointStore(tmp_path).read()


def test_what_a_crash_left_half_written_is_no_record(tmp_path: Path) -> None:
    store = opened(tmp_path)
    (tmp_path / "commits" / ".1.1.unfinished").write_text("{")
    assert logged(store) == []
    store.commit(FINISHED)
    assert len(logged(store)) == 1


def test_each_driver_writes_a_program_of_its_own(tmp_path: Path) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    assert first.write_program(b"one") != second.write_program(b"two")


def test_programs_of_drivers_before_the_last_one_go(tmp_path: Path) -> None:
    for _ in range(4):
        opened(tmp_path).write_program(b"one")
    names = sorted(path.name for path in (tmp_path / "generations").glob("*.pickle"))
    assert names == ["program-3.pickle", "program-4.pickle"]


def test_a_store_that_is_away_is_waited_for_and_a_commit_is_made_once(tmp_path: Path) -> None:
    directory, away = tmp_path / "store", tmp_path / "away"
    store, said = opened(directory), list[str | None]()

    def say(cause: str | None) -> None:
        said.append(cause)
        if cause is not None:
            away.rename(directory)

    store.patience = StoreRetry(60.0, say)
    directory.rename(away)
    store.commit(FINISHED)
    store.commit(FINISHED)
    assert len(logged(store)) == 2
    assert [cause is None for cause in said] == [False, True]


def test_a_commit_that_was_made_though_it_seemed_to_fail_is_not_made_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, link = opened(tmp_path), os.link
    store.patience = StoreRetry(60.0)

    def made_and_failed(source: Path, path: Path) -> None:
        link(source, path)
        monkeypatch.setattr("os.link", link)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.link", made_and_failed)
    store.commit(FINISHED)
    assert len(logged(store)) == 1


def test_who_was_superseded_while_the_store_was_away_makes_no_checkpoint(tmp_path: Path) -> None:
    directory, away = tmp_path / "store", tmp_path / "away"
    older = opened(directory)

    def another_driver_comes(cause: str | None) -> None:
        if cause is not None:
            away.rename(directory)
            opened(directory)

    older.patience = StoreRetry(60.0, another_driver_comes)
    directory.rename(away)
    with pytest.raises(FencedError, match="generation 2 has started"):
        older.complete_checkpoint(4, states("rows/0"))
    assert kept(directory) == []


def test_patience_with_a_store_has_an_end_that_says_what_to_do(tmp_path: Path) -> None:
    store = opened(tmp_path / "store")
    (tmp_path / "store").rename(tmp_path / "away")
    with pytest.raises(RunError, match="checkpoint store: could not be reached or written for 0 s"):
        store.commit(FINISHED)


@pytest.mark.parametrize("gone", ["commits/2.json", "offsets/2.json", "offsets/3.json"])
def test_a_record_that_has_vanished_is_named(tmp_path: Path, gone: str) -> None:
    store = opened(tmp_path)
    for epoch in (1, 2, 3):
        store.log_offsets(epoch, cut(epoch))
        store.commit({**FINISHED, "finished": {"rows/0": [epoch, epoch, ["d"]]}})
    (tmp_path / gone).unlink()
    with pytest.raises(DamagedError, match=rf"{gone}: is not there, but what came later is"):
        CheckpointStore(tmp_path).read()


def test_what_a_checkpoint_does_not_need_may_be_gone(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for epoch in (1, 2, 3):
        store.log_offsets(epoch, cut(epoch))
    store.complete_checkpoint(2, states("rows/0"))
    assert sorted(store.read().offsets) == [2, 3]


def test_rows_that_have_waited_for_a_branch_go_once_no_start_reads_them(tmp_path: Path) -> None:
    store = with_states(tmp_path, *range(1, 9))
    store.log_branch({"chain": "counts", "step": "odd", "partition": "counts/0", "epoch": 2})
    store.make_outputs(["odd~branch", "odd"])
    for epoch in range(2, 9):
        store.files.put({f"outputs/odd~branch/0-{epoch:09d}.parquet": b"rows"})
    store.files.put({"outputs/odd/0-000000002.parquet": b"output"})

    def waiting() -> list[int]:
        names = store.files.names("outputs/odd~branch")
        return sorted(int(name.removesuffix(".parquet")[-9:]) for name in names)

    store.complete_checkpoint(4, {**states(), "older": {"odd~branch/0": 3}})
    assert (waiting(), store.settled) == ([4, 5, 6, 7, 8], 3)
    store.complete_checkpoint(6, states())
    assert (waiting(), store.settled) == ([4, 5, 6, 7, 8], 3), "the one before may be gone on from"
    later = opened(tmp_path)
    assert later.settled == 0
    later.complete_checkpoint(8, states())
    assert (waiting(), later.settled) == ([7, 8], 6)
    later.complete_checkpoint(9, states())
    later.complete_checkpoint(10, states())
    assert waiting() == []
    assert (tmp_path / "outputs/odd~branch").is_dir(), "hosts may write there again"
    assert store.files.names("outputs/odd") == ["0-000000002.parquet"]
