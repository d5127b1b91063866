"""What drivers say of executors, and how long they have heard nothing."""

from typing import Any

import pytest

from rekindle.protocol import NodeSeen, ProgressReport
from rekindle_operator.cluster.pods import PodSeen
from rekindle_operator.detection.detection_runner import KEPT_SECONDS, DriverSilence, hear


def executor(number: int, node: str, **fields: Any) -> PodSeen:
    known: dict[str, Any] = {
        "namespace": "flights",
        "name": f"exec-{number}",
        "uid": f"uid-{number}",
        "role": "executor",
        "node": node,
        "phase": "Running",
        "ip": f"10.0.0.{number}",
        "executor_id": str(number),
    }
    return PodSeen(**{**known, **fields})


def report(generation: int = 1, **silent: float | None) -> ProgressReport:
    """`e1=3.0`: executor 1 has been silent for 3 s."""
    nodes = {
        f"10.0.0.{name[1:]}": NodeSeen(
            incarnation=f"{name[1:]}.0", capacity_percent=100.0, silent_seconds=seconds
        )
        for name, seconds in silent.items()
    }
    return ProgressReport(generation=generation, sequence=1, nodes=nodes, placement={}, live=())


def test_silence_is_what_the_driver_says() -> None:
    heard = hear(None, report(e1=3.0, e2=0.5), [executor(1, "a"), executor(2, "b")], 100.0)
    silence = {"a": 3.0, "b": 0.5}
    assert heard == DriverSilence(1, 100.0, {"a": 97.0, "b": 99.5}, silence, silence)


def test_a_node_is_as_silent_as_the_least_silent_executor_there() -> None:
    heard = hear(None, report(e1=30.0, e2=0.5), [executor(1, "a"), executor(2, "a")], 100.0)
    assert heard.silent_seconds == {"a": 0.5}


def test_an_executor_that_no_report_names_is_silent_since_the_first_of_them() -> None:
    pods = [executor(1, "a"), executor(2, "b")]
    first = hear(None, report(e1=0.0), pods, 100.0)
    later = hear(first, report(e1=0.0), pods, 117.0)
    assert (first.silent_seconds["b"], later.silent_seconds["b"]) == (0.0, 17.0)
    back = hear(later, report(e1=0.0, e2=1.0), pods, 120.0)
    assert back.silent_seconds["b"] == 1.0
    assert hear(back, report(e1=0.0), pods, 125.0).silent_seconds["b"] == 6.0


def test_an_executor_that_is_dropped_for_its_silence_has_been_silent_all_the_time() -> None:
    pods = [executor(1, "a"), executor(2, "b")]
    silent = hear(None, report(e1=0.0, e2=15.0), pods, 100.0)
    dropped = hear(silent, report(e1=0.0), pods, 101.0)
    assert dropped.silent_seconds["b"] == 16.0
    assert dropped.reported_seconds == {"a": 0.0}


def test_one_that_is_put_where_another_was_lost_is_no_sign_of_life() -> None:
    silent = hear(None, report(e1=0.0, e2=12.0), [executor(1, "a"), executor(2, "b")], 100.0)
    deleted = hear(silent, report(e1=0.0), [executor(1, "a")], 104.0)
    assert deleted.silent_seconds == {"a": 0.0}
    again = hear(deleted, report(e1=0.0), [executor(1, "a"), executor(3, "b")], 108.0)
    assert again.silent_seconds == {"a": 0.0, "b": 20.0}
    assert hear(again, report(e1=0.0, e3=0.5), [executor(3, "b")], 109.0).silent_seconds["b"] == 0.5


def test_one_that_has_not_joined_is_no_sign_of_life_beside_one_that_is_silent() -> None:
    pods = [executor(2, "b"), executor(3, "b")]
    assert hear(None, report(e2=40.0), pods, 100.0).silent_seconds == {"b": 40.0}


def test_what_was_heard_on_a_node_long_ago_is_forgotten() -> None:
    first = hear(None, report(e1=0.0), [executor(1, "a")], 100.0)
    assert hear(first, report(), [], 100.0 + KEPT_SECONDS).heard_at == {}


def test_a_driver_that_was_started_anew_is_given_time() -> None:
    pods = [executor(1, "a")]
    first = hear(None, report(), pods, 100.0)
    assert hear(first, report(generation=2), pods, 160.0).silent_seconds == {"a": 0.0}


@pytest.mark.parametrize("fields", [{"node": ""}, {"ended": True}])
def test_what_runs_nowhere_says_nothing_of_any_node(fields: dict[str, Any]) -> None:
    assert hear(None, report(), [executor(1, **{"node": "a", **fields})], 1.0).silent_seconds == {}


def test_a_driver_that_says_nothing_of_silence_confirms_nothing() -> None:
    assert hear(None, report(e1=None), [executor(1, "a")], 1.0).silent_seconds == {"a": 0.0}


def test_a_driver_hears_only_what_reports() -> None:
    pods = [executor(1, "a"), executor(2, "b"), executor(3, "c")]
    heard = hear(None, report(e1=1.0, e2=9.0), pods, 100.0)
    assert [heard.hears(node, 5.0) for node in ("a", "b", "c", "d")] == [True, False, False, False]
