"""What is done to nodes where a class allows it: fencing, deletion, taints."""

from operating_world import World, await_that

from testbed.nodes import Nodes


def taints(world: World, node: str) -> dict[str, str]:
    found = world.core.read_node(node).spec.taints or ()
    return {taint.key: taint.effect for taint in found}


def names(world: World) -> set[str]:
    return {node.metadata.name for node in world.core.list_node().items}


def shut_down(world: World, node: str) -> None:
    """What a cloud controller does with a machine that is off."""
    taint = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}
    known = world.core.read_node(node).spec.taints or []
    kept = [world.core.api_client.sanitize_for_serialization(item) for item in known]
    world.core.patch_node(node, {"spec": {"taints": [*kept, taint]}})


def test_a_lost_driver_is_fenced_only_once_that_is_certain(world: World) -> None:
    world.make_class(fencing={"mode": "OutOfServiceTaint", "certainty": ["ShutdownTaint"]})
    world.start()
    node = world.drivers_node()
    lost = [node, *world.executors_nodes()[:1]]
    world.lose(*lost)
    world.driver.die()
    await_that(lambda: world.phase() == "AwaitingDriver")
    assert "node.kubernetes.io/out-of-service" not in taints(world, node)
    world.core.read_namespaced_pod("flights-driver", world.namespace)
    shut_down(world, node)
    await_that(lambda: "node.kubernetes.io/out-of-service" in taints(world, node))
    await_that(lambda: "fencedAt" in world.status().get("driver", {}))
    assert world.status()["driver"]["certainty"] == "ShutdownTaint"
    world.nodes.bring_back(*lost)
    await_that(lambda: "node.kubernetes.io/out-of-service" not in taints(world, node))


def test_without_leave_a_lost_drivers_pod_and_node_stay(world: World) -> None:
    world.start()
    node = world.drivers_node()
    lost = [node, *world.executors_nodes()[:1]]
    pods = world.lose(*lost)
    world.driver.die()
    await_that(lambda: world.phase() == "AwaitingDriver")
    await_that(lambda: pods.isdisjoint(world.executors()))
    shut_down(world, node)
    await_that(lambda: len(world.operator.lines("executor-deleted")) >= len(pods))
    assert "node.kubernetes.io/out-of-service" not in taints(world, node)
    driver = world.core.read_namespaced_pod("flights-driver", world.namespace)
    assert driver.metadata.deletion_timestamp is None


def test_objects_of_lost_nodes_are_deleted_where_that_is_allowed(world: World) -> None:
    world.make_class(nodeDeletion={"enabled": True, "afterSeconds": 1, "nodesPerIncidentMax": 1})
    world.start()
    lost = world.executors_nodes()[:2]
    world.lose(*lost)
    await_that(lambda: len(names(world) & set(lost)) == 1)
    await_that(lambda: world.driver.plans())
    assert len(names(world) & set(lost)) == 1
    assert len(world.operator.lines("node-deleted")) == 1


def test_suspected_nodes_are_tainted_while_they_are(world: World, nodes: Nodes) -> None:
    world.make_class(taints={"suspectedNodes": "NoSchedule"})
    world.start()
    silent = world.executors_nodes()[0]
    nodes.lose(silent)
    await_that(lambda: taints(world, silent).get("rekindle.dev/suspected") == "NoSchedule")
    nodes.bring_back(silent)
    await_that(lambda: "rekindle.dev/suspected" not in taints(world, silent))
