"""Streams of files: what was written for each, when Spark had committed it, how long it lagged.

    writer ─► input/NAME/MILLIS.json ─► an application's query ─► checkpoints/NAME
    sources/0/STEP: files     offsets/BATCH: up to which step     commits/BATCH: when

The applications are not asked: Spark's own checkpoint says all of it. The newest row of a file is
as old as the file's name, in milliseconds by this machine's clock, which is the nodes' too.
`application_scenarios` runs them.
"""

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from testbed.background_threads import BackgroundThread

WRITE_SECONDS = 1.0
# A file in a folder whose name begins so is not read before it is renamed.
UNSEEN = "_"
# How much longer than before the failure a file may wait, before its stream counts as unavailable.
LAG_FACTOR = 2.0

Interval = tuple[float, float]


@dataclass(slots=True)
class FileStream:
    """`directory` is the claim's on this machine; a file has `rows_per_file`. `written` and
    `committed` are by name of a file, in seconds since 1970. One thread may write while another one
    looks."""

    name: str
    directory: Path
    rows_per_file: int
    written: dict[str, float] = field(default_factory=dict)
    committed: dict[str, float] = field(default_factory=dict)
    _batches: set[str] = field(default_factory=set)

    @property
    def input(self) -> Path:
        """Where its files come."""
        return self.directory / "input" / self.name

    def write(self, now: float) -> None:
        """One file, which Spark sees whole or not at all."""
        name = f"{int(now * 1_000)}.json"
        rows = (json.dumps({"key": number % 16, "at": now}) for number in range(self.rows_per_file))
        hidden = self.input / f"{UNSEEN}{name}"
        hidden.write_text("\n".join(rows) + "\n", encoding="utf-8")
        hidden.rename(self.input / name)
        self.written[name] = now

    def look(self) -> None:
        """Take in which batches were committed since the last look. Spark keeps a hundred."""
        checkpoint = self.directory / "checkpoints" / self.name
        reached: list[tuple[int, float]] = []
        for path in sorted(_files(checkpoint / "commits"), key=lambda one: int(one.name)):
            if path.name not in self._batches:
                with suppress(OSError):  # it has just been removed, as one of the oldest
                    offsets = (checkpoint / "offsets" / path.name).read_text(encoding="utf-8")
                    offset = json.loads(offsets.splitlines()[-1])["logOffset"]
                    reached.append((offset, path.stat().st_mtime))
                    self._batches.add(path.name)
        for path in _files(checkpoint / "sources" / "0") if reached else ():
            with suppress(OSError):
                self._read(path.read_text(encoding="utf-8"), reached)

    def _read(self, text: str, reached: Sequence[tuple[int, float]]) -> None:
        """A step of the source, or many that Spark has put together: a version, then files. One is
        in the first batch that goes so far."""
        for line in text.splitlines()[1:]:
            entry = json.loads(line)
            name = entry["path"].rpartition("/")[2]
            moments = (moment for offset, moment in reached if offset >= entry["batchId"])
            if name not in self.committed and (moment := next(moments, None)) is not None:
                self.committed[name] = moment

    def batches(self, since: float) -> int:
        """How many batches with files were committed from a moment on."""
        return len({moment for moment in self.committed.values() if moment >= since})

    def waits(self, since: float, until: float) -> list[float]:
        """How long each file took that was committed in a stretch of time."""
        return [
            moment - self.written[name]
            for name, moment in self.committed.items()
            if name in self.written and since <= moment < until
        ]

    def oldest_wait(self) -> float:
        """How long the oldest file of the newest batch took; infinite where there is none."""
        moment = max(self.committed.values(), default=math.inf)
        waits = self.waits(moment, math.inf)
        return max(waits, default=math.inf)

    def lag(self, now: float) -> float:
        """The age of the oldest file that is not committed."""
        written = self.written.copy().items()
        open_ = (at for name, at in written if name not in self.committed)
        return now - min(open_, default=now)

    def files(self) -> Iterator[Interval]:
        """When each was written, and committed: never is infinite."""
        for name, at in self.written.copy().items():
            yield at, self.committed.get(name, math.inf)


def _files(folder: Path) -> list[Path]:
    """Files of a log of Spark's, without its checksums and what it is still writing."""
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if path.name.split(".")[0].isdecimal()]


class StreamWriter(BackgroundThread):
    """A context manager: inside, each stream gets a file each second."""

    def __init__(self, streams: tuple[FileStream, ...]) -> None:
        super().__init__("stream-writer")
        self.streams = streams

    def _run(self) -> None:
        while not self._ended.wait(WRITE_SECONDS):
            now = time.time()
            for stream in self.streams:
                stream.write(now)


def outages(
    files: Iterable[Interval], lag_seconds_max: float, since: float, until: float
) -> list[Interval]:
    """When a file that was older than `lag_seconds_max` was not committed, within a stretch of
    time. `files` are moments of writing and commit."""
    found: list[Interval] = []
    for written, committed in sorted(files):
        begin, end = max(since, written + lag_seconds_max), min(until, committed)
        if begin >= end:
            continue
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found


def weighted_unavailable_seconds(
    unavailable: Mapping[str, Iterable[Interval]], priorities: Mapping[str, float]
) -> float:
    """The mean of the seconds for which each stream was unavailable, weighted by priority."""
    total = sum(
        priorities[name] * sum(end - begin for begin, end in intervals)
        for name, intervals in unavailable.items()
    )
    return total / sum(priorities[name] for name in unavailable)
