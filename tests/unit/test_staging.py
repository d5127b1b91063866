"""Output that a repeat may give otherwise: what counts with which checkpoint."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from rekindle_spark import staging
from rekindle_spark.application import Staged

ROWS, COUNTS = 0, 1
NAMES = ("rows/0", "counts/0")


def epoch(number: int, rows: int) -> list[Any]:
    """As a host reports it."""
    sinks = {"out": [rows, f"0-{number}-{rows}.parquet", "digest"]} if rows else {}
    return [number, rows, f"of-{number}-{rows}", sinks]


@pytest.fixture
def application() -> Any:
    """It has held back the epochs 5 to 7 of both partitions."""
    chains = tuple(
        SimpleNamespace(first=number, outputs=("out",), sinks=()) for number in (ROWS, COUNTS)
    )
    numbers = {name: number for number, name in enumerate(NAMES)}
    found = SimpleNamespace(
        staged=dict[int, Staged](),
        program=SimpleNamespace(partition_names=NAMES, numbers=numbers, owner=chains),
        committed={},
        plan_epoch=2,
        lock=threading.RLock(),
        progress=SimpleNamespace(stopped={}),
        said=[],
        events=SimpleNamespace(dead_letters=lambda _: None),
    )
    found.store = SimpleNamespace(commit=found.said.append)
    for number in (ROWS, COUNTS):
        stage(found, number, *(epoch(n, 10) for n in (5, 6, 7)))
    return found


def stage(application: Any, number: int, *epochs: list[Any]) -> None:
    names = {"out": f"out-{NAMES[number]}"}
    staging.stage(application.staged, number, names, epochs, unordered=False)


def published(application: Any, at: int, behind: frozenset[int] = frozenset()) -> Any:
    record = staging.publishable(application, at, behind)
    if record is not None:
        staging.publish(application, at, record)
    return record


def test_a_checkpoint_makes_public_what_lies_before_it(application: Any) -> None:
    record = published(application, 6)
    assert record["finished"]["rows/0"] == [5, 6, ["of-5-10", "of-6-10"]]
    assert [row[1] for row in record["outputs"]] == [5, 5, 6, 6]
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


def test_in_the_end_all_counts_but_what_has_stopped(application: Any) -> None:
    application.progress.stopped = {COUNTS: object()}
    staging.publish_all(application, 7)
    (record,) = application.said
    assert list(record["finished"]) == ["rows/0"]
