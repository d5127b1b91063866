"""All that the coordinator knows, as one frozen value.

Nothing derived is kept, except what follows from the topology alone. Mappings are replaced, never
changed. Made by `initial`, then only by `advance`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from rekindle.coordination.coordination_events import LossNotice, Started
from rekindle.model import topology as graph
from rekindle.model.errors import InputError
from rekindle.model.incidents import Incident, NodeLoss
from rekindle.model.reasons import Reason
from rekindle.model.settings import Policy
from rekindle.model.switch_mode import ON
from rekindle.model.topology import Topology


class NodeStatus(StrEnum):
    """Of a node, as the coordinator sees it."""

    UP = "up"
    SUSPECTED = "suspected"
    LOST = "lost"

    @classmethod
    def _missing_(cls, value: object) -> "NodeStatus":
        """A word of a newer release, in a record that it has written: nothing new is placed there
        until a report says how it is."""
        del value
        return cls.SUSPECTED


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node; `capacity_percent` is all its CPU, before the cap, in percent of one core.

    `incarnation` is of the executor that it has, or had when it was lost. One that is `slow` holds
    up what runs on others. One with a `notice` is announced to go. `cluster_node` is what the
    cluster calls it, None while nobody has said so: it outlives the executor, its pod, and whoever
    has seen them.
    """

    status: NodeStatus
    capacity_percent: float
    domain: str | None = None
    lost_at: float | None = None
    incarnation: str | None = None
    slow: bool = False
    notice: LossNotice | None = None
    cluster_node: str | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """When the next planning is due, and why."""

    at: float
    reason: Reason


@dataclass(frozen=True, slots=True)
class CoordinationState:
    """`placement` (partition -> node) holds active partitions only and is closed upstream.

    `resident` (partition -> node): inactive, but state and node survived. `stopped` (query
    partition -> why): no plan brings them back, only a driver with a mended function. `charges`
    (partition -> CPU percent): what a plan reckoned for partitions that have not caught up. `hints`
    (partition -> CPU percent) count until costs are measured; `overhead_percent` is what an
    executor takes beside its partitions. `start` is a start that no event has followed yet;
    `starting` lasts until the first plan of a fresh start; `holding` while every node looks lost.
    `losses` are those since the last global checkpoint, at `last_checkpoint_at`.
    `moving` (partition -> node) are moves that the driver has yet to make, None where it can make
    none; `uneven_since` is since when some are wanted; `surveyed_at` is when a placement that
    survives better was last looked for, `full_at` when nothing that announced nodes run had room
    elsewhere. `buffering` is whether the driver retained outputs when it last reported.
    `lag_goals` (query -> seconds) are those that hold. `seen_at` is the moment of the newest event.
    """

    topology: Topology
    policy: Policy
    partitions: tuple[str, ...]
    closures: Mapping[str, frozenset[str]]
    priorities: Mapping[str, float]
    nodes_expected: int
    hints: Mapping[str, float] = field(default_factory=dict)
    start: Started | None = None
    starting: bool = True
    nodes: Mapping[str, NodeView] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)
    overhead_percent: float = 0.0
    state_bytes: Mapping[str, int] = field(default_factory=dict)
    placement: Mapping[str, str] = field(default_factory=dict)
    resident: Mapping[str, str] = field(default_factory=dict)
    stopped: Mapping[str, str] = field(default_factory=dict)
    charges: Mapping[str, float] = field(default_factory=dict)
    catching_up: frozenset[str] = frozenset()
    plan_epoch: int = 0
    unacknowledged: int | None = None
    incident: Incident | None = None
    incidents: int = 0
    losses: tuple[NodeLoss, ...] = ()
    last_checkpoint: int | None = None
    last_checkpoint_at: float | None = None
    due: Due | None = None
    store_reachable: bool = True
    holding: bool = False
    moving: Mapping[str, str] | None = None
    uneven_since: float | None = None
    surveyed_at: float | None = None
    full_at: float | None = None
    buffering: str = ON
    lag_goals: Mapping[str, float] = field(default_factory=dict)
    seen_at: float | None = None


def initial(
    topology: Topology,
    policy: Policy,
    nodes_expected: int,
    *,
    resumed: bool = False,
    checkpoint_at: float | None = None,
    hints: Mapping[str, float] | None = None,
) -> CoordinationState:
    """The state of an application that is about to start, as if `Started` had been reported.

    `hints` (partition -> CPU percent) count until costs are measured. Raises InputError for
    priorities of unknown queries and for operators that no query needs.
    """
    closures = graph.closures(topology)
    needed = frozenset().union(*closures.values())
    for partition in graph.partitions(topology):
        if partition not in needed:
            raise InputError(
                where=f"operator {partition.rpartition('/')[0]}",
                what="leads to no query, so nothing would ever bring it back",
                remedy="end it in a sink, or remove it",
            )
    return CoordinationState(
        topology=topology,
        policy=policy,
        partitions=graph.partitions(topology),
        closures=closures,
        priorities=prioritised(topology, policy),
        lag_goals=lag_goals(topology, policy),
        nodes_expected=nodes_expected,
        hints=dict(hints or {}),
        start=Started(nodes_expected, resumed, checkpoint_at),
    )


def prioritised(topology: Topology, policy: Policy) -> dict[str, float]:
    """Per query partition, with the policy's priorities in place of the pipeline's own."""
    _check_queries("priorities", policy.priorities, topology)
    queries = tuple(
        replace(query, priority=policy.priorities.get(query.name, query.priority))
        for query in topology.queries
    )
    return graph.query_priorities(replace(topology, queries=queries))


def lag_goals(topology: Topology, policy: Policy) -> dict[str, float]:
    """Seconds by query, with the policy's goals in place of the pipeline's own; queries without one
    are left out. Raises InputError for goals of unknown queries."""
    _check_queries("lag_goals", policy.lag_goals, topology)
    own = {query.name: query.lag_goal_seconds for query in topology.queries}
    found = {**own, **policy.lag_goals}
    return {name: seconds for name, seconds in found.items() if seconds is not None}


def _check_queries(setting: str, given: Iterable[str], topology: Topology) -> None:
    names = {query.name for query in topology.queries}
    for name in given:
        if name not in names:
            raise InputError(
                where=f"policy.{setting}.{name}",
                what="there is no such query",
                remedy=f"name one of: {', '.join(sorted(names))}",
            )


def with_status(state: CoordinationState, *statuses: NodeStatus) -> tuple[str, ...]:
    """Nodes in order of name."""
    return tuple(node for node, view in sorted(state.nodes.items()) if view.status in statuses)


def slow(state: CoordinationState) -> frozenset[str]:
    """Nodes that are up and hold up what runs on others."""
    up = with_status(state, NodeStatus.UP)
    return frozenset(node for node in up if state.nodes[node].slow)


def announced(state: CoordinationState) -> dict[str, LossNotice]:
    """Nodes that are there and announced to go, in order of name, each with its notice."""
    there = with_status(state, NodeStatus.UP, NodeStatus.SUSPECTED)
    notices = ((node, state.nodes[node].notice) for node in there)
    return {node: notice for node, notice in notices if notice is not None}


def staying(state: CoordinationState) -> tuple[str, ...]:
    """Nodes that are up and not announced to go, in order of name."""
    up = with_status(state, NodeStatus.UP)
    return tuple(node for node in up if state.nodes[node].notice is None)


def usable(state: CoordinationState) -> tuple[str, ...]:
    """Nodes that plans place on: those that stay, or where none does, all that are up."""
    return staying(state) or with_status(state, NodeStatus.UP)


def active(state: CoordinationState) -> frozenset[str]:
    """Query partitions whose whole closure is placed."""
    return frozenset(
        query for query, closure in state.closures.items() if closure <= state.placement.keys()
    )


def only_behind(state: CoordinationState, queries: frozenset[str]) -> CoordinationState:
    """The state where these active query partitions catch up, and nothing else has a charge."""
    needed = frozenset().union(*(state.closures[query] for query in queries))
    charges = {name: cost for name, cost in state.charges.items() if name in needed}
    return replace(state, catching_up=queries, charges=charges)


def inactive(state: CoordinationState) -> tuple[str, ...]:
    """Query partitions that wait, in order of name; not those that have stopped."""
    return tuple(sorted(state.closures.keys() - active(state) - state.stopped.keys()))
