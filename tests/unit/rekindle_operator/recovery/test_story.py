"""The story of an incident: what a Recovery says after each course of things."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

import msgspec
import pytest
import story_courses
from story_world import NODES, World, breaches, running, status_schema

from rekindle.coordination.session import Decision, Driver
from rekindle_operator.api.recovery_resource import RecoveryStatus
from rekindle_operator.policies.effective_policy import ReachedLimit
from rekindle_operator.recovery import recovery_reasons, status_builder
from rekindle_operator.recovery.recovery_inputs import NodeObservation, RecoveryTerms, moment
from rekindle_operator.recovery.recovery_reasons import RecoveryReason

COURSES: list[tuple[Callable[[World], None], str, str, str]] = [
    (story_courses.suspect, "Suspected", "Suspected", "SuspectedFailure"),
    (story_courses.clear, "Abandoned", "Suspected", "SuspicionCleared"),
    (story_courses.hold, "Held", "Suspected", "AllNodesLost"),
    (story_courses.lose_one, "CatchingUp", "Independent", "PlanAwaited"),
    (story_courses.place_all, "CatchingUp", "Independent", "CatchingUp"),
    (story_courses.catch_up, "AwaitingCheckpoint", "Independent", "CheckpointAwaited"),
    (story_courses.lose_three, "Recovering", "Correlated", "PlanAwaited"),
    (story_courses.lose_three_and_wait, "Recovering", "Correlated", "NoCapacity"),
    (story_courses.recover, "Recovered", "Correlated", "Recovered"),
    (story_courses.lose_all, "Held", "Complete", "AllNodesLost"),
    (story_courses.pause, "Held", "Correlated", "Paused"),
    (story_courses.pause_by_order, "Held", "Correlated", "Paused"),
    (story_courses.wait_for_a_turn, "Recovering", "Correlated", "TurnAwaited"),
    (story_courses.want_approval, "AwaitingApproval", "Correlated", "ApprovalAwaited"),
    (story_courses.approve, "Recovering", "Correlated", "PlanAwaited"),
    (story_courses.lose_driver, "AwaitingDriver", "Independent", "DriverSilent"),
    (story_courses.bury_driver, "AwaitingDriver", "Complete", "DriverLost"),
    (story_courses.start_driver_again, "CatchingUp", "Complete", "PlanAwaited"),
    (story_courses.start_afresh, "Abandoned", "Complete", "FreshStart"),
    (story_courses.finish, "Abandoned", "Correlated", "RunFinished"),
]


@pytest.mark.parametrize(
    ("course", "phase", "kind", "reason"), COURSES, ids=[course[0].__name__ for course in COURSES]
)
def test_each_course_has_its_phase_kind_and_reason(
    course: Callable[[World], None], phase: str, kind: str, reason: str
) -> None:
    world = running()
    course(world)
    status = world.status()
    assert (status.phase, status.kind, status.reason) == (phase, kind, reason), status.message
    assert status.message


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (
            ReachedLimit("policy all", 1, ("flights/arrivals",)),
            "Waits for flights/arrivals: policy all lets 1 recovery go on at once",
        ),
        (
            ReachedLimit("class shared", 2, ("flights/arrivals", "trains/delays")),
            "Waits for flights/arrivals, trains/delays: class shared lets 2 recoveries go on",
        ),
    ],
)
def test_who_waits_for_a_turn_learns_whose_limit_it_is_and_who_fills_it(
    limit: ReachedLimit, said: str
) -> None:
    world = running()
    story_courses.wait_for_a_turn(world)
    world.terms = RecoveryTerms(limit=limit)
    world.step()
    assert said in str(world.status().message)
    assert breaches(status_schema(), world.objects[1]) == []


def conditions(world: World) -> dict[str, tuple[str, str]]:
    return {item.type: (item.status, item.reason) for item in world.status().conditions}


CONDITIONS = [
    (
        story_courses.suspect,
        {"Confirmed": "False", "Approved": "True", "Planned": "True", "Recovered": "False"},
    ),
    (story_courses.lose_three, {"Confirmed": "True", "Approved": "True", "Planned": "False"}),
    (story_courses.want_approval, {"Confirmed": "True", "Approved": "False", "Planned": "False"}),
    (story_courses.catch_up, {"Confirmed": "True", "Planned": "True", "Recovered": "False"}),
    (story_courses.recover, {"Confirmed": "True", "Planned": "True", "Recovered": "True"}),
    (story_courses.clear, {"Confirmed": "False", "Recovered": "False"}),
]


@pytest.mark.parametrize(
    ("course", "expected"), CONDITIONS, ids=[item[0].__name__ for item in CONDITIONS]
)
def test_conditions_say_what_the_phase_says(
    course: Callable[[World], None], expected: dict[str, str]
) -> None:
    world = running()
    course(world)
    found = conditions(world)
    assert {name: found[name][0] for name in expected} == expected
    assert found["CoordinationAtRisk"] == ("False", "CoordinationSound")


def test_a_danger_of_the_coordination_is_in_the_story() -> None:
    world = running()
    world.dangers = ((recovery_reasons.RecoveryReason.NO_STANDBY, "One coordinator runs."),)
    story_courses.lose_one(world)
    assert conditions(world)["CoordinationAtRisk"] == ("True", "NoStandby")


def test_a_suspicion_outlasts_an_operator_that_is_started_anew() -> None:
    world = running()
    story_courses.suspect(world)
    world.cluster = replace(world.cluster, sightings=None)
    world.step()
    assert world.status().phase == "Suspected"
    world.cluster = replace(world.cluster, sightings={})
    world.step()
    assert world.status().phase == "Abandoned"


def test_a_story_that_was_a_mere_suspicion_goes_on_with_the_same_number() -> None:
    world = running()
    story_courses.clear(world)
    story_courses.lose_three(world)
    status = world.status()
    assert set(world.objects) == {1}
    assert (status.phase, status.ended_at) == ("Recovering", None)
    assert {row.name for row in status.lost_nodes} == set(story_courses.LATER)
    assert status.started_at == moment(world.now)


def test_a_story_that_is_over_stays_as_it_is() -> None:
    world = running()
    story_courses.recover(world)
    status = world.status()
    assert status.ended_at == moment(world.now)
    world.lose("n2")
    world.settle()
    assert world.status() == status
    assert set(world.objects) == {1, 2}


def test_a_lease_that_stops_after_the_recovery_is_no_second_story() -> None:
    world = running()
    hosts = {name: f"worker-{name}" for name in NODES}
    world.cluster = replace(world.cluster, hosts=hosts)
    story_courses.recover_from_one(world)
    (row,) = world.status().lost_nodes
    assert (row.name, row.suspected_at) == ("worker-n2", None)
    assert row.confirmed_at is not None
    world.sight(**{"worker-n2": NodeObservation(suspected_at=world.now)})
    world.step()
    assert set(world.objects) == {1}
    world.sight(**{"worker-n2": NodeObservation(suspected_at=world.now, confirmed_at=world.now)})
    world.lose("n3")
    world.step()
    assert set(world.objects) == {1, 2}
    assert [row.name for row in world.status(2).lost_nodes] == ["worker-n3"]


def test_a_node_on_which_an_application_still_runs_is_a_story_when_it_falls_silent() -> None:
    world = running()
    world.cluster = replace(world.cluster, hosts={name: f"worker-{name}" for name in NODES})
    story_courses.recover_from_one(world)
    world.sight(**{"worker-n3": NodeObservation(suspected_at=world.now)})
    world.step()
    assert (world.status(2).phase, world.status(2).message) == ("Suspected", "Silent: worker-n3.")


def test_a_node_that_the_last_driver_was_on_is_no_second_story_however_long_it_is_silent() -> None:
    world = running()
    hosts = {name: f"worker-{name}" for name in NODES}
    world.cluster = replace(world.cluster, hosts=hosts, driver="machine")
    world.sight(machine=NodeObservation(suspected_at=world.now, driver=True))
    story_courses.bury_driver(world)
    world.step()
    assert [row.name for row in world.status().lost_nodes if row.confirmed_at is None] == [
        "machine"
    ]
    world.cluster = replace(world.cluster, driver="another")
    world.start_driver()
    world.settle(8)
    world.complete_checkpoint()
    world.settle()
    assert world.status().phase == "Recovered"
    assert set(world.objects) == {1}
    world.sight(another=NodeObservation(suspected_at=world.now, driver=True))
    world.step()
    assert world.status(2).message == "Silent: another."


def test_executors_that_a_drain_has_taken_are_no_story_unless_others_are_lost_too() -> None:
    world = running()
    hosts = {name: f"worker-{name}" for name in NODES}
    world.cluster = replace(world.cluster, hosts=hosts, left=frozenset({"worker-n2"}))
    before = len(world.plans)
    world.lose("n2")
    world.step()
    assert len(world.plans) > before
    assert not world.objects
    world.lose("n3")
    world.step()
    assert {row.name for row in world.status().lost_nodes} == {"worker-n2", "worker-n3"}


def test_a_dry_run_tells_the_plan_that_would_be_made() -> None:
    world = running()
    world.terms = RecoveryTerms(dry_run=True)
    world.lose(*story_courses.LATER)
    world.now += 1
    world.report()
    before = world.case
    for more in range(3):
        world.now += more
        world.tell(before, tuple(world.plans), world.decide())
    status = world.status()
    assert status.dry_run
    (plan,) = status.plans
    assert (plan.number, plan.acknowledged_at, plan.refused) == (2, None, None)


def test_an_application_that_is_gone_ends_the_story() -> None:
    world = running()
    story_courses.lose_three(world)
    gone = RecoveryReason.APPLICATION_GONE, "SparkApplication departures is gone."
    told = status_builder.abandon(world.status(), *gone, world.now)
    assert told.news
    assert (told.status.phase, told.status.reason) == ("Abandoned", "ApplicationGone")
    assert told.status.ended_at == moment(world.now)
    assert not status_builder.abandon(told.status, *gone, world.now + 1).news


def test_a_story_goes_on_when_its_application_is_back_in_the_same_incident() -> None:
    """As with a driver's pod that was collected with its node, and is submitted again."""
    world = running()
    story_courses.lose_three(world)
    started_at = world.status().started_at
    before, seen = world.case, world.now
    gone = RecoveryReason.APPLICATION_GONE, "departures is not there any more."
    told = status_builder.abandon(world.status(), *gone, world.now + 1)
    world.publish(1, world.status(), told.status)
    calm = Decision(before, False, (), ())
    late = world.scene(1, before, tuple(world.plans), calm)
    assert not status_builder.tell(told.status, late, seen).news, "it was seen before it went"
    world.now += 600
    world.bury_driver()
    world.restore(*story_courses.LATER)
    world.start_driver()
    world.settle(8)
    assert (world.status().ended_at, world.status().started_at) == (None, started_at)
    world.complete_checkpoint()
    world.settle()
    assert world.status().phase == "Recovered"
    assert set(world.objects) == {1}


def test_a_scene_that_is_older_than_the_story_tells_nothing() -> None:
    world = running()
    calm = Decision(world.case, False, (), ())
    story_courses.lose_three(world)
    lost = Decision(world.case, False, (), ())
    assert not world.tell(world.case, (), calm)
    story_courses.lose_three_and_wait(world)
    world.restore("n2")
    world.settle()
    assert not world.tell(world.case, (), lost)
    assert len(world.status().plans) > 1


def test_a_run_that_ended_in_order_has_no_recovery_left() -> None:
    world = running()
    story_courses.finish(world)
    found = Decision(replace(world.case, driver=Driver.FINISHED), False, (), ())
    assert not world.tell(world.case, (), found)


def test_moments_are_told_to_the_millisecond_and_never_later() -> None:
    assert moment(1_763_745_291.9999) == datetime.fromisoformat("2025-11-21T17:14:51.999+00:00")


def test_an_empty_status_reads_back_as_a_story_that_has_not_begun() -> None:
    assert msgspec.convert({}, RecoveryStatus) == RecoveryStatus()
