"""How much longer epochs take beside catching up, from the events of a run."""

from typing import Any

import pytest

from rekindle.model.errors import RunError
from rekindle_bench import interference

WARM, LOST, PLAN, BACK = -15.0, 10.0, 20.0, 30.0


def events(seconds: dict[float, float], query: str = "q/0") -> list[dict[str, Any]]:
    """A run with an epoch a second; {from when: how long an epoch takes}."""
    said: list[dict[str, Any]] = [
        {"kind": "plan", "t": -25.0},
        {"kind": "recovered", "t": -22.0},
        {"kind": "warm", "t": WARM},
        {"kind": "confirmed", "t": LOST - 0.5},
        {"kind": "confirmed", "t": LOST},
        {"kind": "plan", "t": PLAN},
        {"kind": "plan", "t": PLAN + 1},
        {"kind": "recovered", "t": BACK},
    ]
    for epoch in range(-20, 40):
        cut_at = epoch + 0.25
        took = next(s for begin, s in sorted(seconds.items(), reverse=True) if cut_at >= begin)
        said.append({"kind": "cut", "t": cut_at, "cut_at": cut_at, "epoch": epoch})
        commit = {"query_partition": query, "from_epoch": epoch, "epoch": epoch}
        said.append({"kind": "commit", "t": cut_at + took, **commit})
    return said


def test_it_compares_epochs_until_all_are_back_with_those_before_the_failure_and_alone() -> None:
    told = events({-30.0: 0.5, 0.0: 0.1, LOST: 0.2, PLAN: 0.25, BACK: 0.9})
    found = interference.slowdown(told)
    assert (found.before, found.alone) == (pytest.approx(-50.0), pytest.approx(25.0))


def test_what_comes_back_later_does_not_count() -> None:
    other = [
        event
        for event in events({-30.0: 5.0}, query="late/0")
        if event["kind"] == "commit" and event["t"] > PLAN
    ]
    found = interference.slowdown([*events({-30.0: 0.2}), *other])
    assert (found.before, found.alone) == (pytest.approx(0.0), pytest.approx(0.0))


def test_where_nobody_survives_there_is_nothing_to_compare() -> None:
    silent = [event for event in events({-30.0: 0.2}) if event["kind"] != "commit"]
    with pytest.raises(RunError, match="no query ran"):
        interference.slowdown(silent)
