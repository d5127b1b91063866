"""What a Recovery tells although nobody told it when it was decided, and what it does not."""

from operating_world import World, await_that

GROUP, VERSION = "rekindle.dev", "v1alpha1"


def recover(world: World, number: int) -> None:
    """All comes back on another node, and a checkpoint ends it."""
    world.nodes.add(1, zone="a")
    await_that(lambda: world.driver.is_whole, "the executors were not replaced")
    world.end(number)


def test_a_plan_that_was_made_without_a_policy_is_told_once_there_is_one(world: World) -> None:
    world.start()
    world.lose(world.executors_nodes()[0])
    await_that(lambda: world.driver.plans())
    recover(world, 1)
    told = len(world.driver.plans())
    world.custom.delete_namespaced_custom_object(
        GROUP, VERSION, world.namespace, "recoverypolicies", "all"
    )
    silent = world.driver.silent
    world.lose(next(node for node in world.executors_nodes() if node not in silent))
    await_that(lambda: len(world.driver.plans()) > told, "nothing is planned without a policy")
    assert len(world.recoveries()) == 1
    world.make_policy()
    await_that(lambda: len(world.recoveries()) == 2)
    made = {item.plan_epoch for _, item in world.driver.plans()[told:]}
    await_that(lambda: {row["number"] for row in world.status(2).get("plans", ())} >= made)


def test_a_loss_that_is_recovered_from_before_its_lease_stops_is_one_story(world: World) -> None:
    world.start()
    node = world.executors_nodes()[0]
    (pod,) = [pod for pod in world.driver.executors() if pod.spec.node_name == node]
    world.driver.silent.add(node)
    world.driver.drop({pod.status.pod_ip: f"{pod.metadata.labels['spark-exec-id']}.0"})
    world.end()
    assert [row["name"] for row in world.status()["lostNodes"]] == [node]
    world.nodes.lose(node)
    await_that(lambda: world.operator.metric("rekindle_operator_nodes_suspected") == 1)
    before = world.driver.member.epoch
    await_that(lambda: world.driver.member.epoch > before + 20)
    assert len(world.recoveries()) == 1
