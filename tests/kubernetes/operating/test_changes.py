"""Policies and classes that cannot be meant, change or go while a loss is dealt with."""

from node_requests import KARPENTER, NodeRequests
from operating_world import World, await_that


def test_under_limits_that_let_nothing_happen_nothing_does_until_they_are_mended(
    world: World, requests: NodeRequests
) -> None:
    limits = {"nodesPerIncidentMax": 9, "nodesAtOnceMax": 9}
    class_ = {"provisioning": [KARPENTER], "limits": limits}
    world.start(class_=class_, priorities=[{"query": "nowhere", "priority": 10}])
    world.make_policy("empty", selector=selects("nobody"))
    world.make_policy("second")
    guards = {"providers": ["none-of-these"], "nodesPerIncidentMax": 5_000, "nodesAtOnceMax": 0}
    world.change_policy(guards=guards, planning={"solverBudgetSeconds": 60})
    await_that(lambda: world.condition("Accepted").get("reason") == "UnknownQueries")
    await_that(lambda: len(world.policy()["status"].get("narrowed", ())) == 3)
    await_that(lambda: world.condition("Accepted", "empty").get("reason") == "NothingSelected")
    await_that(lambda: world.condition("Exclusive", "second").get("status") == "False")
    lost = world.executors_nodes()[:2]
    pods = world.lose(*lost)
    await_that(lambda: world.driver.plans(), "what is left is not used")
    await_that(lambda: pods.isdisjoint(world.executors()))
    world.rest()
    assert (requests.claims(), len(world.recoveries())) == ([], 1)
    (recovery,) = world.recoveries()
    assert recovery["spec"]["policyName"] == "all"
    world.change_policy(guards={"providers": None, "nodesAtOnceMax": None})
    await_that(requests.claims, "no node is asked for")
    assert len(requests.claims()) <= 2
    world.finish()
    await_that(requests.is_clear)
    assert len(world.recoveries()) == 1


def test_selection_and_class_may_go_in_the_middle_of_a_recovery_and_come_back(
    world: World, requests: NodeRequests
) -> None:
    world.start(nodes=4, class_={"provisioning": [KARPENTER]})
    pods = world.lose(*world.executors_nodes()[:2])
    await_that(lambda: len(requests.claims()) == 2)
    await_that(lambda: pods.isdisjoint(world.executors()))
    await_that(lambda: world.phase() in ("Recovering", "CatchingUp", "AwaitingCheckpoint"))
    world.change_policy(selector=selects("nobody"))
    await_that(lambda: world.condition("Accepted").get("reason") == "NothingSelected")
    world.rest()
    assert len(world.recoveries()) == 1
    world.change_policy(selector=selects(None))
    await_that(lambda: world.condition("Accepted").get("reason") == "AsWritten")
    await_that(lambda: len(requests.claims()) == 2)

    world.delete_class()
    await_that(lambda: world.condition("Accepted").get("reason") == "ClassMissing")
    world.rest()
    assert world.driver.error is None
    world.make_class(provisioning=[KARPENTER])
    await_that(lambda: world.condition("Accepted").get("status") == "True")
    await_that(lambda: len(requests.claims()) == 2)
    world.finish()
    await_that(requests.is_clear)
    assert len(world.recoveries()) == 1


def selects(name: str | None) -> dict[str, object]:
    """Drivers of an application with this name; in a change None takes the name away."""
    return {"drivers": {"labelSelector": {"matchLabels": {"spark-app-name": name}}}}
