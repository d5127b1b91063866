"""Moves of live partitions: when they are made, how many at a time, and from where they go on."""

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from counted_rows import counted_rows

from rekindle_spark.checkpoint.restore_points import RestorePoints
from rekindle_spark.control import partition_migration
from rekindle_spark.control.partition_migration import BEHIND_EPOCHS_MAX, STEP_BYTES_MAX
from rekindle_spark.driver.driver_context import Moves
from rekindle_spark.driver.partition_table import PartitionTable
from rekindle_spark.jobs import job_specs

ROWS0, ROWS1 = 0, 1
COUNTED = tuple(range(2, 22))
CHECKPOINT, NEWEST = 6, 7


def running() -> Any:
    """rows x2 -> counted x20, all live on a and b after epoch 7; the checkpoint of 6 is global."""
    progress = PartitionTable(counted_rows(len(COUNTED)), RestorePoints(CHECKPOINT))
    for number in (ROWS0, ROWS1, *COUNTED):
        progress.place(number, "a" if number % 2 else "b", 3)
        progress.finished[number] = NEWEST
        progress.live.add(number)
    progress.retained.add(31, [("a", {ROWS0: (7, 7)}), ("b", {ROWS1: (7, 7)})], [1, 1])
    told: list[dict[str, Any]] = []
    return SimpleNamespace(
        program=progress.program,
        progress=progress,
        executors={"a": "node-a", "b": "node-b", "c": "node-c"},
        warm={"a", "b", "c"},
        lock=threading.RLock(),
        newest=NEWEST,
        losses=1,
        plan_epoch=3,
        claimed=set(),
        paused=False,
        buffering="on",
        ordering="on",
        staged={},
        budget=SimpleNamespace(tight={}),
        moves=None,
        moved_at=-1,
        told=told,
        events=SimpleNamespace(write=lambda kind, **fields: told.append({"kind": kind, **fields})),
    )


def ordered(*numbers: int, node: str = "node-c") -> Any:
    application = running()
    names = application.program.partition_names
    partition_migration.order(
        application, {names[number]: node for number in numbers}, "uneven-load"
    )
    return application


def moved(application: Any, **sizes: Any) -> set[int]:
    """What the next step moves."""
    before = dict(application.progress.placed)
    partition_migration.carry_out(application, sizes.get("state_bytes", {}))
    return {n for n, where in application.progress.placed.items() if where != before[n]}


def test_nothing_moves_to_an_executor_before_it_has_run_something() -> None:
    application = ordered(COUNTED[0])
    application.warm.discard("c")
    assert moved(application) == set()
    application.warm.add("c")
    assert moved(application) == {COUNTED[0]}


def test_nothing_moves_to_a_host_that_is_close_to_its_budget_of_memory() -> None:
    application = ordered(COUNTED[0])
    application.budget.tight["c"] = 0
    assert moved(application) == set()
    application.budget.tight.clear()
    assert moved(application) == {COUNTED[0]}


def test_what_moves_stays_live_and_goes_on_from_the_checkpoint() -> None:
    application = ordered(COUNTED[0])
    assert moved(application) == {COUNTED[0]}
    progress = application.progress
    assert progress.complete
    assert progress.placed[COUNTED[0]] == "c"
    assert progress.finished[COUNTED[0]] == CHECKPOINT
    (event,) = application.told
    assert (event["kind"], event["reason"]) == ("moved", "uneven-load")
    assert (event["placement"], event["origin"]) == (
        {"counted/0": "node-c"},
        {"counted/0": "node-b"},
    )


def test_the_next_job_has_it_run_what_came_since_the_checkpoint_with_the_new_epoch() -> None:
    application = ordered(COUNTED[0])
    moved(application)
    progress, newest = application.progress, NEWEST + 1
    work = {n: (progress.finished[n] + 1, newest) for n in progress.placed}
    offsets = {epoch: {"rows": [0, 1, 0]} for epoch in range(CHECKPOINT, newest + 1)}
    specification = job_specs.specify(progress, work, application.executors, {}, offsets)
    (task,) = (task for task in specification.stages[1] if task.executor == "c")
    assert [read.shuffle for read in task.reads] == [-1, 31]
    assert specification.ranges[COUNTED[0]] == (CHECKPOINT + 1, newest)
    assert specification.ranges[COUNTED[1]] == (newest, newest)


def test_a_source_has_nothing_to_run_again() -> None:
    application = ordered(ROWS0)
    assert moved(application) == {ROWS0}
    assert application.progress.finished[ROWS0] == NEWEST


def test_an_executor_takes_over_some_at_a_time_until_all_have_moved() -> None:
    application = ordered(*COUNTED[:6])
    first = moved(application)
    assert 0 < len(first) < 6
    assert application.told[0]["waiting"] == 6 - len(first)
    while step := moved(application):
        first |= step
    assert first == set(COUNTED[:6])
    assert partition_migration.pending(application) == {}


def test_large_states_move_one_at_a_time() -> None:
    application = ordered(*COUNTED[:3])
    large = dict.fromkeys(COUNTED, STEP_BYTES_MAX)
    assert [len(moved(application, state_bytes=large)) for _ in range(4)] == [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"newest": CHECKPOINT + BEHIND_EPOCHS_MAX + 1}, "the checkpoint is too old"),
        ({"claimed": {ROWS0}}, "something catches up"),
        ({"ordering": "off"}, "a repeat might differ"),
        ({"buffering": "off"}, "what it would read is not kept"),
        ({"staged": {7: None}}, "what counts is not known yet"),
        ({"paused": True}, "people have paused it"),
        ({"losses": 2}, "something was lost since"),
        ({"plan_epoch": 4}, "another plan was made since"),
    ],
    ids=str,
)
def test_nothing_moves_while(change: dict[str, Any], why: str) -> None:
    application = ordered(COUNTED[0])
    vars(application).update(change)
    assert moved(application) == set(), why
    assert application.told == []


def test_moves_wait_for_jobs_alone_where_all_else_is_as_it_has_to_be() -> None:
    application = ordered(COUNTED[0])
    application.claimed = {ROWS0}
    assert partition_migration.wait_for_jobs(application, {})
    application.newest = CHECKPOINT + BEHIND_EPOCHS_MAX + 1
    assert not partition_migration.wait_for_jobs(application, {}), "the checkpoint is too old"
    assert not partition_migration.wait_for_jobs(running(), {}), "nothing is to move"
    application.newest = NEWEST
    application.claimed = set()
    assert moved(application) == {COUNTED[0]}
    assert not partition_migration.wait_for_jobs(application, {}), "all have moved"


def test_nothing_moves_while_a_partition_is_behind() -> None:
    application = ordered(COUNTED[0])
    application.progress.live.discard(COUNTED[5])
    assert moved(application) == set()


def test_nothing_moves_from_a_checkpoint_without_the_states_of_all() -> None:
    application = ordered(COUNTED[0])
    application.progress.restore_points = RestorePoints(CHECKPOINT, {COUNTED[3]: 2})
    assert moved(application) == set()


def test_what_a_loss_has_dropped_is_not_owed() -> None:
    application = ordered(COUNTED[0])
    application.losses += 1
    assert partition_migration.pending(application) == {}
    application.moves = replace(application.moves, losses=application.losses)
    del application.executors["c"]
    assert partition_migration.pending(application) == {}


def test_a_newer_order_takes_the_place_of_an_older_one() -> None:
    application = ordered(COUNTED[0], COUNTED[1])
    partition_migration.order(
        application, {"counted/5": "node-c", "gone/0": "node-c"}, "uneven-load"
    )
    assert isinstance(application.moves, Moves)
    assert partition_migration.pending(application) == {COUNTED[5]: "node-c"}


def announced(*numbers: int) -> Any:
    """Moves off a node that will go."""
    application = running()
    names = application.program.partition_names
    placement = {names[number]: "node-c" for number in numbers}
    partition_migration.order(application, placement, "loss-announced")
    return application


def test_moves_are_made_in_the_order_of_the_order() -> None:
    # the newest checkpoint is so old that a step has one partition for an executor
    application = announced(COUNTED[9], COUNTED[3])
    application.newest = CHECKPOINT + BEHIND_EPOCHS_MAX
    for number in COUNTED:
        application.progress.finished[number] = application.newest
    epochs = (CHECKPOINT + 1, application.newest)
    application.progress.retained.add(32, [("a", {ROWS0: epochs}), ("b", {ROWS1: epochs})], [1, 1])
    assert moved(application) == {COUNTED[9]}
    assert moved(application) == {COUNTED[3]}


def test_moves_with_a_deadline_have_a_checkpoint_taken_before_its_time() -> None:
    application = announced(COUNTED[0])
    assert not partition_migration.hurries_checkpoint(application), "the newest one will do"
    application.newest = CHECKPOINT + partition_migration.HURRIED_EPOCHS_MIN
    assert partition_migration.hurries_checkpoint(application)
    application.losses += 1
    assert not partition_migration.hurries_checkpoint(application), "they are dropped"
    even = ordered(COUNTED[0])
    even.newest = CHECKPOINT + partition_migration.HURRIED_EPOCHS_MIN
    assert not partition_migration.hurries_checkpoint(even), "they can wait"
