"""The kept fields of a Node object: evidence for detection, and the CPU that pods may have.

Who takes how much of it is for `free_capacity`. Pure; the shell calls it with each object of a list
or a watch.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from rekindle_operator.api import quantities
from rekindle_operator.cluster.pods import interned
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
