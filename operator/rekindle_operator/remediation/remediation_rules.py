"""Decides on fencing, deletion and taints of nodes, each only where a class allows it.

    fencing    the lost node of a driver, once it is certain that nothing runs there any more; the
               pod of a SparkApplication's goes with it: its operator submits none before
    deletion   Node objects of lost nodes, a while after: autoscalers halt because of them
    taints     on silent nodes, and on the rest of impaired domains, to keep pods from there

A node may carry taints of others; only ours are ever changed. Pure: values in, what is due out; the
shell looks at the Node once more before it does anything (`still_lost`).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rekindle_operator.api.custom_resources import GROUP
from rekindle_operator.api.recovery_class import Certainty, Fencing, NodeDeletion
from rekindle_operator.detection.detection_input import READY

SUSPECTED_TAINT = f"{GROUP}/suspected"
IMPAIRED_TAINT = f"{GROUP}/impaired-domain"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
SHUTDOWN_TAINT = "node.cloudprovider.kubernetes.io/shutdown"
# The value by which we know the taints that we have set.
OURS = "rekindle"
KARPENTER_LABEL = "karpenter.sh/nodepool"
MACHINE_ANNOTATION = "cluster.x-k8s.io/machine"
EFFECTS = ("None", "PreferNoSchedule", "NoSchedule")
Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NodeToRemedy:
    """A node that an application has lost. `lost_at` (seconds since 1970): when that was confirmed,
    or else suspected; `driver`: its own one stands there, and has not ended."""

    name: str
    uid: str
    lost_at: float
    driver: bool = False


@dataclass(frozen=True, slots=True)
class Remedy:
    """To be done to a node: to fence it, for its driver's sake, or to delete its object."""

    node: NodeToRemedy
    fence: bool


@dataclass(frozen=True, slots=True)
class NodeEvidence:
    """What is known of a lost node beside its Node object: names of nodes that Karpenter and
    Cluster API still have a machine for (None: not looked), and whether somebody has remediated it
    or approved of fencing it."""

    claimed: Collection[str] | None = None
    machines: Collection[str] | None = None
    remediated: bool = False
    approved: bool = False


def due(
    lost: Iterable[NodeToRemedy], fencing: Fencing, deletion: NodeDeletion, deleted: int, now: float
) -> Iterator[Remedy]:
    """What is to be tried for lost nodes of one incident, of which `deleted` are deleted already.

    A node with a driver is deleted only as fencing allows.
    """
    left = deletion.nodes_per_incident_max - deleted
    for node in sorted(lost, key=lambda item: (item.lost_at, item.name)):
        if node.driver:
            if fencing.mode != "None":
                yield Remedy(node, fence=True)
        elif deletion.enabled and left > 0 and now - node.lost_at >= deletion.after_seconds:
            left -= 1
            yield Remedy(node, fence=False)


def certain(body: Body, fencing: Fencing, evidence: NodeEvidence) -> Certainty | None:
    """What makes it certain that a node runs nothing any more; None when nothing does."""
    metadata = body["metadata"]
    taints = {taint["key"] for taint in body.get("spec", {}).get("taints") or ()}
    machine = (metadata.get("annotations") or {}).get(MACHINE_ANNOTATION)
    claimed, machines = evidence.claimed, evidence.machines
    holds: dict[Certainty, bool] = {
        "ShutdownTaint": SHUTDOWN_TAINT in taints,
        "NodeClaimGone": claimed is not None
        and KARPENTER_LABEL in (metadata.get("labels") or {})
        and metadata["name"] not in claimed,
        "MachineGone": machines is not None and machine is not None and machine not in machines,
        "SelfNodeRemediation": evidence.remediated,
        "Approval": evidence.approved,
    }
    return next((item for item in fencing.certainty if holds[item]), None)


def still_lost(body: Body | None, node: NodeToRemedy) -> bool:
    """Whether the object, as it is now, is of the very machine that was lost, and not Ready."""
    return body is not None and body["metadata"]["uid"] == node.uid and not _is_ready(body)


def is_ours(taint: Mapping[str, str]) -> bool:
    """Whether it is the out-of-service taint as we set it: the only one that we take off."""
    return taint["key"] == OUT_OF_SERVICE and taint.get("value") == OURS


def strongest(effects: Iterable[str]) -> str:
    """Of several classes' effects the one that keeps most away."""
    return max(effects, key=EFFECTS.index, default="None")


def taints_wanted(
    suspected: Collection[str], impaired: Collection[str], effects: tuple[str, str]
) -> dict[str, dict[str, str]]:
    """Our taints by node (key -> effect); `effects` are those of suspected nodes and of nodes in
    impaired domains."""
    wanted: dict[str, dict[str, str]] = {}
    for names, key, effect in zip(
        (suspected, impaired), (SUSPECTED_TAINT, IMPAIRED_TAINT), effects, strict=True
    ):
        if effect != "None":
            for name in names:
                wanted.setdefault(name, {})[key] = effect
    return wanted


def retainted(body: Body, wanted: Mapping[str, str]) -> list[dict[str, Any]] | None:
    """All taints of a node with ours as they are wanted; None when they are so already.

    The out-of-service taint that we have set goes when the node is Ready again.
    """
    before = [dict(taint) for taint in body.get("spec", {}).get("taints") or ()]
    kept = [
        taint
        for taint in before
        if taint["key"] not in (SUSPECTED_TAINT, IMPAIRED_TAINT)
        and not (is_ours(taint) and _is_ready(body))
    ]
    known = {
        taint["key"]: taint
        for taint in before
        if taint["key"] in wanted and taint["effect"] == wanted[taint["key"]]
    }
    ours = [
        known.get(key, {"key": key, "value": OURS, "effect": effect})
        for key, effect in sorted(wanted.items())
    ]
    after = [*kept, *ours]
    return None if sorted(map(repr, after)) == sorted(map(repr, before)) else after


def _is_ready(body: Body) -> bool:
    conditions = (body.get("status") or {}).get("conditions") or ()
    return any(item["type"] == "Ready" and item["status"] == READY for item in conditions)
