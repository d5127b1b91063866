"""The rows of a story: queries, plans, nodes, requests, and the driver."""

from dataclasses import replace

import msgspec
import pytest
import story_courses
from story_world import NODES, breaches, running, status_schema

from rekindle_operator.api import recovery_resource
from rekindle_operator.api.recovery_resource import NodeRequest
from rekindle_operator.detection.detection_events import (
    DetectionEvent,
    DetectionKind,
    DetectionReason,
)
from rekindle_operator.detection.failure_domains import Domain
from rekindle_operator.recovery import lost_nodes
from rekindle_operator.recovery.recovery_inputs import Fenced, NodeObservation, moment


def test_a_query_has_its_whole_time_line() -> None:
    world = running()
    story_courses.lose_three_and_wait(world)
    lost_at = moment(world.now - 3)
    rows = {row.name: row for row in world.status().queries}
    assert rows["busiest"].lost_at == lost_at
    assert rows["busiest"].planned_at is None
    assert rows["busiest"].reason == "NoCapacity"
    assert rows["busiest"].message == "No room: 1 of 4 nodes is up."
    story_courses.bring_back(world)
    row = {row.name: row for row in world.status().queries}["busiest"]
    assert row.lost_at == lost_at
    assert row.planned_at in {plan.at for plan in world.status().plans}
    assert row.planned_at is not None
    assert row.back_at is not None
    assert lost_at < row.planned_at < row.back_at
    assert (row.reason, row.message) == (None, None)
    assert world.status().back == "3/3"


def test_a_query_that_was_never_lost_has_no_times() -> None:
    world = running()
    survivors = {node for node in NODES if node not in world.placement.values()}
    (spare,) = survivors or {next(iter(set(NODES) - {world.placement["source/0"]}))}
    world.lose(spare)
    world.step()
    rows = {row.name: row for row in world.status().queries}
    assert rows["landed"].lost_at is None
    assert [row.name for row in world.status().queries] == ["ranking", "busiest", "landed"]


def test_a_query_lost_again_after_it_was_back_begins_anew() -> None:
    world = running()
    story_courses.lose_three_and_wait(world)
    story_courses.bring_back(world)
    first = {row.name: row for row in world.status().queries}["busiest"]
    story_courses.lose_three(world)
    again = {row.name: row for row in world.status().queries}["busiest"]
    assert first.back_at is not None
    assert again.lost_at is not None
    assert again.lost_at > first.back_at
    assert (again.planned_at, again.back_at) == (None, None)


def test_plans_are_told_with_what_the_driver_did() -> None:
    world = running()
    story_courses.lose_three(world)
    (plan,) = world.status().plans
    assert plan.acknowledged_at is None
    assert plan.reason == "CorrelatedFailure"
    assert plan.at == moment(world.now)
    assert plan.queries[0] == "ranking"
    assert plan.text.startswith("Plan 2 of incident 1 (correlated-failure): Bring back")
    assert plan.priority_sum == 10.0
    assert plan.capacity_millicores == 800
    world.step()
    (plan,) = world.status().plans
    assert plan.acknowledged_at == moment(world.now)
    assert plan.refused is None


def test_moments_are_those_of_the_decision_however_late_they_are_told() -> None:
    world = running()
    world.lose(*story_courses.LATER)
    world.now += 1
    decided_at = world.now
    world.report()
    world.write(world.decide())
    world.restart()
    world.step(seconds=7.0)
    status = world.status()
    assert [plan.at for plan in status.plans] == [moment(decided_at)]
    rows = {row.name: row for row in status.queries}
    assert {row.lost_at for row in rows.values()} == {moment(decided_at)}
    assert rows["ranking"].planned_at == moment(decided_at)
    assert {row.confirmed_at for row in status.lost_nodes} == {moment(decided_at)}


def test_a_plan_that_the_driver_refuses_says_why() -> None:
    world = running()
    world.following = replace(world.following, plan_epoch=1)
    world.deaf = True
    story_courses.lose_three(world)
    world.following = replace(world.following, plan_epoch=7)
    world.deaf = False
    world.obey(())
    world.step()
    first = world.status().plans[0]
    assert first.acknowledged_at is None
    assert first.refused == "its plan epoch 2 is behind 7"


def test_a_plan_for_a_driver_that_ends_before_it_took_it_is_told_so() -> None:
    world = running()
    world.deaf = True
    story_courses.lose_three(world)
    world.bury_driver()
    world.step()
    world.deaf = False
    world.start_driver()
    world.settle()
    first, *others = world.status().plans
    assert first.refused == "The driver that it was made for has ended."
    assert others
    assert all(plan.acknowledged_at is not None for plan in others)


def test_a_plan_that_the_driver_made_by_itself_is_told() -> None:
    world = running()
    story_courses.lose_three_and_wait(world)
    known = world.status().plans[-1].number
    world.following = replace(world.following, plan_epoch=known + 1)
    world.placement |= {"counts/0": "n1"}
    world.step()
    plan = world.status().plans[-1]
    assert (plan.number, plan.reason) == (known + 1, "DriverAlone")
    assert plan.acknowledged_at is not None


def test_plans_without_number_give_way_and_are_counted() -> None:
    world = running()
    story_courses.lose_three_and_wait(world)
    for _ in range(30):
        world.restore("n2")
        world.settle(2)
        world.lose("n2")
        world.settle(2)
    status = world.status()
    numbers = [plan.number for plan in status.plans]
    assert len(numbers) == recovery_resource.PLANS_MAX
    assert numbers == sorted(numbers)
    assert status.plans_total == status.plans_dropped + len(numbers)
    assert status.plans_total == sum(plan.order.incident == 1 for plan in world.plans)  # type: ignore[union-attr]
    assert breaches(status_schema(), world.objects[1]) == []


def test_lost_nodes_have_what_detection_knows_of_them() -> None:
    world = running()
    story_courses.suspect(world)
    suspected_at = moment(world.now - 1)
    world.sight(
        n2=NodeObservation(
            suspected_at=world.now - 1,
            confirmed_at=world.now + 0.25,
            domain="rack-7",
            uid="u2",
            driver=True,
        )
    )
    world.lose("n2")
    world.step()
    (row,) = world.status().lost_nodes
    assert (row.name, row.uid, row.domain, row.driver) == ("n2", "u2", "rack-7", True)
    assert row.suspected_at == suspected_at == world.status().started_at
    assert row.confirmed_at == moment(world.now - 0.75)
    assert row.back_at is None
    world.restore("n2")
    world.step()
    (row,) = world.status().lost_nodes
    assert row.back_at == moment(world.now)
    assert world.status().lost_nodes_total == 1


def test_a_node_that_never_came_back_is_no_loss_of_the_next_incident() -> None:
    world = running()
    world.sight(n4=NodeObservation(suspected_at=world.now, confirmed_at=world.now + 1))
    story_courses.lose_one(world)
    world.settle()
    world.complete_checkpoint()
    world.step()
    assert world.status().phase == "Recovered"
    world.settle()
    assert set(world.objects) == {1}
    world.lose("n3")
    world.step()
    assert [row.name for row in world.status(2).lost_nodes] == ["n3"]


def test_executors_are_told_by_the_node_that_they_were_on() -> None:
    world = running()
    hosts = {"n1": "alpha", "n2": "beta", "n3": "gamma", "n4": "gamma"}
    world.cluster = replace(world.cluster, hosts=hosts)
    world.lose("n3", "n4")
    world.step()
    assert [row.name for row in world.status().lost_nodes] == ["gamma"]
    assert world.status().lost_nodes_total == 1
    # the pods of what was lost are gone, and with them what tells where they were
    world.cluster = replace(world.cluster, hosts={"n1": "alpha", "n2": "beta"})
    world.step()
    (row,) = world.status().lost_nodes
    assert (row.name, row.back_at) == ("gamma", None)
    world.restore("n3")
    world.cluster = replace(world.cluster, hosts={"n1": "alpha", "n2": "beta", "n3": "gamma"})
    world.step()
    (row,) = world.status().lost_nodes
    assert row.back_at == moment(world.now)


@pytest.mark.parametrize(
    "hosts", [{}, {"n4": "of-the-next-executor"}], ids=["nobody", "another executor"]
)
def test_a_lost_executor_is_told_by_the_node_that_the_record_has_whoever_has_its_address_now(
    hosts: dict[str, str],
) -> None:
    """An operator that comes after a loss, and maybe after another start of the driver, sees
    nothing of it."""
    world = running()
    for name, seen in world.nodes.items():
        world.nodes[name] = msgspec.structs.replace(seen, cluster_node=f"machine-{name}")
    world.settle()
    world.lose("n4")
    world.cluster = replace(world.cluster, hosts=hosts)
    world.step()
    assert [row.name for row in world.status().lost_nodes] == ["machine-n4"]
    assert world.status().lost_nodes_total == 1
    world.objects.clear()
    world.start_driver()
    world.step()
    assert [row.name for row in world.status().lost_nodes] == ["machine-n4"]


def test_the_driver_has_its_own_story() -> None:
    world = running()
    story_courses.bury_driver(world)
    lost_at = moment(world.now)
    world.cluster = replace(world.cluster, fencing=Fenced(world.now + 0.5, "NodeClaimGone"))
    world.step()
    world.start_driver()
    world.step()
    found = world.status().driver
    assert found is not None
    assert (found.lost_at, found.certainty) == (lost_at, "NodeClaimGone")
    assert found.fenced_at == moment(world.now - 1.5)
    assert found.back_at == moment(world.now - 1)


def test_what_the_core_requests_is_told_until_it_is_there() -> None:
    world = running()
    story_courses.lose_three_and_wait(world)
    (request,) = world.status().requests
    assert (request.name, request.count, request.outcome) == ("1-nodes-3", 3, "Pending")
    assert (request.provider, request.reason) == ("pending-pods", "CorrelatedFailure")
    assert request.outside_domains == ()
    story_courses.bring_back(world)
    (request,) = world.status().requests
    assert request.outcome == "Arrived"
    assert request.ended_at is not None
    assert world.status().nodes_requested == 3


def test_pending_executors_are_told_with_the_domains_that_they_keep_out_of() -> None:
    world = running()
    world.cluster = replace(world.cluster, domains_avoided=("b", "a"))
    story_courses.lose_three_and_wait(world)
    (request,) = world.status().requests
    assert request.outside_domains == ("a", "b")


def test_requests_of_providers_are_told_as_they_tell_them() -> None:
    world = running()
    asked = NodeRequest("departures-1-a", "karpenter", 1, "Pending", moment(world.now))
    world.requests = (asked, msgspec.structs.replace(asked, name="departures-1-b"))
    story_courses.lose_three(world)
    world.requests = (msgspec.structs.replace(asked, outcome="Failed", message="No quota."),)
    world.step()
    failed, withdrawn = world.status().requests
    assert (failed.outcome, failed.message) == ("Failed", "No quota.")
    assert withdrawn.outcome == "Withdrawn"
    assert world.status().nodes_requested == 2


def test_nodes_without_number_are_counted_and_the_newest_that_are_not_back_are_listed() -> None:
    world = running()
    story_courses.lose_three(world)
    at = world.now
    world.sight(
        **{f"x{number}": NodeObservation(confirmed_at=at + number) for number in range(300)}
    )
    world.step()
    rows = world.status().lost_nodes
    assert [row.name for row in rows] == [f"x{number}" for number in range(100, 300)]
    world.sight(x250=NodeObservation(confirmed_at=at + 250, heard_at=at + 500))
    world.step()
    status = world.status()
    assert len(status.lost_nodes) == recovery_resource.LOST_NODES_MAX
    assert status.lost_nodes_total == 303
    names = [row.name for row in status.lost_nodes]
    assert names == [f"x{number}" for number in range(99, 300) if number != 250]


def test_an_old_loss_that_gave_way_does_not_come_back_as_the_newest() -> None:
    """Where nobody knows any more when it was, each look would take it for a new one."""
    world = running()
    for name, seen in world.nodes.items():
        world.nodes[name] = msgspec.structs.replace(seen, cluster_node=f"machine-{name}")
    world.settle()
    world.lose("n4")
    world.step()
    world.cluster = replace(world.cluster, hosts={})
    at = world.now
    world.sight(
        **{f"x{number}": NodeObservation(confirmed_at=at + number) for number in range(300)}
    )
    for _ in range(3):
        world.step()
        rows = world.status().lost_nodes
        assert [row.name for row in rows] == [f"x{number}" for number in range(100, 300)]


def test_requests_without_number_are_counted_and_the_newest_are_listed() -> None:
    world = running()
    asked = tuple(
        NodeRequest(f"r{number}", "karpenter", 2, "Pending", moment(world.now + number))
        for number in range(150)
    )
    for some in (asked[:60], asked[:120], asked):
        world.requests = some
        world.lose("n4")
        world.step()
    status = world.status()
    assert [row.name for row in status.requests] == [f"r{number}" for number in range(50, 150)]
    assert status.nodes_requested == 300


def test_impaired_domains_are_those_that_somebody_has_judged() -> None:
    world = running()
    story_courses.lose_three(world)
    assert world.status().domains_impaired == ""
    judged = (str(Domain("zone", "b")), str(Domain("zone", "c")))
    world.cluster = replace(world.cluster, domains_impaired=judged)
    world.step()
    assert world.status().domains_impaired == "zone=b,zone=c"


OURS = "flights/departures"


def verdict(
    kind: DetectionKind, at: float, node: str | None = "n1", application: str = ""
) -> DetectionEvent:
    return DetectionEvent(kind, DetectionReason.NODE_DELETED, at, "", node, application or None)


VERDICTS = [
    (
        [verdict(DetectionKind.SUSPECTED, 5.0)],
        {"n1": NodeObservation(suspected_at=105.0, domain="a")},
    ),
    (
        [
            verdict(DetectionKind.SUSPECTED, 5.0),
            verdict(DetectionKind.CONFIRMED, 9.0, application=OURS),
            verdict(DetectionKind.CONFIRMED, 9.5, application="flights/others"),
        ],
        {"n1": NodeObservation(suspected_at=105.0, confirmed_at=109.0, domain="a")},
    ),
    (
        [verdict(DetectionKind.SUSPECTED, 5.0), verdict(DetectionKind.CLEARED, 7.0)],
        {"n1": NodeObservation(suspected_at=105.0, heard_at=107.0, domain="a")},
    ),
    (
        [
            verdict(DetectionKind.CONFIRMED, 9.0, application=OURS),
            verdict(DetectionKind.RETURNED, 12.0, application=OURS),
            verdict(DetectionKind.CONFIRMED, 20.0, application=OURS),
        ],
        {"n1": NodeObservation(confirmed_at=120.0, domain="a")},
    ),
    ([verdict(DetectionKind.SUSPECTED, 5.0, "not-ours")], {}),
    ([verdict(DetectionKind.HELD, 5.0, None)], {}),
]


@pytest.mark.parametrize(("verdicts", "expected"), VERDICTS)
def test_verdicts_become_moments_of_the_applications_nodes(
    verdicts: list[DetectionEvent], expected: dict[str, NodeObservation]
) -> None:
    ours = {"n1": NodeObservation(domain="a")}
    assert lost_nodes.sighted({}, verdicts, OURS, ours, 100.0) == expected


def test_a_silent_node_on_which_nothing_is_left_is_no_matter_of_the_next_recovery() -> None:
    """As the one where the last driver was: the next one is elsewhere, and it stays silent."""
    silent, lost = (
        NodeObservation(suspected_at=1.0),
        NodeObservation(suspected_at=1.0, confirmed_at=2.0),
    )
    sightings = {"last": replace(silent, driver=True), "ours": silent, "gone": lost}
    assert lost_nodes.settled(sightings, {"ours", "gone"}) == {"ours": silent}


def test_a_drivers_node_that_is_lost_is_not_cleared_before_the_driver_counts_as_gone() -> None:
    world = running()
    silent = NodeObservation(suspected_at=world.now, uid="u", driver=True)
    world.cluster = replace(world.cluster, driver="alpha", sightings={"alpha": silent})
    world.step()
    assert world.status().phase == "Suspected"
    lost = replace(silent, confirmed_at=world.now)
    world.cluster = replace(world.cluster, driver="", sightings={"alpha": lost})
    world.step()
    assert world.status().phase == "Suspected"
    story_courses.bury_driver(world)
    status = world.status()
    assert (status.phase, status.kind) == ("AwaitingDriver", "Complete")
