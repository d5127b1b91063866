"""Slow nodes: what has to leave them, where it goes, and what people are told."""

from dataclasses import replace

from application_world import Desk, orders, running

from rekindle.coordination import application_status, rebalancing
from rekindle.coordination.application_status import ApplicationStatus, ApplicationView
from rekindle.coordination.coordination_state import NodeStatus, NodeView, initial
from rekindle.model.reasons import Reason
from rekindle.model.settings import Policy
from rekindle.model.topology import Query, Topology, TopologyOperator
from rekindle.protocol import MoveOrder, NodeSeen, PlanOrder

UNEVEN_SECONDS = Policy().uneven_seconds
SLOW = NodeSeen(incarnation="a", capacity_percent=100.0, slow=True)
FAST = NodeSeen(incarnation="a", capacity_percent=100.0)


def with_slow(*nodes: str) -> Desk:
    """Everything runs, then the driver says that these nodes are slow."""
    desk = running()
    desk.nodes |= dict.fromkeys(nodes, SLOW)
    return desk


def held(desk: Desk, node: str) -> set[str]:
    return {name for name, where in desk.placement.items() if where == node}


def shown(desk: Desk) -> ApplicationStatus:
    """What people see of it."""
    return application_status.of(
        ApplicationView("team/flights", desk.case, desk.reading), desk.now, clock=float
    )


def test_a_slow_node_is_emptied_at_once_with_the_reason() -> None:
    desk = with_slow("n1")
    there = held(desk, "n1")
    assert there
    desk.report(moving={})
    (directive,) = desk.decide().directives
    assert isinstance(directive.order, MoveOrder)
    assert set(directive.order.placement) == there
    assert "n1" not in directive.order.placement.values()
    assert directive.reason == "slow-node"
    assert "from n1, which is slow" in directive.text


def test_what_it_does_well_again_is_spread_as_ever_and_not_before() -> None:
    desk = with_slow("n1")
    for _ in range(int(3 * UNEVEN_SECONDS)):
        desk.report(moving={})
        desk.decide()
    assert held(desk, "n1") == set()
    desk.nodes["n1"] = FAST
    for _ in range(int(3 * UNEVEN_SECONDS)):
        desk.report(moving={})
        desk.decide()
    assert held(desk, "n1")


def test_the_most_important_queries_leave_first_as_far_as_room_goes() -> None:
    topology = Topology(
        (TopologyOperator("a", 1), TopologyOperator("b", 2), TopologyOperator("c", 1)),
        (),
        (Query("low", "a", 1), Query("high", "b", 9), Query("middle", "c", 5)),
    )
    state = replace(
        initial(topology, Policy(), 2),
        costs={"a/0": 30.0, "b/0": 30.0, "b/1": 30.0, "c/0": 15.0},
        placement={"a/0": "n1", "b/0": "n1", "b/1": "n2", "c/0": "n1"},
        nodes={
            "n1": NodeView(NodeStatus.UP, 100.0, slow=True),
            "n2": NodeView(NodeStatus.UP, 100.0),
        },
    )
    assert rebalancing.relief(state) == {"b/0": "n2", "c/0": "n2"}, (
        "75 % of 80 %, nothing else fits"
    )


def test_nothing_new_is_placed_on_a_slow_node_while_others_have_room() -> None:
    desk = with_slow("n1")
    desk.report(moving={})
    desk.decide()
    del desk.nodes["n4"]
    desk.report(moving={})
    placed = {n for order in orders(desk.decide(), PlanOrder) for n in order.placement.values()}
    assert placed
    assert "n1" not in placed


def test_where_no_other_has_room_lost_queries_come_back_on_slow_nodes_all_the_same() -> None:
    desk = with_slow("n1", "n2", "n3")
    del desk.nodes["n4"]
    desk.report(moving={})
    desk.settle()
    assert len(desk.placement) == 5


def test_people_are_told_of_a_slow_node_and_of_what_finds_no_room() -> None:
    desk = with_slow("n1", "n2", "n3", "n4")
    desk.report(moving={})
    assert not desk.decide().directives
    told = shown(desk)
    (notice,) = (item for item in told.notices if item.reason is Reason.SLOW_NODE)
    assert notice.text == "Slow: n1, n2, n3, n4. 5 partitions there, no room elsewhere."
    desk.nodes["n4"] = FAST
    desk.placement = dict.fromkeys(desk.placement, "n1")
    desk.report(moving={})
    told = shown(desk)
    (notice,) = (item for item in told.notices if item.reason is Reason.SLOW_NODE)
    assert "which move" in notice.text
