"""Nodes for whole applications that lose some again while their incident is open."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import spark_objects as objects
from gated_world import GATE, executor
from karpenter_world import KarpenterWorld
from operator_world import tell

from rekindle_operator.api import recovery_resource
from rekindle_operator.applications import application_incident, wanted_nodes
from rekindle_operator.applications.stream_progress import CatchUp


@pytest.fixture
def lossy(made: Callable[..., Any]) -> Callable[..., KarpenterWorld]:
    """Makes worlds in which an application has lost its node, and got another one."""

    def make(**more: Any) -> KarpenterWorld:
        world: KarpenterWorld = made(KarpenterWorld, **more)
        world.lose_executor("high", "b", 1)
        world.come("c")
        world.place("high", "c")
        assert world.requested == 1
        return world

    return make


def nodes(world: KarpenterWorld, *names: str) -> None:
    """Nodes with an executor each, numbered from 2."""
    for number, name in enumerate(names, 2):
        tell(world.known.registry, objects.node(name, "2"))
        world.see(executor("high", number, node=name))


def both(world: KarpenterWorld) -> None:
    """Both applications have lost their executor, and a node is on its way for each."""
    world.lose("a", "b")
    world.turn()
    for name in ("low", "high"):
        world.remade(name, GATE)
    world.turn()
    assert world.requested == 2


def test_each_loss_of_the_same_size_gets_a_node(lossy: Callable[..., KarpenterWorld]) -> None:
    world = lossy()
    for number, (node, other) in enumerate((("c", "d"), ("d", "e"), ("e", "f")), 2):
        world.lose_executor("high", node, number)
        assert world.requested == number
        world.come(other)
        world.place("high", other)
        assert world.requested == number, "one for each loss"
    assert len(world.recoveries) == 1


def test_an_incident_gets_no_more_nodes_than_its_limit(
    lossy: Callable[..., KarpenterWorld],
) -> None:
    world = lossy(guards={"nodesPerIncidentMax": 2})
    world.lose_executor("high", "c", 2)
    world.come("d")
    world.place("high", "d")
    world.lose_executor("high", "d", 3)
    assert world.requested == 2


def test_a_node_that_comes_back_under_its_name_and_is_lost_again_gets_another_one(
    lossy: Callable[..., KarpenterWorld],
) -> None:
    world = lossy()
    world.lost = frozenset()
    tell(world.known.registry, objects.node("b", "2"))
    world.see(executor("high", 5, node="b"))
    world.turn()
    world.lose_executor("high", "b", 5)
    assert world.requested == 2


def test_a_node_that_goes_together_with_its_pods_gets_another_one(
    lossy: Callable[..., KarpenterWorld],
) -> None:
    """Both are gone with one look."""
    world = lossy()
    world.known.registry.forget_node("c")
    world.claims.nodes.pop("c")
    world.remade("high", GATE, number=3)
    world.turn(wanted_nodes.USED_SECONDS)
    assert world.requested == 2


def test_executors_that_come_and_go_without_a_loss_get_no_further_node(
    lossy: Callable[..., KarpenterWorld],
) -> None:
    """One that has ended may keep its room for a while; the next one waits for that."""
    world = lossy()
    for number in range(3, 6):
        world.wait("high", number, GATE)
        world.turn(wanted_nodes.USED_SECONDS)
        assert world.requested == 1
        world.forget(executor("high", number))
        world.turn()


def test_a_node_that_came_and_is_of_no_use_is_requested_once_for_each_loss(
    made: Callable[..., Any],
) -> None:
    world: KarpenterWorld = made(KarpenterWorld)
    nodes(world, "n2", "n3", "n4")
    tainted = [{"key": "other", "effect": "NoSchedule"}]
    for number in range(2, 5):
        world.lose(f"n{number}")
        world.turn()
        world.forget(executor("high", number))
        world.wait("high", number + 10, GATE)
        world.turn()
        assert world.requested == number - 1
        world.come(f"x{number}", spec={"taints": tainted})
        for _ in range(3):
            world.turn(wanted_nodes.USED_SECONDS)
        assert world.requested == number - 1


def test_nodes_that_are_announced_one_after_the_other_get_one_each(
    made: Callable[..., Any],
) -> None:
    world: KarpenterWorld = made(KarpenterWorld)
    nodes(world, "n2", "n3", "n4")
    for number in range(2, 5):
        world.announce(*(f"n{known}" for known in range(2, number + 1)))
        world.turn()
        world.turn(wanted_nodes.USED_SECONDS)
        assert world.requested == number - 1
        world.come(f"x{number}")
        world.turn()
        world.turn(wanted_nodes.USED_SECONDS)
        assert world.requested == number - 1


def test_a_notice_and_its_loss_get_one_node_together(made: Callable[..., Any]) -> None:
    world: KarpenterWorld = made(KarpenterWorld)
    nodes(world, "n2", "n3", "n4", "n5")
    world.announce("n2", "n3", "n4", "n5")
    world.turn()
    world.turn()
    assert world.requested == 4
    for number in range(2, 6):
        world.lose(f"n{number}")
        world.turn()
        world.forget(executor("high", number))
        world.turn()
        if number > 2:  # Spark has waited, and asks for the one before
            world.wait("high", number + 9, GATE)
            world.turn()
        assert world.requested == 4
    world.wait("high", 15, GATE)
    for number in range(2, 6):
        world.turn()
        assert world.requested == 4
        world.come(f"x{number}")
        world.place("high", f"x{number}")
    assert world.requested == 4


def test_pods_that_spark_makes_one_after_the_other_get_a_node_each(
    made: Callable[..., Any],
) -> None:
    """As with a low `spark.kubernetes.allocation.maxPendingPods`."""
    world: KarpenterWorld = made(KarpenterWorld)
    nodes(world, "n2", "n3", "n4")
    world.lose("n2", "n3", "n4")
    world.turn()
    for number in range(2, 5):
        world.forget(executor("high", number))
    for number in range(2, 5):
        world.wait("high", number + 10, GATE)
        world.turn(wanted_nodes.USED_SECONDS)
        assert world.requested == number - 1
        world.come(f"x{number}")
        world.place("high", f"x{number}")


def test_a_node_that_has_come_and_has_a_taint_for_a_moment_is_not_requested_again(
    made: Callable[..., Any],
) -> None:
    """Of two lost nodes one was needed alone, for another one has room."""
    world: KarpenterWorld = made(KarpenterWorld)
    nodes(world, "n2", "n3")
    world.lose("n2", "n3")
    world.turn()
    world.forget(executor("high", 3))
    world.remade("high", GATE, number=3)
    world.turn()
    assert world.requested == 1
    world.come("c", spec={"taints": [{"key": "network", "effect": "NoSchedule"}]})
    world.turn()
    world.turn(wanted_nodes.USED_SECONDS - 1.0)
    assert world.requested == 1
    tell(world.known.registry, objects.node("c", "2"))
    world.place("high", "c")
    world.turn(wanted_nodes.USED_SECONDS)
    assert world.requested == 1


def test_a_node_that_a_more_important_application_has_taken_is_not_requested_again(
    made: Callable[..., Any],
) -> None:
    world: KarpenterWorld = made(KarpenterWorld)
    world.progress.said["high"] = CatchUp(None, "It is behind.")
    both(world)
    world.come("c", "low")
    world.place("high", "c")
    world.turn(wanted_nodes.USED_SECONDS)
    assert world.requested == 2, "the other one is for the less important one"
    world.lose_executor("high", "c", 2)
    assert world.requested == 3
    for node, name in (("d", "high"), ("e", "low")):
        world.come(node)
        world.place(name, node)
    assert world.requested == 3


def test_a_node_that_is_withdrawn_as_an_application_is_back_is_requested_for_another_one(
    made: Callable[..., Any],
) -> None:
    world: KarpenterWorld = made(KarpenterWorld)
    both(world)
    world.come("c", "low")
    world.place("high", "c")
    world.turn(application_incident.SETTLE_SECONDS)
    assert world.story("high")["phase"] == "Recovered"
    world.turn(wanted_nodes.USED_SECONDS)
    assert len(world.claims.all("NodeClaim")) == 2, "that of the other one is withdrawn"
    world.come("d")
    world.place("low", "d")


def course(world: KarpenterWorld) -> Iterator[int]:
    """Three losses of one executor each; how many nodes are to be requested by then."""
    for number, (node, other) in enumerate((("b", "c"), ("c", "d"), ("d", "e")), 1):
        world.lose(node)
        yield number - 1
        world.turn()
        world.remade("high", GATE, number=number + 1)
        world.turn(wanted_nodes.USED_SECONDS)
        yield number
        world.come(other)
        yield number
        world.place("high", other)
        yield number


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "not told"])
@pytest.mark.parametrize("step", range(12))
def test_another_operator_requests_no_more_and_no_less(
    made: Callable[..., Any], step: int, *, is_told: bool
) -> None:
    """What the one before has not told any more, only the notes of its requests say."""
    world: KarpenterWorld = made(KarpenterWorld)
    for number, requested in enumerate(course(world)):
        if number == step:
            if not is_told:
                world.errands = {}
                world.turn()
                world.errands = None
            world.another_begins()
            world.turn()
        assert requested <= world.requested <= number // 4 + 1
    assert all("status" in claim for claim in world.claims.all("NodeClaim"))


@pytest.mark.parametrize("told_max", [2, 1], ids=["all", "the newest"])
def test_another_operator_leaves_nodes_that_are_on_their_way(
    made: Callable[..., Any], told_max: int
) -> None:
    """A Recovery has the newest requests, the notes of the provider have them all."""
    world: KarpenterWorld = made(KarpenterWorld)
    nodes(world, "n2", "n3")
    world.lose("n2", "n3")
    world.turn()
    for number in (2, 3):
        world.forget(executor("high", number))
        world.wait("high", number + 10, GATE)
    world.turn()
    world.come("c")
    world.place("high", "c")
    for body in world.recoveries.values():
        body["status"]["requests"] = body["status"]["requests"][-told_max:]
        world.known.see_recovery(recovery_resource.from_object(body))
    world.another_begins()
    for _ in range(3):
        world.turn()
    assert [row["outcome"] for row in world.story("high")["requests"]] == ["Arrived", "Pending"]
    world.come("d")
    world.place("high", "d")
    assert world.requested == 2


def test_a_recovery_counts_each_loss(lossy: Callable[..., KarpenterWorld]) -> None:
    world = lossy()
    world.lose_executor("high", "c", 2)
    world.come("d")
    world.place("high", "d")
    world.lost = frozenset()
    tell(world.known.registry, objects.node("c", "2"))
    world.see(executor("high", 9, node="c"))
    world.turn()
    world.lose("c")
    world.turn()
    told = world.story("high")
    assert (told["lostNodesTotal"], len(told["lostNodes"])) == (3, 2)
    world.another_begins()
    world.turn()
    assert world.story("high")["lostNodesTotal"] == 3
