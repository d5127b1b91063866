"""What commit records say together: the same as all of them, in a size that does not grow."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fresh_python
import pytest
from hypothesis import given
from hypothesis import strategies as some
from stores import FINISHED, cut, logged, opened, states

from rekindle.model import record_format
from rekindle.model.errors import DamagedError
from rekindle_spark.store.checkpoint_store import CheckpointStore
from rekindle_spark.store.commit_summary import CommitSummary, from_record
from rekindle_store import local_files
from rekindle_store.checkpoint_records import Seal

PARTITIONS = [f"rows/{index}" for index in range(6)]
EARLIER, LATER = 200, 2000


def commit(epoch: int, **fields: Any) -> dict[str, Any]:
    """The commit record of an epoch of all partitions."""
    finished = {name: [epoch, epoch, [f"{epoch:016x}"]] for name in PARTITIONS}
    return {**FINISHED, "at": float(epoch), "finished": finished, **fields}


def write(directory: Path, folder: str, number: int, kind: str, content: dict[str, Any]) -> None:
    """As the store does, but for what it does to have it on disk for good."""
    data = record_format.encode(kind, {"generation": 1, **content})
    (directory / folder / f"{number}.json").write_bytes(data)


def with_commits(directory: Path, count: int) -> CheckpointStore:
    """A store in which each of so many epochs was committed, and the last two were checkpointed."""
    store = opened(directory)
    for epoch in range(1, count + 1):
        if epoch > count - 2:
            store.log_offsets(epoch, cut(epoch))
            store.complete_checkpoint(epoch, states())
        write(directory, "commits", epoch, "commit", commit(epoch))
        store.fold.take_in(epoch, commit(epoch))
    return store


class Reads:
    """Counts what is read of a store."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        read = local_files.LocalFiles.read

        def counted(files: local_files.LocalFiles, name: str) -> bytes:
            self.names.append(name)
            return read(files, name)

        monkeypatch.setattr(local_files.LocalFiles, "read", counted)

    def taken(self) -> int:
        """How many files have been read since the last call."""
        count = len(self.names)
        self.names.clear()
        return count


def test_a_start_reads_what_the_newest_checkpoint_does_not_cover_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for count in (EARLIER, LATER):
        with_commits(tmp_path / str(count), count)
    reads, numbers = Reads(monkeypatch), []
    for count in (EARLIER, LATER):
        history = CheckpointStore(tmp_path / str(count)).open(20.0)
        assert history.fold.last("rows/3") == count
        assert history.fold.commits == count + 1  # the start has sealed the log
        numbers.append(reads.taken())
    assert max(numbers) < 20


READ_TWICE = """
import sys
from pathlib import Path
from rekindle_spark.store.checkpoint_store import CheckpointStore
store = CheckpointStore(Path(sys.argv[1]))
store.read()
store.read()
"""


def test_a_log_without_folds_is_read_once_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peaks, store = [], opened(tmp_path)
    write(tmp_path, "checkpoints", 1, "checkpoint", {"epoch": 1, **states()})
    for epoch in range(1, LATER + 1):
        write(tmp_path, "offsets", epoch, "offsets", {"epoch": epoch, **cut(epoch)})
        write(tmp_path, "commits", epoch, "commit", commit(epoch))
        if epoch in (EARLIER, LATER):
            checkpoint = {"epoch": epoch, **states()}  # as an older version has written it
            write(tmp_path, "checkpoints", epoch, "checkpoint", checkpoint)
            for old in range(1, epoch):
                (tmp_path / "offsets" / f"{old}.json").unlink(missing_ok=True)
            reads, store = Reads(monkeypatch), CheckpointStore(tmp_path)
            store.read()
            store.read()
            peaks.append(fresh_python.traced_peak(READ_TWICE, str(tmp_path)))
            log = [name for name in reads.names if name.startswith("commits/")]
            assert len(set(log)) <= epoch + 17
            assert log.count("commits/7.json") == 1
            monkeypatch.undo()
    assert store.fold.commits == LATER
    assert peaks[1] < 4 * 2**20  # kept they would take eight


def test_the_log_has_no_gap_behind_what_a_checkpoint_covers(tmp_path: Path) -> None:
    with_commits(tmp_path, 5)
    (tmp_path / "commits/2.json").unlink()
    assert CheckpointStore(tmp_path).read().fold.last("rows/0") == 5
    (tmp_path / "commits/4.json").unlink()
    with pytest.raises(DamagedError, match=r"commits/4\.json: is not there, but what came later"):
        CheckpointStore(tmp_path).read()


def test_a_store_that_is_begun_anew_between_two_looks_is_read_anew(tmp_path: Path) -> None:
    with_commits(tmp_path / "old", 9)
    with_commits(tmp_path / "new", 4)
    (tmp_path / "old").rename(tmp_path / "store")
    store = CheckpointStore(tmp_path / "store")
    assert store.read().fold.last("rows/0") == 9
    (tmp_path / "store").rename(tmp_path / "gone")
    (tmp_path / "new").rename(tmp_path / "store")
    assert store.read().fold.last("rows/0") == 4


def test_digests_are_known_of_epochs_behind_restore_points_alone(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for epoch in range(1, 8):
        store.log_offsets(epoch, cut(epoch))
        store.commit(commit(epoch))
    older = {"rows/1": 3}
    store.complete_checkpoint(6, {**states(), "older": older})
    found = CheckpointStore(tmp_path).read().fold.finished
    assert sorted(found["rows/0"][0].digests) == [7]
    assert sorted(found["rows/1"][0].digests) == [4, 5, 6, 7]
    assert found["rows/1"][0].digests[5] == f"{5:016x}"


def test_what_is_public_with_a_checkpoint_has_no_digests_to_compare_with() -> None:
    fold = CommitSummary()
    fold.take_in(1, commit(1, checkpoint=1))
    assert (fold.public, fold.finished["rows/0"][0].digests) == (1, {})


def test_an_output_that_a_branch_leaves_out_stays_where_it_was() -> None:
    fold = CommitSummary()
    fold.take_in(1, commit(4))
    fold.take_in(2, commit(9, left_out={"dear/0": 5, "dear/1": 6}))
    fold.take_in(3, commit(10, left_out={"dear/0": 5}))
    assert fold.finished["rows/0"][0].parts == {"dear/0": 5}
    assert fold.finished["rows/1"][0].parts == {"dear/1": 10}
    assert fold.finished["rows/2"][0].parts == {}
    fold.take_in(4, commit(8, branches=1))
    assert (fold.last("rows/0"), fold.finished["rows/0"][1].last) == (10, 8)


def is_of_letters(part: str) -> bool:
    return ".dead-letters" in part


def test_a_seal_says_which_checkpoints_count_and_letters_which_rows_were_left_out() -> None:
    fold, letters = CommitSummary(), "checked.dead-letters/0"
    fold.take_in(1, {**commit(4), "generation": 1, "outputs": [[letters, 4, 1, "f", "d"]]})
    fold.take_in(2, {**commit(5), "generation": 1, "choices": [[letters, 5, [2, 3], []]]})
    assert (fold.named, fold.seal) == ({letters: 4}, None)
    assert fold.choices == {letters: {4: None, 5: ([2, 3], [])}}
    fold.take_in(3, {**FINISHED, "generation": 2, "checkpoints": [4, 2]})
    assert fold.seal == Seal(2, frozenset({2, 4}), None)
    fold.forget({"epoch": 4})
    assert fold.choices == {letters: {5: ([2, 3], [])}}
    assert fold.finished["rows/0"][0].spans == [(5, 5)]


def _by_query() -> some.SearchStrategy[dict[str, float]]:
    return some.dictionaries(some.sampled_from(["quick", "slow"]), some.floats(0, 1e9))


def _logs() -> some.SearchStrategy[list[dict[str, Any]]]:
    epochs, names = some.integers(1, 30), some.sampled_from(PARTITIONS)
    parts = some.sampled_from(["q/0", "checked.dead-letters/0", "checked.dead-letters/1"])
    places = some.lists(epochs, max_size=2)
    one = some.fixed_dictionaries(
        {
            "at": some.floats(0, 1e9),
            "plan_epoch": some.integers(0, 9),
            "finished": some.dictionaries(
                names,
                some.tuples(epochs, some.integers(0, 3)).map(
                    lambda span: [span[0], span[0] + span[1], ["d"] * (span[1] + 1)]
                ),
            ),
            "late": some.lists(some.tuples(names, epochs, epochs).map(list), max_size=2),
            "generation": some.integers(1, 4),
            "outputs": some.lists(some.tuples(parts, epochs).map(list), max_size=3),
        },
        optional={
            "choices": some.lists(
                some.tuples(parts.filter(is_of_letters), epochs, places, places).map(list),
                max_size=2,
            ),
            "checkpoints": some.lists(epochs, max_size=2),
            "lag_goals": some.fixed_dictionaries(
                {"at": some.floats(0, 1e9), "seconds": _by_query()}, optional={"goals": _by_query()}
            ),
            "checkpoint": epochs,
            "branches": some.integers(1, 3),
            "left_out": some.dictionaries(some.sampled_from(["a/0", "a/1"]), epochs, min_size=1),
        },
    )
    return some.lists(one, max_size=12)


@given(_logs(), some.integers(0, 12))
def test_who_goes_on_from_a_record_knows_what_he_would_of_all_commits(
    log: list[dict[str, Any]], covered: int
) -> None:
    whole, part = CommitSummary(), CommitSummary()
    for number, record in enumerate(log, 1):
        whole.take_in(number, record)
        if number <= covered:
            part.take_in(number, record)
    line = record_format.encode("checkpoint", {"fold": part.record()})
    again = from_record(record_format.decode("checkpoint", line, "here"))
    assert again == part
    for number, record in list(enumerate(log, 1))[covered:]:
        again.take_in(number, record)
    assert again == whole
    for name, last in _lasts(log):
        assert whole.last(name) >= last


def _lasts(log: list[dict[str, Any]]) -> Iterator[tuple[str, int]]:
    return ((name, last) for record in log for name, (_, last, _) in record["finished"].items())


def test_two_loops_that_commit_at_once_leave_no_gap(tmp_path: Path) -> None:
    store = opened(tmp_path)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda epoch: store.commit(commit(epoch)), range(1, 41)))
    assert len(logged(store)) == store.fold.commits == 40
