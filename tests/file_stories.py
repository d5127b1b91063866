"""Stories that hold for the files of any store, on a disk or on a server: told of each, not of one.

tests/unit/rekindle_store/test_store_files.py tells them of a folder, test_object_store.py and
test_hdfs_store.py in tests/integration of S3 and HDFS.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, cast

import pytest
from output_stores import Writer, rows

import rekindle
from rekindle.model.errors import FencedError, InputError, RunError
from rekindle_spark.output import output_commit
from rekindle_spark.store.checkpoint_store import CheckpointStore
from rekindle_store import commit_log
from rekindle_store import store_files as places
from rekindle_store.store_files import Files
from rekindle_store.transfers import PIECE_BYTES

Story = Callable[[Files], None]
WRITERS = 16


def of_many_writers_of_a_file_that_must_not_be_there_one_succeeds(files: Files) -> None:
    def create(writer: int) -> bytes | None:
        content = str(writer).encode()
        try:
            files.create("commits/1.json", content)
        except FileExistsError:
            return None
        return content

    with ThreadPoolExecutor(WRITERS) as pool:
        made = [content for content in pool.map(create, range(4 * WRITERS)) if content]
    assert [files.read("commits/1.json")] == made


def ones_own_content_counts_as_made_and_anothers_does_not(files: Files) -> None:
    for _ in range(2):
        files.create("commits/1.json", b"mine")
    with pytest.raises(FileExistsError):
        files.create("commits/1.json", b"yours")
    assert files.read("commits/1.json") == b"mine"


def what_is_put_takes_the_place_of_what_is_there(files: Files) -> None:
    files.make_folder("outputs")
    files.make_folder("outputs/delays")
    several = {f"outputs/delays/{number}.parquet": b"%d" % number for number in range(40)}
    large = bytes(range(256)) * 50_000
    files.put(several)
    files.put({"outputs/delays/0.parquet": large, "outputs/delays/1.parquet": b""})
    assert files.read("outputs/delays/0.parquet") == large
    assert files.read("outputs/delays/1.parquet") == b""
    assert files.read("outputs/delays/2.parquet") == b"2"


def of_a_large_file_it_is_told_how_much_has_gone_and_come(files: Files) -> None:
    data, gone, come = os.urandom(2 * PIECE_BYTES + 7), list[int](), list[int]()
    files.make_folder("checkpoints/1")
    files.put({"checkpoints/1/a.state": data, "checkpoints/1/b.state": b"small"}, gone.append)
    assert files.read("checkpoints/1/a.state", come.append) == data
    assert (sum(gone), sum(come)) == (len(data) + 5, len(data))
    assert min(len(gone), len(come)) >= 3


def files_are_listed_with_those_of_folders_below(files: Files) -> None:
    files.make_folder("checkpoints/3")
    files.put({"checkpoints/3.json": b"record", "checkpoints/3/rows-0.state": b"state"})
    files.create("commits/3.json", b"another")
    assert sorted(files.names("checkpoints")) == ["3.json", "3/rows-0.state"]
    assert files.names("offsets") == []
    assert sorted(files.stream_names("checkpoints")) == ["3.json", "3/rows-0.state"]
    assert list(files.stream_names("offsets")) == []


def a_file_has_a_size_and_one_that_is_not_there_has_none(files: Files) -> None:
    files.put({"commits/1.json": b"seven 7", "commits/2.json": b""})
    assert (files.size("commits/1.json"), files.size("commits/2.json")) == (7, 0)
    with pytest.raises(FileNotFoundError):
        files.size("commits/3.json")


def what_is_removed_is_gone_and_so_is_what_never_was_there(files: Files) -> None:
    files.make_folder("checkpoints/3")
    files.put({"checkpoints/3/rows-0.state": b"state", "checkpoints/3.json": b"record"})
    files.remove(["checkpoints/3/rows-0.state", "checkpoints/2.json"])
    files.remove([])
    assert files.names("checkpoints") == ["3.json"]


def a_file_that_is_not_there_is_told_from_a_store_that_is_away(files: Files) -> None:
    with pytest.raises(FileNotFoundError):
        files.read("commits/7.json")
    assert not places.exists(files, "finish")
    files.put({"finish": b""})
    assert places.exists(files, "finish")


def a_newer_driver_fences_an_older_one(place: str) -> None:
    """Of a whole store at a place that nobody has used."""
    older, newer = CheckpointStore(place), CheckpointStore(place)
    older.open(1.0)
    older.commit({"at": 1.0, "plan_epoch": 1, "finished": {}, "outputs": []})
    newer.open(2.0)
    with pytest.raises(RunError, match="driver of generation 1: generation 2 has started"):
        older.commit({"at": 2.0, "plan_epoch": 1, "finished": {}, "outputs": []})
    assert [record["generation"] for _, record in commit_log.commits(newer.files)] == [1, 2]


def a_checkpoint_that_comes_after_a_newer_driver_has_started_does_not_count(place: str) -> None:
    """Of a whole store at a place that nobody has used: the request for a record of generation 1 is
    on its way while generation 2 starts, publishes the same epochs otherwise, and ends."""
    on_its_way: list[tuple[str, bytes]] = []
    older = opened(place, 6)
    older.begin_checkpoint(2)
    older.complete_checkpoint(2, checkpoint(2, "A"))
    older.begin_checkpoint(5)
    older.files = delayed(older.files, on_its_way)
    older.complete_checkpoint(5, checkpoint(5, "A", 3, 4, 5))
    newer = CheckpointStore(place)
    assert newer.open(2.0).sound == {2}
    newer.commit(commit("B", 3, 4, 5))
    files = places.at(place)
    for name, data in on_its_way:
        files.create(name, data)
    assert [name for name, _ in on_its_way] == ["checkpoints/5.json"]
    history = CheckpointStore(place).open(3.0)
    assert history.checkpoint is not None
    assert (history.checkpoint["epoch"], output_commit.unpublished(history)) == (2, None)
    assert [one[3] for one in outputs_of(CheckpointStore(place))] == ["B-3", "B-4", "B-5"]


def late_removals_of_a_fenced_driver_remove_nothing_that_counts(place: str) -> None:
    """Of a whole store at a place that nobody has used: a driver is at a void record, and to remove
    what nobody needs, and stands still until the next one has gone further."""
    on_its_way: list[tuple[str, bytes]] = []
    older = opened(place, 9)
    older.begin_checkpoint(5)
    older.files = delayed(older.files, on_its_way)
    older.complete_checkpoint(5, checkpoint(5, "A"))
    removals = list[Call]()
    fenced = CheckpointStore(place)
    fenced.open(2.0)
    places.at(place).create(*on_its_way[0])
    fenced.files = postponed(fenced.files, removals, "remove")
    for epoch in (2, 3, 4, 5):
        with suppress(FencedError):
            fenced.begin_checkpoint(epoch)
            fenced.complete_checkpoint(epoch, checkpoint(epoch, "B"))
    newest = CheckpointStore(place)
    newest.open(3.0)
    for epoch in (5, 6, 7):
        newest.begin_checkpoint(epoch)
        newest.complete_checkpoint(epoch, checkpoint(epoch, "C"))
        before = CheckpointStore(place).read().checkpoint
        for removal in removals:
            removal()
        assert CheckpointStore(place).read().checkpoint == before
    assert removals
    assert CheckpointStore(place).read().sound == {6, 7}


def output_is_read_as_it_was_committed(place: str) -> None:
    """Of a whole store at a place that nobody has used."""
    with pytest.raises(InputError, match="is not there, or no pipeline has run on it"):
        rekindle.read(place, "hourly")
    writer = Writer(place)
    for epoch in range(1, 40):
        writer.epoch("hourly", epoch % 2, epoch, *range(epoch))
    writer.put("hourly", 0, 40, rows(999))
    output = rekindle.read(place, "hourly")
    numbers = [number for epoch in range(1, 40) for number in range(epoch)]
    assert output.arrow()["n"].to_pylist() == numbers
    found = list(rekindle.committed_files(place))
    assert [(file.partition, file.epoch, file.rows) for file in found] == [
        (epoch % 2, epoch, epoch) for epoch in range(1, 40)
    ]
    assert all(file.bytes > 100 and file.path.startswith(place) for file in found)
    with pytest.raises(InputError, match="query 'busiest': has no output yet"):
        rekindle.read(place, "busiest").arrow()
    places.at(place).remove(["outputs/hourly/1-000000039.parquet"])
    for look in (output.arrow, lambda: list(output.files())):
        with pytest.raises(InputError, match="is not there, but commit record 39 names it"):
            look()
    places.at(place).remove(["commits/7.json"])
    with pytest.raises(InputError, match=r"7\.json: is not there, but what came later is"):
        output.arrow()


class Delayed:
    """Files whose new records are on their way for a long time: `later` has them."""

    def __init__(self, files: Files, later: list[tuple[str, bytes]], folder: str) -> None:
        self._files, self._later, self._folder = files, later, folder

    def create(self, name: str, data: bytes) -> None:
        if name.startswith(f"{self._folder}/"):
            self._later.append((name, data))
        else:
            self._files.create(name, data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


Call = Callable[[], object]


class Postponed:
    """Files of which calls of some methods get to the store later: they are in `calls`."""

    def __init__(self, files: Files, calls: list[Call], methods: tuple[str, ...]) -> None:
        self._files, self._calls, self._methods = files, calls, methods

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._files, name)
        if name not in self._methods:
            return found
        return lambda *args: self._calls.append(partial(found, *args))


def postponed(files: Files, calls: list[Call], *methods: str) -> Files:
    """The same files, but that calls of these methods go to `calls`."""
    return cast("Files", Postponed(files, calls, methods))


def delayed(files: Files, later: list[tuple[str, bytes]], folder: str = "checkpoints") -> Files:
    """The same files, but that new records of a folder go to `later`."""
    return cast("Files", Delayed(files, later, folder))


def opened(place: str, epochs: int) -> CheckpointStore:
    """A store at which the input of some epochs is logged."""
    store = CheckpointStore(place)
    store.open(1.0)
    for epoch in range(1, epochs + 1):
        cut = {"cut_at": 1.0, "watermark": epoch, "rows_per_second": 1.0, "final": False}
        store.log_offsets(epoch, {**cut, "offsets": {"rows": [epoch - 1, epoch]}})
    return store


def checkpoint(epoch: int, run: str, *held: int) -> dict[str, Any]:
    """Its record; output of the epochs `held` back becomes public with it."""
    published = {**commit(run, *held), "checkpoint": epoch} if held else None
    return {"program": "p", "steps": {}, "at": 1.0, "bytes": {}, "published": published}


def commit(run: str, *epochs: int) -> dict[str, Any]:
    """That epochs of one partition are finished, and a file of each."""
    sums = [f"{run}-{epoch}" for epoch in epochs]
    files = [["q/0", epoch, 1, f"{run}-{epoch}", run] for epoch in epochs]
    finished = {"rows/0": [epochs[0], epochs[-1], sums]}
    return {"at": 1.0, "plan_epoch": 1, "finished": finished, "outputs": files}


def outputs_of(store: CheckpointStore) -> list[list[Any]]:
    """The files that count, in the order in which they came to."""
    return [one for _, record in commit_log.commits(store.files) for one in record["outputs"]]


STORIES: tuple[Story, ...] = (
    of_many_writers_of_a_file_that_must_not_be_there_one_succeeds,
    ones_own_content_counts_as_made_and_anothers_does_not,
    what_is_put_takes_the_place_of_what_is_there,
    of_a_large_file_it_is_told_how_much_has_gone_and_come,
    files_are_listed_with_those_of_folders_below,
    a_file_has_a_size_and_one_that_is_not_there_has_none,
    what_is_removed_is_gone_and_so_is_what_never_was_there,
    a_file_that_is_not_there_is_told_from_a_store_that_is_away,
)
