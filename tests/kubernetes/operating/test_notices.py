"""Nodes that are announced to go, on a real API server: what is recorded and asked for."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from node_requests import NodeRequests
from operating_world import Object, World, await_that
from plain_applications import Application, pods_of, started

from rekindle.coordination import session
from rekindle.coordination.coordination_events import LossNotice
from rekindle.protocol import store_paths
from rekindle_operator.api import recovery_resource
from rekindle_operator.kubectl import recovery_text

SPOT = "aws-node-termination-handler/spot-itn"
TAINTS = (
    (SPOT, 120.0),
    ("aws-node-termination-handler/asg-lifecycle-termination", 120.0),
    ("aws-node-termination-handler/scheduled-maintenance", 120.0),
    ("cloud.google.com/impending-node-termination", 30.0),
    ("cloudprovider.azure.microsoft.com/draining", 30.0),
    ("remediator.kubernetes.azure.com/unschedulable", 30.0),
    ("karpenter.sh/disrupted", 120.0),
    ("karpenter.sh/disruption", 120.0),
)
NO_NOTICES = (
    "DeletionCandidateOfClusterAutoscaler",
    "aws-node-termination-handler/rebalance-recommendation",
    "karpenter.sh/candidate",
    "kubernetes.azure.com/scalesetpriority",
)
# An operator that has begun plans for whole applications once it has watched leases for 4 s.
RENEWALS_UNTIL_PLANS = 12
LEAVES: Object = {"key": SPOT, "effect": "NoSchedule"}


def tainted(world: World, node: str, *taints: Object) -> None:
    world.core.patch_node(node, {"spec": {"taints": list(taints) or None}})


def with_condition(world: World, node: str, kind: str, status: str, message: str = "") -> None:
    """As node problem detector reports it."""
    found = {"type": kind, "status": status, "reason": kind, "message": message}
    world.core.patch_node_status(node, {"status": {"conditions": [found]}})


def recorded(world: World, node: str) -> Callable[[], LossNotice | None]:
    """What the record of the application says of the node."""
    (pod,) = [pod for pod in world.driver.executors() if pod.spec.node_name == node]
    path = world.driver.place.path(store_paths.COORDINATION)

    def read() -> LossNotice | None:
        found = world.driver.connection.get(path)
        assert found is not None
        kept = session.from_record(found[0], path).kept
        assert kept is not None
        return kept.nodes[pod.status.pod_ip].notice

    return read


def until(application: Application) -> datetime:
    """The deadline that its Recovery tells."""
    (row,) = application.story["announcedNodes"]
    return datetime.fromisoformat(row["until"])


def uids(requests: NodeRequests) -> list[str]:
    return [claim["metadata"]["uid"] for claim in requests.claims()]


def explained(world: World, application: Application) -> str:
    """What `kubectl rekindle explain` says of its only Recovery."""
    (record,) = [
        item
        for item in world.recoveries()
        if item["spec"]["application"]["name"] == application.name
    ]
    found = recovery_resource.from_object(record)
    return "\n".join(recovery_text.story(found, datetime.now(UTC)))


def test_each_notice_is_recorded_with_its_deadline_until_it_is_withdrawn(world: World) -> None:
    world.start(nodes=4)
    node = world.executors_nodes()[0]
    notice = recorded(world, node)

    def is_recorded(source: str) -> bool:
        found = notice()
        return found is not None and found.source == source

    def seconds_left() -> float:
        found = notice()
        assert found is not None
        return found.until - datetime.now(UTC).timestamp()

    for key in NO_NOTICES:
        tainted(world, node, {"key": key, "effect": "PreferNoSchedule"})
        world.rest(4)
        assert notice() is None, key
    for key, seconds in TAINTS:
        tainted(world, node, {"key": key, "effect": "NoSchedule"})
        await_that(lambda key=key: is_recorded(f"taint {key}"), key)
        assert 0.0 < seconds_left() <= seconds
        tainted(world, node)
        await_that(lambda: notice() is None, f"{key} is not withdrawn")
    begun = int((datetime.now(UTC) - timedelta(seconds=100)).timestamp())
    scale_down = {"key": "ToBeDeletedByClusterAutoscaler", "value": str(begun)}
    tainted(world, node, {**scale_down, "effect": "NoSchedule"})
    await_that(lambda: is_recorded("taint ToBeDeletedByClusterAutoscaler"))
    assert seconds_left() <= 500.0
    tainted(world, node)
    await_that(lambda: notice() is None)
    at = datetime.now(UTC) + timedelta(minutes=9)
    text = f"Preempt Scheduled: {at:%a, %d %b %Y %H:%M:%S} GMT"
    with_condition(world, node, "VMEventScheduled", "True", "Freeze Scheduled: soon")
    world.rest(4)
    assert notice() is None, "a freeze passes"
    with_condition(world, node, "PreemptScheduled", "True", text)
    await_that(lambda: is_recorded("condition PreemptScheduled"))
    assert 500.0 < seconds_left() <= 540.0
    with_condition(world, node, "PreemptScheduled", "False")
    await_that(lambda: notice() is None)
    assert world.lost_nodes() == set()


@pytest.mark.usefixtures("asking")
def test_for_whole_applications_a_node_is_asked_for_at_the_notice_and_used_at_the_loss(
    world: World, requests: NodeRequests
) -> None:
    low, high, (_, going) = started(world)
    before = high.executor.metadata.name
    tainted(world, going, LEAVES)
    await_that(lambda: high.story.get("reason") == "LossAnnounced", "nobody tells of the notice")
    await_that(lambda: requests.counts()["Karpenter"] == 1, "no node is asked for")
    await_that(lambda: high.would_wait and low.would_wait, "nothing is held to an order")
    await_that(lambda: world.events("LossAnnounced"), "no event says it")
    assert high.executor.metadata.name == before, "nothing is touched before the loss"
    assert not low.story
    deadline, claims = until(high), uids(requests)
    world.operator.kill()
    world.operator.lead()
    await_that(lambda: world.operator.metric("rekindle_operator_nodes_announced") == 1)
    await_that(lambda: high.would_wait, "nobody goes on with it")
    world.rest_without_driver(RENEWALS_UNTIL_PLANS)
    assert until(high) <= deadline + timedelta(seconds=1), "another operator counts anew"
    assert uids(requests) == claims
    world.nodes.add(1, zone="a")
    world.nodes.lose(going)  # before its deadline
    await_that(lambda: high.story.get("kind") == "Independent", "the loss is not told")
    high.add()
    await_that(lambda: high.executor.spec.node_name, "the node that has come is not used")
    await_that(lambda: high.story.get("phase") == "Recovered")
    assert {row["name"] for row in high.story["lostNodes"]} == {going}
    assert "Saved by notice: 1 node was requested up to " in explained(world, high)
    await_that(lambda: not high.would_wait, "the incident does not end")
    await_that(requests.is_clear, "nodes are asked for after the end")
    assert len(world.recoveries()) == 1


@pytest.mark.usefixtures("asking")
def test_a_notice_for_whole_applications_that_is_withdrawn_leaves_nothing_behind(
    world: World, requests: NodeRequests
) -> None:
    low, high, executors = started(world)
    for node in executors:
        tainted(world, node, LEAVES)
    await_that(lambda: requests.counts()["Karpenter"] == 2, "both need a node")
    for node in executors:
        tainted(world, node)
    for application in (low, high):
        await_that(lambda application=application: application.story.get("phase") == "Abandoned")
        assert application.story["reason"] == "NoticeWithdrawn"
        assert [row["withdrawn"] for row in application.story["announcedNodes"]] == [True]
    await_that(requests.is_clear, "something is left")
    await_that(lambda: not high.would_wait, "the incident does not end")


@pytest.mark.usefixtures("asking")
def test_an_eviction_on_a_cordoned_node_announces_it_for_what_stands_there(
    world: World, requests: NodeRequests
) -> None:
    low, high, (_, drained) = started(world)
    low.add(drained)
    evicted = low.executor.metadata.name
    held = {"metadata": {"finalizers": ["example.com/held"]}}  # as long as it takes to end
    world.core.patch_namespaced_pod(evicted, world.namespace, held)
    world.core.patch_node(drained, {"spec": {"unschedulable": True}})
    world.rest_without_driver()
    assert not high.story, "a cordon alone is no notice"
    eviction: Any = {"metadata": {"name": evicted}}
    world.core.create_namespaced_pod_eviction(evicted, world.namespace, eviction)
    await_that(lambda: high.story.get("reason") == "LossAnnounced", "nobody notices the drain")
    assert [row["by"] for row in high.story["announcedNodes"]] == ["drain"]
    await_that(lambda: requests.counts()["Karpenter"] == 1, "no node is asked for")
    released = {"metadata": {"finalizers": None}}
    world.core.patch_namespaced_pod(evicted, world.namespace, released)
    await_that(lambda: evicted not in pods_of(world))
    world.rest_without_driver()
    assert high.story["reason"] == "LossAnnounced", "the drain goes on until the cordon is gone"
    world.core.patch_node(drained, {"spec": {"unschedulable": None}})
    await_that(lambda: high.story.get("phase") == "Abandoned", "the drain goes on")
    await_that(requests.is_clear, "something is left")
