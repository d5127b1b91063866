"""What the operator adds to a driver's report before a decision."""

import io
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import spark_objects as objects
from application_world import Desk
from operator_world import FLIGHTS, tell, untell

from rekindle.coordination.session import ApplicationReading, Case
from rekindle.model.settings import Policy
from rekindle.protocol import PROTECTED_QUERIES, NodeSeen, ProgressReport
from rekindle.protocol.store_paths import Place
from rekindle_coordinator.coordinator_log import Log
from rekindle_operator.api import recovery_resource
from rekindle_operator.api.recovery_resource import (
    ApplicationReference,
    Recovery,
    RecoverySpec,
    RecoveryStatus,
)
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.cluster.object_watcher import EventInbox
from rekindle_operator.controller.coordination_adapter import CoordinationAdapter
from rekindle_operator.detection.detection_runner import DetectionRunner
from rekindle_testing.operator_builders import make_class, make_policy

EXECUTOR = objects.kubeflow_executor(1, node="machine-1", ip="10.0.0.1")


def reported(called: str | None) -> ApplicationReading:
    """A report with the one executor, and what the driver says of where it is."""
    seen = NodeSeen(incarnation="1.0", capacity_percent=100.0, cluster_node=called)
    progress = ProgressReport(
        generation=1, sequence=1, nodes={"10.0.0.1": seen}, placement={}, live=()
    )
    return replace(Desk().reading, progress=progress)


def overseer_of(known: ClusterView) -> CoordinationAdapter:
    none: Any = None
    limiter: Any = SimpleNamespace(reached=lambda *_: None)
    inbox: EventInbox[ClusterView] = EventInbox()
    return CoordinationAdapter(
        inbox,
        known=known,
        judge=DetectionRunner(known),
        renewals=none,
        limiter=limiter,
        decided_on=lambda *_: None,
        stirred=lambda _: None,
        forgotten=lambda _: None,
        retired=lambda _: None,
        log=Log(io.StringIO()),
    )


@pytest.mark.parametrize(
    ("called", "there", "named"),
    [
        (None, True, "machine-1"),
        ("a-lie", True, "machine-1"),
        ("machine-1", False, "machine-1"),
        (None, False, None),
    ],
    ids=["the pod alone", "the pod against the driver", "the driver alone", "nobody"],
)
def test_a_decision_is_told_which_node_an_executor_is_on_so_that_the_record_has_it(
    called: str | None, there: bool, named: str | None
) -> None:
    known = ClusterView()
    tell(known.registry, objects.kubeflow_application())
    tell(known.registry, objects.kubeflow_driver(**objects.protected()))
    tell(known.registry, EXECUTOR)
    if not there:
        untell(known.registry, EXECUTOR)
    overseer, reading = overseer_of(known), reported(called)
    overseer.heard(FLIGHTS, reading)
    progress = overseer.terms(FLIGHTS, reading).reading.progress
    assert progress is not None
    assert progress.nodes["10.0.0.1"].cluster_node == named
    assert reading.progress is not None
    before = msgspec.structs.replace(reading.progress.nodes["10.0.0.1"], cluster_node=named)
    assert progress.nodes["10.0.0.1"] == before, "nothing else is another"


@pytest.mark.parametrize(("program", "percent"), [("p", 50.0), (PROTECTED_QUERIES, 100.0)])
def test_protected_queries_are_planned_in_slots_and_others_in_cpu_of_the_node(
    program: str, percent: float
) -> None:
    known = ClusterView()
    tell(known.registry, objects.node("machine-1", cpu="500m"))
    tell(known.registry, objects.kubeflow_application())
    tell(known.registry, objects.kubeflow_driver(**objects.protected()))
    tell(known.registry, EXECUTOR)
    overseer, reading = overseer_of(known), reported(None)
    topology = msgspec.structs.replace(reading.topology, program=program)
    progress = overseer.terms(FLIGHTS, replace(reading, topology=topology)).reading.progress
    assert progress is not None
    assert progress.nodes["10.0.0.1"].capacity_percent == percent


def test_goals_of_a_policy_go_before_those_of_the_pipelines_settings() -> None:
    known = ClusterView()
    tell(known.registry, objects.kubeflow_application())
    tell(known.registry, objects.kubeflow_driver(**objects.protected()))
    known.see_class(make_class("default"))
    goals = [{"query": name, "seconds": 5} for name in ("busiest", "of-another-application")]
    known.see_policy(make_policy(lagGoals=goals))
    reading = reported(None)
    policy = Policy(lag_goals={"busiest": 60.0, "ranking": 70.0})
    topology = msgspec.structs.replace(reading.topology, policy=policy)
    held = overseer_of(known).terms(FLIGHTS, replace(reading, topology=topology)).reading
    assert held.topology.policy.lag_goals == {"busiest": 5.0, "ranking": 70.0}


def test_records_that_go_after_the_objects_take_along_what_was_decided_in_between() -> None:
    known, forgotten = ClusterView(), list[Place]()
    driver = objects.kubeflow_driver(**objects.protected())
    tell(known.registry, driver)
    overseer = overseer_of(known)
    overseer.forgotten = forgotten.append
    overseer.judge.note_decision(FLIGHTS, Case())
    overseer.forget(FLIGHTS)
    assert (forgotten, [*overseer.judge._decided]) == ([], [FLIGHTS]), "its driver is there"
    untell(known.registry, driver)
    overseer.forget(FLIGHTS)
    judge = overseer.judge
    assert (forgotten, judge._decided, judge._lost) == ([FLIGHTS], {}, {})


def test_recoveries_are_deleted_that_ended_before_the_time_that_records_are_kept() -> None:
    known, retired, ended = ClusterView(), list[Collection[Recovery]](), list[Recovery]()
    for incident, days in ((1, 31), (2, 29)):
        spec = RecoverySpec(ApplicationReference("Driver", "flights"), incident, "all", "default")
        made = recovery_resource.from_object(recovery_resource.to_object("flights", spec))
        at = datetime.now(UTC) - timedelta(days=days)
        status = RecoveryStatus(phase="Abandoned", ended_at=at)
        ended.append(msgspec.structs.replace(made, status=status))
        known.see_recovery(ended[-1])
    overseer = overseer_of(known)
    overseer.retired = retired.append
    overseer.retire(30)
    assert retired == [[ended[0]]]


def test_incidents_are_numbered_behind_the_recoveries_that_there_are() -> None:
    """The store forgets after a reset, and an ended Recovery of a name swallows the next one."""
    known, desk = ClusterView(), Desk()
    overseer = overseer_of(known)
    assert overseer.terms(FLIGHTS, desk.reading).reading.incidents == 0
    application = ApplicationReference("Driver", FLIGHTS.application)
    for incident in (9, 41, 3):
        spec = RecoverySpec(application, incident, "all", "default")
        body = recovery_resource.to_object(FLIGHTS.namespace, spec)
        known.see_recovery(recovery_resource.from_object(body))
    desk.report()
    desk.reading = overseer.terms(FLIGHTS, desk.reading).reading
    assert desk.reading.incidents == 41
    case = desk.decide().case
    assert case.state is not None
    assert case.state.incidents == 41
