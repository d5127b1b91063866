"""What scenarios assert of records and Recoveries, and the order in which two of them act."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rekindle.model.errors import RunError
from scenarios import incident_checks, loss_scenarios
from scenarios.deployment import OPERATOR, REPLICAS, STORE
from scenarios.scenario_run import ScenarioRun


def ack(number: int) -> dict[str, Any]:
    return {"kind": "ack", "plan_epoch": number}


def plan(number: int, *queries: str, led: bool = False) -> dict[str, Any]:
    """Of a driver that plans alone, or as it is in an operator's log."""
    by = {"application": "factory/flights"} if led else {}
    return {"kind": "plan", "plan_epoch": number, "queries": list(queries), **by}


COMMIT, LED = {"kind": "commit"}, {"kind": "led"}


class Stage:
    """Records since the failure, and what is done to the site; each wait is for something that
    comes true by what was done before it."""

    def __init__(self, *records: dict[str, Any], stories: Any = ()) -> None:
        self.records, self.stories = list(records), list(stories)
        self.done: list[object] = []
        self.there = dict(REPLICAS)
        self.held = ["data-0"]
        self.site: Any = SimpleNamespace(
            cluster=SimpleNamespace(kill=self.kill),
            scale=self.scale,
            replicas=lambda part: [True] * self.there[part],
            claims=lambda: self.held,
            drop_claims=self.drop_claims,
            empty_volumes=self.empty_volumes,
        )

    def since_failure(self, kind: str) -> list[dict[str, Any]]:
        return [one for one in self.records if one["kind"] == kind]

    def recoveries(self) -> list[Any]:
        return self.stories

    def begin_failure(self) -> None:
        self.done.append("begin")

    def choose_victims(self, count: int) -> list[str]:
        return [f"n{number}" for number in range(count)]

    def stay(self, seconds: float) -> None:
        self.done.append(seconds)

    def scale(self, part: str, replicas: int) -> None:
        self.done.append((part, replicas))
        self.there[part] = replicas
        self.records.append({"kind": "led" if replicas else "alone"})

    def empty_volumes(self) -> None:
        self.done.append("emptied")

    def drop_claims(self) -> None:
        assert not self.there[STORE], "a claim of a server that runs stays"
        self.held = []

    def kill(self, *nodes: str) -> None:
        self.done.append(nodes)
        led = bool(self.there[OPERATOR])
        self.records += [plan(7, "q/0", led=led), ack(7)]
        rows = [{"name": node} for node in nodes]
        acknowledged = [{"acknowledgedAt": "t"}]
        status = {"lostNodes": rows, "kind": "Independent", "phase": "Recovered", "endedAt": "t"}
        told = {**status, "plans": acknowledged, "queries": [{"name": "q", "backAt": "t"}]}
        self.stories = [{"metadata": {"name": "flights-1"}, "status": told}]

    def fail(self, harm: Callable[..., None], *nodes: str) -> None:
        harm(*nodes)

    def await_that(self, what: str, condition: Callable[[], Any]) -> None:
        assert condition(), f"nothing that was done makes it true that {what}"

    def recover(self) -> None:
        self.done.append("recover")


def checked(check: Callable[[Any], None], *records: dict[str, Any]) -> str:
    """What a check says of records; "" where all is true."""
    try:
        check(Stage(*records))
    except RunError as found:
        return str(found)
    return ""


def test_a_recovery_is_over_when_its_object_says_so_which_is_later_than_the_log() -> None:
    found: list[list[Any]] = [
        [],
        [{"status": {"phase": "CatchingUp"}}],
        [{"status": {"endedAt": 1}}],
    ]
    run: Any = SimpleNamespace(
        site=SimpleNamespace(is_protected=True),
        replace_pods=lambda: None,
        since_failure=lambda kind: [kind],
        recoveries=lambda: found.pop(0),
        are_over=lambda: ScenarioRun.are_over(run),
        _is_recovered=lambda: True,
    )

    def await_that(_: str, condition: Callable[[], Any]) -> None:
        while not condition():
            pass

    run.await_that = await_that
    ScenarioRun.recover(run)
    assert found == []


def test_an_application_is_untouched_while_its_epochs_go_on_and_nothing_is_planned() -> None:
    check = incident_checks.check_untouched
    assert checked(check, COMMIT, {"kind": "alone"}, LED) == ""
    assert "epochs have been committed" in checked(check, LED)
    for kind in ("confirmed", "plan", "ack", "rolled-back", "query-stopped"):
        assert f"no record of the kind {kind}" in checked(check, COMMIT, {"kind": kind})


def test_plans_of_the_operator_are_told_from_those_of_the_driver() -> None:
    check = incident_checks.check_planned_by_operator
    assert checked(check, plan(1, "q/0", led=True)) == ""
    assert "the operator has planned" in checked(check)
    both = plan(1, "q/0", led=True), plan(2, "q/1")
    assert "the driver has not planned alone" in checked(check, *both)


ALONE = (plan(1, "q/0"), ack(1), LED)


@pytest.mark.parametrize(
    ("records", "said"),
    [
        (ALONE, ""),
        ((*ALONE, plan(2, "q/1", led=True), ack(2)), ""),
        ((plan(1, "q/0", led=True), ack(1), LED), "the driver has planned alone"),
        (ALONE[:2], "it was led again"),
        ((*ALONE, ack(1)), "no plan was carried out twice"),
        ((*ALONE, plan(1, "q/1", led=True)), "no two plans have one number"),
        ((*ALONE, plan(2, "q/0", led=True)), "has not planned again for q/0"),
    ],
)
def test_a_driver_that_was_alone_is_led_again_without_a_double_plan(
    records: tuple[dict[str, Any], ...], said: str
) -> None:
    found = checked(incident_checks.check_planned_alone, *records)
    assert said in found
    assert bool(said) is bool(found)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ""),
        ({"lostNodes": [{"name": "n1"}]}, "lost nodes"),
        ({"phase": "CatchingUp"}, "phase"),
        ({"endedAt": None}, "ended"),
    ],
)
def test_a_recovery_that_is_told_late_has_all_nodes_and_an_end(
    change: dict[str, Any], said: str
) -> None:
    rows = [{"name": "n1"}, {"name": "n2"}]
    status = {"lostNodes": rows, "phase": "Recovered", "endedAt": "t", **change}
    told = {name: value for name, value in status.items() if value is not None}
    story = {"metadata": {"name": "flights-1"}, "status": told}
    if not said:
        incident_checks.check_told_late(story, lost=["n2", "n1"])
        return
    with pytest.raises(RunError, match=said):
        incident_checks.check_told_late(story, lost=["n2", "n1"])


def test_the_store_is_emptied_while_no_server_runs_and_before_a_node_is_lost() -> None:
    stage: Any = Stage(COMMIT)
    loss_scenarios.store_emptied(stage)
    assert stage.done == ["begin", (STORE, 0), "emptied", (STORE, 3), ("n0",), "recover"]


def test_nodes_are_lost_and_planned_for_while_no_operator_is_there() -> None:
    stage: Any = Stage()
    loss_scenarios.operators_gone(stage)
    seconds = loss_scenarios.LEADERLESS_SECONDS
    assert stage.done == [(OPERATOR, 0), ("n0", "n1"), seconds, (OPERATOR, 2), "recover"]
