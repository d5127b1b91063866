"""Facts of an application that are kept for later requests and Recoveries."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
import spark_objects as objects
from application_world import Desk
from operator_world import tell
from spark_objects import Body

from rekindle.coordination import session
from rekindle.coordination.session import Case
from rekindle.protocol.store_paths import Place
from rekindle_coordinator.coordinator_ports import Look
from rekindle_operator.api import recovery_resource
from rekindle_operator.api.recovery_resource import (
    ApplicationReference,
    NodeRequest,
    RecoverySpec,
    RecoveryStatus,
)
from rekindle_operator.applications.application_incident import OpenStory
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.cluster.object_watcher import EventInbox
from rekindle_operator.controller.coordination_risks import DriverContacts
from rekindle_operator.controller.effects import Effects
from rekindle_operator.controller.operator_metrics import OperatorMetrics
from rekindle_operator.detection.detection_runner import DetectionRunner
from rekindle_operator.policies.concurrency_limiter import Limiter
from rekindle_operator.provisioning import NodeIncident, executor_of

PLACE = Place("flights", "low")
INCIDENT = NodeIncident(namespace="flights", application="low", number=1, recovery="low-1", uid="u")


class World:
    """One application in a namespace; errands are done at once, and so is what they answer."""

    def __init__(self) -> None:
        self.known = ClusterView()
        self.pods: dict[str, Body] = {}
        self.asked = 0
        self.left: list[str] = []
        unused: Any = SimpleNamespace(
            forget=lambda *_: None, dangers=lambda *_: (), gate_dangers=lambda: ()
        )
        self.inbox: EventInbox[ClusterView] = EventInbox()
        self.effects = Effects(
            known=self.known,
            judge=cast(Any, SimpleNamespace(state=None, known=self.known)),
            inbox=self.inbox,
            errands=cast(Any, self),
            reads=cast(Any, self),
            api=cast(Any, self),
            connection=unused,
            log=unused,
            home="rekindle",
            identity="operator-a",
            look_seconds=1.0,
            metrics=OperatorMetrics(),
            limiter=unused,
            acts=lambda: True,
            contacts=unused,
            _acting=True,
        )

    def submit(self, driver: str, cpu: str) -> None:
        """Another driver, with an executor of a size."""
        for pod in self.pods.values():
            self.known.registry.forget_pod(pod["metadata"]["uid"])
        made = (
            objects.kubeflow_driver("low", uid=driver, node="drivers"),
            objects.kubeflow_executor(
                1,
                "low",
                driver_uid=driver,
                uid=f"executor-of-{driver}",
                containers=(objects.container("spark-kubernetes-executor", cpu=cpu),),
            ),
        )
        self.pods = {pod["metadata"]["name"]: pod for pod in made}
        for pod in made:
            tell(self.known.registry, pod)

    def shape(self) -> object:
        """The executor by which nodes are asked for."""
        application = self.known.application(PLACE)
        assert application is not None
        self.effects._measure(PLACE, application.executors[0])
        for news in self.inbox.take():
            news(self.known)
        return self.effects._shape(PLACE)

    def get(self, path: str) -> Body | None:
        self.asked += 1
        return self.pods.get(path.rpartition("/")[2])

    def leave(self, key: str, errand: Callable[[], object]) -> None:
        self.left.append(key)
        errand()

    def clear(self) -> None:
        self.left.clear()

    def vanish(self) -> None:
        """The application is gone."""
        for pod in self.pods.values():
            self.known.registry.forget_pod(pod["metadata"]["uid"])


def test_nodes_are_asked_for_by_the_executors_of_the_newest_driver() -> None:
    """Those of the next submission may be larger, and would not fit on such nodes."""
    world = World()
    for driver, cpu in (("one", "2"), ("one", "2"), ("two", "8")):
        world.submit(driver, cpu)
        newest = next(pod for name, pod in world.pods.items() if "exec" in name)
        assert world.shape() == executor_of(newest)
    assert world.asked == 2


def test_nothing_of_an_application_that_is_gone_is_kept_for_the_next_one_of_its_name() -> None:
    """Where its namespace goes with it, incidents are counted from 1 again."""
    world = World()
    world.submit("one", "2")
    world.shape()
    row = NodeRequest("r", "karpenter", 1, "Pending", datetime.fromtimestamp(0, UTC))
    world.effects._told({INCIDENT: (row,)})
    assert world.effects.whole.rows(PLACE) == {1: (row,)}
    application = world.known.application(PLACE)
    assert application is not None
    world.vanish()
    world.effects._look_at(PLACE)
    (pod,) = (pod for name, pod in world.pods.items() if "exec" in name)
    world.effects._measured(PLACE, application.executors[0], executor_of(pod))
    assert world.effects.whole.rows(PLACE) == {}
    assert world.effects._shape(PLACE) is None


def test_requests_of_an_application_that_is_gone_are_counted_once_and_not_kept() -> None:
    world = World()
    world.submit("one", "2")
    row = NodeRequest("r", "karpenter", 1, "Pending", datetime.fromtimestamp(0, UTC))
    world.effects._told({INCIDENT: (row,)})
    world.vanish()
    world.known.take_changed()
    for outcome in ("Pending", "Withdrawn", "Withdrawn"):
        world.effects._look_at(PLACE)
        world.effects._told({INCIDENT: (msgspec.structs.replace(row, outcome=outcome),)})
    assert world.effects.whole.rows(PLACE) == {}
    assert world.known.take_changed() == frozenset(), "it would be looked at again and again"
    labels = {"provider": "karpenter", "outcome": "Withdrawn"}
    counted = world.effects.metrics.registry.get_sample_value(
        "rekindle_operator_node_requests_total", labels
    )
    assert counted == 1.0


def test_requests_are_read_again_once_another_operator_has_acted() -> None:
    world = World()
    world.submit("one", "2")
    row = NodeRequest("r", "karpenter", 1, "Pending", datetime.fromtimestamp(0, UTC))
    world.effects._told({INCIDENT: (row,)})
    world.effects.judge = DetectionRunner(world.known)
    world.effects.contacts = DriverContacts(lambda: cast(Any, None), {})
    world.effects._acting = False
    world.effects._end()
    assert world.effects.whole.rows(PLACE) == {}
    world.effects._told({INCIDENT: (row,)})
    assert world.effects.whole.rows(PLACE) == {}, "of a look that was under way"


@pytest.mark.parametrize("is_told", [False, True])
def test_the_recovery_of_an_application_that_is_gone_is_ended_by_one_alone(is_told: bool) -> None:
    world = World()
    spec = RecoverySpec(ApplicationReference("Driver", "low"), 1, "all", "default")
    body = recovery_resource.to_object("flights", spec)
    body["metadata"] |= {"uid": "u", "generation": 1}
    world.known.see_recovery(recovery_resource.from_object(body))
    if is_told:
        world.effects.whole._stories[PLACE] = OpenStory("flights/all", spec, RecoveryStatus())
    world.effects._look_at(PLACE)
    assert ("abandon u" in world.left) != is_told


def test_what_is_decided_about_an_application_without_objects_is_forgotten_with_its_records() -> (
    None
):
    world, reading = World(), Desk().reading
    effects = world.effects
    effects.judge = DetectionRunner(world.known)
    effects.limiter = Limiter(world.known)
    effects.contacts = DriverContacts(lambda: cast(Any, None), {})
    decision = session.decide(Case(), reading, 10.0, clock=float)
    effects.decided(PLACE, Look(replace(Case(), plan_sequence=1), reading, decision, 10.0))
    kept = (effects._cases, effects.contacts._contacts, effects.storyteller._unread)
    assert [list(known) for known in kept] == [[PLACE]] * 3
    effects.forget(PLACE)
    assert [list(known) for known in kept] == [[]] * 3
