"""Notices: what on a Node says that it will go, and until when.

    taints, conditions ──► notice: source, by what, moment where it is said ──► deadline

The first of these that a node has counts:

| by | source | deadline |
|---|---|---|
| taint `node.kubernetes.io/out-of-service` | `outOfService` | it is off already |
| Ready with "node is shutting down" (kubelet) | `shutdown` | default 30 s |
| taints `aws-node-termination-handler/…`, but for rebalancing | `aws` | default 120 s |
| taint `cloud.google.com/impending-node-termination` | `gke` | default 30 s |
| taints or conditions of AKS, of `PreemptScheduled` and the like | `aks` | its message, or 30 s |
| taint `karpenter.sh/disrupted`, `…/disruption` before 1.0 | `karpenter` | default 120 s |
| taint `ToBeDeletedByClusterAutoscaler` | `clusterAutoscaler` | its value, and 600 s |
| cordon, and of several executors there one is being evicted | `drain` | default 30 s |

`DeletionCandidateOfClusterAutoscaler` is no notice: it says that a node could go. Nor is a cordon
alone, an event that freezes a machine for seconds, a recommendation to rebalance, or a taint that
marks a spot node for as long as it lives. Defaults count from when a notice was first seen and are
settings of a class (`detection.noticeSeconds`).
Pure; `nodes` reads the Node, `noticed_nodes` keeps since when a notice is known.
"""

from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

from rekindle_operator.detection.detection_input import SHUTTING_DOWN, NodeNotice, WatchedNode

Record = Mapping[str, Any]

OUT_OF_SERVICE: Final = "outOfService"
SHUTDOWN, DRAIN, AUTOSCALER, AKS = "shutdown", "drain", "clusterAutoscaler", "aks"
OUT_OF_SERVICE_TAINT = "node.kubernetes.io/out-of-service"
AUTOSCALER_TAINT = "ToBeDeletedByClusterAutoscaler"
SOURCES_OF_TAINTS: Mapping[str, str] = {
    OUT_OF_SERVICE_TAINT: OUT_OF_SERVICE,
    "aws-node-termination-handler/spot-itn": "aws",
    "aws-node-termination-handler/asg-lifecycle-termination": "aws",
    "aws-node-termination-handler/scheduled-maintenance": "aws",
    "cloud.google.com/impending-node-termination": "gke",
    "cloudprovider.azure.microsoft.com/draining": AKS,
    # auto-drain and auto-repair of AKS; the second name is the older one
    "remediator.kubernetes.azure.com/unschedulable": AKS,
    "remediator.aks.microsoft.com/unschedulable": AKS,
    "karpenter.sh/disrupted": "karpenter",
    "karpenter.sh/disruption": "karpenter",
    AUTOSCALER_TAINT: AUTOSCALER,
}
# Of the node problem detector on AKS; a reboot or a redeployment takes executors as a loss does.
AKS_CONDITIONS = (
    "PreemptScheduled",
    "TerminateScheduled",
    "RedeployScheduled",
    "RebootScheduled",
    "VMEventScheduled",
)
# The general condition stands for all events; this one ends after seconds.
PASSING_EVENT = "freeze"
DEFAULT_SECONDS: Mapping[str, float] = {
    OUT_OF_SERVICE: 0.0,
    SHUTDOWN: 30.0,
    "aws": 120.0,
    "gke": 30.0,
    AKS: 30.0,
    "karpenter": 120.0,
    AUTOSCALER: 600.0,
    DRAIN: 30.0,
}


def of_node(taints: Iterable[Record], conditions: Iterable[Record]) -> NodeNotice | None:
    """The notice in the taints and conditions of a Node object; None without one."""
    found = {taint.get("key", ""): taint for taint in taints}
    held = [condition for condition in conditions if condition.get("type")]
    if OUT_OF_SERVICE_TAINT in found:
        return NodeNotice(OUT_OF_SERVICE, f"taint {OUT_OF_SERVICE_TAINT}")
    if any(_shuts_down(condition) for condition in held):
        return NodeNotice(SHUTDOWN, f'"{SHUTTING_DOWN}"')
    tainted = [key for key in SOURCES_OF_TAINTS if key in found and key != AUTOSCALER_TAINT]
    events = [condition for condition in held if _is_event(condition)]
    if tainted and not events:
        return NodeNotice(SOURCES_OF_TAINTS[tainted[0]], f"taint {tainted[0]}")
    if events:
        # the most certain one is named, the general one last
        event = min(events, key=lambda item: AKS_CONDITIONS.index(item["type"]))
        moments = [at for item in events if (at := _moment_in(item.get("message"))) is not None]
        at = min(moments, default=None)
        return NodeNotice(AKS, f"condition {event['type']}", at)
    if AUTOSCALER_TAINT in found:
        begun = _unix_time(found[AUTOSCALER_TAINT].get("value"))
        return NodeNotice(AUTOSCALER, f"taint {AUTOSCALER_TAINT}", begun=begun)
    return None


def of_drain(node: WatchedNode, *, evicts_executor: bool) -> NodeNotice | None:
    """The notice of a node that somebody drains: it is cordoned, and an executor there is being
    evicted while others stand. What the node says by itself goes before."""
    if node.notice is not None or not (node.unschedulable and evicts_executor):
        return node.notice
    return NodeNotice(DRAIN, "drain")


def deadline(notice: NodeNotice, seen_at: float, seconds: Mapping[str, float]) -> float:
    """When the node goes (seconds since 1970); `seen_at` is when the notice was first seen,
    `seconds` (source -> seconds) go before the defaults."""
    if notice.at is not None:
        return notice.at
    begun = seen_at if notice.begun is None else min(seen_at, notice.begun)
    return begun + seconds.get(notice.source, DEFAULT_SECONDS[notice.source])


def _shuts_down(condition: Record) -> bool:
    text = f"{condition.get('reason')} {condition.get('message')}".lower()
    return condition["type"] == "Ready" and SHUTTING_DOWN in text


def _is_event(condition: Record) -> bool:
    if condition["type"] not in AKS_CONDITIONS or condition.get("status") != "True":
        return False
    return PASSING_EVENT not in f"{condition.get('reason')} {condition.get('message')}".lower()


def _moment_in(message: object) -> float | None:
    """The moment behind the colon of "Preempt Scheduled: Mon, 19 Sep 2022 18:29:47 GMT"."""
    _, _, text = str(message or "").partition(": ")
    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


def _unix_time(value: object) -> float | None:
    text = str(value or "")
    return float(text) if text.isascii() and text.isdigit() and len(text) <= 12 else None
