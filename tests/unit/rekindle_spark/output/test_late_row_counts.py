"""Rows that came too late are counted once, with the commit that finishes their epoch."""

from typing import Any

import pyarrow as pa
import pytest

from rekindle_spark.output.late_row_counts import LateCounts
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.program import Program
from rekindle_spark.pipeline.steps import Pipeline, count
from rekindle_spark.store.commit_summary import CommitSummary
from rekindle_testing.runtime_builders import UnreadSource

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string())])
ROWS, COUNTED0, COUNTED1, MOST = range(4)
COUNTED = "counted"


@pytest.fixture(scope="module")
def built() -> Program:
    """rows -> counted x2 -> most."""
    pipeline = Pipeline("late")
    rows = pipeline.source("rows", UnreadSource(SCHEMA, "at"))
    counted = rows.window(
        "counted", keys=["key"], size_seconds=1, aggregates={"n": count()}, parallelism=2
    )
    counted.top("most", by="n", count=1).sink("out")
    return program.build(pipeline)


def commit(late: list[list[Any]], at: float = 1e9, **finished: int) -> dict[str, Any]:
    """A commit record that finishes these epochs, the first ones, of partitions of `counted`."""
    spans = {f"counted/{name[-1]}": [1, last, ["d"] * last] for name, last in finished.items()}
    return {"at": at, "plan_epoch": 1, "finished": spans, "outputs": [], "late": late}


def test_an_epoch_that_runs_again_is_not_counted_again(built: Program) -> None:
    counts = LateCounts(built)
    late = {COUNTED0: {3: 5, 4: 0}, COUNTED1: {3: 1}}
    fresh = counts.fresh(late)
    assert fresh == [["counted/0", 3, 5], ["counted/1", 3, 1]]
    counts.take_in(commit(fresh, of_0=4, of_1=3))
    assert counts.fresh({COUNTED0: {3: 5, 4: 0, 5: 2}, COUNTED1: {3: 1}}) == [["counted/0", 5, 2]]
    assert (counts.totals, counts.seen) == ({COUNTED: 6, "most": 0}, {COUNTED: 6})


def test_late_rows_are_told_of_where_the_driver_before_had_a_clock_that_was_ahead(
    built: Program,
) -> None:
    counts = LateCounts(built)
    assert counts.take_in(commit([["counted/0", 2, 7]], at=3_600.0, of_0=2))
    assert counts.take_in(commit([["counted/0", 3, 1]], at=100.0, of_0=3))
    assert not counts.take_in(commit([["counted/0", 4, 1]], at=101.0, of_0=4))


def test_a_driver_that_starts_goes_on_with_what_the_log_says(built: Program) -> None:
    log = [
        {
            "at": 1.0,
            "plan_epoch": 0,
            "finished": {},
            "outputs": [],
        },  # of a version that counted none
        commit([["counted/0", 2, 7]], of_0=2),
        commit([["counted/2", 2, 1], ["gone/0", 2, 100]], of_2=2),  # before it was changed
    ]
    fold = CommitSummary()
    for number, record in enumerate(log, 1):
        fold.take_in(number, record)
    counts = LateCounts.of(built, fold)
    assert counts.totals[COUNTED] == 8
    assert counts.fresh({COUNTED0: {2: 7, 3: 1}, COUNTED1: {2: 9}}) == [
        ["counted/0", 3, 1],
        ["counted/1", 2, 9],
    ]


def test_an_event_says_when_late_rows_begin_and_when_they_do_again_after_a_pause(
    built: Program,
) -> None:
    counts = LateCounts(built)
    begun = counts.take_in(commit([["counted/0", 2, 7], ["counted/1", 3, 1]], 1000.0, of_0=3))
    assert begun == [{"step": COUNTED, "epoch": 2, "rows": 8, "total": 8}]
    assert counts.take_in(commit([["counted/0", 4, 1]], 1059.0, of_0=4)) == []
    assert counts.take_in(commit([], 1100.0, of_0=5)) == []
    (again,) = counts.take_in(commit([["counted/0", 6, 2]], 1119.0, of_0=6))
    assert (again["rows"], again["total"]) == (2, 11)
