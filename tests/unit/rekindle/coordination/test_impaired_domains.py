"""Failure domains in the core: which count as impaired, and how they become known."""

from dataclasses import replace

import pytest

from rekindle import coordination as core
from rekindle.coordination import CoordinationState, coordination_events, instructions
from rekindle.model.settings import Policy
from rekindle.model.topology import Query, Topology, TopologyOperator

TOPOLOGY = Topology((TopologyOperator("ships", 4),), (), (Query("late-ships", "ships", 5),))
# of n5 it is not known
ZONES = {"n1": "zone-1", "n2": "zone-1", "n3": "zone-2", "n4": "zone-2", "n5": None}


def running() -> CoordinationState:
    """Five nodes with everything placed."""
    state = core.initial(TOPOLOGY, Policy(placement="domains"), len(ZONES))
    events: list[coordination_events.Event] = [
        coordination_events.NodeBack(node, 100.0, zone) for node, zone in ZONES.items()
    ]
    costs = coordination_events.StatisticsReported({f"ships/{index}": 5.0 for index in range(4)})
    for event in (costs, *events, coordination_events.Tick()):
        state, _ = core.advance(state, event, 1000.0, clock=float)
    assert len(state.placement) == 4
    return state


@pytest.mark.parametrize(
    ("lost", "outside"),
    [
        (("n1", "n3"), ()),
        (("n1", "n2"), ("zone-1",)),
        (("n3", "n4", "n1"), ("zone-2",)),
        (("n1", "n2", "n3", "n4"), ()),
    ],
)
def test_new_nodes_are_to_be_outside_of_domains_that_lost_several_and_most_while_others_are_left(
    lost: tuple[str, ...], outside: tuple[str, ...]
) -> None:
    _, told = core.advance(running(), coordination_events.NodesLost(lost), 1001.0, clock=float)
    (request,) = [item for item in told if isinstance(item, instructions.RequestNodes)]
    assert request.outside_domains == outside


def test_once_a_node_is_back_what_survives_is_looked_for_before_load_is_evened_out() -> None:
    before = replace(running(), surveyed_at=1000.0)
    state, _ = core.advance(
        before, coordination_events.NodeBack("n6", 100.0, "zone-3"), 1001.0, clock=float
    )
    assert state.surveyed_at is None
    again, _ = core.advance(
        before, coordination_events.NodeBack("n1", 100.0, "zone-1"), 1001.0, clock=float
    )
    assert again is before, "nothing is otherwise"


def test_a_domain_that_is_told_later_holds_and_survival_is_looked_at_anew() -> None:
    before = replace(running(), surveyed_at=1000.0)
    state, told = core.advance(
        before, coordination_events.NodesLocated({"n1": "rack-9"}), 1001.0, clock=float
    )
    assert told == ()
    assert state.nodes == {**before.nodes, "n1": replace(before.nodes["n1"], domain="rack-9")}
    assert state.surveyed_at is None
