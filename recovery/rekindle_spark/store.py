"""The checkpoint store as the driver sees it: generations, offset log, commit log, checkpoints.

    generations/N.json     one per driver start; the highest number is the driver that may write
    offsets/EPOCH.json     the input of an epoch, written before it runs, never again
    commits/N.json         what became finished, in order; readers ignore output that none names
    checkpoints/EPOCH.json a global checkpoint; the states are in the folder EPOCH
    generations/program-N.pickle   the program that hosts load
    outputs/QUERY/*.parquet

Every record is created only if it is absent, so of two drivers one is told that it is late: a
driver that starts seals the commit log with an empty record, at which an older one fails.
Formats: docs/formats.md. The store is a folder that all nodes share.
"""

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rekindle import records
from rekindle.errors import FencedError
from rekindle_spark import disk

__all__ = ["History", "Store"]


@dataclass(frozen=True, slots=True)
class History:
    """What earlier drivers left: the start of this one."""

    offsets: dict[int, dict[str, Any]]
    commits: list[dict[str, Any]]
    checkpoint: dict[str, Any] | None


class Store:
    """One application's folder in the checkpoint store."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
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
        """What drivers have left up to now; changes nothing."""
        while True:
            try:
                return self._history()
            except FileNotFoundError:
                continue  # a driver that runs has removed what was listed

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
        disk.make_folder(self.directory / "checkpoints" / str(epoch))

    def complete_checkpoint(self, epoch: int, content: Mapping[str, Any]) -> None:
        """Record a global checkpoint; remove older ones and the offsets before it.

        Raises FencedError when a newer driver has started. One that starts after the second look
        finds the new record, so it needs nothing of what goes.
        """
        self.check_generation()
        self._create("checkpoints", epoch, "checkpoint", {"epoch": epoch, **content})
        self.check_generation()
        for old in _numbers(self.directory / "checkpoints"):
            if old < epoch:
                (self.directory / "checkpoints" / f"{old}.json").unlink(missing_ok=True)
        for old in _numbers(self.directory / "offsets"):
            if old < epoch:
                (self.directory / "offsets" / f"{old}.json").unlink(missing_ok=True)
        for folder in (self.directory / "checkpoints").iterdir():
            if folder.is_dir() and int(folder.name) < epoch:
                shutil.rmtree(folder, ignore_errors=True)

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
        unfinished = disk.aside(path)
        unfinished.write_bytes(data)
        disk.flush(unfinished)
        try:
            os.link(unfinished, path)
        except FileExistsError:
            raise self._fenced(f"{folder}/{number}.json is there already") from None
        finally:
            unfinished.unlink()
        disk.flush(path.parent)

    def _fenced(self, what: str) -> FencedError:
        return FencedError(
            where=f"driver of generation {self.generation}",
            what=what,
            remedy="let the newer driver go on; this one has stopped",
        )

    def _history(self) -> History:
        offsets = {
            number: self._read("offsets", number, "offsets")
            for number in _numbers(self.directory / "offsets")
        }
        numbers = _numbers(self.directory / "commits")
        commits = [self._read("commits", number, "commit") for number in numbers]
        self.commits = max(numbers, default=0)
        checkpoints = _numbers(self.directory / "checkpoints")
        newest = checkpoints[-1] if checkpoints else 0
        checkpoint = self._read("checkpoints", newest, "checkpoint") if newest else None
        return History(offsets, commits, checkpoint)

    def _read(self, folder: str, number: int, kind: str) -> dict[str, Any]:
        path = self.directory / folder / f"{number}.json"
        return records.decode(kind, path.read_bytes(), f"{folder}/{number}.json")


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.json") if path.stem.isdigit())
