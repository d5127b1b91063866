"""Load that is spread evenly: what moves, what is left alone, and when nothing may move."""

import math
from dataclasses import replace
from typing import Any

import pytest
from application_world import COSTS, Desk, orders, running
from hypothesis import given
from hypothesis import strategies as st

from rekindle.coordination import CoordinationState, rebalancing, session
from rekindle.coordination.coordination_state import NodeStatus, NodeView, initial
from rekindle.coordination.rebalancing import MOVES_MAX
from rekindle.model.settings import Policy
from rekindle.model.topology import Query, Topology, TopologyOperator
from rekindle.protocol import MoveOrder, NodeSeen, Orders

UNEVEN_SECONDS = Policy().uneven_seconds


def spread(held: dict[str, list[float]], capacity: float = 100.0) -> CoordinationState:
    """Nodes with partitions of these costs, all of which run and nothing else is under way."""
    costs = [cost for node in sorted(held) for cost in held[node]]
    topology = Topology((TopologyOperator("o", max(1, len(costs))),), (), (Query("q", "o", 1),))
    state = initial(topology, Policy(), len(held))
    names = iter(state.partitions)
    placement = {next(names): node for node in sorted(held) for _ in held[node]}
    return replace(
        state,
        start=None,
        starting=False,
        nodes={node: NodeView(NodeStatus.UP, capacity) for node in held},
        costs=dict(zip(state.partitions, costs, strict=True)),
        placement=placement,
        moving={},
    )


def carried(state: CoordinationState, placement: dict[str, str]) -> dict[str, float]:
    return {
        node: math.fsum(state.costs[name] for name, where in placement.items() if where == node)
        for node in state.nodes
    }


def test_many_small_ones_are_spread_though_none_of_them_changes_much() -> None:
    state = spread({"a": [1.0] * 40, "b": [], "c": [1.0] * 40})
    after = carried(state, {**state.placement, **rebalancing.moves(state)})
    assert max(after.values()) - min(after.values()) <= 4.0


def test_small_ones_stay_where_they_would_change_next_to_nothing() -> None:
    assert rebalancing.moves(spread({"a": [60.0, 0.1], "b": [20.0], "c": [22.0]})) == {}
    assert rebalancing.moves(spread({"a": [60.0, 0.1, 0.1], "b": []})) == {}


@pytest.mark.parametrize(
    ("held", "after"),
    [
        ({"a": [61.0], "b": [30.0, 30.0], "c": []}, [30.0, 30.0, 61.0]),
        ({"a": [61.0], "b": [20.0] * 3, "c": [10.0] * 4, "d": []}, [30.0, 30.0, 40.0, 61.0]),
        ({"a": [30.0], "b": [30.0], "c": [2.0] * 10, "d": []}, [10.0, 10.0, 30.0, 30.0]),
    ],
)
def test_one_large_partition_keeps_nothing_else_from_being_spread(
    held: dict[str, list[float]], after: list[float]
) -> None:
    state = spread(held)
    moved = carried(state, {**state.placement, **rebalancing.moves(state)})
    assert sorted(moved.values()) == pytest.approx(after)


@pytest.mark.parametrize("large", [30.0, 40.0, 60.0])
def test_a_large_partition_does_not_make_others_move_for_what_wavers(large: float) -> None:
    held = {f"n{number:02}": [1.8 + 0.4 * (number % 2)] * 10 for number in range(40)}
    assert rebalancing.moves(spread({**held, "z": [large]})) == {}


def test_more_than_one_order_can_move_is_begun_with() -> None:
    many = spread({f"n{number:03}": [8.0] * 8 * (number % 2) for number in range(200)})
    assert len(rebalancing.moves(many)) == MOVES_MAX


def test_a_node_that_has_nothing_gets_of_what_is_idle() -> None:
    state = spread({"a": [0.1] * 11, "b": [], "c": []})
    moves = rebalancing.moves(state)
    after = replace(state, placement={**state.placement, **moves})
    held = sorted(list(after.placement.values()).count(node) for node in "abc")
    assert held == [3, 4, 4]
    assert not rebalancing.moves(after)
    assert not rebalancing.moves(spread({"a": [0.1], "b": [0.1], "c": []}))


@pytest.mark.parametrize(
    ("held", "after"),
    [
        ({"a": [10.0] * 6, "b": []}, [30.0, 30.0]),
        ({"a": [10.0] * 4, "b": [10.0] * 4, "c": []}, [20.0, 30.0, 30.0]),
        ({"a": [40.0, 5.0, 5.0], "b": []}, [10.0, 40.0]),
        ({"a": [2.0] * 9, "b": [2.0] * 9, "c": [2.0] * 9, "d": [2.0]}, [14.0, 14.0, 14.0, 14.0]),
    ],
)
def test_what_the_fullest_node_has_too_much_goes_to_the_emptiest(
    held: dict[str, list[float]], after: list[float]
) -> None:
    state = spread(held)
    moves = rebalancing.moves(state)
    assert sorted(carried(state, {**state.placement, **moves}).values()) == after


@pytest.mark.parametrize(
    ("held", "why"),
    [
        ({"a": [10.0, 10.0], "b": [10.0, 10.0]}, "it is even"),
        ({"a": [10.0] * 6, "b": [10.0] * 4}, "what is measured wavers as much"),
        ({"a": [1.0] * 4, "b": [1.0]}, "nobody would notice"),
        ({"a": [50.0], "b": []}, "the other one would carry as much"),
        ({"a": [10.0, 10.0]}, "there is no other node"),
    ],
    ids=str,
)
def test_a_difference_that_is_not_worth_it_is_left_alone(
    held: dict[str, list[float]], why: str
) -> None:
    assert rebalancing.moves(spread(held)) == {}, why


def test_a_large_node_carries_more_than_a_small_one() -> None:
    state = spread({"a": [10.0] * 6, "b": []})
    state = replace(state, nodes={**state.nodes, "b": NodeView(NodeStatus.UP, 200.0)})
    after = carried(state, {**state.placement, **rebalancing.moves(state)})
    assert after == {"a": 20.0, "b": 40.0}


@given(
    st.dictionaries(
        st.sampled_from("abcdef"),
        st.lists(st.floats(0.1, 40.0), max_size=12),
        min_size=1,
    ).filter(lambda held: any(held.values()))
)
def test_moves_never_fill_a_node_more_than_one_was_and_come_to_rest(
    held: dict[str, list[float]],
) -> None:
    state = spread(held)
    moves = rebalancing.moves(state)
    before, after = carried(state, dict(state.placement)), {**state.placement, **moves}
    assert max(carried(state, after).values()) <= max(before.values()) + 1e-6
    assert all(state.placement[name] != node for name, node in moves.items())
    assert len(moves) <= MOVES_MAX
    if len(moves) < MOVES_MAX:
        assert len(rebalancing.moves(replace(state, placement=after))) < max(1, len(moves))


def with_room(**policy: Any) -> Desk:
    """All runs on two of four nodes; the others have come back empty."""
    desk = running(**policy)
    desk.placement = {name: "n1" if index % 2 else "n2" for index, name in enumerate(sorted(COSTS))}
    return desk


def wait(desk: Desk, seconds: float = UNEVEN_SECONDS, **fields: Any) -> list[MoveOrder]:
    """What is ordered to move while the driver reports the same all the time."""
    found: list[MoveOrder] = []
    for _ in range(int(seconds) + 2):
        desk.report(**{"moving": {}, **fields})
        found += orders(desk.decide(), MoveOrder)
    return found


def test_load_that_stays_uneven_is_evened_out_with_one_order_and_its_reason() -> None:
    desk = with_room()
    (order,) = wait(desk, 3 * UNEVEN_SECONDS)
    assert set(order.placement.values()) >= {"n3", "n4"}
    used = dict.fromkeys(desk.nodes, 0.0)
    for name, node in desk.placement.items():
        used[node] += COSTS[name]
    assert max(used.values()) - min(used.values()) <= 20.0


def test_nothing_more_is_ordered_while_the_driver_has_moves_to_make() -> None:
    desk = with_room()
    waiting = {"source/0": "n3"}
    assert wait(desk, 3 * UNEVEN_SECONDS, moving=waiting) == []


def test_a_difference_that_goes_away_moves_nothing() -> None:
    desk = with_room()
    uneven = dict(desk.placement)
    for _ in range(4):
        desk.placement = dict(uneven)
        assert wait(desk, UNEVEN_SECONDS / 2) == []
        desk.placement = dict(zip(sorted(COSTS), ("n1", "n2", "n3", "n3", "n4"), strict=True))
        assert wait(desk, 1) == []


def test_a_driver_that_cannot_move_is_not_told_to() -> None:
    assert wait(with_room(), moving=None) == []


def test_nothing_moves_while_people_have_paused_the_application() -> None:
    desk = with_room()
    desk.reading = replace(desk.reading, orders=Orders(paused=True))
    assert wait(desk) == []


def test_nothing_moves_in_a_dry_run() -> None:
    desk = with_room()
    for _ in range(int(3 * UNEVEN_SECONDS)):
        desk.report(moving={})
        decision = session.decide(desk.case, desk.reading, desk.now, clock=float, dry_run=True)
        desk.now, desk.case = desk.now + 1.0, decision.case
        assert not orders(decision, MoveOrder)


def test_nothing_moves_while_an_incident_is_open_or_a_node_is_silent() -> None:
    desk = with_room()
    silent = NodeSeen(incarnation="a", capacity_percent=100.0, suspected=True)
    assert wait(desk, nodes={**desk.nodes, "n4": silent}) == []
    del desk.nodes["n1"]
    desk.settle()
    assert desk.case.incident is not None
    assert wait(desk) == []


def test_a_coordinator_that_is_started_anew_orders_the_same_at_the_same_moment() -> None:
    desk, other = with_room(), with_room()
    first = wait(desk, 3 * UNEVEN_SECONDS)
    second: list[MoveOrder] = []
    for _ in range(int(3 * UNEVEN_SECONDS) + 2):
        other.case = other.restart()
        other.report(moving={})
        second += orders(other.decide(), MoveOrder)
    assert (first, desk.now) == (second, other.now)
    assert first
