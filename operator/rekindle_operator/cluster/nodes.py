"""The kept fields of a Node object: evidence for detection, and the CPU that pods may have.

Pure; the shell calls it with each object of a list
or a watch.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from rekindle.protocol import NodeSeen
from rekindle_operator.api import quantities
from rekindle_operator.cluster.pods import PodSeen, interned
from rekindle_operator.detection import loss_notices
from rekindle_operator.detection.detection_input import WatchedNode
from rekindle_operator.remediation import remediation_rules

UNKNOWN = "Unknown"
Record = Mapping[str, Any]


class ClusterNode(msgspec.Struct, frozen=True, gc=False):
    """A node of the cluster. `cpu_millis` is what pods may have of it, that is, without what the
    system keeps for itself; `addresses` are its own, which pods in its network have as well;
    `created_at` is its creationTimestamp, `ready_since` when Ready became what it is; `fenced`: we
    have set it out of service."""

    name: str
    cpu_millis: int
    addresses: tuple[str, ...]
    judged: WatchedNode
    created_at: str = ""
    ready_since: str = ""
    fenced: bool = False


def node_seen(body: Mapping[str, Any]) -> ClusterNode:
    """What is kept of a Node; raises InputError for a quantity that is none."""
    metadata, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    cpu = (status.get("allocatable") or {}).get("cpu")
    ready = _ready(status)
    labels = (metadata.get("labels") or {}).items()
    judged = WatchedNode(
        uid=metadata["uid"],
        ready=interned(ready.get("status") or UNKNOWN),
        reason=interned(ready.get("reason")),
        message=interned(ready.get("message")),
        labels={interned(key): interned(value) for key, value in labels},
        taints=tuple(interned(taint["key"]) for taint in spec.get("taints") or ()),
        unschedulable=bool(spec.get("unschedulable")),
        notice=loss_notices.of_node(spec.get("taints") or (), status.get("conditions") or ()),
    )
    return ClusterNode(
        name=interned(metadata["name"]),
        cpu_millis=quantities.cpu_millis(cpu) if cpu is not None else 0,
        addresses=tuple(item["address"] for item in status.get("addresses") or ()),
        judged=judged,
        created_at=metadata.get("creationTimestamp") or "",
        ready_since=ready.get("lastTransitionTime") or "",
        fenced=any(map(remediation_rules.is_ours, spec.get("taints") or ())),
    )


def _ready(status: Record) -> Record:
    """The condition Ready; a node that has just been registered has none yet."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Ready":
            found: Record = condition
            return found
    return {}


# CPU of nodes that is free for an application: CPU that nobody else has requested.
#
# Others' requests count, as the scheduler counts them; what they really use is not known here,
# and may be more where they have no limit. A driver says what its executors may use, and does not
# know what else is on their nodes: plans go by the lower of both. The policy's cap
# (`nodeCpuCapPercent`) comes after this.
#
# Why: docs/decisions/0033-plans-respect-other-pods.md.

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
