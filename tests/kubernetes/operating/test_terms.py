"""What people say: approval, priorities, pause, limits, a dry run."""

import time

import msgspec
from acting_driver import ActingDriver
from operating_world import GROUP, VERSION, Object, World, await_that

from rekindle.protocol import Heartbeat, PlanOrder, TopologyReport, store_paths

TAINTS = {"suspectedNodes": "NoSchedule", "impairedDomains": "NoSchedule"}


def approve(world: World) -> None:
    """What somebody does with `kubectl rekindle approve`."""
    (recovery,) = world.recoveries()
    world.custom.patch_namespaced_custom_object(
        GROUP,
        VERSION,
        world.namespace,
        "recoveries",
        recovery["metadata"]["name"],
        {"spec": {"approved": True}},
    )


def least_important(world: World) -> tuple[str, str]:
    """Of the queries with a part on a node without the driver the last one, and such a node."""
    nodes = {pod.status.pod_ip: pod.spec.node_name for pod in world.driver.executors()}
    others = world.executors_nodes()
    return min(
        (operator.partition("/")[0], nodes[host])
        for operator, host in world.driver.member.placement.items()
        if operator.startswith("query-") and nodes[host] in others
    )


def tainted(world: World) -> set[str]:
    """Nodes with taints of ours."""
    return {
        node.metadata.name
        for node in world.core.list_node().items
        if any(taint.key.startswith("rekindle.dev/") for taint in node.spec.taints or ())
    }


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
        driver._put(store_paths.HEARTBEAT, heartbeat, ephemeral=True)
        driver._put(store_paths.STATISTICS, msgspec.structs.replace(statistics, generation=2))
        driver._put(store_paths.TOPOLOGY, renewed)
        progress = driver.member.progress
        driver._progress = lambda: msgspec.structs.replace(progress(), generation=2)  # type: ignore[method-assign]


def test_a_recovery_waits_for_approval_and_then_goes_by_the_policys_priorities(
    world: World,
) -> None:
    world.start(approval="Manual")
    query, node = least_important(world)
    world.change_policy(priorities=[{"query": f"{query}-out", "priority": 10}])
    pods = world.lose(*sorted({node, *world.executors_nodes()[:2]}))
    await_that(lambda: world.phase() == "AwaitingApproval")
    await_that(lambda: pods.isdisjoint(world.executors()))
    world.rest()
    assert world.driver.plans() == []
    approve(world)
    await_that(lambda: world.driver.plans(), "the approval was not seen")
    order = world.driver.plans()[0][1].order
    assert isinstance(order, PlanOrder)
    assert order.query_partitions[0].startswith(f"{query}-out")
    await_that(lambda: world.phase() == "AwaitingCheckpoint")


def test_a_paused_policy_plans_nothing_until_it_goes_on(world: World) -> None:
    world.start()
    world.change_policy(paused=True)
    pods = world.lose(*world.executors_nodes()[:2])
    await_that(lambda: world.phase() == "Held")
    world.rest()
    assert world.driver.plans() == []
    assert pods <= world.executors()
    world.change_policy(paused=False)
    await_that(lambda: world.driver.plans())
    await_that(lambda: pods.isdisjoint(world.executors()))


def test_a_dry_run_tells_what_it_would_do_and_changes_nothing(world: World) -> None:
    """Whether it was one from the start, and what was lost comes back, or it has become one."""
    deletion = {"enabled": True, "afterSeconds": 1}
    world.start(class_={"taints": TAINTS, "nodeDeletion": deletion}, dryRun=True)
    lost = world.executors_nodes()[:2]
    pods = world.lose(*lost)
    await_that(lambda: world.status().get("plans"))
    world.rest()
    assert_dry(world, lost, pods)
    world.bring_back(*lost)
    await_that(lambda: all("backAt" in row for row in world.status()["lostNodes"]))
    world.end()
    world.change_policy(dryRun=False)
    world.rest()
    assert world.driver.directives == []
    assert pods <= world.executors()

    world.change_policy(dryRun=True)
    lost = world.executors_nodes()[-2:]
    pods = world.lose(*lost)
    await_that(lambda: len(world.recoveries()) == 2 and world.status().get("plans"))
    world.rest()
    assert_dry(world, lost, pods)


def assert_dry(world: World, lost: list[str], pods: set[str]) -> None:
    """A correlated loss is told, and nothing else has happened."""
    status = world.status()
    assert (status["dryRun"], status["kind"]) == (True, "Correlated")
    assert world.lost_nodes() == set(lost)
    assert world.driver.directives == []
    assert pods <= world.executors()
    assert tainted(world) == set()
    assert set(lost) <= {node.metadata.name for node in world.core.list_node().items}


def test_a_driver_that_starts_again_in_a_dry_run_is_placed(world: World) -> None:
    world.start(dryRun=True)
    start_again(world.driver)
    await_that(lambda: world.driver.is_placed, "the second driver got no plan")
    await_that(lambda: world.phase() == "AwaitingCheckpoint")
    assert world.status()["dryRun"] is False
    plans = len(world.driver.plans())
    world.lose(*world.executors_nodes()[:2])
    await_that(lambda: world.status().get("dryRun") is True)
    world.rest()
    assert len(world.driver.plans()) == plans


def test_one_recovery_too_many_waits_before_its_first_plan(world: World) -> None:
    world.start(guards={"concurrentRecoveriesMax": 1})
    other = world.make_driver(application="arrivals")
    both = (world.driver, other)
    shared = shared_node(world, both)
    other.silent.add(shared)
    world.lose(shared)
    await_that(lambda: {len(driver.plans()) for driver in both} == {0, 1})
    await_that(lambda: len(world.recoveries()) == 2)

    def story(driver: ActingDriver) -> Object:
        (found,) = (
            item
            for item in world.recoveries()
            if item["spec"]["application"]["name"] == driver.application
        )
        status: Object = found.get("status", {})
        return status

    goes, waits = both if world.driver.plans() else both[::-1]
    await_that(lambda: story(waits).get("reason") == "TurnAwaited")
    assert f"/{goes.application}" in str(story(waits)["message"])
    world.rest()
    assert waits.plans() == []
    await_that(lambda: world.events("TurnAwaited"))
    await_that(lambda: story(goes).get("phase") == "AwaitingCheckpoint")
    goes.complete_checkpoint()
    await_that(lambda: story(goes).get("phase") == "Recovered")
    await_that(lambda: waits.plans(), "it was not planned when the other one was over")
    await_that(lambda: story(waits).get("phase") == "AwaitingCheckpoint")


def shared_node(world: World, both: tuple[ActingDriver, ActingDriver]) -> str:
    """A node with executors of both drivers, and neither of them."""
    nodes = [{pod.spec.node_name for pod in driver.executors()} for driver in both]
    names = [f"{driver.application}-driver" for driver in both]
    drivers = [world.core.read_namespaced_pod(name, world.namespace) for name in names]
    return min((nodes[0] & nodes[1]) - {pod.spec.node_name for pod in drivers})
