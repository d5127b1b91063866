"""Stores in memory whose output is put together: segments of two commits, two blocks to a level."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from memory_files import MemoryFiles

from rekindle.model import record_format
from rekindle_spark.output.output_compaction import Compaction
from rekindle_spark.output.sink_files import SinkFiles
from rekindle_store import commit_segments, compacted_outputs, output_rows
from rekindle_store.compacted_outputs import Places
from rekindle_store.output_rows import OutputRows

LENGTH, FAN, LEVELS = 2, 2, 3
# What a reader has of an epoch: query partition, epoch, commit, time, and the rows.
Read = tuple[str, int, int, float, pa.Table]
Rows = Callable[[int], pa.Table]


def make_small(patch: pytest.MonkeyPatch) -> None:
    """Small segments and levels, and nothing waits before it is removed."""
    patch.setattr(commit_segments, "LENGTH", LENGTH)
    patch.setattr(compacted_outputs, "FAN", FAN)
    patch.setattr(compacted_outputs, "LEVELS", LEVELS)
    patch.setattr("rekindle_spark.output.output_compaction.GRACE_SECONDS", 0.0)


def numbers(epoch: int) -> pa.Table:
    """Some rows of an epoch; none of some."""
    return pa.table({"n": pa.array([epoch * 10 + one for one in range(epoch % 3)], pa.int64())})


@dataclass(slots=True)
class Log:
    """A store whose driver commits epochs of two queries, one of which has two partitions."""

    files: MemoryFiles = field(default_factory=MemoryFiles)
    rows: Rows = numbers
    commits: int = 0
    sealed: int = 0
    written: list[Read] = field(default_factory=list)

    def commit(self, epoch: int) -> None:
        """Write the output of an epoch, and commit it."""
        self.commits += 1
        parts = [("hourly/0", epoch), ("busiest/0", epoch), ("hourly/1", epoch)]
        outputs = [self.put(*part) for part in parts[: 2 + epoch % 2]]
        record = {"generation": 1, "plan_epoch": 1, "finished": {"rows/0": [epoch, epoch, ["d"]]}}
        data = record_format.encode("commit", {**record, "at": float(epoch), "outputs": outputs})
        self.files.content[f"commits/{self.commits}.json"] = data

    def put(self, query_partition: str, epoch: int) -> list[Any]:
        """Write an output file; what a commit record says of it."""
        query, _, partition = query_partition.partition("/")
        table, name = self.rows(epoch), f"{partition}-{epoch:09d}.parquet"
        outputs = SinkFiles(self.files)
        outputs.write(query, name, table)
        self.files.content.update(outputs.unfinished)
        self.written.append((query_partition, epoch, self.commits, float(epoch), table))
        return [query_partition, epoch, table.num_rows, name, "0" * 16]

    def seal(self) -> None:
        """Put the records of all whole segments but for the newest record into these."""
        while self.sealed + LENGTH < self.commits:
            names = [f"commits/{self.sealed + one}.json" for one in range(1, LENGTH + 1)]
            lines = [self.files.content.pop(name) for name in names]
            records = [record_format.decode("commit", line, "here") for line in lines]
            name = commit_segments.name_of(self.sealed + 1)
            self.files.content[name] = commit_segments.pack(records)
            self.sealed += LENGTH

    def compaction(self, generation: int = 1, **options: Any) -> Compaction:
        """A driver's compaction, to which all epochs are settled. It does not know of others."""
        options = {
            "settled": lambda: self.commits,
            "check_generation": lambda: None,
            "now": lambda: 0.0,
            **options,
        }
        return Compaction(self.files, generation, **options)

    def single_files(self) -> list[int]:
        """The epochs of the files that were not put together, of one partition."""
        names = (name for name in self.files.content if name.startswith("outputs/hourly/0-"))
        return sorted(int(name.removesuffix(".parquet")[-9:]) for name in names)

    def data_files(self) -> list[str]:
        """The names of data files below `outputs`."""
        names = (name for name in self.files.content if "/commits-" in name)
        return sorted(name.removeprefix("outputs/") for name in names)

    def indices(self) -> list[str]:
        """The commits for which there are indices."""
        names = (name for name in self.files.content if name.endswith(".files"))
        return sorted(name.rpartition("/")[2].removesuffix(".files") for name in names)


def log_of(count: int, rows: Rows = numbers) -> Log:
    """A log of so many epochs, sealed."""
    log = Log(rows=rows)
    for epoch in range(1, count + 1):
        log.commit(epoch)
    log.seal()
    return log


def finish(compaction: Compaction) -> None:
    """Do all there is to do."""
    while compaction.advance():
        pass


def reading(files: MemoryFiles) -> Iterator[Read]:
    """What a reader gets, one output file after the other."""
    rows = OutputRows(files, Places(files))
    for output in output_rows.outputs(files):
        table = rows.table(output.commit, output.named, output.rows)
        named = (output.query_partition, output.epoch, output.commit, output.committed_at)
        yield (*named, table)


def assert_same(found: list[Read], written: list[Read]) -> None:
    """The same rows, in the same order, of the same commits."""
    assert [one[:4] for one in found] == [one[:4] for one in written]
    for (*_, got), (*_, wanted) in zip(found, written, strict=True):
        assert got.schema.equals(wanted.schema, check_metadata=True)
        assert got.equals(wanted)
