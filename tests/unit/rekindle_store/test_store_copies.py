"""A copy of a store is a store on which a driver goes on, whatever happened while it was made."""

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from whole_stores import (
    OUTPUTS,
    Driver,
    all_files,
    flip_value,
    rows_of,
    seal_as_before,
    started,
    whole,
)

import rekindle
from rekindle.model import record_format
from rekindle.model.errors import DamagedError, InputError, RunError
from rekindle_spark.store.checkpoint_store import CheckpointStore
from rekindle_store import (
    checksummed_file,
    commit_log,
    compacted_outputs,
    store_copies,
    store_files,
    store_integrity,
)
from rekindle_store.local_files import LocalFiles

pytestmark = pytest.mark.usefixtures("short_segments")


@pytest.fixture(name="driver")
def _driver(store: Path) -> Driver:
    driver = Driver(store)
    driver.newest = 12
    return driver


def output_of(place: Path | str) -> list[int]:
    """The rows of one query, and then of the other."""
    tables = [rekindle.read(place, query).arrow() for query in OUTPUTS]
    return [number for table in tables for number in table["n"].to_pylist()]


def test_a_driver_goes_on_from_a_copy_as_from_the_store_itself(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    copied = store_copies.copy(str(store), str(target))
    assert copied.findings.damages == []
    assert output_of(target) == output_of(store)
    from_copy, from_store = started(target).read(), started(store).read()
    assert from_copy.checkpoint == from_store.checkpoint
    assert {**from_copy.offsets, **from_store.offsets} == from_store.offsets
    assert from_copy.fold.finished == from_store.fold.finished
    Driver(target).run(13)
    assert output_of(target)[:36] == output_of(store)[:36]


def test_all_files_of_a_copy_are_those_of_the_store_but_for_the_checkpoint_before(
    store: Path, tmp_path: Path
) -> None:
    target = tmp_path / "copy"
    copied = store_copies.copy(str(store), str(target))
    there, here = all_files(target), all_files(store)
    assert there.pop("copy.json")
    needless = {"checkpoints/7.json", "checkpoints/7/rows-0.state", "offsets/7.json"}
    assert there == {name: data for name, data in here.items() if name not in needless}
    assert (copied.files, copied.equal) == (len(there), 0)
    assert copied.bytes == sum(map(len, there.values()))


def test_a_copy_has_an_identity_of_its_own_and_the_origin_of_the_store(
    store: Path, tmp_path: Path
) -> None:
    for name in ("one", "other"):
        store_copies.copy(str(store), str(tmp_path / name))
    store_copies.copy(str(tmp_path / "one"), str(tmp_path / "third"))
    places = [
        store_files.at(path) for path in (store, *(tmp_path / n for n in ("one", "other", "third")))
    ]
    assert len({commit_log.identity(place) for place in places}) == 4
    assert len({commit_log.origin(place) for place in places}) == 1
    store_identity, one_identity = (commit_log.identity(place) for place in places[:2])
    assert [commit_log.copied_from(place) for place in places] == [
        (),
        (store_identity,),
        (store_identity,),
        (one_identity, store_identity),
    ]


def test_of_a_copy_by_an_older_version_the_store_is_known_that_it_was_made_of(
    store: Path, tmp_path: Path
) -> None:
    store_copies.copy(str(store), str(tmp_path / "old"))
    path = tmp_path / "old/copy.json"
    content = record_format.decode("copy", path.read_bytes(), "here")
    path.write_bytes(record_format.encode("copy", {**content, "of": "5f"}))
    assert commit_log.copied_from(store_files.at(tmp_path / "old")) == ("5f",)
    store_copies.copy(str(tmp_path / "old"), str(tmp_path / "new"))
    assert commit_log.copied_from(store_files.at(tmp_path / "new"))[1:] == ("5f",)


def test_what_is_there_and_equal_is_not_copied_again(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    first = store_copies.copy(str(store), str(target))
    identity = commit_log.identity(store_files.at(target))
    times = {path: path.stat().st_mtime_ns for path in (target / "outputs").rglob("*.parquet")}
    second = store_copies.copy(str(store), str(target))
    assert second.files == 0
    assert 0 < second.equal <= first.files
    assert times == {path: path.stat().st_mtime_ns for path in times}
    assert commit_log.identity(store_files.at(target)) == identity


def test_a_later_copy_takes_along_what_came_and_removes_what_went(
    driver: Driver, store: Path, tmp_path: Path
) -> None:
    target = tmp_path / "copy"
    store_copies.copy(str(store), str(target))
    before = all_files(target)
    driver.run(13, 14)
    driver.checkpoint()
    driver.run(15, 16)
    driver.checkpoint()
    driver.seal_segments()
    copied = store_copies.copy(str(store), str(target))
    assert copied.findings.damages == []
    assert (copied.findings.commits, copied.findings.checkpoint) == (18, 16)
    gone = before.keys() - all_files(target).keys()
    assert "checkpoints/10/counts-0.input" in gone
    assert "commits/9.json" in gone, "it is in a segment now"
    assert not [name for name in gone if name.startswith("outputs")]
    assert output_of(target) == output_of(store)


class DyingError(BaseException):
    """The process that copies was killed."""


def dies_at(patch: pytest.MonkeyPatch, number: int, target: Path) -> list[str]:
    """Have the copy killed before it puts its file of this number; gives the names so far."""
    names: list[str] = []
    put = LocalFiles.put

    def dying(self: LocalFiles, contents: Mapping[str, bytes], *rest: Any) -> None:
        if self.place == str(target):
            if len(names) == number:
                raise DyingError
            names.extend(contents)
        put(self, contents, *rest)

    patch.setattr(LocalFiles, "put", dying)
    return names


@pytest.mark.parametrize("number", [0, 1, 3, 6, 9, 20, 35, 40])
def test_a_copy_that_was_interrupted_is_no_store_and_goes_on(
    store: Path, tmp_path: Path, number: int
) -> None:
    target = tmp_path / "copy"
    with pytest.MonkeyPatch.context() as patch:
        dies_at(patch, number, target)
        with pytest.raises(DyingError):
            store_copies.copy(str(store), str(target))
    if number:  # else the very mark is not there, and nothing else
        with pytest.raises(InputError, match="is a copy of a store that was not made to its end"):
            CheckpointStore(target).read()
    copied = store_copies.copy(str(store), str(target))
    assert copied.findings.damages == []
    whole_copy = store_copies.copy(str(store), str(tmp_path / "other"))
    assert copied.files <= max(0, whole_copy.files + 1 - number), "what was copied stays"
    assert output_of(target) == output_of(store)
    started(target)


def test_the_order_lets_nothing_be_named_before_it_is_there(store: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        names = dies_at(patch, 10_000, tmp_path / "copy")
        store_copies.copy(str(store), str(tmp_path / "copy"))
    assert names[0] == "generations/copying"
    assert names[-1] == "checkpoints/10.json"
    places = {
        part: [number for number, name in enumerate(names) if part in name]
        for part in (*ORDER, "commits/")
    }
    for before, after in itertools.pairwise(ORDER):
        assert places[before][-1] < places[after][0], (before, after)
    assert places["commits/"][-1] < places["offsets/"][0]
    for record, outputs in {"5-8.jsonl.gz": range(4, 8), "commits/13.json": range(12, 13)}.items():
        for epoch in outputs:
            assert names.index(f"outputs/hourly/0-{epoch:09d}.parquet") < first_with(names, record)


ORDER = ("program-", ".state", "outputs/", "offsets/", "generations/1.json", "checkpoints/10.json")


def first_with(names: list[str], part: str) -> int:
    return next(number for number, name in enumerate(names) if part in name)


def meanwhile(
    patch: pytest.MonkeyPatch, store: Path, begin: str, action: Callable[[], None]
) -> None:
    """Have something happen just before the first file whose name begins so is read."""
    read, done = LocalFiles.read, list[bool]()

    def reading(self: LocalFiles, name: str, *rest: Any) -> bytes:
        if self.place == str(store) and name.startswith(begin) and not done:
            done.append(True)
            action()
        return read(self, name, *rest)

    patch.setattr(LocalFiles, "read", reading)
    patch.setattr(
        store_copies._Copying, "check_source", lambda _: None
    )  # which reads all of it before


@pytest.mark.parametrize(
    "begin",
    ["checkpoints/10.json", "checkpoints/10/", "outputs/", "commits/seg", "commits/9", "offsets/"],
)
def test_a_driver_that_runs_meanwhile_leaves_a_copy_that_is_whole(
    driver: Driver, store: Path, tmp_path: Path, begin: str
) -> None:
    """Two checkpoints replace those that were there, and segments the records' own files."""

    def work() -> None:
        for epoch in (14, 16, 18):
            driver.run(epoch - 1, epoch)
            driver.checkpoint()
        driver.seal_segments()

    with pytest.MonkeyPatch.context() as patch:
        meanwhile(patch, store, begin, work)
        copied = store_copies.copy(str(store), str(tmp_path / "copy"))
    assert copied.findings.damages == []
    assert set(output_of(tmp_path / "copy")) <= set(output_of(store))
    history = started(tmp_path / "copy").read()
    assert history.checkpoint is not None
    assert history.checkpoint["epoch"] in (10, 18)


def test_a_copy_has_the_offsets_of_its_checkpoint_though_both_go_meanwhile(
    driver: Driver, store: Path, tmp_path: Path
) -> None:
    """The offsets are listed after they went, so that none of those that are listed is missing."""

    def work() -> None:
        for epoch in (14, 16):
            driver.run(epoch - 1, epoch)
            driver.checkpoint()

    with pytest.MonkeyPatch.context() as patch:
        meanwhile(patch, store, "outputs/", work)
        copied = store_copies.copy(str(store), str(tmp_path / "copy"))
    assert (copied.findings.damages, copied.findings.checkpoint) == ([], 16)
    started(tmp_path / "copy").read()


@pytest.mark.parametrize("begin", ["checkpoints/10/", "outputs/", "commits/9"])
def test_no_output_in_a_copy_became_public_with_a_later_checkpoint_than_it_has(
    driver: Driver, store: Path, tmp_path: Path, begin: str
) -> None:
    """A start on the copy would make it again from the states before, perhaps otherwise."""

    def work() -> None:
        driver.run(13, 14)
        driver.checkpoint()
        public = {"at": 1.0, "plan_epoch": 1, "finished": {"rows/0": [14, 14, ["d"]]}}
        driver.store.commit({**public, "outputs": [], "checkpoint": 14})

    with pytest.MonkeyPatch.context() as patch:
        meanwhile(patch, store, begin, work)
        copied = store_copies.copy(str(store), str(tmp_path / "copy"))
    assert copied.findings.damages == []
    history = started(tmp_path / "copy").read()
    assert history.checkpoint is not None
    assert history.fold.public <= history.checkpoint["epoch"]
    later = store_copies.copy(str(store), str(tmp_path / "later"))
    assert (later.findings.commits, later.findings.checkpoint) == (17, 14)


def test_a_driver_that_started_meanwhile_is_in_the_copy_as_far_as_its_commits_are(
    store: Path, tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        meanwhile(patch, store, "commits/9", lambda: Driver(store).run(13, 14))
        copied = store_copies.copy(str(store), str(tmp_path / "copy"))
    assert copied.findings.damages == []
    newest = max(
        record["generation"] for _, record in commit_log.commits(store_files.at(tmp_path / "copy"))
    )
    assert newest <= copied.findings.generation


def test_checkpoints_that_go_faster_than_they_are_copied_are_an_error_with_a_remedy(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_copies, "ROUNDS_MAX", 3)
    monkeypatch.setattr(store_copies._Copying, "check_source", lambda _: None)
    driver = Driver(store)
    read = LocalFiles.read

    def replaced(self: LocalFiles, name: str, *rest: Any) -> bytes:
        if self.place == str(store) and name.endswith(".state"):
            for epoch in (driver.newest + 13, driver.newest + 14, driver.newest + 15):
                monkeypatch.setattr(LocalFiles, "read", read)
                driver.run(*range(max(13, driver.newest + 1), epoch + 1))
                driver.checkpoint()
                monkeypatch.setattr(LocalFiles, "read", replaced)
        return read(self, name, *rest)

    monkeypatch.setattr(LocalFiles, "read", replaced)
    with pytest.raises(RunError, match="replaced 3 times before it was copied; end the driver"):
        store_copies.copy(str(store), str(tmp_path / "copy"))


def refused(store: Path | str, target: Path | str) -> str:
    with pytest.raises(InputError) as error:
        store_copies.copy(str(store), str(target))
    return str(error.value)


def test_a_target_that_is_another_store_is_refused_and_left_as_it_is(
    store: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    whole(other)
    before = all_files(other)
    assert "has a store, which is no copy; name a place where nothing is" in refused(store, other)
    assert all_files(other) == before


def test_a_copy_of_another_store_is_refused(store: Path, tmp_path: Path) -> None:
    Driver(tmp_path / "other")
    store_copies.copy(str(tmp_path / "other"), str(tmp_path / "copy"))
    before = all_files(tmp_path / "copy")
    said = refused(store, tmp_path / "copy")
    assert "has a driver's start of its own" in said or "is a copy of another store" in said
    assert all_files(tmp_path / "copy") == before


def test_a_copy_on_which_a_driver_has_started_is_refused(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    store_copies.copy(str(store), str(target))
    started(target)
    before = all_files(target)
    assert "has a driver's start of its own, generation 3, and goes on by itself" in refused(
        store, target
    )
    started(store)
    assert "generation 3" in refused(store, target), "it is another start of that number"
    assert all_files(target) == before


def test_a_store_is_not_copied_to_itself_or_into_itself(store: Path) -> None:
    assert "is the store that is to be copied" in refused(store, store)
    assert "lies in the other" in refused(store, store / "backup")
    assert "is a folder of something else: it holds 'store'" in refused(store, store.parent)


def test_half_a_copy_is_not_copied(store: Path, tmp_path: Path) -> None:
    store_copies.copy(str(store), str(tmp_path / "copy"))
    (tmp_path / "copy" / "generations" / "copying").write_text("")
    said = refused(tmp_path / "copy", tmp_path / "second")
    assert "is a copy that was not made to its end; copy it to its end first" in said
    (damage,) = store_integrity.check(store_files.at(tmp_path / "copy")).damages
    assert (damage.place, damage.meaning) == ("generations/copying", "no driver starts on it")


def test_a_target_that_cannot_be_written_is_refused(store: Path) -> None:
    assert "cannot be written" in refused(store, "/proc/copy")


def test_damage_of_the_source_is_not_copied_as_sound(store: Path, tmp_path: Path) -> None:
    name = "outputs/hourly/0-000000005.parquet"
    flip_value(store / name)
    copied = store_copies.copy(str(store), str(tmp_path / "copy"))
    assert [damage.place for damage in copied.findings.damages] == [name]
    assert (tmp_path / "copy" / "generations" / "copying").exists(), "no driver starts on it"
    (store / name).unlink()
    (tmp_path / "copy" / name).unlink()
    (tmp_path / "copy" / "commits/segments/5-8.jsonl.gz").unlink()
    with pytest.raises(DamagedError, match="is not there, but a commit record names it"):
        store_copies.copy(str(store), str(tmp_path / "copy"))


def test_a_damaged_source_leaves_the_copy_that_is_there_as_it_is(
    store: Path, tmp_path: Path
) -> None:
    target = tmp_path / "copy"
    store_copies.copy(str(store), str(target))
    before = all_files(target)
    (store / "commits/12.json").write_text("{")
    with pytest.raises(DamagedError, match=r"commits/12\.json: is no JSON; see `rekindle store ch"):
        store_copies.copy(str(store), str(target))
    assert all_files(target) == before
    started(target)


def test_a_damaged_copy_is_mended_by_copying_again(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    store_copies.copy(str(store), str(target))
    (target / "outputs/hourly/0-000000002.parquet").unlink()
    flip_value(target / "outputs/busiest/0-000000012.parquet")
    copied = store_copies.copy(str(store), str(target))
    assert (copied.findings.damages, copied.files) == ([], 2)


def test_a_store_without_a_checkpoint_is_copied_with_all_offsets(tmp_path: Path) -> None:
    Driver(tmp_path / "store").run(1, 2)
    copied = store_copies.copy(str(tmp_path / "store"), str(tmp_path / "copy"))
    assert copied.findings.damages == []
    assert list(started(tmp_path / "copy").read().offsets) == [1, 2]


def test_a_checkpoint_that_does_not_count_is_not_copied(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came from a driver that had been replaced, after the seal of the next one."""
    older = Driver(store)
    older.run(13)
    monkeypatch.setattr(older.store, "check_generation", lambda: None)
    newer = Driver(store)
    older.checkpoint()
    newer.run(14)
    copied = store_copies.copy(str(store), str(tmp_path / "copy"))
    assert (copied.findings.damages, copied.findings.checkpoint) == ([], 10)
    assert not (tmp_path / "copy" / "checkpoints" / "13.json").exists()


def test_rows_that_wait_for_a_branch_are_copied_and_checked(
    driver: Driver, store: Path, tmp_path: Path
) -> None:
    branch = {"chain": "counts", "step": "odd", "partition": "counts/0", "epoch": 8, "text": "why"}
    driver.store.log_branch(branch)
    driver.store.make_outputs(["odd~branch"])
    for epoch in (5, 8, 9, 10, 11, 12):  # no checkpoint needs that of epoch 5
        driver.put("odd~branch", 0, epoch, rows_of(epoch))
    copied = store_copies.copy(str(store), str(tmp_path / "copy"))
    assert (copied.findings.damages, copied.findings.files["waiting"]) == ([], 5)
    names = sorted(path.name for path in (tmp_path / "copy/outputs/odd~branch").iterdir())
    assert names == [f"0-{epoch:09d}.parquet" for epoch in range(8, 13)]
    for name in names[1:3]:
        (tmp_path / "copy/outputs/odd~branch" / name).unlink()
    (damage,) = store_integrity.check(store_files.at(tmp_path / "copy")).damages
    assert damage.place == "outputs/odd~branch/0-000000009.parquet"
    assert damage.what == "is not there, nor are files up to epoch 10"
    assert store_copies.copy(str(store), str(tmp_path / "copy")).findings.damages == []
    newest = store / "outputs/odd~branch" / names[-1]
    sealed = bytearray(checksummed_file.seal_rows(newest.read_bytes()))
    newest.write_bytes(sealed)
    assert store_integrity.check(store_files.at(store)).damages == []
    sealed[-12] ^= 1  # in the metadata, of which Parquet has no checksum
    newest.write_bytes(sealed)
    (damage,) = store_integrity.check(store_files.at(store)).damages
    assert (damage.place, damage.what) == (
        f"outputs/odd~branch/{names[-1]}",
        "does not match its checksum",
    )


def test_a_copy_beside_the_first_epochs_has_no_checkpoint_and_one_that_does_not_count_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = Driver(tmp_path / "store")
    older.run(1)
    monkeypatch.setattr(older.store, "check_generation", lambda: None)
    Driver(tmp_path / "store").run(2)
    older.checkpoint()
    copied = store_copies.copy(str(tmp_path / "store"), str(tmp_path / "copy"))
    assert (copied.findings.damages, copied.findings.checkpoint) == ([], 0)


def test_a_record_leads_no_copy_out_of_its_folder(store: Path, tmp_path: Path) -> None:
    outputs = [["../../elsewhere/0", 13, 1, "file.parquet", "0" * 16]]
    content = {"generation": 2, "at": 1.0, "plan_epoch": 1, "finished": {}, "outputs": outputs}
    (store / "commits/14.json").write_bytes(record_format.encode("commit", content))
    with pytest.raises(DamagedError, match="/elsewhere"):
        store_copies.copy(str(store), str(tmp_path / "copy"))
    (damage,) = store_integrity.check(store_files.at(store)).damages
    assert damage.what == "names '../../elsewhere/0' and 'file.parquet', which no driver does"


def test_a_quick_copy_is_checked_without_reading_output(store: Path, tmp_path: Path) -> None:
    name = "outputs/hourly/0-000000005.parquet"
    (store / name).write_bytes(b"PAR1")
    copied = store_copies.copy(str(store), str(tmp_path / "copy"), quick=True)
    assert copied.findings.damages == []
    assert (tmp_path / "copy" / name).read_bytes() == b"PAR1"


def test_the_newest_record_has_a_file_of_its_own_though_it_went_into_a_segment_meanwhile(
    driver: Driver, store: Path, tmp_path: Path
) -> None:
    """Drivers of earlier versions put all that the newest checkpoint covers into segments."""

    def work() -> None:
        driver.run(*range(15, 19))
        driver.checkpoint()
        driver.seal_segments(covered=20)

    driver.run(13, 14)
    with pytest.MonkeyPatch.context() as patch:
        meanwhile(patch, store, "commits/seg", work)
        copied = store_copies.copy(str(store), str(tmp_path / "copy"))
    assert (copied.findings.damages, copied.findings.checkpoint) == ([], 10)
    assert copied.findings.commits == commit_log.newest(store_files.at(tmp_path / "copy")) == 16
    started(tmp_path / "copy")


@pytest.mark.parametrize("begin", ["commits/seg", "commits/9", "commits/15", "offsets/"])
def test_a_copy_has_the_digests_of_all_that_a_start_on_it_may_run_again(
    driver: Driver, store: Path, tmp_path: Path, begin: str
) -> None:
    """Meanwhile the driver puts the newest record that is to be copied into a segment, with others
    behind the checkpoint that is copied."""

    def work() -> None:
        driver.run(*range(15, 20))
        driver.checkpoint(18)
        driver.checkpoint()
        driver.seal_segments()

    driver.run(13, 14)
    with pytest.MonkeyPatch.context() as patch:
        meanwhile(patch, store, begin, work)
        copied = store_copies.copy(str(store), str(tmp_path / "copy"))
    assert copied.findings.damages == []
    assert copied.findings.commits == commit_log.newest(store_files.at(tmp_path / "copy"))
    history = started(tmp_path / "copy").read()
    assert history.checkpoint is not None
    (reached,) = history.fold.finished["rows/0"].values()
    again = range(history.checkpoint["epoch"] + 1, reached.last + 1)
    assert sorted(reached.digests) == list(again)


def test_a_store_with_segments_of_both_versions_is_copied_as_it_is(
    store: Path, tmp_path: Path
) -> None:
    seal_as_before(store, 1)
    assert store_copies.copy(str(store), str(tmp_path / "copy")).findings.damages == []
    for name in ("1-4", "5-8"):
        segment = f"commits/segments/{name}.jsonl.gz"
        assert (tmp_path / "copy" / segment).read_bytes() == (store / segment).read_bytes()
    assert output_of(tmp_path / "copy") == output_of(store)
    started(tmp_path / "copy")


@pytest.fixture(name="compacted")
def _compacted(tmp_path: Path) -> Path:
    """A store whose output up to epoch 7 was put together."""
    whole(tmp_path / "compacted").compact()
    return tmp_path / "compacted"


def test_output_that_was_put_together_is_copied_as_it_is(compacted: Path, tmp_path: Path) -> None:
    source, target = compacted, tmp_path / "copy"
    assert store_copies.copy(str(source), str(target)).findings.damages == []
    assert output_of(target) == output_of(source)
    there, here = all_files(target), all_files(source)
    names = {name for name in here if name.startswith(("outputs/", "commits/"))}
    assert {name for name in there if name.startswith(("outputs/", "commits/"))} == names
    assert store_copies.copy(str(source), str(target)).files == 0


def test_a_later_copy_removes_the_single_files_of_what_was_put_together(
    store: Path, tmp_path: Path
) -> None:
    target = tmp_path / "copy"
    store_copies.copy(str(store), str(target))
    rows = output_of(store)
    driver = Driver(store)
    driver.store.settled = 7
    driver.compact()
    assert store_copies.copy(str(store), str(target)).findings.damages == []
    assert output_of(target) == output_of(store) == rows
    outputs = {name for name in all_files(store) if name.startswith("outputs/")}
    assert {name for name in all_files(target) if name.startswith("outputs/")} == outputs
    assert len(outputs) == 14


def test_a_copy_takes_the_place_of_lower_indices_of_an_older_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacted_outputs, "FAN", 2)
    source, target = tmp_path / "store", tmp_path / "copy"
    driver = Driver(source)
    for epochs in (range(1, 6), range(6, 11)):
        driver.run(*epochs)
        driver.checkpoint(driver.newest - 1)
        driver.checkpoint()
        driver.seal_segments()
        driver.store.settled = driver.newest
        driver.compact()
        assert store_copies.copy(str(source), str(target)).findings.damages == []
    there, here = all_files(target), all_files(source)
    assert "commits/segments/1-8.files" in here
    names = {name for name in here if name.startswith(("outputs/", "commits/segments/"))}
    assert {name for name in there if name.startswith(("outputs/", "commits/segments/"))} == names
    assert output_of(target) == output_of(source)


@pytest.mark.parametrize("begun", ["outputs/", "commits/segments/1-4.jsonl.gz", "commits/12.json"])
def test_output_that_is_put_together_while_it_is_copied_is_copied_whole(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: str
) -> None:
    driver, read, names = Driver(store), LocalFiles.read, list[str]()
    driver.store.settled = 7

    def slow(self: LocalFiles, name: str, *rest: Any) -> bytes:
        is_source = self.place == str(store)
        if is_source and name.startswith(begun) and copying and not names:
            names.append(name)
            driver.compact()
        return read(self, name, *rest)

    copying: list[str] = []
    monkeypatch.setattr(LocalFiles, "read", slow)
    copied = store_copies.copy(str(store), str(tmp_path / "copy"), copying.append)
    assert copied.findings.damages == []
    assert names
    assert output_of(tmp_path / "copy") == output_of(store)


def test_a_data_file_that_is_not_there_is_damage_of_the_source(
    compacted: Path, tmp_path: Path
) -> None:
    name = "outputs/hourly/commits-1-4-2-1-0.parquet"
    (compacted / name).unlink()
    with pytest.raises(DamagedError, match=f"{name}: is not there, but the index of commit 1"):
        store_copies.copy(str(compacted), str(tmp_path / "copy"))


def listed(store: Path, number: int, **content: object) -> None:
    """Add a record of files that a source reads."""
    files = store_files.at(store)
    for folder in ("listings", "listings/orders"):
        files.make_folder(folder)
    record = record_format.encode("listing", {"files": [], **content})
    files.create(f"listings/orders/{number}.json", record)


def test_lists_of_files_are_copied_as_they_are_once_the_driver_has_put_them_together(
    store: Path, tmp_path: Path
) -> None:
    for number in (1, 2):
        listed(store, number)

    def work() -> None:
        listed(store, 3, whole=True, begins={})
        for number in (1, 2):
            (store / f"listings/orders/{number}.json").unlink()
        listed(store, 4)

    with pytest.MonkeyPatch.context() as patch:
        meanwhile(patch, store, "listings/", work)
        copied = store_copies.copy(str(store), str(tmp_path / "copy"))
    assert copied.findings.damages == []
    there = tmp_path / "copy" / "listings" / "orders"
    assert {"3.json", "4.json"} <= {path.name for path in there.iterdir()}
    for name in ("3.json", "4.json"):
        assert (there / name).read_bytes() == (store / "listings/orders" / name).read_bytes()
