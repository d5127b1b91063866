"""Orders of a coordinator: whom they are for. And what is said of a job that has failed."""

import threading
import time
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from counted_rows import counted_rows

from rekindle import protocol
from rekindle.model.settings import RuntimeSettings, Settings
from rekindle_spark.checkpoint.restore_points import RestorePoints
from rekindle_spark.control.control_loop import BACKLOG_LOOK_SECONDS, ControlLoop
from rekindle_spark.control.executor_membership import Membership
from rekindle_spark.driver.partition_table import PartitionTable
from rekindle_spark.jobs.job_results import Result
from rekindle_spark.jobs.job_runner import Attempts
from rekindle_spark.jobs.link_health import BACKLOG_SECONDS_MAX, SlowReaders
from rekindle_spark.spark.spark_gateway import LinkBacklog

ROWS, COUNTED = (0, 1), tuple(range(2, 6))


def controlled() -> Any:
    """A loop around rows x2 -> counted x4, which run on node-a and node-b; node-c is free."""
    progress = PartitionTable(counted_rows(len(COUNTED)), RestorePoints(1))
    for number in (*ROWS, *COUNTED):
        progress.place(number, "2" if number in COUNTED[:2] else "1", 1)
    dropped: list[str] = []
    application = SimpleNamespace(
        program=progress.program,
        progress=progress,
        executors={"1": "node-a", "2": "node-b", "3": "node-c"},
        exchange=SimpleNamespace(drop=lambda executor, _: dropped.append(executor)),
        events=SimpleNamespace(write=lambda *_, **__: None),
        links=SimpleNamespace(forget=lambda _: None),
        lock=threading.RLock(),
        warm=set(),
        losses=0,
        newest=1,
        remove=lambda _: None,
    )
    membership = Membership(application)  # type: ignore[arg-type]  # a part of a driver's
    membership.known = dict(application.executors)
    control: Any = SimpleNamespace(
        application=application,
        membership=membership,
        reports=SimpleNamespace(
            incarnation=lambda executor: f"{executor}.0", suspected=set(), relapses={}
        ),
        statistics=SimpleNamespace(forget=lambda _: None),
        host_failures=SimpleNamespace(forget=lambda _: None),
        dropped=dropped,
        _tell_undone=lambda _: None,
        _hurry=lambda: None,
    )
    for name in ("_drop", "_lose", "_carry_out"):
        setattr(control, name, partial(getattr(ControlLoop, name), control))
    return control


def ordered(control: Any, order: Any) -> None:
    directive = protocol.Directive(
        sequence=1, after=0, generation=1, plan_epoch=2, reason="test", text="", order=order
    )
    ControlLoop._obey(control, directive)


def test_executors_are_dropped_as_ordered_and_never_one_that_came_since() -> None:
    control = controlled()
    control.application.executors["4"] = "node-d"
    control.membership.dropped["3"] = None
    meant = {"node-b": "2.0", "node-c": "3.0", "node-d": "0.0", "node-e": "5.0"}
    ordered(control, protocol.DropOrder(nodes=meant))
    assert control.dropped == ["2"], "3 is dropped already, 4 has come in the place of 0"
    assert control.application.executors.keys() == {"1", "3", "4"}


def test_what_is_dropped_is_lost_at_once_and_is_not_told_again() -> None:
    control = controlled()
    control.membership.pending["2"] = "node-b"
    ordered(control, protocol.DropOrder(nodes={"node-b": "2.0"}))
    assert control.application.losses == 1
    assert control.application.progress.placed.keys() == {*ROWS, *COUNTED[2:]}
    assert "2" not in control.membership.known
    assert not control.membership.pending


@pytest.mark.parametrize("with_an_order", [True, False])
def test_a_plan_places_what_runs_on_the_executors_that_it_counts_as_lost(
    with_an_order: bool,
) -> None:
    """The order to drop them comes with it, or was refused under a number of another one."""
    control, lost = controlled(), {"node-b": "2.0"}
    names = control.application.program.partition_names
    if with_an_order:
        ordered(control, protocol.DropOrder(nodes=lost))
    ordered(
        control,
        protocol.PlanOrder(
            query_partitions=(),
            placement={names[number]: "node-c" for number in COUNTED[:2]},
            builds_on=1,
            drops=lost,
        ),
    )
    placed = control.application.progress.placed
    assert {number: placed[number] for number in COUNTED[:2]} == dict.fromkeys(COUNTED[:2], "3")
    assert control.application.losses == 1


def test_a_store_that_only_executors_miss_is_told_once() -> None:
    told: list[str] = []
    application = SimpleNamespace(
        losses=0,
        events=SimpleNamespace(write=lambda *_, **__: None),
        store=SimpleNamespace(patience=SimpleNamespace(say=told.append)),
        settings=Settings(),
    )
    control: Any = SimpleNamespace(application=application, hosts_miss_store=False)
    failed = Result(False, 0.0, reason="the store cannot be reached", store_away=True)
    for _ in range(3):
        ControlLoop.fail_after(control, failed, Attempts())
    assert told == ["the store cannot be reached"]


def test_readers_for_which_frames_wait_are_named_by_node_and_so_is_the_end_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[dict[str, Any]] = []
    waiting = [LinkBacklog("1", "2", 700), LinkBacklog("9", "2", 300)]
    application = SimpleNamespace(
        settings=Settings(runtime=RuntimeSettings(exchange="links")),
        executors={"1": "node-a", "2": "node-b"},
        exchange=SimpleNamespace(link_backlogs=lambda: waiting),
        events=SimpleNamespace(write=lambda kind, **fields: told.append({"kind": kind, **fields})),
    )
    control: Any = SimpleNamespace(
        application=application,
        statistics=SimpleNamespace(link_waiting_bytes=0),
        slow_readers=SlowReaders(),
        backlogs_read_at=0.0,
        _node=application.executors.get,
    )
    now = time.monotonic()

    def look(after_seconds: float) -> None:
        monkeypatch.setattr(time, "monotonic", lambda: now + after_seconds)
        ControlLoop._note_slow_readers(control)

    look(0.0)
    assert not told
    assert control.statistics.link_waiting_bytes == 1_000
    look(BACKLOG_SECONDS_MAX)
    (slow,) = told
    assert (slow["kind"], slow["node"], slow["bytes"]) == ("links-wait", "node-b", 1_000)
    assert slow["producers"] == ["node-a"], "nobody knows 9 any more"
    waiting = []
    look(BACKLOG_SECONDS_MAX + BACKLOG_LOOK_SECONDS / 2)
    assert len(told) == 1, "executors say it once a second"
    look(BACKLOG_SECONDS_MAX + BACKLOG_LOOK_SECONDS)
    assert told[1:] == [{"kind": "links-flow", "nodes": ["node-b"]}]
    assert control.statistics.link_waiting_bytes == 0
