"""Which partitions that run should run elsewhere: off slow nodes, and where load is uneven.

    even ──a node far above another──► uneven ──for `uneven_seconds`──► moves are ordered ──► even
         ──a node without partitions──►
    a node is slow ──others have room──► moves are ordered

With the policy's placement `domains` the placement that survives best (`domain_placement`) comes
before even load, which is then sought within each domain. A driver that goes on alone, without the
coordinator that knows the domains, leaves both alone: it would undo what the domains led to.

A slow node holds up every query that it has a part of, so it is emptied, for the most important
queries first, as far as the room on others goes; who told of it has watched it for long.
A move costs little, for the driver makes it right after a checkpoint, but it must be worth it:
what is measured wavers, so small differences are left alone, and nothing moves while anything
else is under way. Moves that the driver has not made when something is lost are dropped, not owed:
they are decided anew from what is then. Called by `state_machine` only.

Why: docs/decisions/0044-a-node-without-partitions-is-uneven.md.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from rekindle.coordination import domain_placement, node_load
from rekindle.coordination.coordination_state import (
    CoordinationState,
    NodeStatus,
    inactive,
    slow,
    with_status,
)
from rekindle.coordination.instructions import Instruction, MovePartitions
from rekindle.model.reasons import Reason
from rekindle.model.sentences import counted
from rekindle.model.settings import DOMAINS

SURVEY_SECONDS = 30.0
# Between the fullest and the emptiest node, as shares of what each may carry: the difference that
# is too much, as a share of the mean and at least, and the one that is left alone once they move.
UNEVEN_SHARE, UNEVEN_MIN, EVEN_SHARE = 0.4, 0.04, 0.15
# of the squares of what nodes have above or below the mean, what moves must take away together,
# unless there are more of them to come
GAIN_SHARE_MIN = 0.1
MOVES_MAX = 256
# what sums of shares may differ by though they are the same
ROUNDING_SHARE = 1e-9

Result = tuple[CoordinationState, tuple[Instruction, ...]]


def balance(state: CoordinationState, now: float, *, knows_domains: bool) -> Result:
    """The state after a look at the nodes, and the order to move once they have been uneven for
    long. Slow nodes are emptied also where placement by domains does not know them."""
    calm = _is_calm(state)
    if calm and (relieved := relief(state)):
        order = MovePartitions(relieved, Reason.SLOW_NODE, _relief_sentence(state, relieved))
        return replace(state, uneven_since=None, moving=relieved), (order,)
    calm = calm and (knows_domains or state.policy.placement != DOMAINS)
    if calm and _survey_is_due(state, now):
        state = replace(state, surveyed_at=now)
        if surviving := domain_placement.moves(state):
            text = domain_placement.sentence(state, surviving)
            order = MovePartitions(surviving, Reason.SURVIVAL, text)
            return replace(state, uneven_since=None, moving=surviving), (order,)
    found = moves(state) if calm else {}
    if not found:
        return (state if state.uneven_since is None else replace(state, uneven_since=None)), ()
    if state.uneven_since is None:
        return replace(state, uneven_since=now), ()
    if now - state.uneven_since < state.policy.uneven_seconds:
        return state, ()
    order = MovePartitions(found, Reason.UNEVEN_LOAD, _sentence(state, found))
    return replace(state, uneven_since=None, moving=found), (order,)


def _survey_is_due(state: CoordinationState, now: float) -> bool:
    """Whether to look for a placement that survives better: that takes some time."""
    if state.policy.placement != DOMAINS:
        return False
    return state.surveyed_at is None or now - state.surveyed_at >= SURVEY_SECONDS


def moves(state: CoordinationState) -> dict[str, str]:
    """Partition -> node for those that should move; empty where load is as even as it needs be:
    within each domain where placement is by domains, unless one cannot carry what it has.

    Slow nodes have no part in it.
    """
    if state.policy.placement != DOMAINS or domain_placement.is_crowded(state):
        return _evened(state, _Nodes.of(state))
    parts = domain_placement.domains_of(state).values()
    return dict(item for part in parts for item in _evened(state, _Nodes.of(state, part)).items())


def _evened(state: CoordinationState, nodes: "_Nodes") -> dict[str, str]:
    if len(nodes.shares) < 2 or not nodes.are_uneven:
        return {}
    found: dict[str, str] = {}
    made, before, enough = 0, nodes.unevenness, EVEN_SHARE * nodes.mean
    while made < MOVES_MAX and (best := nodes.best(enough)) is not None:
        partition, origin, target = best
        found[partition] = target
        nodes.move(partition, origin, target)
        made += 1
    if made < MOVES_MAX and nodes.unevenness > (1.0 - GAIN_SHARE_MIN) * before:
        return {}
    return {name: node for name, node in found.items() if state.placement[name] != node}


def relief(state: CoordinationState) -> dict[str, str]:
    """Partition -> node for those on slow nodes for which others have room."""
    slowed = slow(state)
    if not slowed:
        return {}
    nodes = _Nodes.of(state)
    weights = dict.fromkeys(state.partitions, 0.0)
    for query, closure in state.closures.items():
        for partition in closure:
            weights[partition] = max(weights[partition], state.priorities[query])
    held = [partition for partition, node in state.placement.items() if node in slowed]
    found: dict[str, str] = {}
    for partition in sorted(held, key=lambda name: (-weights[name], name))[:MOVES_MAX]:
        node = nodes.with_room(partition)
        if node is not None:
            found[partition] = node
            nodes.add(partition, node)
    return found


def _is_calm(state: CoordinationState) -> bool:
    """Whether the driver can move partitions, all of them run, and nothing else is to be done."""
    return (
        state.moving == {}
        and state.incident is None
        and state.due is None
        and not state.catching_up
        and not with_status(state, NodeStatus.SUSPECTED)
        and len(state.costs) == len(state.partitions)
        and not inactive(state)
    )


@dataclass(slots=True)
class _Nodes:
    """Nodes that are not slow, as moves are chosen: their partitions, and the shares of their CPU
    that these need."""

    costs: Mapping[str, float]
    capacity: Mapping[str, float]
    held: dict[str, set[str]]
    shares: dict[str, float]

    @staticmethod
    def of(state: CoordinationState, within: Collection[str] | None = None) -> "_Nodes":
        """All nodes, or those of some."""
        costs, left_out = node_load.steady(state), slow(state)
        capacity = {
            node: cpu
            for node, cpu in node_load.capacities(state).items()
            if node not in left_out and (within is None or node in within)
        }
        held: dict[str, set[str]] = {node: set() for node in capacity}
        for partition, node in state.placement.items():
            if node in held:
                held[node].add(partition)
        shares = {
            node: sum(costs[name] for name in sorted(names)) / capacity[node]
            for node, names in held.items()
        }
        return _Nodes(costs, capacity, held, shares)

    @property
    def mean(self) -> float:
        """What each would carry if load were even."""
        carried = sum(share * self.capacity[node] for node, share in self.shares.items())
        return carried / sum(self.capacity.values())

    @property
    def emptiest(self) -> str:
        return min(self.shares, key=lambda node: (self.shares[node], node))

    @property
    def are_uneven(self) -> bool:
        """Whether one that could give differs from the emptiest by too much, or one has nothing
        while another has several."""
        numbers = [len(names) for names in self.held.values()]
        too_much = max(UNEVEN_MIN, UNEVEN_SHARE * self.mean)
        return self.best(too_much) is not None or (min(numbers) == 0 and max(numbers) > 1)

    @property
    def unevenness(self) -> float:
        """The variance of the shares times all capacity."""
        mean = self.mean
        return sum(self.capacity[node] * (one - mean) ** 2 for node, one in self.shares.items())

    def best(self, enough: float) -> tuple[str, str, str] | None:
        """A partition, its node and the emptiest one: its node is the fullest that differs from the
        emptiest by more than enough and has any that evens these two out, and it does so most.
        None: none has."""
        emptiest = self.emptiest

        def higher(partition: str, node: str) -> float:
            cost = self.costs[partition]
            return max(
                self.shares[node] - cost / self.capacity[node],
                self.shares[emptiest] + cost / self.capacity[emptiest],
            )

        for share, node in sorted(((s, n) for n, s in self.shares.items()), reverse=True):
            if share - self.shares[emptiest] <= enough:
                break
            offers = ((higher(name, node), name) for name in self.held[node])
            after, partition = min(offers, default=(math.inf, ""))
            if after <= share - ROUNDING_SHARE:
                return partition, node, emptiest
        return None

    def with_room(self, partition: str) -> str | None:
        """The emptiest node, where that holds one more partition."""
        if not self.shares:
            return None
        share = self.shares[self.emptiest] + self.costs[partition] / self.capacity[self.emptiest]
        return self.emptiest if share <= 1.0 else None

    def move(self, partition: str, origin: str, target: str) -> None:
        """From one node to another."""
        self.held[origin].remove(partition)
        self.shares[origin] -= self.costs[partition] / self.capacity[origin]
        self.add(partition, target)

    def add(self, partition: str, node: str) -> None:
        """Onto a node."""
        self.held[node].add(partition)
        self.shares[node] += self.costs[partition] / self.capacity[node]


def _relief_sentence(state: CoordinationState, found: Mapping[str, str]) -> str:
    origins = ", ".join(sorted({state.placement[name] for name in found}))
    targets = ", ".join(sorted(set(found.values())))
    return f"Move {counted(len(found), 'partition')} from {origins}, which is slow, to {targets}."


def _sentence(state: CoordinationState, found: Mapping[str, str]) -> str:
    shares = _Nodes.of(state).shares
    origin = max((state.placement[name] for name in found), key=lambda node: (shares[node], node))
    target = min(found.values(), key=lambda node: (shares[node], node))
    targets = ", ".join(sorted(set(found.values())))
    return (
        f"Move {len(found)} of {counted(len(state.placement), 'partition')} to {targets}: "
        f"node {origin} carries {shares[origin]:.0%} of what it may, {target} {shares[target]:.0%}."
    )
