"""Output files of old commits are put together, and readers get the same rows at any moment.

Through crashes, and beside another driver that does the same; and there are few files then.
"""

import errno
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from compacted_stores import Log, Read, assert_same, finish, log_of, make_small, reading
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_files import Crashed, MemoryFiles

from rekindle.model.errors import DamagedError, FencedError
from rekindle_spark.output import row_packing
from rekindle_spark.output.output_compaction import Compaction, _EndedError
from rekindle_store import commit_segments, compacted_outputs, output_rows
from rekindle_store.compacted_outputs import Places
from rekindle_store.output_rows import OutputRows
from rekindle_store.transfers import Moved, unwatched


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)


def test_what_is_sealed_and_settled_is_put_together_level_by_level() -> None:
    log = log_of(11)
    finish(log.compaction())
    assert log.indices() == ["1-8", "9-10"]
    assert log.single_files() == [11]
    assert log.data_files() == [
        f"{query}/commits-{span}-1-{attempt}-0.parquet"
        for query in ("busiest", "hourly")
        for span, attempt in (("1-8", 8), ("9-10", 5))
    ]
    assert_same(list(reading(log.files)), log.written)


def test_what_may_run_again_is_not_put_together_yet() -> None:
    log, settled = log_of(7), [0]
    compaction = log.compaction(settled=lambda: settled[0])
    for epoch, single in ((1, 1), (2, 3), (3, 3), (4, 5), (5, 5), (6, 7)):
        settled[0] = epoch
        finish(compaction)
        assert log.single_files() == list(range(single, 8))
    assert_same(list(reading(log.files)), log.written)


def test_a_segment_that_waits_is_not_read_again_and_again() -> None:
    log = log_of(5)
    compaction, read = log.compaction(settled=lambda: 0), list[str]()

    class Watched(MemoryFiles):
        def read(self, name: str, moved: Moved = unwatched) -> bytes:
            read.append(name)
            return super().read(name, moved)

    compaction.files = Watched()
    compaction.files.content = log.files.content
    for _ in range(3):
        assert not compaction.advance()
    assert read == [commit_segments.name_of(1)]


def test_single_files_stay_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rekindle_spark.output.output_compaction.GRACE_SECONDS", 60.0)
    log, now = log_of(5), [100.0]
    compaction = log.compaction()
    compaction.now = lambda: now[0]
    finish(compaction)
    now[0] = 159.0
    finish(compaction)
    assert log.single_files() == [1, 2, 3, 4, 5]
    assert log.indices() == ["1-2", "3-4"], "those of a higher level wait as well"
    now[0] = 160.0
    finish(compaction)
    assert log.single_files() == [5]
    assert log.indices() == ["1-2", "1-4", "3-4"]
    now[0] = 220.0
    finish(compaction)
    assert log.indices() == ["1-4"]


CRASHES = [(fatal, after) for after in (False, True) for fatal in range(1, 60)]


@pytest.mark.parametrize(("fatal", "after"), CRASHES)
def test_a_crash_at_any_write_loses_nothing_and_counts_nothing_twice(
    fatal: int, after: bool
) -> None:
    log = log_of(9)
    files = log.files
    files.fatal, files.after = fatal, after
    with pytest.raises(Crashed):
        finish(log.compaction())
    files.fatal = None
    assert_same(list(reading(files)), log.written)
    newer = log.compaction(generation=2)
    finish(newer)
    newer.sweep()
    assert_same(list(reading(files)), log.written)
    assert (log.indices(), log.single_files(), len(log.data_files())) == (["1-8"], [9], 2)


def test_crashes_are_at_all_writes() -> None:
    log, writes = log_of(9), list[int]()
    log.files.watch = lambda: writes.append(1)
    finish(log.compaction())
    assert len(writes) == max(fatal for fatal, _ in CRASHES)


@pytest.mark.parametrize("sample", range(1, 9))
def test_readers_that_began_at_any_write_get_all_rows(sample: int) -> None:
    """One more at each write, of which each has read one file more before the next."""
    log = log_of(9)
    readers: list[tuple[list[Read], Iterator[Read]]] = []

    def watch() -> None:
        if len(readers) < 6 * sample:
            readers.append(([], reading(log.files)))
        for found, rest in readers:
            found.extend(one for one in [next(rest, None)] if one is not None)

    log.files.watch = watch
    finish(log.compaction())
    for found, rest in readers:
        assert_same([*found, *rest], log.written)


def test_two_drivers_that_put_together_the_same_do_no_harm() -> None:
    log = log_of(9)
    older, newer = log.compaction(generation=1), log.compaction(generation=2)
    assert older.advance()
    create = log.files.create
    won: list[str] = []

    def create_after_the_other(name: str, data: bytes) -> None:
        if not won:
            won.append(name)
            assert older.advance()  # removes the single files of the first segment
            assert older.advance()
        create(name, data)

    newer.files = log.files
    log.files.create = create_after_the_other  # type: ignore[method-assign]
    newer.made = [set(), set(), set()]
    finish(newer)
    finish(older)
    assert won
    assert_same(list(reading(log.files)), log.written)
    assert (log.indices(), log.single_files(), len(log.data_files())) == (["1-8"], [9], 2)


class Story:
    """Drivers and readers of one store, of which any goes on while another is at a write."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.log = log_of(3)
        self.log.files.watch = self.others
        self.readers: list[tuple[int, list[Read], Iterator[Read]]] = []
        self.drivers = [self.log.compaction(1)]
        self.busy: list[object] = []

    def others(self) -> None:
        """What happens at a write of somebody."""
        if len(self.busy) < 3 and self.data.draw(st.booleans()):
            self.step()

    def step(self) -> None:
        drivers = [one for one in self.drivers if one not in self.busy]
        choice = self.data.draw(st.sampled_from(["commit", "read", "read", "start", "advance"]))
        if choice == "commit" and not self.busy:
            self.log.commit(self.log.commits + 1)
            self.log.seal()
        elif choice == "start" and len(self.drivers) < 4:
            self.drivers.append(self.log.compaction(len(self.drivers) + 1))
        elif choice == "advance" and drivers:
            self.advance(self.data.draw(st.sampled_from(drivers)))
        elif choice == "read":
            self.read()

    def advance(self, driver: Compaction) -> None:
        """A driver does a thing, or is killed meanwhile."""
        self.busy.append(driver)
        files = self.log.files
        if len(self.busy) == 1:
            files.fatal = self.data.draw(st.none() | st.integers(1, 6))
        try:
            driver.advance()
        except Crashed:
            self.drivers.remove(driver)
        except (FileNotFoundError, DamagedError):
            assert driver is not self.drivers[-1], "the newest driver meets no trouble"
        finally:
            self.busy.pop()
            if not self.busy:
                files.fatal = None

    def read(self) -> None:
        """A reader begins, or goes on by a file."""
        if not self.readers or (len(self.readers) < 4 and self.data.draw(st.booleans())):
            self.readers.append((len(self.log.written), [], reading(self.log.files)))
        _, found, rest = self.data.draw(st.sampled_from(self.readers))
        found.extend(one for one in [next(rest, None)] if one is not None)

    def end(self) -> None:
        """All readers come to their end, and all is put together."""
        self.log.files.watch = lambda: None
        self.busy.clear()
        for known, found, rest in self.readers:
            found.extend(rest)
            assert len(found) >= known
            assert_same(found, self.log.written[: len(found)])
        last = self.log.compaction(9)
        finish(last)
        last.sweep()
        assert_same(list(reading(self.log.files)), self.log.written)
        named = {name for index in last._indices(last._listed()) for name in index.data_files()}
        assert {f"outputs/{name}" for name in self.log.data_files()} == named
        assert self.log.single_files() == list(range(self.log.sealed + 1, self.log.commits + 1))


@given(st.data(), st.integers(5, 25))
@settings(max_examples=15, deadline=None)
def test_rows_order_and_commits_are_the_same_in_any_interleaving(
    data: st.DataObject, steps: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        story = Story(data)
        for _ in range(steps):
            story.step()
        story.end()


def test_a_store_that_is_away_at_any_write_is_gone_on_with() -> None:
    log = log_of(9)
    files, away = log.files, [0]

    def fail() -> None:
        away[0] += 1
        if away[0] % 2:
            raise OSError(errno.EIO, "away")

    files.watch = fail
    compaction = log.compaction()
    for _ in range(300):
        try:
            if not compaction.advance():
                break
        except OSError:
            if away[0] % 10 == 1:
                assert_same(list(reading(files)), log.written)
    newer = log.compaction(generation=2)
    files.watch = lambda: None
    finish(newer)
    newer.sweep()
    assert_same(list(reading(files)), log.written)
    assert (log.indices(), log.single_files(), len(log.data_files())) == (["1-8"], [9], 2)


def test_columns_that_change_begin_another_file() -> None:
    def changing(epoch: int) -> pa.Table:
        kind = pa.int64() if epoch < 3 else pa.float64()
        return pa.table({"n": pa.array([epoch], kind)}, metadata={"v": str(epoch < 6)})

    log = log_of(9, changing)
    finish(log.compaction())
    assert_same(list(reading(log.files)), log.written)
    assert [name for name in log.data_files() if name.startswith("hourly")] == [
        f"hourly/commits-1-8-1-7-{number}.parquet" for number in range(3)
    ]


def test_large_data_files_are_not_packed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(9)
    monkeypatch.setattr(row_packing, "FILE_BYTES_MAX", 100)
    finish(log.compaction())
    assert_same(list(reading(log.files)), log.written)
    assert log.indices() == ["1-8"]
    spans = {name.split("-")[1] + "-" + name.split("-")[2] for name in log.data_files()}
    assert spans == {"1-2", "3-4", "5-6", "7-8"}


def test_large_single_files_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rekindle_spark.output.output_compaction.LARGE_BYTES", 100)
    log = log_of(9)
    finish(log.compaction())
    assert (log.indices(), log.data_files()) == (["1-8"], [])
    assert log.single_files() == list(range(1, 10))
    assert_same(list(reading(log.files)), log.written)


def test_a_large_file_among_small_ones_is_left_alone_unread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rekindle_spark.output.output_compaction.LARGE_BYTES", 10_000)

    def few_or_many(epoch: int) -> pa.Table:
        return pa.table({"n": pa.array(range(20_000 if epoch == 6 else epoch % 3), pa.int64())})

    log, read = log_of(9, few_or_many), list[str]()

    class SizedFiles(MemoryFiles):
        def read(self, name: str, moved: Moved = unwatched) -> bytes:
            read.append(name)
            return super().read(name, moved)

        def size(self, name: str) -> int:
            return len(self.content[name])

    files = SizedFiles()
    files.content = log.files.content
    compaction = log.compaction()
    compaction.files = files
    finish(compaction)
    assert (log.indices(), log.single_files()) == (["1-8"], [6, 9])
    assert "outputs/hourly/0-000000005.parquet" in read
    assert "outputs/hourly/0-000000006.parquet" not in read
    assert_same(list(reading(log.files)), log.written)


def flipped(data: bytes) -> bytes:
    """A Parquet file with another bit in its last page, and with the same checksum for that."""
    column = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0).column(0)
    begin = column.dictionary_page_offset or column.data_page_offset
    at = begin + column.total_compressed_size - 1
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("damage", [None, b"no Parquet", "rows", "page"])
def test_output_that_is_damaged_stays_as_it_is_and_the_rest_is_put_together(
    damage: bytes | str | None,
) -> None:
    log, told = log_of(5), list[str]()
    name = "outputs/hourly/0-000000002.parquet"
    whole = log.files.content.pop(name)
    if damage == "rows":
        log.files.content[name] = log.files.content["outputs/hourly/0-000000004.parquet"]
    elif damage == "page":
        log.files.content[name] = flipped(whole)
    elif isinstance(damage, bytes):
        log.files.content[name] = damage
    finish(log.compaction(trouble=told.append))
    assert [text.split(":")[0] for text in told] == ["commits from 1 on, query hourly"]
    assert log.single_files() == ([1, 2, 5] if damage else [1, 5])
    assert not [
        one for one in log.files.content if one.startswith("outputs/busiest/0-00000000[1-4]")
    ]
    with pytest.raises(DamagedError, match=r"outputs/hourly/0-000000002\.parquet: "):
        list(reading(log.files))
    log.files.content[name] = whole
    assert_same(list(reading(log.files)), log.written)


def test_single_files_stay_where_a_data_file_is_not_there_any_more() -> None:
    log = log_of(5)
    compaction = log.compaction()
    assert compaction.advance()
    for name in log.data_files():
        del log.files.content[f"outputs/{name}"]
    with pytest.raises(DamagedError, match=r"busiest/commits-1-2-1-1-0\.parquet: is not there"):
        finish(compaction)
    assert log.single_files() == [1, 2, 3, 4, 5]


def test_a_data_file_that_is_missing_at_a_merge_is_damage_at_once() -> None:
    log = log_of(5)
    compaction = log.compaction()
    for _ in range(4):
        assert compaction.advance()
    (missing,) = (name for name in log.data_files() if name.startswith("hourly/commits-3-4"))
    whole = log.files.content.pop(f"outputs/{missing}")
    before = dict(log.files.content)
    with pytest.raises(DamagedError, match=f"memory/outputs/{missing}: is not there"):
        compaction.advance()
    assert log.files.content == before, "nothing of the attempt stays"
    log.files.content[f"outputs/{missing}"] = whole
    assert_same(list(reading(log.files)), log.written)


@pytest.mark.parametrize("at", range(1, 12))
def test_a_data_file_that_another_driver_has_merged_meanwhile_is_no_damage(at: int) -> None:
    log = log_of(5)
    older, newer = log.compaction(generation=1), log.compaction(generation=2)
    for _ in range(4):
        assert older.advance()
    older.files = PausedFiles(log.files, at, lambda: finish(newer))
    finish(older)
    assert newer.made is not None, "the older driver has stood still"
    assert (log.indices(), log.single_files()) == (["1-4"], [5])
    assert_same(list(reading(log.files)), log.written)


def test_a_driver_that_ends_leaves_nothing_begun() -> None:
    log = log_of(9)
    compaction = log.compaction()
    log.files.watch = compaction.stop
    thread = threading.Thread(target=compaction._run)
    compaction.ending.set()
    thread.start()
    thread.join(timeout=60)
    assert not thread.is_alive()
    compaction.ending.clear()
    with pytest.raises(_EndedError):
        finish(compaction)
    assert (log.data_files(), log.indices()) == ([], [])


def test_the_thread_goes_on_after_the_store_was_away_and_tells_of_damage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rekindle_spark.output.output_compaction.PAUSE_SECONDS", 0.001)
    log, told, away = log_of(9), list[str](), [OSError(5, "away")] * 3
    log.files.content[commit_segments.name_of(7)] = b"damaged"
    put = log.files.put

    def put_later(files: Mapping[str, bytes], moved: Moved = unwatched) -> None:
        if away:
            raise away.pop()
        put(files, moved)

    monkeypatch.setattr(log.files, "put", put_later)
    thread = log.compaction(trouble=told.append).start()
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert (away, log.indices()) == ([], ["1-2", "3-4", "5-6"])
    assert "commits/segments/7-8.jsonl.gz" in told[0]


def test_the_thread_does_not_end_unnoticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rekindle_spark.output.output_compaction.PAUSE_SECONDS", 0.001)
    log, told = log_of(9), list[str]()
    compaction = log.compaction(trouble=told.append)

    def settled() -> int:
        raise KeyError("a bug")

    compaction.settled = settled
    compaction.start().join(timeout=60)
    assert told == ["ended by KeyError: 'a bug'"]


def test_the_thread_goes_on_behind_a_file_with_a_damaged_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rekindle_spark.output.output_compaction.PAUSE_SECONDS", 0.001)
    log, told = log_of(9), list[str]()
    name = "outputs/hourly/0-000000002.parquet"
    log.files.content[name] = flipped(log.files.content[name])
    compaction = log.compaction(trouble=told.append)
    thread = compaction.start()
    for _ in range(3_000):
        if compaction.swept:
            break
        time.sleep(0.01)
    compaction.stop()
    thread.join(timeout=60)
    assert (log.indices(), log.single_files()) == (["1-8"], [1, 2, 9])
    assert len(told) == 1
    assert f"query hourly: memory/{name}: cannot be read" in told[0]


def test_what_drivers_have_left_is_swept_but_for_what_may_still_count() -> None:
    log = log_of(9)
    finish(log.compaction(generation=3))
    left = {
        "outputs/hourly/commits-1-2-1-4-0.parquet": True,  # there is an index for its commits
        "outputs/hourly/commits-1-8-2-1-0.parquet": True,
        "outputs/hourly/commits-9-10-2-1-0.parquet": False,  # its driver may make one yet
        "outputs/hourly/commits-1-4-4-1-0.parquet": False,  # of the driver itself
        "outputs/dear~branch/0-000000004.parquet": True,
        "outputs/dear~branch/0-000000010.parquet": False,
        "outputs/hourly/0-000000002-1-1-1.parquet": False,
    }
    log.files.content.update(dict.fromkeys(left, b""))
    log.compaction(generation=4, settled=lambda: 9).sweep()
    assert {name for name in left if name not in log.files.content} == {
        name for name, goes in left.items() if goes
    }
    assert_same(list(reading(log.files)), log.written)


class PausedFiles(MemoryFiles):
    """The same files, for a driver that stands still before the operation `at`, while `meanwhile`
    happens."""

    def __init__(self, files: MemoryFiles, at: int, meanwhile: Callable[[], None]) -> None:
        super().__init__()
        self.content, self.operations = files.content, 0
        self.at, self.meanwhile = at, meanwhile

    def _operation(self) -> None:
        self.operations += 1
        if self.operations == self.at:
            self.meanwhile()

    def read(self, name: str, moved: Moved = unwatched) -> bytes:
        self._operation()
        return super().read(name, moved)

    def create(self, name: str, data: bytes) -> None:
        self._operation()
        super().create(name, data)

    def stream_names(self, folder: str) -> Iterator[str]:
        self._operation()
        return super().stream_names(folder)

    def remove(self, names: Iterable[str]) -> None:
        self._operation()
        super().remove(names)


SWEEP_OPERATIONS = 10


@pytest.fixture(name="first_level")
def _first_level(monkeypatch: pytest.MonkeyPatch) -> Log:
    """A store whose first driver has put four segments together, in data files that stay."""
    monkeypatch.setattr(row_packing, "FILE_BYTES_MAX", 100)
    log = log_of(9)
    compaction = log.compaction(generation=1)
    for _ in range(8):
        assert compaction.advance()
    assert (log.indices(), log.single_files()) == (["1-2", "3-4", "5-6", "7-8"], [9])
    log.files.content["outputs/hourly/commits-1-2-1-9-0.parquet"] = b"left"
    return log


@pytest.mark.parametrize("at", range(1, SWEEP_OPERATIONS + 1))
@pytest.mark.parametrize("has_listed", [False, True])
def test_a_driver_that_stood_still_in_its_sweep_removes_nothing_that_counts(
    first_level: Log, at: int, has_listed: bool
) -> None:
    log = first_level
    older, newer = log.compaction(generation=2), log.compaction(generation=3)
    if has_listed:
        older._listed()
    older.files = PausedFiles(log.files, at, lambda: finish(newer))
    older.sweep()
    finish(newer)
    assert_same(list(reading(log.files)), log.written)
    assert log.indices() == ["1-8"]
    assert "hourly/commits-1-2-1-9-0.parquet" not in log.data_files()


def test_pauses_are_at_all_operations_of_a_sweep(first_level: Log) -> None:
    sweeping = first_level.compaction(generation=2)
    sweeping.files = files = PausedFiles(first_level.files, 0, lambda: None)
    sweeping.sweep()
    assert files.operations == SWEEP_OPERATIONS


@pytest.mark.parametrize("at", range(1, 30))
def test_a_driver_that_stood_still_among_removals_removes_nothing_that_counts(
    first_level: Log, at: int
) -> None:
    log = first_level
    older, newer = log.compaction(generation=2), log.compaction(generation=3)
    older.files = PausedFiles(log.files, at, lambda: finish(newer))
    finish(older)
    assert_same(list(reading(log.files)), log.written)


def test_an_index_that_comes_too_late_does_not_count_for_removals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The newer driver has left single files where they were, which the older one has packed."""
    log = log_of(5)
    older, newer = log.compaction(generation=1), log.compaction(generation=2)

    def finish_newer() -> None:
        with monkeypatch.context() as patch:
            patch.setattr("rekindle_spark.output.output_compaction.LARGE_BYTES", 0)
            finish(newer)
        assert (log.indices(), log.single_files()) == (["1-4"], [1, 2, 3, 4, 5])

    older.files = log.files
    create = log.files.create

    def create_late(name: str, data: bytes) -> None:
        monkeypatch.setattr(log.files, "create", create)
        finish_newer()
        create(name, data)

    monkeypatch.setattr(log.files, "create", create_late)
    assert older.advance()
    assert log.indices() == ["1-2", "1-4"]
    finish(older)
    assert log.single_files() == [1, 2, 3, 4, 5]
    assert_same(list(reading(log.files)), log.written)
    assert (log.indices(), log.data_files()) == (["1-4"], []), "what came too late has gone"


def fenced() -> None:
    """There is a newer driver."""
    raise FencedError(where="driver", what="generation 3 has started", remedy="let it go on")


def test_a_superseded_driver_removes_nothing_and_ends_without_an_event(
    first_level: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rekindle_spark.output.output_compaction.PAUSE_SECONDS", 0.001)
    log, told = first_level, list[str]()
    before = dict(log.files.content)
    older = log.compaction(generation=2, check_generation=fenced, trouble=told.append)
    with pytest.raises(FencedError):
        older.sweep()
    assert not older.swept
    assert log.files.content == before
    thread = older.start()
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert told == []
    assert before.items() <= log.files.content.items()


def test_a_reader_that_has_looked_before_looks_again_as_often_as_it_takes() -> None:
    log = log_of(9)
    places = Places(log.files)
    rows = OutputRows(log.files, places)
    (first, *_) = output_rows.outputs(log.files)
    compaction, looks = log.compaction(), 0
    while compaction.advance():
        table = rows.table(first.commit, first.named, first.rows)
        assert table.equals(log.written[0][4])
        rows = OutputRows(log.files, places)  # so that it has no file in memory
        looks += 1
    assert looks > 10


def test_files_of_output_do_not_grow_with_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for 2,000 and 20,000 epochs, at a small scale."""
    monkeypatch.setattr("compacted_stores.LENGTH", 10)
    monkeypatch.setattr(commit_segments, "LENGTH", 10)
    monkeypatch.setattr(compacted_outputs, "FAN", 4)
    monkeypatch.setattr(compacted_outputs, "LEVELS", 4)
    counts = {}
    log = Log(rows=lambda _: ONE_ROW)
    compaction = log.compaction()
    for count in (40, 400):
        while log.commits < count:
            log.commit(log.commits + 1)
        log.seal()
        finish(compaction)
        counts[count] = len([*log.files.names("outputs"), *log.indices()])
    assert counts[400] <= 1.3 * counts[40]


ONE_ROW = pa.table({"n": [1]})
