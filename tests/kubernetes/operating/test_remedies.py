"""What is done to nodes where a class allows it: fencing and deletion."""

from operating_world import World, await_that

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
FENCING = {"mode": "OutOfServiceTaint", "certainty": ["ShutdownTaint"]}


def taints(world: World, node: str) -> dict[str, str]:
    found = world.core.read_node(node).spec.taints or ()
    return {taint.key: taint.effect for taint in found}


def shut_down(world: World, node: str) -> None:
    """What a cloud controller does with a machine that is off."""
    taint = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}
    known = world.core.read_node(node).spec.taints or []
    kept = [world.core.api_client.sanitize_for_serialization(item) for item in known]
    world.core.patch_node(node, {"spec": {"taints": [*kept, taint]}})


def test_a_lost_driver_is_fenced_only_with_leave_and_only_once_it_is_certain(
    world: World,
) -> None:
    """Without leave its pod and its node stay, though the machine is certainly off."""
    world.start(class_={"fencing": FENCING})
    node = world.drivers_node()
    lost = [node, *world.executors_nodes()[:1]]
    pods = world.lose(*lost)
    world.driver.die()
    await_that(lambda: world.phase() == "AwaitingDriver")
    await_that(lambda: pods.isdisjoint(world.executors()))
    assert_left_alone(world, node)

    world.change_class(fencing={"mode": "None", "certainty": None})
    world.rest_without_driver()
    shut_down(world, node)
    assert_left_alone(world, node)
    assert len(world.operator.lines("executor-deleted")) >= len(pods)

    world.change_class(fencing=FENCING)
    await_that(lambda: OUT_OF_SERVICE in taints(world, node))
    await_that(lambda: "fencedAt" in world.status().get("driver", {}))
    assert world.status()["driver"]["certainty"] == "ShutdownTaint"
    world.nodes.bring_back(*lost)
    await_that(lambda: OUT_OF_SERVICE not in taints(world, node))


def assert_left_alone(world: World, node: str) -> None:
    """Neither the driver's node nor its pod is touched, however long one waits."""
    world.rest_without_driver()
    assert OUT_OF_SERVICE not in taints(world, node)
    driver = world.core.read_namespaced_pod("flights-driver", world.namespace)
    assert driver.metadata.deletion_timestamp is None


def test_objects_of_lost_nodes_are_deleted_where_that_is_allowed(world: World) -> None:
    deletion = {"enabled": True, "afterSeconds": 1, "nodesPerIncidentMax": 1}
    world.start(class_={"nodeDeletion": deletion})
    lost = world.executors_nodes()[:2]
    world.lose(*lost)

    def left() -> set[str]:
        return {node.metadata.name for node in world.core.list_node().items} & set(lost)

    await_that(lambda: len(left()) == 1)
    await_that(lambda: world.driver.plans())
    world.rest()
    assert len(left()) == 1
    assert len(world.operator.lines("node-deleted")) == 1
