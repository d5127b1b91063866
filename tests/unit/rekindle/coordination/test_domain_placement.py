"""Placement that survives: closures of important queries together, in few failure domains."""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rekindle.coordination import CoordinationState, advance, domain_placement
from rekindle.coordination.coordination_events import NodeBack, StatisticsReported, Tick
from rekindle.coordination.coordination_state import NodeStatus, NodeView, initial
from rekindle.coordination.instructions import MovePartitions, PublishPlan
from rekindle.coordination.rebalancing import SURVEY_SECONDS
from rekindle.model.plan_problem import QueryDemand
from rekindle.model.reasons import Reason
from rekindle.model.settings import DOMAINS, Policy
from rekindle.model.topology import Query, Topology, TopologyOperator
from rekindle.planning import domain_layout
from rekindle.planning.domain_layout import DomainLayout

NODES = {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}
UP = {node: NodeView(NodeStatus.UP, 100.0, domain) for node, domain in NODES.items()}


@st.composite
def layouts(draw: st.DrawFn, unneeded: bool = True) -> tuple[DomainLayout, dict[str, str]]:
    """Up to four queries over up to six partitions on two domains, somehow placed; where
    `unneeded`, no query needs some of them, as upstream of one that has stopped."""
    count = draw(st.integers(1, 6))
    names = [f"p/{number}" for number in range(count)]
    costs = {name: float(draw(st.integers(1, 10))) for name in names}
    queries = {
        f"q/{number}": QueryDemand(
            float(draw(st.integers(1, 10))),
            tuple(sorted(draw(st.sets(st.sampled_from(names), min_size=1)))),
        )
        for number in range(draw(st.integers(1, 4)))
    }
    if not unneeded:
        needed = {partition for query in queries.values() for partition in query.partitions}
        costs = {name: cost for name, cost in costs.items() if name in needed}
    current = {name: draw(st.sampled_from(sorted(NODES))) for name in costs}
    used = {
        node: math.fsum(costs[name] for name, where in current.items() if where == node)
        for node in NODES
    }
    capacities = {node: used[node] + draw(st.integers(0, 20)) for node in NODES}
    return DomainLayout(costs, capacities, NODES, queries), current


def fits(layout: DomainLayout, node_of: dict[str, str]) -> bool:
    return all(
        math.fsum(layout.costs[p] for p, where in node_of.items() if where == node)
        <= layout.capacities[node] + 1e-6
        for node in layout.capacities
    )


@settings(max_examples=150)
@given(layouts())
def test_an_arrangement_fits_holds_everything_and_is_no_worse_than_what_there_is(
    drawn: tuple[DomainLayout, dict[str, str]],
) -> None:
    layout, current = drawn
    found = domain_layout.arranged(layout, current)
    assert found is not None
    assert found.keys() == layout.costs.keys()
    assert fits(layout, found)
    assert domain_layout.worth(layout, found) <= domain_layout.worth(layout, current) + 1e-9
    assert domain_layout.arranged(layout, current) == found


@settings(max_examples=60)
@given(layouts(unneeded=False))
def test_an_arrangement_comes_close_to_the_best_there_is(
    drawn: tuple[DomainLayout, dict[str, str]],
) -> None:
    layout, current = drawn
    found = domain_layout.arranged(layout, current)
    assert found is not None
    names = sorted(layout.costs)
    best = min(
        domain_layout.worth(layout, dict(zip(names, where, strict=True)))
        for where in itertools.product(sorted(NODES), repeat=len(names))
        if fits(layout, dict(zip(names, where, strict=True)))
    )
    assert domain_layout.worth(layout, found) <= 1.6 * best


def test_what_a_domains_loss_stops_is_what_has_anything_there() -> None:
    queries = {"x": QueryDemand(3.0, ("p", "q")), "y": QueryDemand(4.0, ("q",))}
    layout = DomainLayout({"p": 1.0, "q": 1.0}, dict.fromkeys(NODES, 9.0), NODES, queries)
    assert domain_layout.stopped(layout, {"p": "a1", "q": "b1"}) == {"a": 3.0, "b": 7.0}
    assert domain_layout.stopped(layout, {"p": "b2", "q": "b1"}) == {"a": 0.0, "b": 7.0}


def test_closures_that_share_nothing_come_into_different_domains() -> None:
    queries = {name: QueryDemand(1.0, (f"{name}/0", f"{name}/1")) for name in "wxyz"}
    costs = {partition: 10.0 for query in queries.values() for partition in query.partitions}
    layout = DomainLayout(costs, dict.fromkeys(NODES, 20.0), NODES, queries)
    found = domain_layout.arranged(layout, {})
    assert found is not None
    assert domain_layout.stopped(layout, found) == {"a": 2.0, "b": 2.0}


def test_what_only_a_stopped_query_needs_keeps_its_room() -> None:
    """What it takes is not given away: together in one domain the others would overfill a node."""
    queries = {"x": QueryDemand(9.0, ("s", "t"))}
    layout = DomainLayout(
        {"orphan": 35.0, "s": 40.0, "t": 30.0},
        {"n1": 80.0, "n2": 80.0},
        {"n1": "a", "n2": "b"},
        queries,
    )
    found = domain_layout.arranged(layout, {"orphan": "n1", "s": "n1", "t": "n2"})
    assert found == {"orphan": "n1", "s": "n2", "t": "n2"}


def test_where_nothing_fits_there_is_no_arrangement() -> None:
    layout = DomainLayout({"p": 9.0}, {"a1": 5.0}, {"a1": "a"}, {"x": QueryDemand(1.0, ("p",))})
    assert domain_layout.arranged(layout, {}) is None


def two_pipelines(**policy: Any) -> CoordinationState:
    """Two queries that share nothing, each with a source of two partitions."""
    topology = Topology(
        (
            TopologyOperator("ships", 2),
            TopologyOperator("late", 2),
            TopologyOperator("birds", 2),
            TopologyOperator("rare", 2),
        ),
        (("ships", "late"), ("birds", "rare")),
        (Query("late-ships", "late", 9), Query("rare-birds", "rare", 1)),
    )
    return initial(topology, Policy(**policy), len(NODES))


def running(state: CoordinationState, placement: dict[str, str]) -> CoordinationState:
    return replace(
        state,
        start=None,
        starting=False,
        nodes=UP,
        costs=dict.fromkeys(state.partitions, 10.0),
        placement=placement,
        moving={},
    )


def spread(**policy: Any) -> CoordinationState:
    """Every operator has a partition in each domain."""
    state = two_pipelines(**policy)
    nodes = itertools.cycle(("a1", "b1", "a2", "b2"))
    return running(state, {partition: next(nodes) for partition in state.partitions})


def ticked(state: CoordinationState, now: float) -> tuple[CoordinationState, list[MovePartitions]]:
    state, told = advance(state, Tick(), now, clock=lambda: 0.0)
    return state, [one for one in told if isinstance(one, MovePartitions)]


def test_what_is_spread_is_gathered_with_one_order_and_its_reason() -> None:
    state = spread(placement=DOMAINS)
    assert domain_placement.stopped_share(state, {}) == 1.0
    state, (order,) = ticked(state, 0.0)
    assert order.reason is Reason.SURVIVAL
    assert domain_placement.stopped_share(state, order.placement) == 0.5
    assert "stops 50% of all priority in the mean, and not 100%" in order.text
    assert len(order.placement) == 4, "half of it is where it should be"
    state = replace(state, placement={**state.placement, **order.placement}, moving={})
    for now in (1.0, SURVEY_SECONDS + 1, 3 * SURVEY_SECONDS):
        state, orders = ticked(state, now)
        assert orders == []


def test_moves_wait_for_those_that_make_room_for_them() -> None:
    costs = {"a": 12.0, "b": 13.0, "big": 57.0, "c": 8.0}
    layout = DomainLayout(costs, dict.fromkeys(("n0", "n1", "n3"), 70.0), {}, {})
    state: Any = SimpleNamespace(placement={"a": "n0", "b": "n0", "big": "n3", "c": "n3"})
    found = {"a": "n3", "b": "n3", "big": "n0", "c": "n1"}
    turns = domain_placement._in_turn(layout, state, found, ["a", "b", "big", "c"])
    assert turns == ["c", "a", "big", "b"]


def test_where_partitions_change_places_nodes_are_filled_as_little_as_can_be() -> None:
    costs = {"a": 40.0, "b": 50.0}
    layout = DomainLayout(costs, {"n0": 60.0, "n1": 80.0}, {}, {})
    state: Any = SimpleNamespace(placement={"a": "n0", "b": "n1"})
    turns = domain_placement._in_turn(layout, state, {"a": "n1", "b": "n0"}, ["b", "a"])
    assert turns == ["a", "b"], "10 too much on one, and not 40 on the other"


def test_work_is_not_all_lost_with_one_domain_where_that_costs_little() -> None:
    """Everything shares one partition: in one domain nothing else would stop, all would be lost."""
    shared = {f"q{n}": QueryDemand(1.0, ("all", f"q{n}/0", f"q{n}/1")) for n in range(4)}
    alone = {f"r{n}": QueryDemand(1.0, (f"r{n}/0", f"r{n}/1")) for n in range(4)}
    queries = shared | alone
    costs = {partition: 10.0 for query in queries.values() for partition in query.partitions}
    layout = DomainLayout(costs, dict.fromkeys(NODES, 200.0), NODES, queries)
    found = domain_layout.arranged(layout, {})
    assert found is not None
    assert max(domain_layout.work_shares(layout, found).values()) < 0.6
    assert sorted(domain_layout.stopped(layout, found).values()) == [4.0, 4.0]


def test_what_a_domain_cannot_carry_moves_even_if_more_is_stopped_then() -> None:
    """Costs have grown: all is in one domain, which no longer holds it."""
    state = spread(placement=DOMAINS)
    packed = {partition: "a1" if n % 2 else "a2" for n, partition in enumerate(state.placement)}
    state = replace(state, placement=packed, costs=dict.fromkeys(state.partitions, 35.0))
    assert domain_placement.is_crowded(state)
    moved = replace(state, placement={**packed, **domain_placement.moves(state)})
    assert not domain_placement.is_crowded(moved)
    _, (order,) = ticked(state, 0.0)
    assert order.reason is Reason.SURVIVAL
    assert "with the fullest 50% of all work is lost, and not 100%" in order.text


def test_where_not_everything_fits_load_is_evened_out_over_all_nodes() -> None:
    state = spread(placement=DOMAINS)
    packed = {partition: "a1" if n % 2 else "a2" for n, partition in enumerate(state.placement)}
    state = replace(state, placement=packed, costs=dict.fromkeys(state.partitions, 90.0))
    assert domain_placement.moves(state) == {}, "no arrangement holds everything"
    orders: list[MovePartitions] = []
    for now in range(20):
        state, told = ticked(state, float(now))
        orders += told
    assert orders[0].reason is Reason.UNEVEN_LOAD
    assert {NODES[node] for node in orders[0].placement.values()} == {"b"}


def test_without_that_policy_nothing_moves_for_it() -> None:
    assert ticked(spread(), 0.0)[1] == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"nodes": {n: NodeView(NodeStatus.UP, 100.0, "a") for n in NODES}}, "there is one domain"),
        (
            {"nodes": {n: NodeView(NodeStatus.UP, 20.0, d) for n, d in NODES.items()}},
            "it has no room",
        ),
        (
            {
                "nodes": {
                    n: NodeView(NodeStatus.UP, 100.0, d, slow=n == "a1") for n, d in NODES.items()
                }
            },
            "a node is slow",
        ),
        (
            {"nodes": {**UP, "a1": NodeView(NodeStatus.SUSPECTED, 100.0, "a")}},
            "a node is suspected",
        ),
        ({"priorities": {}}, "nothing is gained"),
    ],
)
def test_what_gains_nothing_or_has_no_room_stays(changes: dict[str, Any], why: str) -> None:
    state = spread(placement=DOMAINS)
    if "priorities" in changes:  # what is spread is of little priority and little work
        late = {"ships/0": "a1", "ships/1": "a1", "late/0": "a2", "late/1": "a2"}
        changes = {
            "placement": {**state.placement, **late},
            "priorities": {q: 100.0 if "late" in q else 0.1 for q in state.priorities},
            "costs": {p: 10.0 if p in late else 0.1 for p in state.partitions},
        }
    assert domain_placement.moves(replace(state, **changes)) == {}, why


def test_a_node_of_no_domain_is_not_taken_for_the_domain_that_has_its_name() -> None:
    nodes = {
        "a": NodeView(NodeStatus.UP, 100.0),
        "b": NodeView(NodeStatus.UP, 100.0, "a"),
        "node a": NodeView(NodeStatus.UP, 100.0),
        "c": NodeView(NodeStatus.UP, 100.0),
    }
    assert domain_placement.domains_of(replace(spread(), nodes=nodes)) == {
        "a": ("b",),
        "c": ("c",),
        "node a": ("a",),
        "node node a": ("node a",),
    }


def test_a_fresh_start_places_by_domain() -> None:
    state = two_pipelines(placement=DOMAINS)
    for node, domain in NODES.items():
        state, _ = advance(state, NodeBack(node, 100.0, domain, node), 0.0, clock=lambda: 0.0)
    costs = StatisticsReported(dict.fromkeys(state.partitions, 10.0))
    state, _ = advance(state, costs, 0.0, clock=lambda: 0.0)
    state, told = advance(state, Tick(), 0.0, clock=lambda: 0.0)
    assert [one for one in told if isinstance(one, PublishPlan)]
    assert state.placement.keys() == set(state.partitions)
    assert domain_placement.stopped_share(state, {}) == 0.5


def test_load_is_evened_out_within_each_domain() -> None:
    state = two_pipelines(placement=DOMAINS)
    where = {"ships": "a1", "late": "a1", "birds": "b1", "rare": "b1"}
    state = running(state, {p: where[p.partition("/")[0]] for p in state.partitions})
    found: list[MovePartitions] = []
    for now in range(30):
        state, orders = ticked(state, float(now))
        found += orders
    (order,) = found
    assert order.reason is Reason.UNEVEN_LOAD
    assert {NODES[node] for node in order.placement.values()} == {"a", "b"}
    assert all(
        NODES[node] == NODES[where[partition.partition("/")[0]]]
        for partition, node in order.placement.items()
    )
