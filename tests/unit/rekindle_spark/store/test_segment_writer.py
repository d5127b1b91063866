"""Older commits go into segments: readers get the same log at any moment, and whoever crashes."""

import gzip
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import fresh_python
import pytest
from memory_files import Crashed, MemoryFiles
from stores import FINISHED, cut, logged, opened, states

from rekindle.model import record_format
from rekindle.model.errors import DamagedError, FencedError, RunError
from rekindle_spark.store import segment_writer
from rekindle_spark.store.checkpoint_store import CheckpointStore
from rekindle_spark.store.commit_summary import from_record
from rekindle_spark.store.segment_writer import LEFTOVER_SECONDS, SegmentWriter
from rekindle_store import commit_log, commit_segments
from rekindle_store.store_files import Files
from rekindle_store.transfers import Moved, unwatched

LENGTH = 4
WAIT_SECONDS_MAX = 30.0


@pytest.fixture(autouse=True)
def _short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_segments, "LENGTH", LENGTH)


def commit(epoch: int) -> dict[str, Any]:
    finished = {"rows/0": [epoch, epoch, [f"{epoch:016x}"]]}
    return {"generation": 1, **FINISHED, "at": float(epoch), "finished": finished}


def again(at: int) -> dict[str, Any]:
    """What a driver commits where an epoch has run once more."""
    return {**FINISHED, "at": float(at), "finished": {"rows/0": [1, 1, ["d"]]}}


def seal(generation: int) -> dict[str, Any]:
    return {"generation": generation, **FINISHED, "plan_epoch": 0}


def log_of(count: int, starts: Iterable[int] = ()) -> MemoryFiles:
    """Commits of which those of these numbers seal the log at a start."""
    files = MemoryFiles()
    for number in range(1, count + 1):
        content = seal(number) if number in starts else commit(number)
        files.content[f"commits/{number}.json"] = record_format.encode("commit", content)
    return files


class Littered(MemoryFiles):
    """A store that says when it is looked through for leftovers."""

    def __init__(self) -> None:
        super().__init__()
        self.looked_through: list[float] = []
        self.once, self.twice = threading.Event(), threading.Event()

    def remove_leftovers(self, seconds: float) -> None:
        self.looked_through.append(seconds)
        (self.twice if self.once.is_set() else self.once).set()
        raise OSError("the store is away")


def read(files: Files, after: int = 0) -> list[tuple[int, float]]:
    return [(number, record["at"]) for number, record in commit_log.commits(files, after)]


def own(files: MemoryFiles) -> list[int]:
    """The records that have files of their own."""
    names = (name.removeprefix("commits/") for name in files.content if "segments" not in name)
    return sorted(int(name.removesuffix(".json")) for name in names)


def run(files: MemoryFiles, covered: int) -> None:
    sealing = SegmentWriter(files, lambda: covered)
    while sealing.advance():
        pass


def test_what_a_checkpoint_covers_goes_into_segments_but_for_the_newest() -> None:
    files = log_of(14)
    before = read(files)
    run(files, 12)
    assert files.names("commits/segments") == ["1-4.jsonl.gz", "5-8.jsonl.gz"]
    assert own(files) == [9, 10, 11, 12, 13, 14]
    assert read(files) == before
    run(files, 13)
    assert own(files) == [13, 14]
    assert read(files) == before
    assert [read(files, after) for after in range(15)] == [before[after:] for after in range(15)]
    assert commit_log.newest(files) == 14


def test_a_segment_has_all_of_its_records_but_digests() -> None:
    files = log_of(5)
    before = [record for _, record in commit_log.commits(files)]
    run(files, 5)
    after = [record for _, record in commit_log.commits(files)]
    assert after == [*map(commit_segments.kept, before[:4]), before[4]]
    assert [record["finished"]["rows/0"][2] for record in after] == [
        [],
        [],
        [],
        [],
        ["0" * 15 + "5"],
    ]


def as_before(files: MemoryFiles, first: int) -> bytes:
    """What a driver of the version before makes of records that have files of their own."""
    names = [f"commits/{number}.json" for number in range(first, first + LENGTH)]
    return gzip.compress(b"".join(files.content[name] for name in names), mtime=0)


def test_a_segment_that_a_driver_of_the_version_before_has_just_made_is_taken_as_it_is() -> None:
    files, before = log_of(9), read(log_of(9))
    theirs, create = as_before(files, 1), files.create

    def overtaken(name: str, data: bytes) -> None:
        files.content.setdefault("commits/segments/1-4.jsonl.gz", theirs)
        create(name, data)

    files.create = overtaken  # type: ignore[method-assign]
    run(files, 9)
    assert files.content["commits/segments/1-4.jsonl.gz"] == theirs
    assert (read(files), own(files)) == (before, [9])
    assert [read(files, after) for after in range(9)] == [before[after:] for after in range(9)]


def test_a_driver_of_the_version_before_meets_a_version_that_it_does_not_know() -> None:
    """It looks at the number of lines, and then at each from the first that it needs."""
    files = log_of(5)
    run(files, 5)
    lines = gzip.decompress(files.content["commits/segments/1-4.jsonl.gz"]).splitlines()
    assert len(lines) == LENGTH
    with pytest.raises(RunError, match="has version 2 of commit, known is 1; run the version of"):
        record_format.decode("commit", lines[0], "here")


@pytest.mark.parametrize("in_place", ["another record", "another order", "damaged"])
def test_no_record_loses_its_file_to_a_segment_that_is_not_what_it_should_be(in_place: str) -> None:
    files, other = log_of(9), log_of(9)
    other.content["commits/2.json"] = record_format.encode("commit", commit(7))
    names = [f"commits/{number}.json" for number in range(1, 5)]
    records = [record_format.decode("commit", other.content[name], name) for name in names]
    if in_place == "another order":
        records = [records[0], *records[:0:-1]]
    data = commit_segments.pack(records)
    create = files.create

    def written(name: str, _: bytes) -> None:
        create(name, data[:-9] if in_place == "damaged" else data)

    files.create = written  # type: ignore[method-assign]
    with pytest.raises(DamagedError, match=r"1-4\.jsonl\.gz"):
        run(files, 9)
    assert own(files) == list(range(1, 10))


def test_a_start_from_an_older_checkpoint_has_the_digests_of_all_that_may_run_again(
    tmp_path: Path,
) -> None:
    store = opened(tmp_path)
    for epoch in range(1, 19):
        store.log_offsets(epoch, cut(epoch))
        store.commit(commit(epoch))
        if epoch in (8, 10, 17):
            store.complete_checkpoint(epoch, states())
    run_of(store)
    made = sorted(path.name for path in (tmp_path / "commits/segments").iterdir())
    assert made == ["1-4.jsonl.gz", "5-8.jsonl.gz"], "up to epoch 10, and not up to 17"
    (tmp_path / "checkpoints/17.json").write_bytes(b"{}")
    history = CheckpointStore(tmp_path).open(20.0)
    assert history.checkpoint is not None
    assert history.checkpoint["epoch"] == 10
    digests = {epoch: f"{epoch:016x}" for epoch in range(11, 19)}
    assert history.fold.finished["rows/0"][0].digests == digests


def test_a_driver_that_starts_seals_no_more_than_all_checkpoints_cover(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for epoch in range(1, 19):
        store.log_offsets(epoch, cut(epoch))
        store.commit(commit(epoch))
        if epoch in (10, 17):
            store.complete_checkpoint(epoch, states())
    later = opened(tmp_path)
    assert (store.covered, later.covered) == (10, 10)
    run_of(later)
    assert commit_segments.newest(later.files) == 8
    (tmp_path / "checkpoints/10.json").write_bytes(b"{}")
    assert opened(tmp_path).covered == 17


def test_a_start_that_has_to_read_segments_knows_how_far_all_is_and_compares_nothing(
    tmp_path: Path,
) -> None:
    """An older version has written the checkpoint, and nobody knows what its commits say together;
    or the records of checkpoints with folds were lost."""
    store = opened(tmp_path)
    for epoch in range(1, 11):
        store.log_offsets(epoch, cut(epoch))
        store.commit({**commit(epoch), "choices": [["odd.dead-letters/0", epoch, [1, 2], []]]})
    run_of(store, 10)
    lost = {"epoch": 2, "generation": 1, **states()}
    (tmp_path / "checkpoints/2.json").write_bytes(record_format.encode("checkpoint", lost))
    fold = CheckpointStore(tmp_path).open(20.0).fold
    reached = fold.finished["rows/0"][0]
    assert (reached.last, reached.spans) == (10, [(1, 10)])
    assert sorted(reached.digests) == [9, 10]
    assert sorted(fold.choices["odd.dead-letters/0"]) == list(range(1, 11)), "to leave out again"
    assert from_record({"fold": fold.record()}) == fold


def run_of(store: CheckpointStore, covered: int | None = None) -> None:
    sealing = SegmentWriter(store.files, lambda: covered or store.covered)
    while sealing.advance():
        pass


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("fatal", range(1, 12))
def test_a_crash_at_any_moment_loses_nothing_and_counts_nothing_twice(
    fatal: int, after: bool
) -> None:
    starts = {4, 5, 7}
    files = log_of(13, starts)
    before, looks = read(files), []

    def look() -> None:
        assert read(files) == before
        looks.append(read(files, 6) == before[6:])

    files.watch, files.fatal, files.after = look, fatal, after
    with pytest.raises(Crashed):
        run(files, 13)
    files.fatal = None
    run(files, 13)
    assert own(files) == sorted({13} | starts)
    assert looks.count(True) >= 12


def test_two_drivers_that_make_segments_at_once_do_no_harm() -> None:
    files, before = log_of(9), read(log_of(9))
    older, newer = SegmentWriter(files, lambda: 9), SegmentWriter(files, lambda: 9)
    assert older.advance()

    # the newer one has listed the segments before, and packs in another way
    newer.begin = 1
    data = files.content["commits/segments/1-4.jsonl.gz"]
    files.content["commits/segments/1-4.jsonl.gz"] = gzip.compress(gzip.decompress(data), 1)
    assert newer.advance()
    assert newer.advance()
    assert older.advance()
    assert (read(files), own(files)) == (before, [9])


def test_a_commit_that_was_under_way_for_long_is_refused_though_its_segment_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = opened(tmp_path)
    older.log_offsets(1, cut(1))
    for at in (1, 2):
        older.commit(again(at))
    monkeypatch.setattr(older, "check_generation", lambda: None)  # it had looked before
    newer = opened(tmp_path)
    for at in range(4, 13):
        newer.commit(again(at))
    newer.complete_checkpoint(1, states())
    log = logged(newer)
    sealing = SegmentWriter(newer.files, lambda: newer.covered)
    assert sealing.advance()
    assert sealing.advance()
    assert sorted(path.name for path in (tmp_path / "commits").glob("*.json")) == [
        *("10.json", "11.json", "12.json", "3.json", "9.json")
    ]
    with pytest.raises(FencedError, match=r"commits/3\.json is there already"):
        older.commit(again(3))
    assert logged(newer) == [*map(commit_segments.kept, log[:8]), *log[8:]]
    assert CheckpointStore(tmp_path).open(20.0).fold.commits == 13


def test_a_record_that_goes_while_it_is_read_is_found_in_its_segment() -> None:
    class Removing(MemoryFiles):
        def read(self, name: str, moved: Moved = unwatched) -> bytes:
            if name == self.awaited:
                self.awaited = ""
                run(self, 9)
            return super().read(name, moved)

    for number in range(1, 10):
        files = Removing()
        files.content, files.awaited = log_of(9).content, f"commits/{number}.json"
        assert [found for found, _ in read(files)] == list(range(1, 10))
        assert own(files) == [9]


@pytest.mark.parametrize(
    "damage",
    [b"", b"{}", gzip.compress(b"{}\n", mtime=0), gzip.compress(b"x\n" * 4, mtime=0)],
    ids=["empty", "not packed", "too short", "no records"],
)
def test_a_damaged_segment_is_named(damage: bytes) -> None:
    files = log_of(9)
    run(files, 9)
    files.content["commits/segments/5-8.jsonl.gz"] = damage
    with pytest.raises(DamagedError, match=r"memory/commits/segments/5-8\.jsonl\.gz"):
        read(files)


def test_a_record_that_cannot_be_read_goes_into_no_segment() -> None:
    files = log_of(9)
    files.content["commits/2.json"] = b"{}"
    with pytest.raises(DamagedError, match=r"commits/2\.json"):
        run(files, 9)
    del files.content["commits/2.json"]
    with pytest.raises(DamagedError, match=r"commits/2\.json: is not there"):
        run(files, 9)
    assert own(files) == [1, 3, 4, 5, 6, 7, 8, 9]


def test_a_gap_among_segments_is_found() -> None:
    files = log_of(13)
    run(files, 13)
    del files.content["commits/segments/5-8.jsonl.gz"]
    assert [number for number, _ in read(files)] == [1, 2, 3, 4]
    with pytest.raises(DamagedError, match=r"commits/5\.json: is not there, but what came later"):
        commit_log.check_next(files, 4)


def test_the_thread_goes_on_after_the_store_was_away_and_ends_at_damage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rekindle_spark.store.segment_writer.PAUSE_SECONDS", 0.001)
    files, told, away = log_of(9), list[str](), [OSError(5, "away")] * 3
    files.content["commits/6.json"] = b"{}"
    create = files.create

    def created(name: str, data: bytes) -> None:
        if away:
            raise away.pop()
        create(name, data)

    monkeypatch.setattr(files, "create", created)
    thread = SegmentWriter(files, lambda: 9, told.append).start()
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert (away, own(files)) == ([], [5, 6, 7, 8, 9])
    assert "commits/6.json" in told[0]


def test_the_thread_does_not_end_unnoticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rekindle_spark.store.segment_writer.PAUSE_SECONDS", 0.001)
    told = list[str]()

    def covered() -> int:
        raise KeyError("a bug")

    SegmentWriter(log_of(9), covered, told.append).start().join(timeout=60)
    assert told == ["ended by KeyError: 'a bug'"]


MEMORY = """
import resource, sys
from rekindle_spark.store.checkpoint_store import CheckpointStore as Store
used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert Store(sys.argv[1]).read().fold.commits == int(sys.argv[2])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used)
"""


@pytest.fixture(name="sealed")
def _sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Path]:
    """Makes stores with so many past commits; segments have their real length."""
    monkeypatch.undo()

    def made(count: int) -> Path:
        write_sealed(tmp_path / str(count), count)
        return tmp_path / str(count)

    return made


def test_a_start_takes_no_more_memory_with_a_hundred_thousand_past_commits_than_with_a_thousand(
    sealed: Callable[[int], Path],
) -> None:
    used = [
        int(subprocess.check_output([sys.executable, "-c", MEMORY, sealed(count), str(count)]))
        for count in (1_000, 100_000)
    ]
    assert used[1] < used[0] + 2 * 2**10, "in KiB; the allocator is never quite the same"


READ_ALL = """
import sys
from rekindle_store import commit_log, store_files
files = store_files.at(sys.argv[1])
assert sum(1 for _ in commit_log.commits(files)) == int(sys.argv[2])
"""


def test_a_reader_of_all_commits_holds_no_more_of_them_where_there_are_more(
    sealed: Callable[[int], Path],
) -> None:
    peaks = []
    for count in (1_000, 3_000):
        peaks.append(fresh_python.traced_peak(READ_ALL, str(sealed(count)), str(count)))
    assert peaks[1] < 1.5 * peaks[0]


def write_sealed(directory: Path, count: int) -> None:
    """A store with so many commits, which all say the same, but for the last 500 in segments. A
    checkpoint covers all but one."""
    store, line = opened(directory), record_format.encode("commit", commit(1))
    segment = commit_segments.pack([commit(1)] * commit_segments.LENGTH)
    for number in range(1, count - commit_segments.LENGTH, commit_segments.LENGTH):
        (directory / commit_segments.name_of(number)).write_bytes(segment)
    for number in range(count - commit_segments.LENGTH + 1, count + 1):
        (directory / f"commits/{number}.json").write_bytes(line)
    store.log_offsets(1, cut(1))
    store.fold.take_in(1, commit(1))
    store.fold.commits = count - 1
    store.complete_checkpoint(1, states())


def test_leftovers_are_looked_for_again_after_a_day_of_a_driver_that_lives_for_months(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segment_writer, "PAUSE_SECONDS", 0.01)
    files = Littered()
    writer = SegmentWriter(files, lambda: 0)
    thread = writer.start()
    assert files.once.wait(WAIT_SECONDS_MAX)
    assert not files.twice.wait(0.1), "a day has not gone by"
    writer.leftovers_at -= LEFTOVER_SECONDS
    assert files.twice.wait(WAIT_SECONDS_MAX)
    writer.stop()
    thread.join(WAIT_SECONDS_MAX)
    assert files.looked_through == [LEFTOVER_SECONDS] * 2
