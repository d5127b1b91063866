"""CPU of nodes that is free for an application: CPU that nobody else has requested.

Others' requests count, as the scheduler counts them; what they really use is not known here, and
may be more where they have no limit. A driver says what its executors may use, and does not know
what else is on their nodes: plans go by the lower of both. The policy's cap (`nodeCpuCapPercent`)
comes after this. Pure; `cluster_cache` and the shell call it.

Why: docs/decisions/0033-plans-respect-other-pods.md.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from rekindle.protocol import NodeSeen
from rekindle_operator.cluster.nodes import ClusterNode
from rekindle_operator.cluster.pods import PodSeen

MILLIS_PER_PERCENT = 10
STEP_PERCENT = 10.0
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Room:
    """CPU of a node in thousandths of a core: what pods may have, and what others than the
    application's own executors have requested."""

    node: str
    capacity_millis: int
    others_millis: int

    @property
    def free_percent(self) -> float:
        """What the application may plan on, in percent of one core."""
        return max(0, self.capacity_millis - self.others_millis) / MILLIS_PER_PERCENT


def room(node: ClusterNode, held_millis: int, executors: Iterable[PodSeen]) -> Room:
    """The room of an application on a node on which all pods together hold `held_millis`.

    `executors` are those of its driver, wherever they are. One that is being deleted counts among
    the others: what it holds is not there for those that stay.
    """
    own = sum(pod.held_millis for pod in _staying(executors, node.name))
    return Room(node.name, node.cpu_millis, held_millis - own)


def shares(found: Room, executors: Iterable[PodSeen]) -> dict[str, float]:
    """What each executor on a node may plan on (UID -> percent of one core).

    The node's room is divided by their requests, for so the kernel divides it; none gets more than
    its limit.
    """
    there = _staying(executors, found.node)
    requested = sum(pod.cpu_millis for pod in there)
    return {
        pod.uid: _limited(
            pod,
            found.free_percent * (pod.cpu_millis / requested if requested else 1 / len(there)),
        )
        for pod in there
    }


def capped(nodes: Mapping[str, NodeSeen], shares: Mapping[str, float]) -> Mapping[str, NodeSeen]:
    """The nodes of a driver's report, each with no more CPU than its share (node of the report ->
    percent of one core), in whole steps: what changes little is no news to a planner."""
    lower = {
        name: STEP_PERCENT * max(1, math.floor(share / STEP_PERCENT + ROUNDING))
        for name, share in shares.items()
        if share + ROUNDING < nodes[name].capacity_percent
    }
    if not lower:
        return nodes
    return {
        name: msgspec.structs.replace(
            seen, capacity_percent=min(lower.get(name, math.inf), seen.capacity_percent)
        )
        for name, seen in nodes.items()
    }


def _staying(executors: Iterable[PodSeen], node: str) -> list[PodSeen]:
    return [pod for pod in executors if pod.node == node and not pod.deleting_at]


def _limited(pod: PodSeen, percent: float) -> float:
    limit = pod.cpu_limit_millis / MILLIS_PER_PERCENT
    return min(percent, limit) if limit else percent
