"""The checkpoint store as the driver sees it: generations, offset log, commit log, checkpoints.

    generations/N.json     one per driver start; the highest number is the driver that may write
    offsets/EPOCH.json     the input of an epoch, written before it runs, never again
    commits/N.json         what became finished, in order; readers ignore output that none names
    checkpoints/EPOCH.json a global checkpoint; its files are in the folder EPOCH, and in older ones
    generations/program-N.pickle   the program that hosts load
    outputs/QUERY/*.parquet
    finish, savepoint      files by which users ask for the end, and for a checkpoint to end at

Every record is created only if it is absent, so of two drivers one is told that it is late: a
driver that starts seals the commit log with an empty record, at which an older one fails.
Formats: docs/formats.md. The store is a folder that all nodes share.
"""

import os
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rekindle import records
from rekindle.errors import DamagedError, FencedError
from rekindle_spark import disk, restoring
from rekindle_spark.patience import Patience

__all__ = ["FINISH_REQUEST", "SAVEPOINT_REQUEST", "History", "Store"]

FINISH_REQUEST, SAVEPOINT_REQUEST = "finish", "savepoint"

# where the newest turns out to be damaged, the one before is gone on from
CHECKPOINTS_KEPT = 2


@dataclass(frozen=True, slots=True)
class History:
    """What earlier drivers left: the start of this one."""

    offsets: dict[int, dict[str, Any]]
    commits: list[dict[str, Any]]
    checkpoint: dict[str, Any] | None


class Store:
    """One application's folder in the checkpoint store."""

    def __init__(self, directory: Path, patience: Patience | None = None) -> None:
        self.directory = directory.resolve()
        self.patience = patience or Patience()
        self.generation = 0
        self.commits = 0

    def open(self, now: float) -> History:
        """Take the next generation, fence older ones, and read what they left."""
        for name in ("generations", "offsets", "commits", "checkpoints", "outputs"):
            disk.make_folder(self.directory / name)
        while True:
            self.generation = max(_numbers(self.directory / "generations"), default=0) + 1
            try:
                self._create("generations", self.generation, "generation", {"started_at": now})
                break
            except FencedError:
                continue
        while self.generation > 1:
            history = self.read()
            try:
                self.commit({"at": now, "plan_epoch": 0, "finished": {}, "outputs": []})
                return history
            except FencedError:
                self.check_generation()
        return self.read()

    def read(self) -> History:
        """What drivers have left up to now; changes nothing.

        A driver that runs may remove what has been listed, and what an older checkpoint needs.
        """
        damage: DamagedError | None = None
        while True:
            try:
                return self._history()
            except FileNotFoundError:
                continue
            except DamagedError as error:
                if damage is not None:
                    raise
                damage = error

    def log_offsets(self, epoch: int, offsets: Mapping[str, Any]) -> Mapping[str, Any]:
        """Fix the input of an epoch; returns the record that stands.

        That is an older driver's where it was faster. Raises FencedError when a newer one has
        started.
        """
        self.check_generation()
        record = {"epoch": epoch, **offsets}
        try:
            self._create("offsets", epoch, "offsets", record)
        except FencedError:
            self.check_generation()
            return self._read("offsets", epoch, "offsets")
        return record

    def commit(self, content: Mapping[str, Any]) -> None:
        """Make results finished. Raises FencedError when a newer generation is there."""
        self.check_generation()
        self.commits += 1
        self._create("commits", self.commits, "commit", content)

    def make_outputs(self, queries: Iterable[str]) -> None:
        """Make the folders of the queries' output files: hosts make none."""
        for query in queries:
            disk.make_folder(self.directory / "outputs" / query)

    def begin_checkpoint(self, epoch: int) -> None:
        """Make the folder for the states after an epoch."""
        folder = self.directory / "checkpoints" / str(epoch)

        def make() -> None:
            with suppress(FileExistsError):
                folder.mkdir()
            disk.flush(folder.parent)

        self.patience.through(make)

    def complete_checkpoint(self, epoch: int, content: Mapping[str, Any]) -> None:
        """Record a global checkpoint; remove what neither it nor the one before it needs.

        Raises FencedError when a newer driver has started. One that starts after the second look
        finds the new record, so it needs nothing of what goes.
        """
        self.check_generation()
        self._create("checkpoints", epoch, "checkpoint", {"epoch": epoch, **content})
        self.check_generation()
        with suppress(OSError):  # what cannot be removed now goes with the next one
            self._prune(self._checkpoints()[0])

    def _prune(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Remove checkpoints but the newest ones, and what only they needed."""
        kept = records[-CHECKPOINTS_KEPT:]
        if not kept:  # the store has just gone
            return
        needed = {file for record in kept for file in restoring.files(record)}
        begin = min(restoring.oldest(record) for record in kept)
        folder = self.directory / "checkpoints"
        for old in _numbers(folder):
            if old < kept[0]["epoch"]:
                (folder / f"{old}.json").unlink(missing_ok=True)
        for old in _numbers(self.directory / "offsets"):
            if old < begin:
                (self.directory / "offsets" / f"{old}.json").unlink(missing_ok=True)
        for states in folder.iterdir():
            if states.is_dir() and int(states.name) < kept[-1]["epoch"]:
                _remove_but(states, needed)

    def set_aside(self, damage: DamagedError) -> DamagedError:
        """Take the newest checkpoint out of use, of which a file is damaged; what to end with.

        Not where the one before needs the same file, or is another pipeline's, or output has become
        public with the newest.
        """
        self.check_generation()
        whole, _ = self._checkpoints()
        if len(whole) < 2 or whole[-1].get("published") is not None:
            return damage
        if whole[-1]["program"] != whole[-2]["program"]:  # carried over from another pipeline
            return damage
        if damage.where in (f"checkpoints/{file}" for file in restoring.files(whole[-2])):
            return damage
        path = self.directory / "checkpoints" / f"{whole[-1]['epoch']}.json"
        path.rename(path.with_suffix(".damaged"))
        disk.flush(path.parent)
        return DamagedError(
            where=damage.where,
            what=damage.what,
            remedy=f"start again: checkpoint {whole[-2]['epoch']} is gone on from",
        )

    def write_program(self, data: bytes) -> Path:
        """Put the program where hosts read it, one file per generation."""
        path = self.directory / "generations" / f"program-{self.generation}.pickle"
        path.write_bytes(data)
        return path

    def check_generation(self) -> None:
        """Raise FencedError when a newer driver has started."""
        newest = max(_numbers(self.directory / "generations"), default=0)
        if newest > self.generation:
            raise self._fenced(f"generation {newest} has started")

    def _create(self, folder: str, number: int, kind: str, content: Mapping[str, Any]) -> None:
        path = self.directory / folder / f"{number}.json"
        data = records.encode(kind, {"generation": self.generation, **content})

        def put() -> None:
            self.check_generation()  # a newer driver may have come while the store was away
            _put(path, data)

        try:
            self.patience.through(put)
        except FileExistsError:
            raise self._fenced(f"{folder}/{number}.json is there already") from None

    def _fenced(self, what: str) -> FencedError:
        return FencedError(
            where=f"driver of generation {self.generation}",
            what=what,
            remedy="let the newer driver go on; this one has stopped",
        )

    def _history(self) -> History:
        """Commits first: a driver that runs logs the input of what it commits before that."""
        numbers = _numbers(self.directory / "commits")
        commits = [self._read("commits", number, "commit") for number in numbers]
        self.commits = max(numbers, default=0)
        checkpoint = _chosen(*self._checkpoints(), commits)
        offsets = {
            number: self._read("offsets", number, "offsets")
            for number in _numbers(self.directory / "offsets")
        }
        if checkpoint is not None and "cut" in checkpoint:
            offsets[checkpoint["epoch"]] = checkpoint["cut"]
        _check_gaps("commits", numbers, 1, self.commits)
        begin = 1 if checkpoint is None else max(1, restoring.oldest(checkpoint))
        _check_gaps("offsets", offsets, begin, max([*offsets, *_finished(commits)], default=0))
        return History(offsets, commits, checkpoint)

    def _checkpoints(self) -> tuple[list[dict[str, Any]], list[DamagedError]]:
        """The records of checkpoints that are whole, and what is wrong with others."""
        whole, damaged = [], []
        for number in _numbers(self.directory / "checkpoints"):
            try:
                whole.append(self._read("checkpoints", number, "checkpoint"))
            except DamagedError as error:
                damaged.append(error)
        return whole, damaged

    def _read(self, folder: str, number: int, kind: str) -> dict[str, Any]:
        path = self.directory / folder / f"{number}.json"
        return records.decode(kind, path.read_bytes(), f"{folder}/{number}.json")


def _put(path: Path, data: bytes) -> None:
    """Make a file that must not be there yet, on disk with its name when this returns.

    That very content is as good as made: an earlier try may have come that far.
    """
    with disk.written_aside(path, data) as unfinished:
        try:
            os.link(unfinished, path)
        except FileExistsError:
            if path.read_bytes() != data:
                raise
    disk.flush(path.parent)


def _chosen(
    whole: Sequence[dict[str, Any]],
    damaged: Sequence[DamagedError],
    commits: Iterable[Mapping[str, Any]],
) -> dict[str, Any] | None:
    """The checkpoint to go on from: the newest that is whole.

    Not where output has become public with a later one: what is run again unordered may give
    something else.
    """
    newest = whole[-1] if whole else None
    public = max((record.get("checkpoint", 0) for record in commits), default=0)
    if damaged and (newest is None or public > newest["epoch"]):
        raise damaged[-1]
    return newest


def _remove_but(folder: Path, needed: Container[str]) -> None:
    """Remove a folder, or of its files those that are not needed."""
    for path in folder.iterdir():
        if f"{folder.name}/{path.name}" not in needed:
            path.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def _check_gaps(folder: str, numbers: Collection[int], first: int, last: int) -> None:
    """Raise DamagedError where one from `first` to `last` is not there."""
    for number in range(first, last + 1):
        if number not in numbers:
            raise DamagedError(
                where=f"{folder}/{number}.json",
                what="is not there, but what came later is",
                remedy="restore it from a copy of the store, or start with an empty store",
            )


def _finished(commits: Iterable[Mapping[str, Any]]) -> Iterator[int]:
    """The last epochs that commit records name."""
    return (last for record in commits for _, last, _ in record["finished"].values())


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.json") if path.stem.isdigit())
