"""Output that a repeat may give otherwise: what counts with which checkpoint."""

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from rekindle_spark.driver.driver_context import Staged
from rekindle_spark.output import output_commit
from rekindle_spark.output.lag_goals import LagGoals
from rekindle_spark.output.late_row_counts import LateCounts
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.program import Program
from rekindle_spark.pipeline.steps import Pipeline, count
from rekindle_testing.runtime_builders import UnreadSource

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string())])
ROWS, COUNTS = 0, 1


def epoch(number: int, rows: int) -> list[Any]:
    """As a host reports it."""
    return [number, rows, f"of-{number}-{rows}", [rows, f"0-{number}-{rows}.parquet", "digest"], 2]


def built() -> Program:
    """rows -> counts, each with a sink."""
    pipeline = Pipeline("staging")
    rows = pipeline.source("rows", UnreadSource(SCHEMA, "at"))
    rows.sink("out-rows")
    rows.window("counts", keys=["key"], size_seconds=1, aggregates={"n": count()}).sink(
        "out-counts"
    )
    return program.build(pipeline)


@pytest.fixture
def application() -> Any:
    """It has held back the epochs 5 to 7 of both partitions."""
    found = SimpleNamespace(
        staged=dict[int, Staged](),
        program=built(),
        committed={},
        late=LateCounts(built()),
        lag_goals=LagGoals(),
        plan_epoch=2,
        lock=threading.RLock(),
        progress=SimpleNamespace(stopped={}, reached=lambda _: {}),
        said=[],
        events=SimpleNamespace(dead_letters=lambda _: None, write_each=lambda *_: None),
        woken=[],
    )
    found.store = SimpleNamespace(commit=found.said.append, commits=17)
    found.sinks = SimpleNamespace(wake=found.woken.append)
    for number in (ROWS, COUNTS):
        stage(found, number, *(epoch(n, 10) for n in (5, 6, 7)))
    return found


def stage(application: Any, number: int, *epochs: list[Any]) -> None:
    parts = application.program.output_parts(number)
    (output,) = parts
    told = [[*one[:3], {output: one[3]} if one[1] else {}, one[4]] for one in epochs]
    output_commit.stage(application.staged, number, parts, told, unordered=False)


def published(application: Any, at: int, behind: frozenset[int] = frozenset()) -> Any:
    record = output_commit.publishable(application, at, behind)
    if record is not None:
        output_commit.publish_staged(application, at, record)
    return record


def test_a_checkpoint_makes_public_what_lies_before_it(application: Any) -> None:
    record = published(application, 6)
    assert record["finished"]["rows/0"] == [5, 6, ["of-5-10", "of-6-10"]]
    assert [row[1] for row in record["outputs"]] == [5, 5, 6, 6]
    assert application.woken == [17], "who writes to topics"
    assert sorted(application.staged) == [7]
    assert application.said == [record]


def test_what_is_behind_waits_for_a_checkpoint_that_has_its_state(application: Any) -> None:
    record = published(application, 7, frozenset({COUNTS}))
    assert list(record["finished"]) == ["rows/0"]
    assert {row[0] for row in record["outputs"]} == {"out-rows/0"}
    later = published(application, 9)
    assert later["finished"] == {"counts/0": [5, 7, ["of-5-10", "of-6-10", "of-7-10"]]}
    assert application.staged == {}


def test_a_repeat_takes_the_place_of_what_was_given_before(application: Any) -> None:
    stage(application, COUNTS, epoch(6, 3), epoch(7, 0))
    record = published(application, 7)
    files = [row[3] for row in record["outputs"] if row[0] == "out-counts/0"]
    assert files == ["0-5-10.parquet", "0-6-3.parquet"]


def test_late_rows_of_what_was_held_back_count_once_and_as_the_last_repeat_has_them(
    application: Any,
) -> None:
    assert published(application, 5)["late"] == [["rows/0", 5, 2], ["counts/0", 5, 2]]
    stage(application, COUNTS, epoch(5, 10), [*epoch(6, 10)[:4], 7], [*epoch(7, 10)[:4], 0])
    assert published(application, 7, frozenset({ROWS}))["late"] == [["counts/0", 6, 7]]
    assert application.late.totals == {"counts": 9}


def test_in_the_end_all_counts_but_what_has_stopped(application: Any) -> None:
    application.progress.stopped = {COUNTS: object()}
    output_commit.publish_all(application, 7)
    (record,) = application.said
    assert list(record["finished"]) == ["rows/0"]


def test_in_the_end_what_is_made_of_again_for_what_has_stopped_does_not_count(
    application: Any,
) -> None:
    first, *others = application.program.chains
    uncertain = replace(first, root=replace(first.root, deterministic=False))
    application.program = replace(application.program, chains=(uncertain, *others))
    application.progress.stopped = {COUNTS: object()}
    output_commit.publish_all(application, 7)
    assert application.said == []


def test_an_epoch_stays_unordered_when_a_part_of_it_is_run_again_in_order(application: Any) -> None:
    staged = dict[int, Staged]()
    application.staged = staged
    output_commit.stage(staged, ROWS, application.program.output_parts(ROWS), [], unordered=True)
    assert not output_commit.is_unordered(application)
    for number, unordered in ((ROWS, True), (COUNTS, False)):
        output_commit.stage(staged, number, {}, [[5, 0, "digest", {}, 0]], unordered=unordered)
    assert output_commit.is_unordered(application)
