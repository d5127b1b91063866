"""Costs of partitions, and free CPU of each node, in percent of one core.

    steady      measured, or assumed until it is
    capacities  cap x capacity of a node, less what its executor takes whatever is placed there
    catching up steady x (1 + ratio x backlog / time to catch up in)
    free        the capacity of a node, less what is placed there

A query that catches up needs more than its steady share, or it is placed and never comes back
(DESIGN 4). Pure arithmetic; `next_plan` chooses what to plan with.

Why: docs/decisions/0043-executor-overhead-is-reported-by-itself.md.
"""

import math
from collections.abc import Iterable, Mapping

from rekindle.coordination.coordination_state import CoordinationState, usable

# Of what a node may carry, what its executor takes beside partitions at most, as plans reckon.
# The rest is for what lost queries need least, or no plan would bring anything back.
OVERHEAD_SHARE_MAX = 0.7
# Seconds of input that catching up takes in a second at most, for fixed costs of its jobs: more
# CPU than for that nobody could use.
CATCH_UP_SPEED_MAX = 10.0

Costs = Mapping[str, float]


def steady(state: CoordinationState) -> dict[str, float]:
    """What every partition costs once it has caught up."""
    assumed = {
        partition: state.hints.get(partition, state.policy.default_cpu_percent)
        for partition in state.partitions
        if partition not in state.costs
    }
    share = _share(state, assumed)
    return {
        partition: state.costs[partition]
        if partition in state.costs
        else share * assumed[partition]
        for partition in state.partitions
    }


def catching_up(
    state: CoordinationState, costs: Costs, now: float, patience: float = 1.0
) -> dict[str, float]:
    """`costs` as long as the backlog of the incident is worked off, in `patience` times the time
    that the policy gives, or as fast as anything is."""
    factor = 1.0
    if state.incident is not None:
        backlog_seconds = max(0.0, now - state.incident.behind_since)
        catch_up_seconds = patience * state.policy.catch_up_seconds
        catch_up_seconds = max(catch_up_seconds, backlog_seconds / CATCH_UP_SPEED_MAX)
        factor += state.policy.catch_up_cost_ratio * backlog_seconds / catch_up_seconds
    return {partition: factor * cost for partition, cost in costs.items()}


def capacities(state: CoordinationState) -> dict[str, float]:
    """What each node that plans place on holds of partitions when it is empty."""
    return {node: _capacity(state, node) for node in usable(state)}


def room(limit_percent: float, overhead_percent: float) -> float:
    """What partitions may have of what a node may carry."""
    return limit_percent - min(overhead_percent, OVERHEAD_SHARE_MAX * limit_percent)


def largest_node(state: CoordinationState) -> float:
    """What the largest of them holds."""
    return max(capacities(state).values(), default=0.0)


def free(state: CoordinationState, costs: Costs) -> dict[str, float]:
    """Per node that plans place on; below 0 where costs have grown over the cap."""
    left = capacities(state)
    for partition, node in state.placement.items():
        if node in left:
            left[node] -= state.charges.get(partition, costs[partition])
    return left


def at_rest(state: CoordinationState) -> frozenset[str]:
    """Nodes that plans place on and where nothing catches up: what they have free nobody uses."""
    behind = state.charges.keys() if state.catching_up else ()
    return frozenset(usable(state)) - {state.placement.get(name) for name in behind}


def stretched(left: Costs, demands: Iterable[float]) -> dict[str, float]:
    """`left` with the same added to each node, just so much that all demands fit for sure.

    While the nodes have more than `len(left) x largest demand` together, the one with the most
    free CPU holds any of them; so that much may be left over at the end.
    """
    costs = tuple(demands)
    wanted = math.fsum(costs) + len(left) * max(costs, default=0.0)
    more = max(0.0, wanted - math.fsum(left.values())) / len(left)
    return {node: cpu_percent + more for node, cpu_percent in left.items()}


def _share(state: CoordinationState, assumed: Costs) -> float:
    """By what to scale assumed costs so that they fit beside the measured ones, at most 1."""
    known = [_capacity(state, node) for node in state.nodes]
    if not assumed or not known:
        return 1.0
    nodes = max(state.nodes_expected, len(known))
    left = nodes * math.fsum(known) / len(known) - math.fsum(state.costs.values())
    wanted = math.fsum(assumed.values()) + nodes * max(assumed.values())
    return min(1.0, max(0.0, left) / wanted) if wanted else 1.0


def _capacity(state: CoordinationState, node: str) -> float:
    return room(_limit(state, node), state.overhead_percent)


def _limit(state: CoordinationState, node: str) -> float:
    return state.policy.cpu_cap * state.nodes[node].capacity_percent
