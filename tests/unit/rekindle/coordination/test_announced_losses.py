"""Announced losses: what is placed, requested and moved before a node goes, and what was saved."""

from dataclasses import replace
from typing import Any

import pytest
from application_world import COSTS, Desk, orders, running

from rekindle.coordination import announced_losses, application_status, session
from rekindle.coordination.announced_losses import LOOK_SECONDS
from rekindle.coordination.application_status import ApplicationView
from rekindle.coordination.coordination_events import LossNotice
from rekindle.coordination.coordination_state import NodeStatus, NodeView, announced, initial
from rekindle.coordination.instructions import MovePartitions, RequestNodes
from rekindle.model.incidents import Incident, IncidentKind
from rekindle.model.reasons import Reason
from rekindle.model.settings import Policy
from rekindle.model.topology import Query, Topology, TopologyOperator
from rekindle.protocol import CheckpointReport, MoveOrder, NodeSeen, PlanOrder

SPOT = "aws-node-termination-handler/spot-itn"


NOTHING: dict[str, str] = {}


def announce(desk: Desk, *nodes: str, seconds: float = 120.0) -> None:
    """These nodes are announced to go, and no others."""
    notices = {node: LossNotice(SPOT, desk.now + seconds) for node in nodes}
    desk.reading = replace(desk.reading, notices=notices)


def look(desk: Desk, rounds: int = 5, moving: dict[str, str] | None = NOTHING) -> list[Any]:
    """Report and decide some times; all directives. With None for `moving` nothing can move."""
    found = []
    for _ in range(rounds):
        desk.report(moving=moving)
        found += desk.decide().directives
    return found


def held(desk: Desk, node: str) -> set[str]:
    return {name for name, where in desk.placement.items() if where == node}


def busiest(desk: Desk) -> str:
    """The node with most partitions."""
    return max(desk.nodes, key=lambda node: (len(held(desk, node)), node))


def incident_of(desk: Desk) -> Incident:
    assert desk.case.incident is not None
    return desk.case.incident


def with_room() -> Desk:
    """Everything runs, on nodes that hold all of it without one of them."""
    desk = running()
    desk.nodes = {node: replace_capacity(seen) for node, seen in desk.nodes.items()}
    look(desk)
    return desk


def replace_capacity(seen: NodeSeen) -> NodeSeen:
    return NodeSeen(incarnation=seen.incarnation, capacity_percent=400.0)


def test_a_notice_opens_an_incident_and_requests_a_node() -> None:
    desk = running()
    announce(desk, "n1")
    decision = desk.decide()
    assert incident_of(desk).kind is IncidentKind.ANNOUNCED
    assert incident_of(desk).announced == ("n1",)
    (request,) = decision.requested
    assert (request.what, request.count, request.reason) == ("nodes", 1, "loss-announced")
    assert not orders(decision, PlanOrder)


def test_the_request_is_over_once_another_node_is_up() -> None:
    desk = running()
    announce(desk, "n1")
    desk.decide()
    assert desk.case.requests
    desk.nodes["n5"] = NodeSeen(incarnation="a", capacity_percent=100.0)
    look(desk)
    assert not desk.case.requests
    assert desk.case.incident is not None, "the announced node is still there"


def test_a_checkpoint_ends_no_incident_while_a_node_is_announced() -> None:
    desk = with_room()
    node = busiest(desk)
    announce(desk, node)
    look(desk)
    complete_checkpoint(desk, 1)
    assert desk.case.incident is not None
    del desk.nodes[node]
    look(desk)
    complete_checkpoint(desk, 2)
    assert desk.case.incident is None


def test_in_a_rolling_drain_each_node_has_an_incident_of_its_own() -> None:
    desk = with_room()
    first = busiest(desk)
    announce(desk, first)
    look(desk)
    del desk.nodes[first]
    second = busiest(desk)
    announce(desk, second)
    look(desk)
    assert incident_of(desk).lost == (first,)
    requested = dict(desk.case.requests)
    complete_checkpoint(desk, 1)
    assert (incident_of(desk).number, incident_of(desk).kind) == (2, IncidentKind.ANNOUNCED)
    assert (incident_of(desk).announced, incident_of(desk).lost) == ((second,), ())
    assert incident_of(desk).nodes_wanted == 4
    look(desk)
    complete_checkpoint(desk, 2)
    assert incident_of(desk).number == 2, "nothing of it has happened yet"
    del desk.nodes[second]
    announce(desk)
    look(desk)
    assert incident_of(desk).kind is IncidentKind.INDEPENDENT
    assert incident_of(desk).lost == (second,)
    assert desk.case.requests == requested, "the notice has been provided for"


def rollbacks(desk: Desk, node: str, *, moving: dict[str, str] | None) -> list[bool]:
    """A node goes after its notice, then there is one for another: whether each plan rolls back."""
    announce(desk, node)
    look(desk, moving=moving)
    del desk.nodes[node]
    found = [item.order for item in look(desk, moving=None)]
    announce(desk, busiest(desk))
    look(desk, moving=None)
    return [order.rollback for order in found if isinstance(order, PlanOrder)]


@pytest.mark.parametrize(
    ("moving", "first", "then"),
    [
        (None, True, False),  # what the first node ran was planned for, after a rollback
        ({}, None, True),  # it had moved: nobody had to retain anything
    ],
)
def test_survivors_roll_back_once_in_incidents_that_follow_each_other(
    moving: dict[str, str] | None, first: bool | None, then: bool
) -> None:
    desk = running(buffering="adaptive")
    desk.nodes = {node: replace_capacity(seen) for node, seen in desk.nodes.items()}
    made = rollbacks(desk, busiest(desk), moving=moving)
    assert next(iter(made), None) is first
    complete_checkpoint(desk, 1, moving=None)
    assert (incident_of(desk).number, incident_of(desk).kind) == (2, IncidentKind.ANNOUNCED)
    (second,) = incident_of(desk).announced
    assert rollbacks(desk, second, moving=None)[0] is then


@pytest.mark.parametrize("reported_after_checkpoint", [True, False])
def test_survivors_roll_back_again_once_buffering_has_been_off_between_two_losses(
    reported_after_checkpoint: bool,
) -> None:
    desk = running(buffering="adaptive")
    desk.nodes = {node: replace_capacity(seen) for node, seen in desk.nodes.items()}
    assert rollbacks(desk, busiest(desk), moving=None) == [True]
    if reported_after_checkpoint:
        complete_checkpoint(desk, 1, moving=None)
        desk.modes["buffering"] = "off"  # the driver was alone, and has closed it by itself
        desk.report(moving=None)
        desk.decide()
    else:
        desk.modes["buffering"] = "off"
        complete_checkpoint(desk, 1, moving=None)
    desk.case = desk.restart()
    look(desk, moving=None)
    assert desk.modes["buffering"] == "on"
    assert incident_of(desk).number == 2
    (second,) = incident_of(desk).announced
    assert rollbacks(desk, second, moving=None) == [True]


def test_survivors_roll_back_with_a_later_plan_of_an_incident_while_buffering_is_off() -> None:
    desk = running(buffering="adaptive")
    desk.nodes = {node: replace_capacity(seen) for node, seen in desk.nodes.items()}
    assert rollbacks(desk, busiest(desk), moving=None) == [True]
    desk.modes["buffering"] = "off"
    del desk.nodes[busiest(desk)]
    found = [item.order for item in look(desk, moving=None)]
    assert [order.rollback for order in found if isinstance(order, PlanOrder)] == [True]


def complete_checkpoint(desk: Desk, epoch: int, moving: dict[str, str] | None = NOTHING) -> None:
    """A checkpoint becomes global, and the coordinator looks at it."""
    report = CheckpointReport(generation=1, sequence=epoch, epoch=epoch, at=desk.now)
    desk.reading = replace(desk.reading, checkpoint=report)
    desk.report(moving=moving)
    desk.decide()


def test_a_second_notice_has_a_request_of_its_own() -> None:
    desk = running()
    announce(desk, "n1")
    desk.decide()
    announce(desk, "n1", "n2")
    desk.decide()
    assert sum(request.count for request in desk.case.requests.values()) == 2
    assert len(desk.case.requests) == 2


def test_what_an_announced_node_runs_moves_before_it_goes() -> None:
    desk = with_room()
    node = busiest(desk)
    there = held(desk, node)
    announce(desk, node)
    moves = [item for item in look(desk) if isinstance(item.order, MoveOrder)]
    assert {name for item in moves for name in item.order.placement} == there
    assert held(desk, node) == set()
    assert moves[0].reason == "loss-announced"
    assert f"from {node}, announced to go" in moves[0].text


def test_a_node_that_goes_cleared_out_stops_nothing_and_is_not_requested_again() -> None:
    desk = with_room()
    node = busiest(desk)
    there = held(desk, node)
    announce(desk, node)
    look(desk)
    asked = dict(desk.case.requests)
    del desk.nodes[node]
    announce(desk)
    desk.report(moving={})
    decision = desk.decide()
    assert not decision.requested
    assert desk.case.requests == asked
    assert set(desk.placement) == set(COSTS)
    incident = incident_of(desk)
    assert incident.kind is IncidentKind.INDEPENDENT
    assert set(incident.moved) == there
    assert incident.saved
    assert not orders(decision, PlanOrder)


def test_an_announced_node_gets_nothing_new_while_others_have_room() -> None:
    desk = with_room()
    announce(desk, "n1", "n2")
    look(desk)
    del desk.nodes["n3"]
    announce(desk, "n1", "n2")
    for directive in look(desk, 8):
        if isinstance(directive.order, PlanOrder | MoveOrder):
            assert not {"n1", "n2"} & set(directive.order.placement.values())
    assert set(desk.placement) == set(COSTS)


def test_where_all_nodes_are_announced_what_is_lost_comes_back_on_them() -> None:
    desk = with_room()
    node = busiest(desk)
    announce(desk, *desk.nodes)
    look(desk)
    del desk.nodes[node]
    announce(desk, *desk.nodes)
    look(desk, 8)
    assert set(desk.placement) == set(COSTS)


def test_a_withdrawn_notice_ends_the_moves_and_the_incident() -> None:
    desk = with_room()
    node = busiest(desk)
    announce(desk, node)
    desk.report(moving={})
    (directive,) = desk.decide(obey=False).directives
    assert isinstance(directive.order, MoveOrder)
    announce(desk)
    decision = desk.decide(obey=False)
    assert [order.placement for order in orders(decision, MoveOrder)] == [{}]
    assert desk.case.incident is None
    assert not desk.case.requests


def test_a_withdrawn_notice_leaves_the_moves_off_others() -> None:
    desk = with_room()
    nodes = sorted({*desk.placement.values()})[:2]
    announce(desk, *nodes)
    desk.report(moving={})
    desk.decide(obey=False)
    announce(desk, nodes[0])
    (order,) = orders(desk.decide(), MoveOrder)
    assert order.placement == {}
    desk.report(moving={})
    (order,) = orders(desk.decide(), MoveOrder)
    assert order.placement
    assert held(desk, nodes[0]) == set()
    assert incident_of(desk).kind is IncidentKind.ANNOUNCED


def test_a_node_that_dies_before_its_deadline_is_a_loss_like_any_other() -> None:
    desk = running()
    node = busiest(desk)
    lost = held(desk, node)
    announce(desk, node)
    desk.report(moving=None)
    desk.decide()
    del desk.nodes[node]
    desk.report(moving=None)
    decision = desk.decide()
    (plan,) = orders(decision, PlanOrder)
    assert set(plan.placement) & lost
    assert incident_of(desk).lost == (node,)
    assert incident_of(desk).kind is IncidentKind.INDEPENDENT
    assert incident_of(desk).saved == ()


def test_a_notice_is_kept_over_a_restart_of_the_coordinator_and_where_nobody_knows() -> None:
    desk = running()
    announce(desk, "n1")
    desk.decide()
    desk.case = desk.restart()
    desk.reading = replace(desk.reading, notices=None)
    desk.decide()
    assert desk.case.state is not None
    assert set(announced(desk.case.state)) == {"n1"}
    announce(desk, "n1", seconds=900.0)
    before = announced(desk.case.state)["n1"]
    desk.decide()
    after = announced(desk.case.state)["n1"]
    assert after == replace(before, until=desk.now - 1.0 + 900.0), "the newest deadline counts"
    assert after.requested


def test_a_dry_run_moves_nothing_and_says_what_it_knows() -> None:
    desk = with_room()
    announce(desk, busiest(desk))
    for _ in range(3):
        desk.report(moving={})
        found = session.decide(desk.case, desk.reading, desk.now, clock=float, dry_run=True)
        desk.case = found.case
        assert not found.directives
    assert incident_of(desk).kind is IncidentKind.ANNOUNCED
    announce(desk)
    found = session.decide(desk.case, desk.reading, desk.now, clock=float, dry_run=True)
    assert found.case.incident is None
    assert not found.directives


def test_nothing_moves_before_somebody_has_approved() -> None:
    desk = with_room()
    announce(desk, busiest(desk))
    for approved in (False, False, True):
        desk.now += 1.0
        desk.report(moving={})
        found = session.decide(desk.case, desk.reading, desk.now, clock=float, recover=approved)
        desk.case = found.case
        desk.obey(found)
        assert incident_of(desk).kind is IncidentKind.ANNOUNCED
        assert bool(orders(found, MoveOrder)) == approved


def test_the_queries_that_bring_most_leave_first_as_far_as_room_goes() -> None:
    topology = Topology(
        (TopologyOperator("a", 1), TopologyOperator("b", 1), TopologyOperator("c", 1)),
        (),
        (Query("low", "a", 1), Query("high", "b", 9), Query("middle", "c", 5)),
    )
    there = LossNotice(SPOT, 120.0)
    state = replace(
        initial(topology, Policy(solver="best-density"), 2),
        costs={"a/0": 30.0, "b/0": 50.0, "c/0": 25.0},
        placement={"a/0": "n1", "b/0": "n1", "c/0": "n1"},
        nodes={
            "n1": NodeView(NodeStatus.UP, 100.0, notice=there),
            "n2": NodeView(NodeStatus.UP, 100.0),
        },
        moving={},
    )
    assert list(announced_losses.moves(state, float).items()) == [("b/0", "n2"), ("c/0", "n2")]
    full = replace(state, nodes={**state.nodes, "n2": NodeView(NodeStatus.UP, 20.0)})
    assert announced_losses.moves(full, float) == {}
    alone = replace(state, nodes={"n1": state.nodes["n1"]})
    assert announced_losses.clear_out(alone, 9.0, float) == (replace(alone, full_at=9.0), ())


def test_nothing_moves_while_something_is_under_way() -> None:
    desk = with_room()
    announce(desk, busiest(desk))
    desk.report(moving=None)
    assert not orders(desk.decide(), MoveOrder), "the driver can make no moves now"
    desk.report(moving={})
    decision = desk.decide(obey=False)
    assert any(isinstance(item, MovePartitions) for item in decision.instructions)
    desk.report(moving=dict(orders(decision, MoveOrder)[0].placement))
    assert not orders(desk.decide(), MoveOrder), "the first ones have yet to be made"


def shown(desk: Desk) -> list[str]:
    """What people are told of it."""
    view = ApplicationView("team/flights", desk.case, replace(desk.reading, notices=None))
    found = application_status.of(view, desk.now, clock=float)
    return [item.text for item in found.notices if item.reason is Reason.LOSS_ANNOUNCED]


def test_people_see_what_will_go_what_has_moved_and_what_was_saved_by_it() -> None:
    desk = with_room()
    node = busiest(desk)
    count = len(held(desk, node))
    announce(desk, node)
    desk.report(moving={})
    decision = desk.decide(obey=False)
    texts = shown(desk)
    assert texts[0].startswith(f"{node} is announced to go, in 119 s ({SPOT}).")
    assert f"{count} partition" in texts[0]
    assert texts[0].endswith("there, which move.")
    assert texts[1].startswith("Requested: 1 node")
    desk.obey(decision)
    desk.report(moving={})
    desk.decide()
    assert f"Moved off it: {count} partition" in shown(desk)[0]
    del desk.nodes[node]
    announce(desk)
    desk.report(moving={})
    desk.decide()
    saved = next(text for text in shown(desk) if text.startswith("Saved by notice"))
    assert f"{count} partition" in saved
    assert "did not stop" in saved


def test_where_nothing_has_room_it_is_looked_for_again_some_seconds_later() -> None:
    asked = 0

    def clock() -> float:
        nonlocal asked
        asked += 1
        return 0.0

    desk = running()
    announce(desk, busiest(desk))
    desk.report(moving={})
    state = desk.decide(obey=False).case.state
    assert state is not None
    full = replace(
        state, moving={}, nodes={name: small(view) for name, view in state.nodes.items()}
    )
    full, told = announced_losses.clear_out(replace(full, full_at=None), 10.0, clock)
    first = asked
    assert told == ()
    assert first > 0
    full, _ = announced_losses.clear_out(full, 10.0 + LOOK_SECONDS / 2, clock)
    assert asked == first
    announced_losses.clear_out(full, 10.0 + LOOK_SECONDS, clock)
    assert asked > first


def small(view: NodeView) -> NodeView:
    """A node with room for nothing."""
    return replace(view, capacity_percent=1.0)


def test_a_notice_that_comes_and_goes_requests_one_node() -> None:
    desk = with_room()
    node, other = sorted(desk.nodes)[:2]
    del desk.nodes[other]
    look(desk)
    requested = 0
    for more in ("n5", "n6", "n7"):
        announce(desk, node)
        desk.report(moving={})
        told = desk.decide().instructions
        requested += sum(item.count for item in told if isinstance(item, RequestNodes))
        desk.nodes[more] = NodeSeen(incarnation="a", capacity_percent=400.0)
        announce(desk)
        look(desk, 2)
    assert requested == 1
    assert incident_of(desk).announced == (node,)
    assert incident_of(desk).nodes_wanted == 4


def test_a_scale_down_requests_no_node_also_when_it_comes() -> None:
    desk = with_room()
    notice = LossNotice("taint ToBeDeletedByClusterAutoscaler", desk.now + 600.0)
    desk.reading = replace(desk.reading, notices={"n1": notice})
    look(desk)
    assert incident_of(desk).announced == ("n1",)
    assert held(desk, "n1") == set(), "what runs there moves all the same"
    assert not desk.case.requests
    del desk.nodes["n1"]
    announce(desk)
    look(desk)
    assert incident_of(desk).lost == ("n1",)
    assert not desk.case.requests


def test_blocking_queries_do_not_wait_for_nodes_that_come_only_after_announced_ones() -> None:
    desk = running(strategy="blocking", stabilisation_seconds=0.0)
    announce(desk, "n1")
    look(desk)
    lost = [node for node in ("n2", "n3", "n4") if held(desk, node)]
    for node in lost:
        del desk.nodes[node]
    look(desk)
    for node in lost:
        desk.nodes[node] = NodeSeen(incarnation="b", capacity_percent=100.0)
    look(desk)
    assert desk.case.state is not None
    assert set(announced(desk.case.state)) == {"n1"}
    assert set(desk.placement) == set(COSTS), "all four nodes are up"


def test_protected_queries_do_not_move_and_a_node_is_requested_for_them_at_the_notice() -> None:
    """Their driver says of no partition that it could move: Spark places their tasks."""
    desk = running()
    announce(desk, "n1")
    found = look(desk, moving=None)
    assert not [item for item in found if isinstance(item.order, MoveOrder | PlanOrder)]
    (request,) = desk.case.requests.values()
    assert (request.count, request.reason) == (1, "loss-announced")
    desk.nodes["n5"] = NodeSeen(incarnation="a", capacity_percent=100.0)
    look(desk, moving=None)
    assert not desk.case.requests, "the node has come before the loss"
    lost = held(desk, "n1")
    del desk.nodes["n1"]
    announce(desk)
    desk.report(moving=None)
    decision = desk.decide()
    assert not decision.requested, "it was provided for"
    (plan,) = orders(decision, PlanOrder)
    assert set(plan.placement) == lost, "all of it fits at once"
    assert set(desk.placement) == set(COSTS)


def test_eight_of_ten_nodes_that_are_announced_at_once_are_one_incident_with_one_request() -> None:
    desk = running()
    for number in range(5, 11):
        desk.nodes[f"n{number}"] = NodeSeen(incarnation="a", capacity_percent=100.0)
    look(desk)
    going = [f"n{number}" for number in range(1, 9)]
    announce(desk, *going)
    found = look(desk, 8)
    assert incident_of(desk).announced == tuple(going)
    assert [request.count for request in desk.case.requests.values()] == [8]
    moves = [item.order for item in found if isinstance(item.order, MoveOrder)]
    assert {node for move in moves for node in move.placement.values()} <= {"n9", "n10"}
    assert set(desk.placement) == set(COSTS), "nothing stops for it"
    stay = {name for name, node in desk.placement.items() if node in ("n9", "n10")}
    assert stay, "what has room has moved"
    for node in going:
        del desk.nodes[node]
    announce(desk)
    look(desk)
    incident = incident_of(desk)
    assert set(incident.lost) == set(going)
    assert set(incident.moved) == {name for move in moves for name in move.placement}
    assert [request.count for request in desk.case.requests.values()] == [8], "not twice"
    assert stay <= set(desk.placement)
