"""Checks output rows against the commit events of their query partition, and those for gaps.

So a commit cannot be claimed before its rows were there, nor rows be there without a commit, nor
a commit event be lost. `check` calls it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from rekindle.model import run_events
from rekindle.model.errors import InputError, first_line
from rekindle.model.run_events import Event
from rekindle.report import availability
from rekindle.report.input_record import Inputs
from rekindle.verification.evidence_files import REMEDY, output_file
from rekindle.verification.figure_differences import Difference

# Rows and events are stamped by two readings of one clock.
TOLERANCE_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class _Commit:
    """A commit event: epochs from `first` to `last`, committed between `begin` and `end`.

    `end` is the event's own time; `begin` that of the event before it, for the runtime tells of
    a commit before it starts on the next one of the same query partition.
    """

    first: int
    last: int
    begin: float
    end: float


def check(directory: Path, events: Sequence[Event], inputs: Inputs) -> list[Difference]:
    """Give a difference for whatever rows and commit events do not tell of each other."""
    found = []
    for query in sorted(inputs.priorities):
        cuts, final = _cuts(events, query), availability.final_epoch(events, query)
        for partition in inputs.partitions(query):
            commits = _commits(events, partition)
            rows = _rows(directory, partition)
            found += _gaps(partition, commits, _restore_points(events, cuts), final)
            found += _uncovered(partition, rows, commits, cuts)
    return found


def _cuts(events: Sequence[Event], query: str) -> Mapping[int, float]:
    return {
        event.epoch: event.t
        for event in run_events.of_kind(events, "cut")
        if event.query in (None, query) and event.epoch is not None
    }


def _restore_points(events: Sequence[Event], cuts: Mapping[int, float]) -> set[int]:
    """The epochs after which a partition may go on: before all input, and the checkpoints."""
    checkpoints = {event.epoch for event in run_events.of_kind(events, "checkpoint")}
    return {min(cuts, default=1) - 1} | {epoch for epoch in checkpoints if epoch is not None}


def _commits(events: Sequence[Event], partition: str) -> list[_Commit]:
    commits: list[_Commit] = []
    for event in run_events.of_kind(events, "commit"):
        if event.query_partition == partition and event.epoch is not None:
            first = event.extra.get("from_epoch")
            if not isinstance(first, int):
                raise InputError(
                    where=f"events.jsonl: commit of {partition} at {event.t:.6f}",
                    what=f"has {first!r} as from_epoch, not a whole number",
                    remedy=REMEDY,
                )
            before = commits[-1].end if commits else -math.inf
            commits.append(_Commit(first, event.epoch, before, event.t))
    return commits


def _gaps(
    partition: str, commits: Iterable[_Commit], restore_points: set[int], final: int | None
) -> list[Difference]:
    """Each commit goes on where the one before ended, or from a restore point before that."""
    where, found = f"events.jsonl: commits of {partition}", []
    position = min(restore_points)
    for commit in commits:
        before = commit.first - 1
        if before != position and not (before < position and before in restore_points):
            found.append(
                Difference(
                    where,
                    f"epochs {commit.first} to {commit.last} follow {position}",
                    "a commit event between them is missing",
                )
            )
        position = commit.last
    if final is not None and position < final:
        found.append(Difference(where, f"end with epoch {position}", f"the run with {final}"))
    return found


def _uncovered(
    partition: str,
    rows: Iterable[tuple[int, float]],
    commits: Sequence[_Commit],
    cuts: Mapping[int, float],
) -> list[Difference]:
    """The first commit of an epoch is the one of its rows: a repeat commits nothing again."""
    found = []
    for epoch, at in rows:
        where = f"outputs/{partition}.parquet: epoch {epoch}"
        commit = next((each for each in commits if each.first <= epoch <= each.last), None)
        cut = cuts.get(epoch, -math.inf)
        if commit is None:
            found.append(Difference(where, "has rows", "no commit event covers it"))
        elif not commit.begin - TOLERANCE_SECONDS <= at <= commit.end + TOLERANCE_SECONDS:
            said = f"its commit event is at {commit.end:.6f}"
            found.append(Difference(where, f"committed at {at:.6f}", said))
        elif at < cut - TOLERANCE_SECONDS:
            found.append(Difference(where, f"committed at {at:.6f}", f"cut at {cut:.6f}"))
    return found


def _rows(directory: Path, partition: str) -> list[tuple[int, float]]:
    """Each epoch with rows, and the commit time that they carry."""
    try:
        rows = (
            pl.scan_parquet(output_file(directory, partition), glob=False, hive_partitioning=False)
            .select(
                pl.col("epoch").cast(pl.Int64).fill_null(-1),
                pl.col("committed_at").cast(pl.Float64).fill_null(math.nan),
            )
            .unique()
            .sort("epoch", "committed_at")
            .collect()
        )
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(
            where=f"outputs/{partition}.parquet",
            what=f"cannot be read ({first_line(error)})",
            remedy=REMEDY,
        ) from error
    return list(rows.iter_rows())
