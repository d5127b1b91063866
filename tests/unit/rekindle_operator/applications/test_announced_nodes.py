"""Whole applications on nodes that are announced to go, and what is asked for at the notice."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import spark_objects as objects
from gated_world import GATE, KARPENTER, World, executor, iso
from operator_world import tell

from rekindle.coordination.coordination_events import LossNotice
from rekindle.model.reasons import Reason
from rekindle_operator.api.recovery_policy import ApplicationNeed
from rekindle_operator.api.recovery_resource import NodeRequest
from rekindle_operator.applications import application_incident, wanted_nodes

SCALE_DOWN = "taint ToBeDeletedByClusterAutoscaler"


@pytest.fixture
def announced(made: Callable[..., World]) -> Callable[..., World]:
    """Makes worlds in which these nodes are announced to go, and an incident has begun."""

    def make(*nodes: str, source: str = "taint spot", **more: Any) -> World:
        world = made(provisioning=(KARPENTER,), **more)
        world.announce(*nodes, source=source)
        world.turn()
        world.turn()
        return world

    return make


def asked(world: World) -> dict[str, int | None]:
    """For how many nodes requests stand, by application."""
    return {
        item.incident.application: item.missing for item in world.shell.demands if item.requests
    }


def test_a_notice_opens_an_incident_and_asks_for_a_node_before_anything_is_lost(
    announced: Callable[..., World],
) -> None:
    world = announced("a")
    told = world.story("low")
    assert (told["phase"], told["reason"]) == ("Recovering", "LossAnnounced")
    assert told["message"].startswith("Announced to go: a, the first at ")
    assert told["message"].endswith("with 1 pod of it.")
    assert "kind" not in told
    assert "lostAt" not in told["queries"][0]
    assert told.get("plans", []) == []
    (row,) = told["announcedNodes"]
    assert (row["name"], row["by"]) == ("a", "taint spot")
    assert asked(world) == {"low": 1}
    (demand,) = world.shell.demands
    assert {order.reason for order in demand.requests.values()} == {Reason.LOSS_ANNOUNCED}
    assert world.story("high") == {}, "it has nothing there"
    assert any(event["reason"] == "LossAnnounced" for event in world.events)
    assert world.shell.buckets, "what Spark makes when the node goes waits for its turn"


def test_nodes_are_asked_for_as_far_as_others_have_no_room(
    announced: Callable[..., World],
) -> None:
    world = announced("a", "b")
    assert asked(world) == {"high": 1, "low": 1}
    tell(world.known.registry, objects.node("c", "2"))
    world.turn()
    assert asked(world) == {"high": 0, "low": 1}, "one has come, for the more important one"
    tell(world.known.registry, objects.node("d", "2"))
    world.turn()
    assert asked(world) == {"high": 0, "low": 0}


def test_the_driver_moves_with_its_node(announced: Callable[..., World]) -> None:
    world = announced("drivers")
    assert world.story("low")["message"].endswith("with 1 pod of it.")
    assert asked(world) == {"high": 1}, "one node has room for both drivers"


def test_no_node_is_asked_for_in_place_of_one_that_an_autoscaler_takes_away(
    announced: Callable[..., World],
) -> None:
    world = announced("a", source=SCALE_DOWN)
    assert world.story("low")["reason"] == "LossAnnounced"
    assert asked(world) == {}


def test_a_withdrawn_notice_ends_the_recovery_with_nothing_lost(
    announced: Callable[..., World],
) -> None:
    world = announced("a", "b")
    world.announce("b")
    world.turn()
    assert asked(world) == {"low": 0, "high": 1}, "nothing more is on its way for it"
    world.turn(application_incident.SETTLE_SECONDS)
    told = world.story("low")
    assert (told["phase"], told["reason"]) == ("Abandoned", "NoticeWithdrawn")
    assert told["announcedNodes"][0]["withdrawn"]
    assert told["conditions"][0]["status"] == "False"
    assert world.story("high")["phase"] == "Recovering"
    world.announce()
    world.turn()
    world.turn(application_incident.SETTLE_SECONDS)
    assert (world.shell.demands, world.shell.buckets) == ((), frozenset())
    assert len(world.recoveries) == 2


@pytest.mark.parametrize("before_its_deadline", [True, False])
def test_a_node_that_goes_turns_the_notice_into_a_loss_of_the_same_recovery(
    announced: Callable[..., World], *, before_its_deadline: bool
) -> None:
    world = announced("a")
    if before_its_deadline:
        world.lose("a")
    else:
        world.now += 120.0
        world.judge.overdue_nodes = frozenset({"a"})
    world.announce()
    world.turn()
    told = world.story("low")
    assert (told["phase"], told["kind"]) == ("Recovering", "Independent")
    assert [row["name"] for row in told["lostNodes"]] == ["a"]
    assert not told["announcedNodes"][0].get("withdrawn")
    assert world.shell.lost_nodes(next(iter(world.known.open_recoveries()))[0]) == {"a"}
    tell(world.known.registry, objects.node("c", "2"))
    world.remade("low", GATE)
    world.turn()
    assert world.gates("low") == []
    world.run("low", "c")
    world.judge.overdue_nodes = frozenset()
    world.known.registry.forget_node("a")
    world.turn()
    world.turn(application_incident.SETTLE_SECONDS)
    assert world.story("low")["phase"] == "Recovered"
    assert len(world.recoveries) == 1


def test_executors_of_a_drained_node_wait_for_their_turn_and_the_recovery_has_lost_them(
    announced: Callable[..., World],
) -> None:
    world = announced("a", source="drain")
    world.remade("low", GATE)
    world.turn()
    assert world.story("low")["reason"] == "NoCapacity"
    assert asked(world) == {"low": 1}, "the node that was asked for at the notice"
    tell(world.known.registry, objects.node("c", "2"))
    world.turn()
    world.run("low", "c")
    world.turn()
    world.turn(application_incident.SETTLE_SECONDS)
    told = world.story("low")
    assert told["phase"] == "Recovered"
    assert told["queries"][0]["plannedAt"]
    assert not told["announcedNodes"][0].get("withdrawn")


def test_a_node_that_goes_with_its_pods_is_no_withdrawn_notice(
    announced: Callable[..., World],
) -> None:
    """Both are gone with one look, and Spark has yet to make the next executor."""
    world = announced("a")
    world.turn(application_incident.QUIET_SECONDS)
    world.known.registry.forget_node("a")
    world.known.registry.forget_pod(executor("low", 1)["metadata"]["uid"])
    world.announce()
    world.turn()
    assert world.story("low")["phase"] != "Abandoned"
    world.remade("low", GATE)
    world.turn()
    assert world.story("low")["kind"] == "Independent"
    assert not world.story("low")["announcedNodes"][0].get("withdrawn")


def test_nothing_is_planned_on_announced_nodes_while_another_one_is_up(
    announced: Callable[..., World],
) -> None:
    world = announced("a", "c")
    tell(world.known.registry, objects.node("c", "2"))
    world.lose("b")
    world.remade("high", GATE)
    world.turn()
    assert world.gates("high") == [GATE]
    tell(world.known.registry, objects.node("d", "2"))
    world.turn()
    assert world.gates("high") == []


def test_where_all_nodes_are_announced_what_waits_runs_on_them_meanwhile(
    made: Callable[..., World],
) -> None:
    world = made(provisioning=(KARPENTER,))
    tell(world.known.registry, objects.node("c", "2"))
    world.announce("a", "b", "c", "drivers")
    world.turn()
    world.remade("high", GATE)
    world.turn()
    assert world.gates("high") == []


@pytest.mark.parametrize("more", [{"paused": True}, {"dryRun": True}, {"approval": "Manual"}])
def test_before_the_policy_acts_a_notice_is_told_and_nothing_is_asked_for(
    announced: Callable[..., World], more: dict[str, Any]
) -> None:
    world = announced("a", **more)
    assert world.story("low")["phase"] in ("Held", "AwaitingApproval")
    assert world.story("low")["announcedNodes"]
    assert (world.shell.demands, world.shell.buckets) == ((), frozenset())
    world.announce()
    world.turn()
    world.turn(application_incident.SETTLE_SECONDS)
    assert world.story("low")["phase"] == "Abandoned"


def test_another_operator_goes_on_with_the_notice_and_its_deadline(
    announced: Callable[..., World],
) -> None:
    world = announced("a")
    until = world.notices["a"].until
    world.shell = world.operator()
    world.now += 60.0
    world.announce()
    world.announce("a")
    assert world.notices["a"].until > until, "it counts from when it first saw the notice"
    world.turn()
    world.turn()
    assert world.notices["a"].until == until
    assert len(world.recoveries) == 1
    assert asked(world) == {"low": 1}
    assert not world.story("low")["announcedNodes"][0].get("withdrawn")


def test_a_notice_during_an_incident_keeps_it_open_until_the_node_has_gone(
    broken: Callable[..., World],
) -> None:
    world = broken("low", "high")
    for name in "cd":
        tell(world.known.registry, objects.node(name, "2"))
    world.turn()
    for name, node in (("low", "c"), ("high", "d")):
        world.run(name, node)
    world.announce("c")
    world.turn()
    world.turn(application_incident.SETTLE_SECONDS)
    assert world.story("high")["phase"] == "Recovered"
    assert world.story("low")["reason"] == "LossAnnounced"
    assert asked(world)["low"] == 1
    world.announce()
    world.turn()
    world.turn(application_incident.SETTLE_SECONDS)
    assert world.story("low")["phase"] == "Recovered", "it had lost a node before"
    assert {row["name"] for row in world.story("low")["lostNodes"]} == {"a"}


def test_an_application_that_finds_room_at_once_gets_no_recovery_from_others_notices(
    announced: Callable[..., World],
) -> None:
    world = announced("a")
    tell(world.known.registry, objects.node("c", "4"))
    created = 1_795_000_000 + int(world.now)
    more = executor("high", 2, node="", phase="Pending")
    more["metadata"]["creationTimestamp"] = iso(created)
    more["spec"]["schedulingGates"] = [{"name": GATE}]
    world.see(more)
    world.turn()
    assert world.gates("high") == []
    assert world.story("high") == {}


def test_an_application_that_waits_for_long_gets_a_recovery_from_others_notices(
    announced: Callable[..., World],
) -> None:
    world = announced("a")
    created = 1_795_000_000 + int(world.now)
    more = executor("high", 2, node="", phase="Pending")
    more["metadata"]["creationTimestamp"] = iso(created)
    more["spec"]["schedulingGates"] = [{"name": GATE}]
    world.see(more)
    world.turn()
    assert world.gates("high") == [GATE]
    assert world.story("high") == {}
    world.turn(application_incident.SETTLE_SECONDS)
    assert world.story("high")["phase"] == "CatchingUp", "it is of use, and more of it waits"


def look(world: World, name: str, nodes: dict[str, LossNotice]) -> Any:
    (place,) = (it for it in world.known.registry.places() if it.application == name)
    application = world.known.application(place)
    assert application is not None
    return application_incident.look_at(
        application, ApplicationNeed(name), 1.0, (), (), notices=nodes
    )


@pytest.mark.parametrize(
    ("cores", "free", "wanted"),
    [
        (4_000, {}, 4),
        (2_000, {}, 8),
        (3_000, {}, 8),
        (16_000, {}, 1),
        (4_000, {"x": 4_000, "y": 3_000}, 3),
        (1_000, {}, 8),
    ],
)
def test_eight_nodes_that_are_announced_at_once_need_as_many_as_their_pods_fill(
    made: Callable[..., World], cores: int, free: dict[str, int], wanted: int
) -> None:
    """Each has an executor of two cores; `cores` are those of a node that is asked for."""
    world = made()
    for number in range(2, 10):
        world.see(executor("high", number, node=f"n{number}"))
    notices = {f"n{number}": LossNotice("taint spot", 9.0) for number in range(2, 10)}
    found = wanted_nodes.replacements([look(world, "high", notices)], free, cores)
    assert found == {"high": wanted}


def test_eight_nodes_announced_at_once_are_one_incident_in_order_of_priority(
    made: Callable[..., World],
) -> None:
    world = made(provisioning=(KARPENTER,))
    names = [f"n{number}" for number in range(2, 10)]
    for number, node in enumerate(names, 2):
        tell(world.known.registry, objects.node(node, "2"))
        world.see(executor("high" if number % 2 else "low", number, node=node))
    world.announce(*names)
    world.turn()
    world.turn()
    assert asked(world) == {"high": 4, "low": 4}
    for name in ("high", "low"):
        assert len(world.story(name)["announcedNodes"]) == 4
    for node in ("c", "d", "e"):
        tell(world.known.registry, objects.node(node, "2"))
    world.turn()
    assert asked(world) == {"high": 1, "low": 4}, "what has come is for what matters most"


def test_the_recovery_keeps_what_was_asked_for_at_the_notice(
    announced: Callable[..., World],
) -> None:
    world = announced("a")
    at = datetime.fromtimestamp(1_795_001_000, UTC)
    row = NodeRequest(
        "r", "karpenter", 1, "Arrived", at, reason="LossAnnounced", ended_at=at + timedelta(0, 60)
    )
    world.rows = {1: (row,)}
    world.turn()
    assert world.story("low")["requests"][0]["reason"] == "LossAnnounced"
