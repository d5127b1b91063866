"""Checks output rows against the events: every row belongs to an epoch that was committed.

So a commit cannot be claimed before its rows were there, nor rows be there without a commit.
`check` calls it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from rekindle.errors import InputError
from rekindle.events import Event
from rekindle.report.inputs import Inputs
from rekindle.verification.comparison import Difference

__all__ = ["check"]

# Rows and events are stamped by two readings of one clock.
TOLERANCE_SECONDS = 0.001


def check(directory: Path, events: Sequence[Event], inputs: Inputs) -> list[Difference]:
    """Give a difference for each query with output rows that its commit events do not cover."""
    return [
        difference
        for query in sorted(inputs.priorities)
        for difference in _query(directory, events, query)
    ]


def _query(directory: Path, events: Sequence[Event], query: str) -> list[Difference]:
    reached = [
        event.epoch
        for event in events
        if event.kind == "commit" and event.query == query and event.epoch is not None
    ]
    cuts = {
        event.epoch: event.t
        for event in events
        if event.kind == "cut" and event.query in (None, query) and event.epoch is not None
    }
    return [
        difference
        for epoch, committed_at in _first_commits(directory, query).items()
        for difference in _epoch(query, epoch, committed_at, max(reached, default=-1), cuts)
    ]


def _epoch(
    query: str, epoch: int, committed_at: float, reached: int, cuts: Mapping[int, float]
) -> list[Difference]:
    where = f"outputs/{query}: epoch {epoch}"
    if epoch > reached:
        return [Difference(where, "has rows", "no commit event covers it")]
    cut = cuts.get(epoch)
    if cut is not None and committed_at < cut - TOLERANCE_SECONDS:
        return [Difference(where, f"committed at {committed_at:.6f}", f"cut at {cut:.6f}")]
    return []


def _first_commits(directory: Path, query: str) -> Mapping[int, float]:
    files = sorted((directory / "outputs" / query).glob("*.parquet"))
    if not files:
        return {}
    try:
        rows = (
            pl.scan_parquet(files, missing_columns="insert", extra_columns="ignore")
            .select(pl.col("epoch").cast(pl.Int64), pl.col("committed_at").cast(pl.Float64))
            .group_by("epoch")
            .min()
            .sort("epoch")
            .collect()
        )
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(
            where=f"outputs/{query}",
            what=f"cannot be read ({str(error).splitlines()[0]})",
            remedy="restore the file from the run, or run the demo again",
        ) from error
    return dict(rows.iter_rows())
