"""The API server stands still, and is killed: afterwards only what was lost meanwhile is lost."""

from operating_world import World, await_that

from testbed.control_plane import ControlPlane

# No longer than this may pass between two looks at the leases; else all timers start again.
GAP_SECONDS = 12.0
# Two looks are missed, and the third is late.
STANDSTILL_SECONDS = 5.0
AGE = "rekindle_operator_leases_age_seconds"


def test_after_an_outage_only_what_was_lost_in_it_is_lost(
    world: World, control_plane: ControlPlane
) -> None:
    world.start(nodes=6)
    before = world.executors()
    stand_still(world, control_plane)
    world.rest()
    assert world.executors() == before, "healthy executors were deleted"
    assert world.driver.plans() == []
    assert [item for item in world.recoveries() if item["status"]["phase"] != "Abandoned"] == []

    lost = world.executors_nodes()[:2]
    others = [name for name in world.nodes.names if name not in lost]
    pods = world.driver.executors()
    gone = {pod.metadata.name for pod in pods if pod.spec.node_name in lost}
    world.driver.watching = False
    control_plane.kill("kube-apiserver")
    world.nodes.lose(*world.nodes.names)
    world.driver.silent |= set(lost)
    await_that(lambda: world.operator.metric(AGE) > GAP_SECONDS + 1)
    control_plane.start_component("kube-apiserver")
    for name in others:  # their kubelets find it again one after the other
        renewals = world.nodes.renewals
        world.nodes.bring_back(name)
        await_that(lambda renewals=renewals: world.nodes.renewals > renewals)
    world.driver.watching = True
    await_that(lambda: world.driver.plans(), "what was lost in the outage is not found")
    await_that(lambda: gone.isdisjoint(world.executors()))
    assert {pod.metadata.name for pod in pods} - gone <= world.executors()
    # until the controller of nodes watches again it takes new ones for silent, too
    await_that(lambda: set(others) <= ready_nodes(world), "nodes that came back are not Ready")
    world.finish()
    (recovery,) = [item for item in world.recoveries() if item["status"]["phase"] == "Recovered"]
    rows = {row["name"] for row in recovery["status"]["lostNodes"] if "confirmedAt" in row}
    assert rows == set(lost)
    assert len(recovery["status"]["plans"]) == len(world.driver.plans())


def ready_nodes(world: World) -> set[str]:
    return {
        node.metadata.name
        for node in world.core.list_node().items
        if any(item.type == "Ready" and item.status == "True" for item in node.status.conditions)
    }


def stand_still(world: World, control_plane: ControlPlane) -> None:
    """The API server says nothing for a while, connections open, and then goes on."""
    world.driver.watching = False
    control_plane.stop("kube-apiserver")
    await_that(lambda: world.operator.metric(AGE) > STANDSTILL_SECONDS)
    control_plane.proceed("kube-apiserver")
    world.driver.watching = True
    await_that(lambda: world.operator.metric(AGE) < STANDSTILL_SECONDS)
    await_that(lambda: world.operator.acts)
