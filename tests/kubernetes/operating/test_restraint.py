"""What is not done although it could be: in a dry run, and beyond the limits."""

import time

import msgspec
from acting_driver import ActingDriver, pod_body
from operating_world import World, await_that

from rekindle.coordination import application
from rekindle.protocol import Heartbeat, TopologyReport, tree

TAINTS = {"suspectedNodes": "NoSchedule", "impairedDomains": "NoSchedule"}


def tainted(world: World) -> set[str]:
    """Nodes with taints of ours."""
    return {
        node.metadata.name
        for node in world.core.list_node().items
        if any(taint.key.startswith("rekindle.dev/") for taint in node.spec.taints or ())
    }


def wait(world: World, epochs: int = 20) -> None:
    """Some reports of the driver long."""
    before = world.driver.member.epoch
    await_that(lambda: world.driver.member.epoch > before + epochs)


def start_again(driver: ActingDriver) -> None:
    """A second driver goes on from earlier work: nothing of it runs yet."""
    with driver._lock:
        driver.generation = 2
        driver.member.placement.clear()
        driver.member.resident.clear()
        driver.member.plan_epoch = 0
        report, statistics, _ = driver.member.beginning()
        assert isinstance(report, TopologyReport)
        renewed = msgspec.structs.replace(report, generation=2, resumed=True)
        heartbeat = Heartbeat(generation=2, since=time.time(), host="flights-driver")
        driver._put(tree.HEARTBEAT, heartbeat, ephemeral=True)
        driver._put(tree.STATISTICS, msgspec.structs.replace(statistics, generation=2))
        driver._put(tree.TOPOLOGY, renewed)
        progress = driver.member.progress
        driver._progress = lambda: msgspec.structs.replace(progress(), generation=2)  # type: ignore[method-assign]


def test_a_dry_run_tells_what_it_would_do_and_changes_nothing(world: World) -> None:
    world.make_class(taints=TAINTS, nodeDeletion={"enabled": True, "afterSeconds": 1})
    world.start(dryRun=True)
    lost = world.executors_nodes()[:2]
    pods = world.lose(*lost)
    await_that(lambda: world.recoveries() and world.status().get("plans"))
    wait(world)
    status = world.status()
    assert (status["dryRun"], status["kind"]) == (True, "Correlated")
    assert {row["name"] for row in status["lostNodes"]} == set(lost)
    assert world.driver.directives == []
    assert pods <= world.executors()
    assert tainted(world) == set()
    assert set(lost) <= {node.metadata.name for node in world.core.list_node().items}


def test_what_comes_back_during_a_dry_run_goes_on_as_if_nothing_had_been(world: World) -> None:
    world.start(dryRun=True)
    lost = world.executors_nodes()[:2]
    pods = world.lose(*lost)
    await_that(lambda: world.recoveries() and world.status().get("plans"))
    world.driver.silent.clear()
    world.nodes.bring_back(*lost)
    await_that(lambda: all("backAt" in row for row in world.status()["lostNodes"]))
    world.end()
    world.change_policy(dryRun=False)
    wait(world)
    assert world.driver.directives == []
    assert pods <= world.executors()


def test_a_driver_that_starts_again_in_a_dry_run_is_placed(world: World) -> None:
    world.start(dryRun=True)
    start_again(world.driver)
    await_that(lambda: world.driver.is_placed, "the second driver got no plan")
    await_that(lambda: world.phase() == "AwaitingCheckpoint")
    assert world.status()["dryRun"] is False
    plans = len(world.driver.plans())
    lost = world.executors_nodes()[:2]
    world.lose(*lost)
    await_that(lambda: world.status()["dryRun"] is True)
    wait(world)
    assert len(world.driver.plans()) == plans


def test_one_recovery_too_many_waits_before_its_first_plan(world: World) -> None:
    world.start(guards={"concurrentRecoveriesMax": 1})
    other = world.make_driver(application="arrivals")
    both = (world.driver, other)
    nodes = [{pod.spec.node_name for pod in driver.executors()} for driver in both]
    drivers = {
        world.core.read_namespaced_pod(name, world.namespace).spec.node_name
        for name in ("flights-driver", "arrivals-driver")
    }
    shared = sorted((nodes[0] & nodes[1]) - drivers)[0]
    other.silent.add(shared)
    world.lose(shared)
    await_that(lambda: {len(driver.plans()) for driver in both} == {0, 1})
    await_that(lambda: len(world.recoveries()) == 2)

    def story(application: str) -> dict[str, object]:
        (found,) = (
            item
            for item in world.recoveries()
            if item["spec"]["application"]["name"] == application
        )
        status: dict[str, object] = found.get("status", {})
        return status

    goes, waits = both if world.driver.plans() else both[::-1]
    await_that(lambda: story(waits.application).get("reason") == "TurnAwaited")
    assert f"/{goes.application}" in str(story(waits.application)["message"])
    wait(world)
    assert waits.plans() == []
    await_that(lambda: world.events("TurnAwaited"))
    await_that(lambda: story(goes.application)["phase"] == "AwaitingCheckpoint")
    goes.complete_checkpoint()
    await_that(lambda: story(goes.application)["phase"] == "Recovered")
    await_that(lambda: waits.plans(), "it was not planned when the other one was over")
    await_that(lambda: story(waits.application)["phase"] == "AwaitingCheckpoint")


def test_what_other_pods_have_requested_is_not_planned_on(world: World) -> None:
    world.start()
    (node, *_) = world.executors_nodes()
    room = world.core.read_node(node).status.allocatable["cpu"]
    body = pod_body("greedy", "executor", "nobody", cpu=f"{int(room) * 1000 - 900}m")
    del body["spec"]["affinity"]
    body["metadata"]["labels"] = {}
    body["spec"]["nodeName"] = node
    world.core.create_namespaced_pod(world.namespace, body)
    (pod,) = [pod for pod in world.driver.executors() if pod.spec.node_name == node]
    path = world.driver.place.path(tree.COORDINATION)

    def planned_on() -> float:
        found = world.driver.connection.get(path)
        assert found is not None
        kept = application.from_record(found[0], path).kept
        assert kept is not None
        return kept.nodes[pod.status.pod_ip].capacity_percent

    await_that(lambda: planned_on() == 90.0)
    world.core.delete_namespaced_pod("greedy", world.namespace, grace_period_seconds=0)
    await_that(lambda: planned_on() == 100.0)


def test_what_a_drain_takes_is_brought_back_and_no_recovery_tells_of_it(world: World) -> None:
    world.start()
    await_that(lambda: world.driver.is_placed)
    drained, planned = world.executors_nodes()[0], len(world.driver.plans())
    world.core.patch_node(drained, {"spec": {"unschedulable": True}})
    (pod,) = [pod for pod in world.driver.executors() if pod.spec.node_name == drained]
    world.core.delete_namespaced_pod(pod.metadata.name, world.namespace, grace_period_seconds=0)
    with world.driver._lock:  # which sees the end of the connection
        number = pod.metadata.labels["spark-exec-id"]
        world.driver.drop({pod.status.pod_ip: f"{number}.0"})
    await_that(lambda: len(world.driver.plans()) > planned, "what it ran was not planned again")
    await_that(lambda: world.driver.is_placed and world.driver.is_whole)
    world.driver.complete_checkpoint()
    wait(world)
    assert world.recoveries() == []
