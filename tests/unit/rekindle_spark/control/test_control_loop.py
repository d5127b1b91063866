"""Orders of a coordinator: whom they are for."""

from types import SimpleNamespace
from typing import Any

from rekindle_spark.control.control_loop import ControlLoop


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
