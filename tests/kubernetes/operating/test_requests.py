"""Replacement nodes from the running operator: asked for once, whatever becomes of it meanwhile."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client
from operating_world import World, await_that

sys.path.insert(0, str(Path(__file__).parents[1]))

import foreign_crds

from testbed.bodies import ZONE
from testbed.definitions import install

KARPENTER = {
    "name": "karpenter",
    "provider": "Karpenter",
    "karpenter": {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
        "requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
        ],
    },
}
Claims = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def claims(api_client: client.ApiClient, world: World) -> Iterator[Claims]:
    """NodeClaims that were made for the test's namespace; they go after it."""
    install(api_client, foreign_crds.stored("karpenter"))
    custom = client.CustomObjectsApi(api_client)

    def mine() -> list[dict[str, Any]]:
        items = custom.list_cluster_custom_object("karpenter.sh", "v1", "nodeclaims")["items"]
        ours = "rekindle.dev/namespace"
        return [item for item in items if item["metadata"]["labels"].get(ours) == world.namespace]

    yield mine
    for item in mine():
        custom.delete_cluster_custom_object(
            "karpenter.sh", "v1", "nodeclaims", item["metadata"]["name"]
        )


def values(claim: dict[str, Any], key: str) -> list[str]:
    found = [item for item in claim["spec"]["requirements"] if item["key"] == key]
    return [value for item in found for value in item.get("values", ())]


def test_a_claim_is_made_for_each_lost_node_outside_of_the_impaired_domain(
    world: World, claims: Claims
) -> None:
    world.make_class(provisioning=[KARPENTER])
    world.start(nodes=4, zones=("a", "b"))
    zone, dead = world.other_zone()
    there = {pod.spec.node_name for pod in world.driver.executors()}
    count = len(there & set(dead))
    world.lose(*dead)
    await_that(lambda: world.driver.plans())
    await_that(lambda: len(claims()) == count, "there is no claim for each lost node")
    for claim in claims():
        assert zone in values(claim, ZONE)
    await_that(lambda: len(world.status().get("requests", ())) == count)
    rows = world.status()["requests"]
    assert {row["provider"] for row in rows} == {"karpenter"}


def test_an_operator_that_is_killed_again_and_again_asks_for_nothing_twice(
    world: World, claims: Claims
) -> None:
    world.make_class(provisioning=[KARPENTER])
    world.start(nodes=4)
    world.lose(*world.executors_nodes()[:2])
    for _ in range(3):
        await_that(lambda: world.driver.plans() or world.phase())
        world.operator.kill()
        world.operator.start()
    await_that(lambda: len(claims()) == 2)
    world.operator.kill()
    world.operator.start()
    await_that(lambda: world.operator.acts)
    await_that(lambda: len(world.status().get("requests", ())) == 2)
    before = world.driver.member.epoch
    await_that(lambda: world.driver.member.epoch > before + 10)
    assert len(claims()) == 2
    assert len(world.recoveries()) == 1
