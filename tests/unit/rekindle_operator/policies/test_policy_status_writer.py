"""When the status of a policy is written, and when there is nothing to write."""

from typing import Any, cast

import pytest
from spark_objects import client_driver, kubeflow_application

from rekindle.coordination.session import Driver
from rekindle.protocol.store_paths import Place
from rekindle_operator.api import recovery_class, recovery_policy, recovery_resource
from rekindle_operator.api.recovery_policy import RecoveryPolicy
from rekindle_operator.api.recovery_resource import ApplicationReference, RecoverySpec
from rekindle_operator.cluster.api_client import Api
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.cluster.pods import pod_seen
from rekindle_operator.cluster.spark_applications import application_seen
from rekindle_operator.cluster.work_queue import WorkQueue
from rekindle_operator.controller import coordination_risks
from rekindle_operator.controller.coordination_risks import Coordination, DriverContact
from rekindle_operator.policies import policy_conditions
from rekindle_operator.policies.policy_status_writer import PolicyStatusWriter
from rekindle_operator.recovery.recovery_inputs import Danger

METADATA = {"name": "all", "namespace": "flights", "uid": "1", "generation": 3}
SELECTOR: dict[str, Any] = {"sparkApplications": {"labelSelector": {}}}
KEY = "status RecoveryPolicy flights/all"


class Left:
    """Errands by key, and how often each was left."""

    def __init__(self) -> None:
        self.errands: dict[str, Any] = {}
        self.times: dict[str, int] = {}

    def leave(self, key: str, errand: Any) -> None:
        self.errands[key] = errand
        self.times[key] = self.times.get(key, 0) + 1


class Written:
    """An API server with one object."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body

    def get(self, path: str) -> dict[str, Any]:
        del path
        return self.body

    def create(self, path: str, body: dict[str, Any]) -> None:
        """An Event."""

    def replace(self, path: str, body: dict[str, Any]) -> None:
        assert path.endswith("/recoverypolicies/all/status")
        self.body = body


def policy(status: dict[str, Any]) -> RecoveryPolicy:
    spec: dict[str, Any] = {"selector": SELECTOR}
    return recovery_policy.from_object({"metadata": METADATA, "spec": spec, "status": status})


@pytest.fixture
def known() -> ClusterView:
    known = ClusterView()
    known.see_class(recovery_class.from_object({"metadata": {"name": "standard"}, "spec": {}}))
    known.see_policy(policy({}))
    return known


def writer(
    known: ClusterView,
    written: Written | None = None,
    left: Left | None = None,
    dangers: tuple[Danger, ...] = (),
) -> PolicyStatusWriter:
    return PolicyStatusWriter(
        cast(Api, written),
        cast(WorkQueue, left),
        known,
        "operator",
        lambda _: None,
        lambda _: None,
        lambda _: None,
        lambda _: dangers,
    )


def test_a_status_is_written_once_and_again_when_somebody_else_has_changed_it(
    known: ClusterView,
) -> None:
    left, written = Left(), Written({"metadata": dict(METADATA), "spec": {}})
    statuses = writer(known, written, left)

    def refresh() -> int:
        statuses._at = -1e9
        assert statuses.refresh(stirred=True)
        return left.times[KEY]

    assert refresh() == 1
    assert refresh() == 1, "it is on its way"
    left.errands[KEY]()
    known.see_policy(policy(written.body["status"]))
    assert refresh() == 1, "it stands there"
    known.see_policy(policy({}))
    assert refresh() == 2
    written.body["metadata"]["uid"] = "another"
    left.errands[KEY]()
    assert refresh() == 3, "what was meant was another object"


def test_nothing_is_kept_of_a_policy_and_a_class_that_are_gone(known: ClusterView) -> None:
    left, written = Left(), Written({"metadata": dict(METADATA), "spec": {}})
    statuses = writer(known, written, left)
    statuses._at = -1e9
    assert statuses.refresh(stirred=True)
    assert len(statuses._found) == 2
    known.forget_policy("flights", "all")
    known.forget_class("standard")
    statuses._at = -1e9
    assert statuses.refresh(stirred=True)
    assert statuses._found == {}


@pytest.mark.parametrize(
    ("named", "depends_on", "reason"),
    [
        ("departures", [], "AsWritten"),
        ("departures", ["ingst"], "UnknownApplications"),
        ("departure", [], "UnknownApplications"),
        ("departures", ["departures"], "DependencyCycle"),
    ],
)
def test_a_policy_of_whole_applications_says_which_of_its_names_are_not_there(
    named: str, depends_on: list[str], reason: str
) -> None:
    known, left, written = ClusterView(), Left(), Written({"metadata": METADATA, "spec": {}})
    known.see_class(recovery_class.from_object({"metadata": {"name": "default"}, "spec": {}}))
    needs = [{"name": named, "dependsOn": depends_on}]
    spec = {"selector": SELECTOR, "recovers": "Applications", "applications": needs}
    known.see_policy(recovery_policy.from_object({"metadata": METADATA, "spec": spec}))
    known.registry.see_resource(application_seen(kubeflow_application("departures")))
    statuses = writer(known, written, left)
    statuses._at = -1e9
    assert statuses.refresh(stirred=True)
    left.errands[KEY]()
    conditions = policy(written.body["status"]).status.conditions
    (accepted,) = (item for item in conditions if item.type == "Accepted")
    assert (accepted.status, accepted.reason) == ("True", reason), accepted.message


def whole_policy(generation: int = 3, **spec: Any) -> RecoveryPolicy:
    """Of drivers by their labels."""
    metadata = METADATA | {"generation": generation}
    spec = {"selector": {"drivers": {"labelSelector": {}}}, "recovers": "Applications", **spec}
    return recovery_policy.from_object({"metadata": metadata, "spec": spec})


def whole_world(policy: RecoveryPolicy) -> ClusterView:
    known = ClusterView()
    known.see_class(recovery_class.from_object({"metadata": {"name": "default"}, "spec": {}}))
    known.see_policy(policy)
    return known


def conditions_of(statuses: PolicyStatusWriter, left: Left, written: Written) -> dict[str, Any]:
    """The conditions of the policy as they are written now: status, reason and message by type."""
    statuses._at = -1e9
    assert statuses.refresh(stirred=True)
    left.errands.pop(KEY, lambda: None)()
    found = policy(written.body.get("status", {})).status.conditions
    return {item.type: (item.status, item.reason, item.message) for item in found}


def test_conditions_stay_while_the_driver_of_an_application_with_an_open_recovery_is_gone() -> None:
    """Nothing is there of an application of spark-submit until its driver is made again."""
    named = whole_policy(
        priorities=[{"query": "flights", "priority": 9}], applications=[{"name": "flights"}]
    )
    known, left, written = whole_world(named), Left(), Written({"metadata": METADATA, "spec": {}})
    driver = pod_seen(client_driver())
    assert driver is not None
    known.registry.see_pod(driver)
    statuses = writer(known, written, left)
    before = conditions_of(statuses, left, written)
    assert before["Accepted"][:2] == ("True", "AsWritten")
    spec = RecoverySpec(ApplicationReference("Driver", "flights"), 1, "all", "default")
    recovery = recovery_resource.to_object("flights", spec)
    known.see_recovery(recovery_resource.from_object(recovery))
    known.registry.forget_pod(driver.uid)
    assert known.application(Place("flights", "flights")) is None
    assert conditions_of(statuses, left, written) == before
    known.forget_recovery("flights", recovery["metadata"]["name"])
    assert conditions_of(statuses, left, written)["Accepted"][1] == "NothingSelected"


def test_only_policies_of_whole_applications_report_that_no_pod_waits(known: ClusterView) -> None:
    coordination = Coordination(True, 3, gates_missing=True)
    missing = coordination_risks.gate_dangers(coordination)
    for world, reason in ((whole_world(whole_policy()), "GatesMissing"), (known, None)):
        left, written = Left(), Written({"metadata": METADATA, "spec": {}})
        statuses = writer(world, written, left, coordination_risks.dangers(coordination))
        statuses.gate_dangers = lambda: missing
        risk = conditions_of(statuses, left, written)["CoordinationAtRisk"]
        assert risk[:2] == (("True", reason) if reason else ("False", "CoordinationSound"))
    assert not coordination_risks.gate_dangers(Coordination(True, 3))


def test_cycles_of_a_policy_are_looked_for_once_for_each_generation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at = []
    found = policy_conditions.dependency_cycles

    def look(spec: Any) -> Any:
        looked_at.append(spec)
        return found(spec)

    monkeypatch.setattr(policy_conditions, "dependency_cycles", look)
    cycle = [{"name": "flights", "dependsOn": ["flights"]}]
    known = whole_world(whole_policy(applications=cycle))
    driver = pod_seen(client_driver())
    assert driver is not None
    known.registry.see_pod(driver)
    left, written = Left(), Written({"metadata": METADATA, "spec": {}})
    statuses = writer(known, written, left)
    for _ in range(3):
        assert conditions_of(statuses, left, written)["Accepted"][1] == "DependencyCycle"
    assert len(looked_at) == 1
    known.see_policy(whole_policy(4))
    assert conditions_of(statuses, left, written)["Accepted"][1] == "AsWritten"
    assert len(looked_at) == 2
    known.forget_policy("flights", "all")
    statuses._at = -1e9
    statuses.refresh(stirred=True)
    assert not statuses._cycles


class TakenOut(dict[str, tuple[object, object]]):
    """What errands take out on their threads as soon as somebody has looked."""

    def keys(self) -> Any:
        names = {*super().keys()}
        self.clear()
        return names


def test_what_an_errand_forgets_meanwhile_is_forgotten(known: ClusterView) -> None:
    statuses = writer(known)
    statuses._found = TakenOut({"RecoveryPolicy flights/gone": (1, 2)})
    statuses._forget_gone()
    assert not statuses._found


@pytest.mark.parametrize("is_away", [True, False])
def test_a_status_says_that_the_webhook_is_away_also_behind_a_worse_danger(
    known: ClusterView, is_away: bool
) -> None:
    left, written = Left(), Written({"metadata": dict(METADATA), "spec": {}})
    contacts = [DriverContact("departures", Driver.SILENT)]
    coordination = Coordination(True, 3, webhook_away=is_away)
    dangers = coordination_risks.dangers(coordination, contacts)
    statuses = writer(known, written, left, dangers)
    statuses._at = -1e9
    assert statuses.refresh(stirred=True)
    left.errands[KEY]()
    status = policy(written.body["status"]).status
    (risk,) = (item for item in status.conditions if item.type == "CoordinationAtRisk")
    assert risk.reason == "DriverSilent"
    assert status.webhook_away is is_away
