"""Where partitions would be so that a lost failure domain stops as little priority as possible.

With the policy's placement `domains` plans of a fresh start place by it, and `rebalancing` moves
what runs towards it, as long as that gains enough to be worth the moves. `planning.domain_layout`
arranges; this module asks it with what the coordinator knows. Changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rekindle.coordination import node_load
from rekindle.coordination.coordination_state import (
    CoordinationState,
    NodeStatus,
    active,
    slow,
    with_status,
)
from rekindle.model.plan_problem import Answer, Problem, QueryDemand
from rekindle.model.sentences import counted
from rekindle.planning import domain_layout
from rekindle.planning.domain_layout import DomainLayout

# of all priority: what a new arrangement has to gain
GAIN_SHARE_MIN = 0.05
MOVES_MAX = 256


def moves(state: CoordinationState) -> dict[str, str]:
    """Partition -> node for those that should move; empty while a node is slow or suspected, and
    where too little would be gained and no domain is to carry more than its nodes hold.

    They are made one after the other, more than can move at once in several orders. The most
    important query's go first, but for those for which room has yet to be made.
    """
    if slow(state) or with_status(state, NodeStatus.SUSPECTED):
        return {}
    layout = _layout(state)
    found = domain_layout.arranged(layout, state.placement)
    if found is None:
        return {}
    gain = domain_layout.worth(layout, state.placement) - domain_layout.worth(layout, found)
    crowded = domain_layout.overfull(layout, state.placement)
    if gain < GAIN_SHARE_MIN * layout.priority and not crowded:
        return {}
    weights = dict.fromkeys(found, 0.0)
    for query in layout.queries.values():
        for partition in query.partitions:
            weights[partition] = max(weights[partition], query.priority)
    moving = [partition for partition, node in found.items() if state.placement[partition] != node]
    moving.sort(key=lambda partition: (-weights[partition], partition))
    return {partition: found[partition] for partition in _in_turn(layout, state, found, moving)}


def _in_turn(
    layout: DomainLayout,
    state: CoordinationState,
    found: Mapping[str, str],
    moving: Sequence[str],
) -> list[str]:
    """The first of some partitions that move, each the first whose node has room for it by then.
    Where none has, because they change places, it is the one that fills its node least."""
    free = dict.fromkeys(state.placement.values(), 0.0) | dict(layout.capacities)
    for partition, node in state.placement.items():
        free[node] -= layout.costs[partition]
    rest, turns = dict.fromkeys(moving), list[str]()
    while rest and len(turns) < MOVES_MAX:
        left = {partition: free[found[partition]] - layout.costs[partition] for partition in rest}
        fitting = (partition for partition in rest if left[partition] >= 0.0)
        partition = next(fitting, None) or max(rest, key=left.__getitem__)
        free[found[partition]] -= layout.costs[partition]
        free[state.placement[partition]] += layout.costs[partition]
        turns.append(partition)
        del rest[partition]
    return turns


def arranged(state: CoordinationState) -> CoordinationState:
    """The state as it would be once all of `moves` are made, however many orders that takes."""
    for _ in range(1 + len(state.placement) // MOVES_MAX):
        state = replace(state, placement={**state.placement, **moves(state)})
    return state


def placed_by_domain(state: CoordinationState, problem: Problem, answer: Answer) -> Answer:
    """The same choice, placed for survival; as it is where that finds no room."""
    assert problem.nodes is not None
    chosen, names = frozenset(answer.partitions), _domains(state)
    layout = DomainLayout(
        costs={name: problem.partitions[name].cpu_percent for name in answer.partitions},
        capacities=problem.nodes,
        domains={node: names[node] for node in problem.nodes},
        queries={
            query: QueryDemand(
                problem.queries[query].priority,
                tuple(p for p in problem.queries[query].partitions if p in chosen),
            )
            for query in answer.queries
        },
    )
    found = domain_layout.arranged(layout, {})
    if found is None:
        return answer
    held: dict[str, list[str]] = {}
    for partition, node in sorted(found.items()):
        held.setdefault(node, []).append(partition)
    return replace(answer, placement={node: tuple(held[node]) for node in sorted(held)})


def is_crowded(state: CoordinationState) -> bool:
    """Whether some domain is to carry more than its nodes hold."""
    return bool(domain_layout.overfull(_layout(state), state.placement))


def domains_of(state: CoordinationState) -> dict[str, tuple[str, ...]]:
    """Per failure domain its nodes that are up; a node of no known domain is one by itself."""
    found: dict[str, list[str]] = {}
    names = _domains(state)
    for node in with_status(state, NodeStatus.UP):
        domain = names[node]
        found.setdefault(domain, []).append(node)
    return {domain: tuple(nodes) for domain, nodes in sorted(found.items())}


def sentence(state: CoordinationState, found: Mapping[str, str]) -> str:
    """What moves gain."""
    layout = _layout(state)
    placements = state.placement, {**state.placement, **found}
    before, after = (_mean(_stopped_shares(layout, node_of)) for node_of in placements)
    work_before, work_after = (
        max(domain_layout.work_shares(layout, node_of).values(), default=0.0)
        for node_of in placements
    )
    return (
        f"Move {len(found)} of {counted(len(state.placement), 'partition')}: the loss of a domain "
        f"then stops {after:.0%} of all priority in the mean, and not {before:.0%}; with the "
        f"fullest {work_after:.0%} of all work is lost, and not {work_before:.0%}."
    )


def stopped_share(state: CoordinationState, moved: Mapping[str, str]) -> float:
    """The share of the priority of all that runs that the loss of one domain stops, the mean over
    domains, once some partitions have moved (partition -> node)."""
    return _mean(stopped_shares(state, moved))


def stopped_shares(state: CoordinationState, moved: Mapping[str, str]) -> dict[str, float]:
    """The same for each domain by itself."""
    return _stopped_shares(_layout(state), {**state.placement, **moved})


def _stopped_shares(layout: DomainLayout, node_of: Mapping[str, str]) -> dict[str, float]:
    losses = domain_layout.stopped(layout, node_of)
    return {name: loss / (layout.priority or 1.0) for name, loss in losses.items()}


def _mean(shares: Mapping[str, float]) -> float:
    return sum(shares.values()) / len(shares) if shares else 0.0


def _layout(state: CoordinationState) -> DomainLayout:
    """What runs, on suspected nodes too: they hold nothing new, but what is there is lost with
    their domain."""
    costs, names = node_load.steady(state), _domains(state)
    return DomainLayout(
        costs={partition: costs[partition] for partition in state.placement},
        capacities=node_load.capacities(state),
        domains={n: names[n] for n in with_status(state, NodeStatus.UP, NodeStatus.SUSPECTED)},
        queries={
            query: QueryDemand(state.priorities[query], tuple(sorted(state.closures[query])))
            for query in sorted(active(state))
        },
    )


def _domains(state: CoordinationState) -> dict[str, str]:
    """The failure domain of every node. One of no known domain is one by itself, by its own name
    where no domain is called so."""
    found = {node: view.domain for node, view in sorted(state.nodes.items()) if view.domain}
    taken = set(found.values())
    for node in sorted(state.nodes.keys() - found.keys()):
        name = node
        while name in taken:
            name = f"node {name}"
        taken.add(name)
        found[node] = name
    return found
