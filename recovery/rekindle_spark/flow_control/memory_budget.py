"""How much epochs and catch-up pieces may take on, so that hosts keep within their memory.

    easy ──peak over 0.8 of the budget──► tight ──ten calm readings in a row──► easy

A reading is calm where twice the work would stay below that.

While a host is tight its catch-up pieces are of one epoch, and where partitions on it are live
epochs are halved, down to a floor, as long as work and not state is what fills it. They grow again
after as many calm readings in a row, a number that doubles each time that this was too early: so a
load between two sizes changes them ever more rarely. A host that refuses its work though that
cannot be made smaller ends the run.

Pure: readings and times are given; `memory_pressure` applies what comes of it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rekindle_spark.flow_control.catch_up_pace import PIECE_EPOCHS_MAX

TIGHT, EASED = "memory-tight", "memory-eased"
TIGHT_SHARE = 0.8
# Of the budget. Where work takes less, smaller epochs would cost time and free nothing.
WORK_SHARE_MIN = 0.05
ROWS_MIN = 1_000
CALM_FIRST, CALM_MAX = 10, 1_280
# Until then what is written to the store has been, and its copies are gone.
REFUSED_SECONDS_MAX = 10.0


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """What a host uses between requests, the most it has used, and its budget, None for none."""

    used_bytes: int
    peak_bytes: int
    max_bytes: int | None

    @property
    def work_bytes(self) -> int:
        """What requests have taken beside what stays."""
        return max(0, self.peak_bytes - self.used_bytes)

    @property
    def is_tight(self) -> bool:
        """Whether it comes close to its budget."""
        return self.max_bytes is not None and self.peak_bytes > TIGHT_SHARE * self.max_bytes

    @property
    def is_work(self) -> bool:
        """Whether smaller epochs would free anything to speak of."""
        return self.max_bytes is not None and self.work_bytes > WORK_SHARE_MIN * self.max_bytes

    @property
    def has_room(self) -> bool:
        """Whether twice as much work would fit."""
        twice = self.peak_bytes + self.work_bytes
        return self.max_bytes is None or twice <= TIGHT_SHARE * self.max_bytes


def readings(reports: Iterable[Mapping[str, Any]]) -> dict[str, MemoryReading]:
    """By executor, of what hosts say in their reports on one job."""
    said = (report for report in reports if "memory" in report)
    return merged(*({report["executor"]: MemoryReading(**report["memory"])} for report in said))


def merged(*several: Mapping[str, MemoryReading]) -> dict[str, MemoryReading]:
    """Readings of some jobs as if they were one."""
    found: dict[str, MemoryReading] = {}
    for executor, reading in (item for readings in several for item in readings.items()):
        known = found.get(executor, reading)
        used = min(known.used_bytes, reading.used_bytes)
        peak = max(known.peak_bytes, reading.peak_bytes)
        found[executor] = MemoryReading(used, peak, reading.max_bytes)
    return found


@dataclass(frozen=True, slots=True)
class Change:
    """A host has become tight, or is so no longer: `kind` is TIGHT or EASED."""

    kind: str
    executor: str
    reading: MemoryReading


@dataclass(slots=True)
class Portion:
    """How much is taken on at once, `least` at least; None: no limit."""

    least: int
    limit: int | None = None
    calm: int = 0
    patience: int = CALM_FIRST
    has_grown: bool = False

    def shrink(self, wanted: int) -> None:
        """More than `wanted` was too much."""
        wanted = max(self.least, wanted)
        self.limit = wanted if self.limit is None else min(self.limit, wanted)
        if self.has_grown:
            self.patience = min(CALM_MAX, 2 * self.patience)
        self.calm, self.has_grown = 0, False

    def ease(self, size: int, most: int) -> None:
        """`size` was done with room to spare. Less than half of the limit says nothing about more;
        from `most` on there is no limit."""
        if self.limit is None or 2 * size <= self.limit:
            return
        self.calm += 1
        if self.calm >= self.patience:
            self.limit, self.calm, self.has_grown = 2 * self.limit, 0, True
            if self.limit >= most:
                self.limit = None


@dataclass(slots=True)
class MemoryBudget:
    """What is known of hosts' memory, by executor.

    `tight` has their calm readings in a row. `starved` are those that have refused to run an epoch
    of live partitions: there nothing catches up until it has run. `rows_proved` are as many rows as
    the next epoch may have as far as memory is known: twice those of the last where all had room,
    else a quarter more.
    """

    rows_per_epoch_max: int
    readings: dict[str, MemoryReading] = field(default_factory=dict)
    tight: dict[str, int] = field(default_factory=dict)
    starved: set[str] = field(default_factory=set)
    epochs: Portion = field(default_factory=lambda: Portion(ROWS_MIN))
    pieces: dict[str, Portion] = field(default_factory=dict)
    refused_since: dict[tuple[str, bool], float] = field(default_factory=dict)
    rows_proved: int = 0

    @property
    def peak_bytes(self) -> int:
        """Of the host that uses most."""
        return max((reading.peak_bytes for reading in self.readings.values()), default=0)

    @property
    def rows_max(self) -> int:
        """Rows of the next epoch at most."""
        limit = self.epochs.limit
        return self.rows_per_epoch_max if limit is None else min(limit, self.rows_per_epoch_max)

    def piece_epochs(self, executor: str, wanted: int) -> int:
        """Epochs of the next catch-up piece."""
        portion = self.pieces.get(executor)
        return wanted if portion is None or portion.limit is None else min(wanted, portion.limit)

    def note(
        self,
        readings: Mapping[str, MemoryReading],
        live: Collection[str],
        rows: int,
        piece_epochs: int,
    ) -> list[Change]:
        """Enter readings of a job; returns what has changed.

        `live` are executors with live partitions, `rows` those of the newest epoch. A piece of
        several epochs says nothing of what one would take.
        """
        changes = []
        for executor, reading in readings.items():
            self.readings[executor] = reading
            if reading.is_tight:
                if executor not in self.tight:
                    changes.append(Change(TIGHT, executor, reading))
                self.tight[executor] = 0
                self.pieces.setdefault(executor, Portion(1)).shrink(1)
                halves = executor in live and piece_epochs <= 1 and reading.is_work
                if halves and rows > ROWS_MIN:
                    self.epochs.shrink(rows // 2)
            elif executor in self.tight:
                self.tight[executor] = self.tight[executor] + 1 if reading.has_room else 0
                if self.tight[executor] >= CALM_FIRST:
                    del self.tight[executor]
                    changes.append(Change(EASED, executor, reading))
        return changes

    def finished(self, readings: Mapping[str, MemoryReading], rows: int, piece_epochs: int) -> None:
        """A job has gone well, of catching up by so many epochs, or, where that is 0, of `rows`."""
        for executor in readings:
            self.refused_since.pop((executor, piece_epochs > 0), None)
        roomy = [executor for executor, reading in readings.items() if reading.has_room]
        if piece_epochs:
            for executor in roomy:
                self.pieces.setdefault(executor, Portion(1)).ease(piece_epochs, PIECE_EPOCHS_MAX)
            return
        self.starved.clear()
        # below TIGHT_SHARE there is room for a quarter more
        self.rows_proved = rows + rows // 4
        if len(roomy) == len(readings):
            self.rows_proved = 2 * rows
            self.epochs.ease(rows, self.rows_per_epoch_max)

    def refused(self, executor: str, piece_epochs: int, now: float, *, waits: bool) -> bool:
        """A host has refused its part of a job; whether that is the end.

        A piece of several epochs is issued again as a smaller one. An epoch, whose input is logged,
        cannot be: it is tried again while something else (`waits`) catches up there, and then for
        some seconds.
        """
        key = (executor, piece_epochs > 0)
        if piece_epochs:
            self.pieces.setdefault(executor, Portion(1)).shrink(1)
        else:
            self.starved.add(executor)
        if piece_epochs > 1 or waits:
            self.refused_since.pop(key, None)
            return False
        return now - self.refused_since.setdefault(key, now) > REFUSED_SECONDS_MAX

    def keep(self, executors: Collection[str]) -> None:
        """Forget all others: they are gone, and who is left may get what they had."""
        if self.readings.keys() - set(executors):
            self.rows_proved = 0
        for known in (self.readings, self.pieces, self.tight):
            for executor in known.keys() - set(executors):
                del known[executor]
        self.starved &= set(executors)
        for key in [key for key in self.refused_since if key[0] not in executors]:
            del self.refused_since[key]
