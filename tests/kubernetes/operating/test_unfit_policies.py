"""Policies that cannot be meant, in force during a loss: it is said, and nothing is wrong."""

from node_requests import KARPENTER, NodeRequests
from operating_world import World, await_that


def test_under_limits_that_let_nothing_happen_nothing_does_until_they_are_mended(
    world: World, requests: NodeRequests
) -> None:
    world.make_class(
        provisioning=[KARPENTER], limits={"nodesPerIncidentMax": 9, "nodesAtOnceMax": 9}
    )
    world.start(priorities=[{"query": "nowhere", "priority": 10}])
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
    world.pause()
    assert (requests.claims(), len(world.recoveries())) == ([], 1)
    (recovery,) = world.recoveries()
    assert recovery["spec"]["policyName"] == "all"
    world.change_policy(guards={"providers": None, "nodesAtOnceMax": None})
    await_that(requests.claims, "no node is asked for")
    assert len(requests.claims()) <= 2
    world.finish()
    await_that(requests.is_clear)
    assert len(world.recoveries()) == 1


def test_an_application_that_a_policy_selects_no_more_is_let_go_and_comes_back(
    world: World, requests: NodeRequests
) -> None:
    world.make_class(provisioning=[KARPENTER])
    world.start(nodes=4)
    pods = world.lose(*world.executors_nodes()[:2])
    await_that(lambda: len(requests.claims()) == 2)
    await_that(lambda: pods.isdisjoint(world.executors()))
    world.change_policy(selector=selects("nobody"))
    await_that(lambda: world.condition("Accepted").get("reason") == "NothingSelected")
    world.pause()
    assert len(world.recoveries()) == 1
    world.change_policy(selector=selects(None))
    await_that(lambda: world.condition("Accepted").get("reason") == "AsWritten")
    await_that(lambda: len(requests.claims()) == 2)
    world.finish()
    await_that(requests.is_clear)
    assert len(world.recoveries()) == 1


def selects(name: str | None) -> dict[str, object]:
    """Drivers of an application with this name; in a change None takes the name away."""
    return {"drivers": {"labelSelector": {"matchLabels": {"spark-app-name": name}}}}
