"""Every node at once: it may be us who cannot see, so nothing is done before something is heard."""

from node_requests import KARPENTER, NodeRequests
from operating_world import World, await_that


def test_it_holds_while_all_are_silent_until_a_lease_shows_that_it_sees(
    world: World, requests: NodeRequests
) -> None:
    world.make_class(provisioning=[KARPENTER])
    world.start()
    mine = world.drivers_node()
    pods = world.lose(*world.nodes.names)
    await_held(world)
    world.pause()
    assert (world.executors(), world.driver.plans(), requests.claims()) == (pods, [], [])
    world.driver.silent.discard(mine)
    world.nodes.bring_back(mine)
    await_that(lambda: world.operator.metric("rekindle_operator_held") == 0, "it holds on")
    there = {pod.metadata.name for pod in world.driver.executors() if pod.spec.node_name == mine}
    await_that(lambda: (pods - there).isdisjoint(world.executors()), "what is lost is not found")
    world.nodes.add(4, zone="a")
    await_that(lambda: world.driver.is_whole)
    await_that(lambda: world.driver.plans())
    world.end()
    assert len(world.recoveries()) == 1


def test_it_holds_while_all_are_silent_until_a_new_node_is_ready(
    world: World, requests: NodeRequests
) -> None:
    world.make_class(provisioning=[KARPENTER])
    world.start()
    pods = world.lose(*world.nodes.names)
    world.driver.die()
    await_held(world)
    nodes = world.core.list_node
    await_that(lambda: not any(map(is_ready, nodes().items)), "they do not turn Unknown")
    assert (world.executors(), requests.claims()) == (pods, [])
    world.nodes.add(1, zone="a")
    await_that(lambda: world.operator.metric("rekindle_operator_held") == 0, "it holds on")
    await_that(lambda: pods.isdisjoint(world.executors()), "what is lost is not found")
    await_that(lambda: world.phase() == "AwaitingDriver")
    driver = world.core.read_namespaced_pod("flights-driver", world.namespace)
    assert driver.metadata.deletion_timestamp is None
    assert (len(world.recoveries()), world.driver.plans()) == (1, [])


def test_nodes_that_are_not_ready_and_renew_their_leases_are_not_lost(world: World) -> None:
    world.start()
    pods, every = world.executors(), world.nodes.names
    world.nodes.report_ready(*every, ready=False, reason="KubeletNotReady")
    await_that(lambda: not any(map(is_ready, world.core.list_node().items)))
    world.pause()
    assert (world.executors(), world.driver.plans(), world.recoveries()) == (pods, [], [])
    world.nodes.report_ready(*every, ready=True)
    lost = world.executors_nodes()[:2]
    world.lose(*lost)
    await_that(lambda: world.driver.plans())


def test_for_a_stopped_kubelet_whose_pods_live_no_node_is_requested(
    world: World, requests: NodeRequests
) -> None:
    world.make_class(provisioning=[KARPENTER])
    world.start()
    pods = world.executors()
    stopped = world.executors_nodes()[:2]
    world.nodes.lose(*stopped)
    await_that(lambda: world.phase() == "Suspected")
    nodes = world.core.list_node
    await_that(lambda: sum(map(is_ready, nodes().items)) == 3, "they do not turn Unknown")
    world.pause()
    assert (world.executors(), world.driver.plans(), requests.claims()) == (pods, [], [])
    assert world.driver.dropped == set()
    world.nodes.bring_back(*stopped)
    await_that(lambda: world.phase() == "Abandoned")
    assert (requests.claims(), requests.notes()) == ([], [])


def await_held(world: World) -> None:
    await_that(lambda: world.operator.metric("rekindle_operator_held") == 1)
    await_that(lambda: world.phase() == "Held")


def is_ready(node: object) -> bool:
    conditions = node.status.conditions or ()  # type: ignore[attr-defined]
    return any(item.type == "Ready" and item.status == "True" for item in conditions)
