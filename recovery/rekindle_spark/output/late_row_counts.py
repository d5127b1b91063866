"""How many rows came too late for each step, of all that counts.

    commit records: late [[partition, epoch, rows], …] ──► totals by step

An epoch that runs again is late again. So rows count with the first commit record that finishes
their epoch, and are written there: a driver that starts goes on with what the log's `fold` has.
Called by `job_runner` before a commit, by `output_commit` before and after one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rekindle_spark.pipeline.program import Program
from rekindle_spark.store.commit_summary import CommitSummary

# Late rows count as begun again when a step has had none for so long.
QUIET_SECONDS = 60.0

Record = Mapping[str, Any]


@dataclass(slots=True)
class LateCounts:
    """Late rows by step, 0 for those without. `finished` is the last epoch of each partition that
    a commit record has finished, `newest_at` when each step had late rows last."""

    program: Program
    totals: dict[str, int] = field(init=False)
    finished: dict[int, int] = field(default_factory=dict)
    newest_at: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.totals = {chain.name: 0 for chain in self.program.chains if chain.keyed}

    @staticmethod
    def of(program: Program, fold: CommitSummary) -> "LateCounts":
        """What the commit log says, also of partitions that a step had before it was changed."""
        counts = LateCounts(program)
        for step in counts.totals.keys() & fold.late.keys():
            counts.totals[step] = fold.late[step].rows
            counts.newest_at[step] = fold.late[step].at
        counts.finished = {
            program.numbers[name]: fold.last(name)
            for name in fold.finished.keys() & program.numbers.keys()
        }
        return counts

    def fresh(self, late: Mapping[int, Mapping[int, int]]) -> list[list[Any]]:
        """The late rows, by partition and epoch, that the next commit record has to count: those of
        epochs that no record has finished."""
        return [
            [self.program.partition_names[number], epoch, rows]
            for number, by_epoch in sorted(late.items())
            for epoch, rows in sorted(by_epoch.items())
            if rows and epoch > self.finished.get(number, 0)
        ]

    def take_in(self, record: Record) -> list[dict[str, Any]]:
        """Add what a commit record says; returns an event for each step whose late rows begin."""
        found: dict[str, list[int]] = {}
        for name, epoch, rows in record.get("late", ()):
            step = name.rpartition("/")[0]
            if step in self.totals:
                self.totals[step] += rows
                first, sum_of_rows = found.get(step, (epoch, 0))
                found[step] = [min(first, epoch), sum_of_rows + rows]
        for name, (_, last, _) in record["finished"].items():
            number = self.program.numbers.get(name)
            if number is not None:
                self.finished[number] = max(last, self.finished.get(number, 0))
        begun = [
            {"step": step, "epoch": epoch, "rows": rows, "total": self.totals[step]}
            for step, (epoch, rows) in found.items()
            # a driver before may have had a clock that was ahead
            if abs(record["at"] - self.newest_at.get(step, -QUIET_SECONDS)) >= QUIET_SECONDS
        ]
        self.newest_at.update((step, record["at"]) for step in found)
        return begun

    @property
    def seen(self) -> dict[str, int]:
        """The totals of steps that have had late rows."""
        return {step: rows for step, rows in self.totals.items() if rows}
