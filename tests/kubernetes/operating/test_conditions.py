"""What policies say while nothing is lost: of themselves, of drivers, of records, of what would be.

One application runs through all of it, and goes on as if nothing had been.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from acting_driver import pod_body
from grounds import Grounds
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from namespaces import new_namespace
from operating_world import World, await_that, connected, new_world
from operator_process import OperatorProcess

from rekindle.coordination import session
from rekindle.protocol import store_paths
from rekindle_local.local_zookeeper import LocalZookeeper
from testbed.control_plane import ControlPlane

DEFINITION = Path(__file__).parents[3] / "crds" / "recoverypolicies.yaml"
POLICIES = "recoverypolicies.rekindle.dev"
STRATEGIES = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/strategy/enum"


@pytest.fixture(scope="module")
def world(
    control_plane: ControlPlane, store: LocalZookeeper, grounds: Grounds, operator: OperatorProcess
) -> Iterator[World]:
    """One for all tests of the module, with two zones and placement by them."""
    with (
        new_namespace(control_plane) as namespace,
        connected(store) as connection,
        new_world(namespace, grounds, connection, operator) as made,
    ):
        made.start(zones=("a", "b"), placement="domains")
        yield made


@contextmanager
def newer_definitions(plane: ControlPlane) -> Iterator[None]:
    """The API server takes a strategy that we have never heard of."""
    with plane.api_client() as api_client:
        extensions = client.ApiextensionsV1Api(api_client)
        add = [{"op": "add", "path": f"{STRATEGIES}/-", "value": "gradual"}]
        extensions.patch_custom_resource_definition(POLICIES, add)
        try:
            yield
        finally:
            known: Any = yaml.safe_load(DEFINITION.read_text())
            extensions.patch_custom_resource_definition(POLICIES, {"spec": known["spec"]})


def test_what_the_loss_of_a_zone_would_stop_is_told_beforehand_and_placement_goes_by_it(
    world: World,
) -> None:
    """Two sources, each with queries of its own: of priority 4 behind one, 6 behind the other."""
    await_that(lambda: "60% if" in world.condition("DomainLossSurvived").get("message", ""))
    found = world.condition("DomainLossSurvived")
    assert (found["status"], found["reason"]) == ("True", "SomeSurvives")
    assert "40% if" in found["message"]
    await_that(lambda: shares(world).keys() == {"a", "b"})
    assert sorted(shares(world).values()) == [0.4, 0.6]


def shares(world: World) -> dict[str, float]:
    """By zone, what the metric says that its loss would stop."""
    metric = "rekindle_operator_domain_loss_stops_ratio{"
    lines = [line for line in world.operator.page("/metrics").splitlines() if metric in line]
    return {
        line.partition('domain="')[2].partition('"')[0]: float(line.rpartition(" ")[2])
        for line in lines
    }


def test_policies_tell_what_is_wrong_with_them(world: World) -> None:
    await_that(lambda: world.condition("Protected").get("status") in ("True", "False"))
    world.make_policy("second", priorities=[{"query": "nowhere", "priority": 3}])
    world.make_policy("third", className="missing")
    await_that(lambda: world.condition("Exclusive").get("reason") == "PoliciesOverlap")
    await_that(lambda: world.condition("Exclusive", "second").get("status") == "False")
    await_that(lambda: world.condition("Accepted", "third").get("reason") == "ClassMissing")
    world.change_policy(priorities=[{"query": "nowhere", "priority": 3}])
    await_that(lambda: world.condition("Accepted").get("reason") == "UnknownQueries")
    assert "query-00-out" in world.condition("Accepted")["message"]
    for name in ("second", "third"):
        world.delete_policy(name)
    world.change_policy(priorities=None)
    await_that(lambda: world.condition("Exclusive").get("status") == "True")
    await_that(lambda: world.condition("Accepted").get("status") == "True")


def test_a_policy_that_cannot_be_read_says_so(world: World, control_plane: ControlPlane) -> None:
    with newer_definitions(control_plane):

        def is_made() -> bool:
            try:
                world.make_policy("newer", strategy="gradual")
            except ApiException:
                return False
            return True

        await_that(is_made)
        await_that(lambda: world.condition("Accepted", "newer").get("reason") == "BadResource")
        assert "gradual" in world.condition("Accepted", "newer")["message"]
        await_that(lambda: world.events("BadResource"))
        world.change_policy("newer", strategy="blocking")
        await_that(lambda: world.condition("Accepted", "newer").get("status") == "True")
        world.delete_policy("newer")


def test_a_driver_without_its_sidecar_is_unprotected(world: World) -> None:
    body = {
        "metadata": {
            "name": "other-driver",
            "labels": {"spark-role": "driver", "spark-app-name": "other"},
        },
        "spec": {"containers": [{"name": "spark-kubernetes-driver", "image": "spark:4.3"}]},
    }
    world.core.create_namespaced_pod(world.namespace, body)
    await_that(lambda: world.condition("Protected").get("reason") == "SidecarMissing")
    rows = {row["name"]: row for row in world.policy()["status"]["applications"]}
    assert (rows["other"]["protected"], rows["other"]["reason"]) == (False, "SidecarMissing")
    world.core.delete_namespaced_pod("other-driver", world.namespace, grace_period_seconds=0)


def test_a_record_that_cannot_be_read_is_told_until_it_can(world: World) -> None:
    path = world.driver.place.path(store_paths.STATISTICS)
    sound, _ = world.driver.connection.get(path) or (b"", 0)
    world.driver.connection.put(path, b"{")
    await_that(lambda: world.condition("CoordinationAtRisk").get("reason") == "BadRecord")
    assert "flights" in world.condition("CoordinationAtRisk")["message"]
    await_that(lambda: world.events("BadRecord"))
    world.driver.connection.put(path, sound)
    await_that(lambda: world.condition("CoordinationAtRisk").get("reason") != "BadRecord")


def test_what_other_pods_have_requested_is_not_planned_on(world: World) -> None:
    (node, *_) = world.executors_nodes()
    room = world.core.read_node(node).status.allocatable["cpu"]
    body = pod_body("greedy", "executor", "nobody", cpu=f"{int(room) * 1000 - 900}m")
    del body["spec"]["affinity"]
    body["metadata"]["labels"] = {}
    body["spec"]["nodeName"] = node
    world.core.create_namespaced_pod(world.namespace, body)
    (pod,) = [pod for pod in world.driver.executors() if pod.spec.node_name == node]
    path = world.driver.place.path(store_paths.COORDINATION)

    def planned_on() -> float:
        found = world.driver.connection.get(path)
        assert found is not None
        kept = session.from_record(found[0], path).kept
        assert kept is not None
        return kept.nodes[pod.status.pod_ip].capacity_percent

    await_that(lambda: planned_on() == 90.0)
    world.core.delete_namespaced_pod("greedy", world.namespace, grace_period_seconds=0)
    await_that(lambda: planned_on() == 100.0)


def test_what_a_drain_takes_is_brought_back_and_no_recovery_tells_of_it(world: World) -> None:
    await_that(lambda: world.driver.is_placed)
    drained, planned = world.busy_nodes()[0], len(world.driver.plans())
    world.core.patch_node(drained, {"spec": {"unschedulable": True}})
    (pod,) = [pod for pod in world.driver.executors() if pod.spec.node_name == drained]
    eviction = {
        "metadata": {"name": pod.metadata.name},
        "deleteOptions": {"gracePeriodSeconds": 0},
    }
    world.core.create_namespaced_pod_eviction(pod.metadata.name, world.namespace, eviction)
    with world.driver._lock:  # which sees the end of the connection
        number = pod.metadata.labels["spark-exec-id"]
        world.driver.drop({pod.status.pod_ip: f"{number}.0"})
    await_that(lambda: len(world.driver.plans()) > planned, "what it ran was not planned again")
    await_that(lambda: world.driver.is_placed and world.driver.is_whole)
    world.driver.complete_checkpoint()
    world.rest()
    assert world.recoveries() == []
