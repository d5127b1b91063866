"""What is silent and not lost: kubelets that stand still, clocks that are wrong, a blind operator.

When every node is silent at once it may be us who cannot see, so nothing is done before something
is heard.
"""

from grounds import Grounds
from node_requests import KARPENTER, NodeRequests
from operating_world import World, await_that

SUSPECTED = "rekindle.dev/suspected"


def test_nodes_with_wrong_clocks_that_are_not_ready_and_renew_their_leases_are_not_lost(
    world: World,
) -> None:
    world.start()
    pods, every = world.executors(), world.nodes.names
    world.nodes.set_clock(*every[::2], ahead_seconds=600.0)
    world.nodes.set_clock(*every[1::2], ahead_seconds=-600.0)
    world.nodes.report_ready(*every, ready=False, reason="KubeletNotReady")
    await_that(lambda: ready_count(world) == 0)
    world.rest()
    assert (world.executors(), world.driver.plans(), world.recoveries()) == (pods, [], [])
    world.nodes.report_ready(*every, ready=True)
    world.lose(*world.executors_nodes()[:2])
    await_that(lambda: world.driver.plans())


def test_a_node_whose_clock_was_set_back_gives_way_to_a_new_one(grounds: Grounds) -> None:
    """None of its renewals counts for ten minutes, so it would turn Unknown in the next test."""
    grounds.lay_out({"a": 3})
    back, *others = grounds.nodes.names
    grounds.nodes.set_clock(back, ahead_seconds=600.0)
    grounds.nodes.set_clock(back, ahead_seconds=0.0)
    grounds.lay_out({"a": 3})
    assert back not in grounds.nodes.names
    assert set(others) < set(grounds.nodes.names)


def test_a_stopped_kubelet_whose_pods_live_is_no_failure_and_a_loss_after_it_is_one(
    world: World, requests: NodeRequests
) -> None:
    """Its node is tainted while it is suspected, and none is requested for it."""
    taints = {"suspectedNodes": "NoSchedule"}
    world.start(class_={"provisioning": [KARPENTER], "taints": taints})
    pods = world.executors()
    stopped = world.executors_nodes()[:2]
    world.nodes.lose(*stopped)
    await_that(lambda: world.phase() == "Suspected")
    await_that(lambda: world.operator.metric("rekindle_operator_nodes_suspected") == 2)
    await_that(lambda: suspected(world) == dict.fromkeys(stopped, "NoSchedule"))
    await_that(lambda: ready_count(world) == 3, "they do not turn Unknown")
    world.rest()
    assert (world.executors(), world.driver.plans(), requests.claims()) == (pods, [], [])
    assert world.driver.dropped == set()
    world.nodes.bring_back(*stopped)
    await_that(lambda: world.phase() == "Abandoned")
    await_that(lambda: suspected(world) == {}, "a taint is left")
    assert (requests.claims(), requests.notes()) == ([], [])
    assert world.operator.lines("executor-deleted") == []
    world.lose(*stopped)
    await_that(lambda: world.driver.plans(), "they are not believed any more")


def test_it_holds_while_all_are_silent_until_a_lease_shows_that_it_sees(
    world: World, requests: NodeRequests
) -> None:
    """Once all come back, once the driver's node alone."""
    world.start(class_={"provisioning": [KARPENTER]})
    every, mine = world.nodes.names, world.drivers_node()
    pods = world.lose(*every)
    await_held(world)
    world.rest()
    assert (world.executors(), world.driver.plans(), requests.claims()) == (pods, [], [])
    world.bring_back(*every)
    await_that(lambda: world.phase() == "Abandoned")
    assert (world.executors(), world.driver.plans()) == (pods, [])

    world.lose(*every)
    await_held(world)
    world.rest()
    assert (world.executors(), world.driver.plans(), requests.claims()) == (pods, [], [])
    world.bring_back(mine)
    await_that(
        lambda: world.operator.metric("rekindle_operator_detection_paused") == 0, "it holds on"
    )
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
    world.start(class_={"provisioning": [KARPENTER]})
    pods = world.lose(*world.nodes.names)
    world.driver.die()
    await_held(world)
    await_that(lambda: ready_count(world) == 0, "they do not turn Unknown")
    assert (world.executors(), requests.claims()) == (pods, [])
    world.nodes.add(1, zone="a")
    await_that(
        lambda: world.operator.metric("rekindle_operator_detection_paused") == 0, "it holds on"
    )
    await_that(lambda: pods.isdisjoint(world.executors()), "what is lost is not found")
    await_that(lambda: world.phase() == "AwaitingDriver")
    driver = world.core.read_namespaced_pod("flights-driver", world.namespace)
    assert driver.metadata.deletion_timestamp is None
    assert (len(world.recoveries()), world.driver.plans()) == (1, [])


def await_held(world: World) -> None:
    await_that(lambda: world.operator.metric("rekindle_operator_detection_paused") == 1)
    await_that(lambda: world.phase() == "Held")


def ready_count(world: World) -> int:
    """How many nodes of the cluster are Ready."""
    nodes = world.core.list_node().items
    return sum(
        any(item.type == "Ready" and item.status == "True" for item in node.status.conditions or ())
        for node in nodes
    )


def suspected(world: World) -> dict[str, str]:
    """By node, the effect of the taint of suspected ones."""
    return {
        node.metadata.name: taint.effect
        for node in world.core.list_node().items
        for taint in node.spec.taints or ()
        if taint.key == SUSPECTED
    }
