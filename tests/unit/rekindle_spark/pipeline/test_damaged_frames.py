"""Frames that were damaged: read once more, then made again by what made them."""

import threading
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from rekindle.model.settings import Settings
from rekindle_spark.checkpoint.restore_points import RestorePoints
from rekindle_spark.control.control_loop import ControlLoop
from rekindle_spark.control.executor_membership import ExecutorLoss
from rekindle_spark.driver.partition_table import PartitionTable
from rekindle_spark.jobs.link_health import Links
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.steps import Pipeline, count
from rekindle_testing.runtime_builders import UnreadSource

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string())])
ROWS, COUNTS = 0, 1


@pytest.fixture
def control() -> Any:
    """Of rows on `a` and counts on `b`, live after epoch 7, with the frames of 5 to 7 on `a`."""
    built = Pipeline("two")
    rows = built.source("rows", UnreadSource(SCHEMA, "at"))
    rows.window("counts", keys=["key"], size_seconds=1, aggregates={"n": count()}).sink("out")
    made = program.build(built)
    progress, told = PartitionTable(made, RestorePoints(4)), list[dict[str, Any]]()
    for partition, executor in enumerate("ab"):
        progress.place(partition, executor, 1)
        progress.finished[partition] = 7
        progress.live.add(partition)
    progress.retained.add(30, [("a", {ROWS: (5, 7)})], [100])
    removed: list[int] = []
    application: Any = SimpleNamespace(
        settings=Settings(),
        store=SimpleNamespace(holds=lambda _: False),
        cuts={7: SimpleNamespace(cut_at=0.0)},
        newest=7,
        program=made,
        progress=progress,
        events=SimpleNamespace(write=lambda kind, **fields: told.append({"kind": kind, **fields})),
        told=told,
        lock=threading.RLock(),
        executors={"a": "127.0.0.2", "b": "127.0.0.3"},
        removed=removed,
        remove=removed.extend,
        losses=0,
    )
    checkpointing: Any = SimpleNamespace(state_bytes={})
    guidance: Any = SimpleNamespace(contact=None, reports=SimpleNamespace(relapses={}))
    return ControlLoop(application, checkpointing, guidance)


def test_a_damaged_frame_is_read_once_more_and_then_made_again(control: Any) -> None:
    application = control.application
    control._make_again({(ROWS, 6)})
    assert (application.losses, application.told) == (0, [])
    control._make_again({(ROWS, 6)})
    assert application.losses == 1
    damaged, lost = application.told
    assert damaged == {
        "kind": "blocks-damaged",
        "executor": "a",
        "node": "127.0.0.2",
        "partition": "rows/0",
        "epoch": 6,
    }
    assert (lost["kind"], lost["executor"]) == ("state-lost", "a")
    assert application.removed == [30]
    assert ROWS not in application.progress.placed
    assert application.progress.resident == {COUNTS: "b"}
    assert control.reports.relapses == {"a": 1}


def test_damage_of_what_nobody_keeps_any_more_is_forgotten(control: Any) -> None:
    control._make_again({(ROWS, 5)})
    application = control.application
    application.progress.retained.trim(lambda _, epoch: epoch <= 5)
    control._make_again({(ROWS, 6)})
    assert control.damaged_frames == {(ROWS, 6)}


def test_of_an_executor_that_has_gone_no_relapse_is_kept(control: Any) -> None:
    control._make_again({(ROWS, 6)})
    control._make_again({(ROWS, 6)})
    control.application.links = Links()
    control.application.warm, control.reports.suspected = {"a"}, set()
    control._lose(ExecutorLoss({"a": "127.0.0.2"}, frozenset()))
    assert control.reports.relapses == {}


def test_jobs_go_over_links_again_once_a_lost_executor_is_out(control: Any) -> None:
    control.application.links = Links()
    control.application.warm, control.reports.suspected = {"a"}, set()
    control.application.links_rest_until = 1e9
    control._lose(ExecutorLoss({"a": "127.0.0.2"}, frozenset()))
    assert control.application.links_rest_until == 0.0


def test_damage_on_the_way_costs_no_state(control: Any) -> None:
    control._make_again({(ROWS, 5)})
    control._make_again({(ROWS, 6)})
    control._make_again({(ROWS, 7), (COUNTS, 7)})
    assert control.application.losses == 0


def test_frames_that_nobody_keeps_are_read_again_by_the_next_job_alone(control: Any) -> None:
    for _ in range(3):
        control._make_again({(ROWS, 8)})
    assert control.application.losses == 0
