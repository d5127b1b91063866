"""Whole Spark applications without anything of ours, which come back by priority."""

import pytest
from node_requests import NodeRequests
from operating_world import World, await_that
from plain_applications import GATE, QUOTA, pods_of, started
from recorded_ui import RecordedUi, serving


@pytest.mark.usefixtures("asking")
def test_pods_wait_for_their_turn_and_the_most_important_application_comes_first(
    world: World, requests: NodeRequests
) -> None:
    low, high, lost = started(world)
    assert not high.would_wait, "before an incident no pod is changed"
    before = [low.executor.metadata.name, high.executor.metadata.name]
    world.nodes.lose(*lost)
    await_that(lambda: low.would_wait and high.would_wait, "no incident begins")
    await_that(lambda: low.story and high.story, "nobody tells of it")
    low.add("", QUOTA)
    high.add()
    assert (low.gates, high.gates) == ([QUOTA, GATE], [GATE])
    await_that(lambda: low.story.get("reason") == high.story.get("reason") == "NoCapacity")
    await_that(lambda: requests.counts()["Karpenter"] == 2, "no nodes are asked for")
    world.nodes.add(1, zone="a")
    await_that(lambda: high.executor.spec.node_name, "the first node is not used")
    assert low.gates == [QUOTA, GATE]
    assert "needs 3 cores" in low.story["message"]
    await_that(lambda: high.story.get("phase") == "Recovered")
    assert low.gates == [QUOTA, GATE], "the incident goes on"
    assert low.would_wait
    world.nodes.add(1, zone="a")
    await_that(lambda: low.gates == [QUOTA], "the gate stays, or another's was lifted")
    gone = {"spec": {"schedulingGates": [{"name": QUOTA, "$patch": "delete"}]}}
    world.core.patch_namespaced_pod(low.executor.metadata.name, world.namespace, gone)
    await_that(lambda: low.story.get("phase") == "Recovered")
    await_that(lambda: not low.would_wait, "the incident does not end")
    assert pods_of(world).isdisjoint(before), "executors of lost nodes stay"
    assert {row["name"] for row in low.story["lostNodes"]} == {lost[0]}
    assert {low.story["caughtUpBy"], high.story["caughtUpBy"]} == {"Pods"}
    assert len(low.story["plans"]) == 1
    await_that(lambda: world.events("Recovered"), "nobody was told")
    await_that(requests.is_clear, "nodes are asked for after the end")


@pytest.mark.usefixtures("asking", "requests")
def test_an_application_is_catching_up_until_its_driver_says_otherwise(world: World) -> None:
    with serving(RecordedUi(queries=("behind",))) as ui:
        low, high, (lows, highs) = started(world, ui.port)
        high.take_address("127.0.0.1")
        world.nodes.lose(highs)
        await_that(lambda: high.would_wait, "no incident begins")
        high.add()
        assert not ui.asked, "its pods are not back"
        world.nodes.add(1, zone="a")
        await_that(lambda: high.story.get("podsBackAt"), "its pods do not come back")
        await_that(lambda: high.story.get("message", "").endswith("behind."), "it is not read")
        assert high.story["phase"] == "CatchingUp"
        await_that(lambda: not low.would_wait, "pods wait for one that catches up")
        world.operator.kill()
        since = high.story["podsBackAt"]
        ui.picture = "caught_up"
        world.operator.lead()
        await_that(lambda: high.story.get("phase") == "Recovered", "it does not end")
    told = high.story
    assert (told["caughtUpBy"], told["podsBackAt"]) == ("Progress", since)
    assert "Caught up: behind (" in told["message"]
    assert told["queries"][0]["backAt"] > since
    assert low.executor.spec.node_name == lows
    assert all(path.startswith("/api/v1/applications") for path, _ in ui.asked)


@pytest.mark.usefixtures("asking", "requests")
def test_gates_are_lifted_when_the_policy_goes_and_another_operator_goes_on_with_the_others(
    world: World,
) -> None:
    low, high, lost = started(world)
    world.nodes.lose(*lost)
    await_that(lambda: low.would_wait and high.would_wait, "no incident begins")
    low.add()
    high.add()
    assert (low.gates, high.gates) == ([GATE], [GATE])
    await_that(lambda: low.story and high.story, "nobody tells of it")
    world.operator.kill()
    world.operator.lead()
    world.nodes.add(1, zone="a")
    await_that(lambda: high.executor.spec.node_name, "nobody goes on with it")
    assert low.gates == [GATE]
    assert len(world.recoveries()) == 2, "the incident was begun anew"
    world.delete_policy()
    await_that(lambda: not low.gates, "it waits for ever")


@pytest.mark.usefixtures("asking", "requests")
def test_a_less_important_application_makes_room_where_the_class_allows_it_and_comes_back(
    world: World,
) -> None:
    low, high, (lows, highs) = started(world, displacement="LessImportant")
    before = low.executor.metadata.name
    world.nodes.lose(highs)
    await_that(lambda: low.would_wait and high.would_wait, "no incident begins")
    high.add()
    await_that(lambda: low.story.get("reason") == "Displaced", "nothing makes room")
    assert low.story["displaced"]["by"] == "high"
    await_that(lambda: before not in pods_of(world), "it does not go")
    low.add()
    assert low.gates == [GATE], "it would take the room back"
    await_that(lambda: high.executor.spec.node_name == lows, "the room is for another one")
    await_that(lambda: high.story.get("phase") == "Recovered")
    assert low.gates == [GATE]
    assert low.story["displaced"]["goneAt"]
    assert f"{low.name}-driver" in pods_of(world), "nobody makes another driver"
    world.operator.kill()
    world.operator.lead()
    world.nodes.add(1, zone="a")
    await_that(lambda: low.story.get("phase") == "Recovered", "it does not come back")
    await_that(lambda: not low.would_wait, "the incident does not end")
    assert world.events("Displaced"), "nobody was told"
    assert len(world.recoveries()) == 2
