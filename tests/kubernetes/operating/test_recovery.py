"""A correlated failure, from the first silent lease to the end of its Recovery."""

from operating_world import World, await_that


def test_nodes_are_lost_and_everything_comes_back(world: World) -> None:
    world.start()
    lost = world.executors_nodes()[:2]
    pods = world.lose(*lost)
    await_that(lambda: world.driver.plans(), "no plan was made")
    await_that(lambda: pods.isdisjoint(world.executors()), "the pods were not deleted")
    await_that(lambda: world.phase() == "AwaitingCheckpoint")
    assert {row["name"] for row in world.status()["lostNodes"]} == set(lost)
    world.nodes.add(2, zone="a")
    await_that(lambda: world.driver.is_whole, "the executors were not replaced")
    world.end()
    status = world.status()
    assert (status["kind"], status["back"]) == ("Correlated", "4/4")
    assert {row["domain"] for row in status["lostNodes"]} == {"a"}
    assert all("confirmedAt" in row and "suspectedAt" in row for row in status["lostNodes"])
    assert len(status["plans"]) == len(world.driver.plans())
    assert all("acknowledgedAt" in plan for plan in status["plans"])
    assert len(world.recoveries()) == 1
    await_that(lambda: world.events("Recovered"), "nobody was told")


def test_a_stopped_kubelet_whose_pods_live_is_no_failure(world: World) -> None:
    world.start()
    pods = world.executors()
    lost = world.executors_nodes()[:2]
    world.nodes.lose(*lost)
    await_that(lambda: world.phase() == "Suspected")
    await_that(lambda: world.operator.metric("rekindle_operator_nodes_suspected") == 2)
    before = world.driver.member.epoch
    await_that(lambda: world.driver.member.epoch > before + 20)
    assert world.executors() == pods
    assert world.driver.plans() == []
    world.nodes.bring_back(*lost)
    await_that(lambda: world.phase() == "Abandoned")
    assert world.operator.lines("executor-deleted") == []


def test_while_every_node_is_silent_nothing_is_confirmed(world: World) -> None:
    world.start()
    pods = world.executors()
    every = world.nodes.names
    world.driver.silent |= set(every)
    world.nodes.lose(*every)
    await_that(lambda: world.operator.metric("rekindle_operator_held") == 1)
    await_that(lambda: world.phase() == "Held")
    before = world.driver.member.epoch
    await_that(lambda: world.driver.member.epoch > before + 20)
    assert world.executors() == pods
    world.driver.silent.clear()
    world.nodes.bring_back(*every)
    await_that(lambda: world.phase() == "Abandoned")
    assert world.driver.plans() == []


def test_a_node_that_comes_back_is_used_again(world: World) -> None:
    def returned() -> set[str]:
        rows = world.status().get("lostNodes", ())
        return {row["name"] for row in rows if "backAt" in row}

    world.start(nodes=4)
    lost = world.executors_nodes()[:2]
    pods = world.lose(*lost)
    await_that(lambda: world.driver.plans())
    await_that(lambda: pods.isdisjoint(world.executors()), "the pods were not deleted")
    await_that(world.recoveries, "nobody tells of it")
    world.driver.silent.clear()
    world.nodes.bring_back(*lost)
    # the queries may be back before the nodes are, and the story would end without them
    await_that(lambda: returned() == set(lost), "nobody saw that the nodes are back")
    assert set(lost) <= set(world.executors_nodes())
    world.end()
    assert {row["name"] for row in world.status()["lostNodes"]} == returned() == set(lost)


def test_the_story_of_an_application_that_is_deleted_ends(world: World) -> None:
    world.start()
    world.lose(*world.executors_nodes()[:2])
    await_that(lambda: world.driver.plans())
    await_that(lambda: world.phase() == "AwaitingCheckpoint")
    world.driver.leave()
    await_that(lambda: world.phase() == "Abandoned")
    assert world.status()["reason"] == "ApplicationGone"
