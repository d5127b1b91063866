"""Notices on Node objects: which taints and conditions count, and when the node goes."""

from typing import Any

import pytest

from rekindle_operator.detection import loss_notices
from rekindle_operator.detection.detection_input import NodeNotice, WatchedNode

SEEN_AT = 1_000_000.0


def taint(key: str, value: str = "") -> dict[str, Any]:
    return {"key": key, "value": value, "effect": "NoSchedule"}


def condition(kind: str, status: str = "True", reason: str = "", message: str = "") -> Any:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def found(*, taints: Any = (), conditions: Any = ()) -> NodeNotice:
    notice = loss_notices.of_node(taints, conditions)
    assert notice is not None
    return notice


def deadline(notice: NodeNotice, **seconds: float) -> float:
    return loss_notices.deadline(notice, SEEN_AT, seconds)


@pytest.mark.parametrize(
    ("key", "source", "seconds"),
    [
        ("aws-node-termination-handler/spot-itn", "aws", 120.0),
        ("aws-node-termination-handler/asg-lifecycle-termination", "aws", 120.0),
        ("aws-node-termination-handler/scheduled-maintenance", "aws", 120.0),
        ("cloud.google.com/impending-node-termination", "gke", 30.0),
        ("cloudprovider.azure.microsoft.com/draining", "aks", 30.0),
        ("remediator.kubernetes.azure.com/unschedulable", "aks", 30.0),
        ("remediator.aks.microsoft.com/unschedulable", "aks", 30.0),
        ("karpenter.sh/disrupted", "karpenter", 120.0),
        ("karpenter.sh/disruption", "karpenter", 120.0),
        ("node.kubernetes.io/out-of-service", "outOfService", 0.0),
    ],
)
def test_a_taint_is_a_notice_with_the_deadline_of_its_source(
    key: str, source: str, seconds: float
) -> None:
    notice = found(taints=[taint("other"), taint(key)])
    assert (notice.source, notice.by) == (source, f"taint {key}")
    assert deadline(notice) == SEEN_AT + seconds


@pytest.mark.parametrize(
    "key",
    [
        "DeletionCandidateOfClusterAutoscaler",
        "aws-node-termination-handler/rebalance-recommendation",
        "karpenter.sh/candidate",
        "kubernetes.azure.com/scalesetpriority",
        "cloud.google.com/gke-spot",
        "node.kubernetes.io/unschedulable",
        "node.kubernetes.io/unreachable",
    ],
)
def test_a_taint_that_says_only_that_a_node_could_go_is_no_notice(key: str) -> None:
    assert loss_notices.of_node([taint(key)], []) is None


def test_the_value_of_the_autoscalers_taint_is_when_it_was_set() -> None:
    key = loss_notices.AUTOSCALER_TAINT
    assert deadline(found(taints=[taint(key, "999900")])) == 999_900.0 + 600.0
    for nonsense in ("", "soon", "-5", "1e9", "9" * 30, "²"):
        assert deadline(found(taints=[taint(key, nonsense)])) == SEEN_AT + 600.0
    assert deadline(found(taints=[taint(key, "2000000")])) == SEEN_AT + 600.0, "a clock is wrong"


def test_a_scheduled_event_of_aks_says_its_moment() -> None:
    text = "Preempt Scheduled: Mon, 12 Jan 1970 13:47:00 GMT"
    notice = found(conditions=[condition("PreemptScheduled", message=text)])
    assert notice.by == "condition PreemptScheduled"
    assert deadline(notice) == 1_000_020.0
    vague = found(conditions=[condition("VMEventScheduled", message="Preempt Scheduled: soon")])
    assert deadline(vague) == SEEN_AT + 30.0


@pytest.mark.parametrize(
    "held",
    [
        condition("PreemptScheduled", status="False"),
        condition("PreemptScheduled", status="Unknown"),
        condition("FreezeScheduled"),
        condition("VMEventScheduled", message="Freeze Scheduled: soon"),
        condition("MemoryPressure"),
        condition("KernelDeadlock"),
        {},
    ],
)
def test_an_event_that_is_over_or_passes_is_no_notice(held: dict[str, Any]) -> None:
    assert loss_notices.of_node([], [held]) is None


def test_a_kubelet_that_shuts_down_is_a_notice() -> None:
    held = condition("Ready", "False", "KubeletNotReady", "node is shutting down")
    assert found(conditions=[held]).source == "shutdown"
    assert loss_notices.of_node([], [condition("Ready", "False", "KubeletNotReady")]) is None


def test_a_drain_is_a_cordon_and_an_executor_that_is_being_evicted() -> None:
    cordoned = WatchedNode(uid="u", unschedulable=True)
    notice = loss_notices.of_drain(cordoned, evicts_executor=True)
    assert notice is not None
    assert (notice.source, deadline(notice)) == ("drain", SEEN_AT + 30.0)
    assert loss_notices.of_drain(cordoned, evicts_executor=False) is None
    assert loss_notices.of_drain(WatchedNode(uid="u"), evicts_executor=True) is None
    spot = found(taints=[taint("karpenter.sh/disrupted")])
    both = WatchedNode(uid="u", unschedulable=True, notice=spot)
    assert loss_notices.of_drain(both, evicts_executor=True) == spot


def test_a_class_sets_deadlines_of_sources_that_name_no_moment() -> None:
    assert deadline(found(taints=[taint("karpenter.sh/disrupted")]), karpenter=45.0) == (
        SEEN_AT + 45.0
    )
