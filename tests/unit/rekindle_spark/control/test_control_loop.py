"""Orders of a coordinator: whom they are for. And what is said of a job that has failed."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from rekindle.model.settings import RuntimeSettings, Settings
from rekindle_spark.control.control_loop import BACKLOG_LOOK_SECONDS, ControlLoop
from rekindle_spark.jobs.job_results import Result
from rekindle_spark.jobs.job_runner import Attempts
from rekindle_spark.jobs.link_health import BACKLOG_SECONDS_MAX, SlowReaders
from rekindle_spark.spark.spark_gateway import LinkBacklog


def test_executors_are_dropped_as_ordered_and_never_one_that_came_since() -> None:
    dropped: list[tuple[str, str]] = []
    executors = {"1": "node-a", "2": "node-b", "3": "node-c", "4": "node-d"}
    control: Any = SimpleNamespace(
        application=SimpleNamespace(executors=executors),
        reports=SimpleNamespace(incarnation=lambda executor: f"{executor}.0"),
        membership=SimpleNamespace(
            dropped={"3"}, drop=lambda executor, reason: dropped.append((executor, reason))
        ),
    )
    meant = {"node-a": "1.0", "node-b": "0.0", "node-c": "3.0", "node-e": "5.0"}
    ControlLoop._drop(control, meant)
    assert dropped == [("1", "ordered")], "2 has come in the place of 0, 3 is dropped already"


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
