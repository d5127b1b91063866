"""Orders of a coordinator: whom they are for. And what is said of a job that has failed."""

from types import SimpleNamespace
from typing import Any

from rekindle.model.settings import Settings
from rekindle_spark.control.control_loop import ControlLoop
from rekindle_spark.jobs.job_results import Result
from rekindle_spark.jobs.job_runner import Attempts


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
