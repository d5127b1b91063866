"""What fails beside the nodes: operators, API server, store. Nothing is invented, nothing twice."""

import pytest
from operating_world import FAST, World, await_that

from rekindle_local.zookeeper import LocalZookeeper
from testbed.control_plane import ControlPlane


def test_a_killed_operator_is_followed_by_its_standby_in_the_middle(world: World) -> None:
    world.start()
    standby = world.make_operator("operator-b")
    standby.start()
    lost = world.executors_nodes()[:2]
    pods = world.lose(*lost)
    await_that(lambda: world.phase() == "Suspected")
    world.operator.kill()
    await_that(lambda: world.driver.plans(), "the standby does not plan")
    await_that(lambda: pods.isdisjoint(world.executors()))
    world.nodes.add(2, zone="a")
    await_that(lambda: world.driver.is_whole)
    world.end()
    assert len(world.recoveries()) == 1
    assert {row["name"] for row in world.status()["lostNodes"]} == set(lost)
    assert len(world.status()["plans"]) == len(world.driver.plans())


def test_an_operator_that_ends_in_order_gives_the_lease_up_at_once(world: World) -> None:
    world.start()
    standby = world.make_operator("operator-b")
    standby.start()
    assert world.operator.end() == 0
    assert world.operator.lines("operator-ended")
    await_that(lambda: standby.acts)
    world.lose(*world.executors_nodes()[:2])
    await_that(lambda: world.driver.plans())


def test_a_leader_that_stands_still_does_nothing_when_it_goes_on(world: World) -> None:
    world.start()
    standby = world.make_operator("operator-b")
    standby.start()
    world.operator.stop()
    await_that(lambda: standby.acts, "the standby does not take over")
    lost = world.executors_nodes()[:2]
    pods = world.lose(*lost)
    await_that(lambda: world.driver.plans())
    world.operator.proceed()
    await_that(lambda: pods.isdisjoint(world.executors()))
    await_that(lambda: world.operator.lines("lease-not-held"))
    await_that(lambda: not world.operator.acts)
    assert standby.acts
    assert world.operator.lines("executor-deleted") == []
    assert len(world.recoveries()) == 1
    assert len(world.driver.plans()) == 1


def test_a_plan_is_made_soon_after_the_api_server_is_back(
    world: World, control_plane: ControlPlane
) -> None:
    world.start()
    pods = world.executors()
    control_plane.stop("kube-apiserver")
    before = world.driver.member.epoch
    world.driver.watching = False
    await_that(lambda: world.driver.member.epoch > before + 20)
    control_plane.proceed("kube-apiserver")
    world.driver.watching = True
    await_that(lambda: world.operator.acts)
    epoch = world.driver.member.epoch
    await_that(lambda: world.driver.member.epoch > epoch + 20)
    assert world.executors() == pods, "healthy executors were deleted"
    assert world.driver.plans() == []
    assert [item for item in world.recoveries() if item["status"]["phase"] != "Abandoned"] == []
    lost = world.executors_nodes()[:2]
    gone = world.lose(*lost)
    await_that(lambda: world.driver.plans())
    await_that(lambda: gone.isdisjoint(world.executors()))


def test_while_the_store_is_away_nothing_is_done_and_afterwards_everything(
    world: World, store: LocalZookeeper
) -> None:
    world.start()
    store.stop(*store.servers)
    await_that(lambda: world.condition("CoordinationAtRisk").get("reason") == "StoreUnreachable")
    store.proceed(*store.servers)
    await_that(lambda: world.condition("CoordinationAtRisk").get("reason") != "StoreUnreachable")
    lost = world.executors_nodes()[:2]
    world.lose(*lost)
    await_that(lambda: world.driver.plans())


@pytest.mark.parametrize("ahead_seconds", [-600.0, 600.0])
def test_clocks_of_nodes_do_not_matter(world: World, ahead_seconds: float) -> None:
    world.start()
    world.nodes.set_clock(*world.nodes.names, ahead_seconds=ahead_seconds)
    epoch = world.driver.member.epoch
    await_that(lambda: world.driver.member.epoch > epoch + 20)
    assert world.recoveries() == []
    world.lose(*world.executors_nodes()[:2])
    await_that(lambda: world.driver.plans())


def test_policy_and_class_may_go_in_the_middle_of_a_recovery(world: World) -> None:
    world.start()
    world.lose(*world.executors_nodes()[:2])
    await_that(lambda: world.phase() in ("Recovering", "CatchingUp", "AwaitingCheckpoint"))
    world.custom.delete_cluster_custom_object(
        "rekindle.dev", "v1alpha1", "recoveryclasses", "default"
    )
    await_that(lambda: world.condition("Accepted").get("reason") == "ClassMissing")
    assert world.driver.error is None
    world.make_class(**FAST)
    await_that(lambda: world.condition("Accepted").get("status") == "True")
    world.nodes.add(2, zone="a")
    await_that(lambda: world.driver.is_whole)
    world.end()
