"""A zone is lost: other nodes are asked for elsewhere, and executors keep out until it lives."""

import pytest
from node_requests import KARPENTER, NodeRequests, values
from operating_world import World, await_that

from rekindle_operator.cluster.pods import KEPT_OFF_ANNOTATION
from testbed.node_objects import ZONE


@pytest.mark.usefixtures("asking")
def test_a_lost_zone_is_avoided_by_claims_and_executors_until_it_gives_nodes_again(
    world: World, requests: NodeRequests
) -> None:
    """Somebody deletes the application in the end, and with it ends the story."""
    world.start(nodes=4, zones=("a", "b"), class_={"provisioning": [KARPENTER]})
    zone, lost = world.other_zone()
    there = {pod.spec.node_name for pod in world.driver.executors()}
    count = len(there & set(lost))
    pods = world.lose(*lost)
    await_that(lambda: world.driver.plans())
    await_that(lambda: len(requests.claims()) == count, "there is no claim for each lost node")
    for claim in requests.claims():
        assert zone in values(claim, ZONE)
    await_that(lambda: len(world.status().get("requests", ())) == count)
    assert {row["provider"] for row in world.status()["requests"]} == {"karpenter"}

    await_that(lambda: pods.isdisjoint(world.executors()), "their pods are there still")
    await_that(lambda: waiting(world, f"{ZONE}={zone}"), "none waits, kept off the lost zone")
    fresh = world.nodes.add(2, zone=zone)
    await_that(lambda: world.driver.is_whole, "the executors were not replaced")
    assert set(fresh) & {pod.spec.node_name for pod in world.driver.executors()}

    await_that(lambda: world.phase() == "AwaitingCheckpoint")
    world.driver.leave()
    await_that(lambda: world.phase() == "Abandoned")
    assert world.status()["reason"] == "ApplicationGone"


def waiting(world: World, kept_off: str) -> list[str]:
    """Names of executors without a node that are kept off a domain."""
    return [
        pod.metadata.name
        for pod in world.driver.executors()
        if pod.spec.node_name is None
        and kept_off in (pod.metadata.annotations or {}).get(KEPT_OFF_ANNOTATION, "")
    ]
