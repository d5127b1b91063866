"""Fencing, deletion and taints of nodes: what is due, and what is certain."""

from typing import Any

import pytest

from rekindle_operator.api.recovery_class import Fencing, NodeDeletion
from rekindle_operator.remediation import remediation_rules
from rekindle_operator.remediation.remediation_rules import NodeEvidence, NodeToRemedy, Remedy

NOTHING = NodeEvidence()
ALL = ("ShutdownTaint", "NodeClaimGone", "MachineGone", "SelfNodeRemediation", "Approval")
SHUTDOWN = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}


def node(
    *taints: dict[str, str], ready: str = "Unknown", uid: str = "u1", **metadata: Any
) -> dict[str, Any]:
    return {
        "metadata": {"name": "n1", "uid": uid, **metadata},
        "spec": {"taints": list(taints)},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def lost(name: str, *, at: float = 0.0, driver: bool = False) -> NodeToRemedy:
    return NodeToRemedy(name, f"uid-{name}", at, driver)


def test_without_leave_nothing_is_due() -> None:
    known = [lost("a"), lost("b", driver=True)]
    assert list(remediation_rules.due(known, Fencing(), NodeDeletion(), 0, 1e9)) == []


def test_nodes_are_deleted_after_their_time_and_not_more_than_may_be() -> None:
    allowed = NodeDeletion(enabled=True, after_seconds=60, nodes_per_incident_max=2)
    known = [lost("c", at=50.0), lost("a", at=10.0), lost("b", at=20.0)]
    assert list(remediation_rules.due(known, Fencing(), allowed, 0, 69.0)) == []
    assert [
        item.node.name for item in remediation_rules.due(known, Fencing(), allowed, 0, 200.0)
    ] == [
        "a",
        "b",
    ]
    assert [
        item.node.name for item in remediation_rules.due(known, Fencing(), allowed, 1, 200.0)
    ] == ["a"]


def test_a_node_with_a_driver_is_fenced_and_never_merely_deleted() -> None:
    driver = lost("a", driver=True)
    deletion = NodeDeletion(enabled=True, after_seconds=0)
    assert list(remediation_rules.due([driver], Fencing(), deletion, 0, 1e9)) == []
    fencing = Fencing(mode="DeleteNode", certainty=("Approval",))
    assert list(remediation_rules.due([driver], fencing, deletion, 0, 1e9)) == [
        Remedy(driver, fence=True)
    ]


@pytest.mark.parametrize(
    ("body", "evidence", "certainty"),
    [
        (node(), NOTHING, None),
        (node(SHUTDOWN), NOTHING, "ShutdownTaint"),
        (
            node(labels={"karpenter.sh/nodepool": "p"}),
            NodeEvidence(claimed={"n2"}),
            "NodeClaimGone",
        ),
        (node(labels={"karpenter.sh/nodepool": "p"}), NodeEvidence(claimed={"n1"}), None),
        (node(labels={"karpenter.sh/nodepool": "p"}), NOTHING, None),
        (node(), NodeEvidence(claimed=set()), None),
        (
            node(annotations={"cluster.x-k8s.io/machine": "m1"}),
            NodeEvidence(machines={"m2"}),
            "MachineGone",
        ),
        (node(annotations={"cluster.x-k8s.io/machine": "m1"}), NodeEvidence(machines={"m1"}), None),
        (node(), NodeEvidence(machines=set()), None),
        (node(), NodeEvidence(remediated=True), "SelfNodeRemediation"),
        (node(), NodeEvidence(approved=True), "Approval"),
    ],
)
def test_only_evidence_makes_it_certain(
    body: dict[str, Any], evidence: NodeEvidence, certainty: str | None
) -> None:
    fencing = Fencing(mode="OutOfServiceTaint", certainty=ALL)
    assert remediation_rules.certain(body, fencing, evidence) == certainty
    if certainty is not None:
        others = tuple(item for item in ALL if item != certainty)
        other = Fencing(mode="OutOfServiceTaint", certainty=others)
        assert remediation_rules.certain(body, other, evidence) is None


@pytest.mark.parametrize(
    ("body", "still"),
    [
        (None, False),
        (node(uid="uid-n1"), True),
        (node(uid="uid-n1", ready="False"), True),
        (node(uid="uid-n1", ready="True"), False),
        (node(uid="another"), False),
    ],
)
def test_only_the_very_machine_that_was_lost_is_touched(body: Any, *, still: bool) -> None:
    assert remediation_rules.still_lost(body, lost("n1")) is still


def test_our_taints_come_and_go_and_those_of_others_stay() -> None:
    other = {"key": "gpu", "effect": "NoSchedule"}
    wanted = remediation_rules.taints_wanted(
        {"n1"}, {"n1", "n2"}, ("NoSchedule", "PreferNoSchedule")
    )
    after = remediation_rules.retainted(node(other), wanted["n1"])
    assert after is not None
    assert {item["key"]: item["effect"] for item in after} == {
        "gpu": "NoSchedule",
        remediation_rules.SUSPECTED_TAINT: "NoSchedule",
        remediation_rules.IMPAIRED_TAINT: "PreferNoSchedule",
    }
    assert remediation_rules.retainted(node(*after), wanted["n1"]) is None
    assert remediation_rules.retainted(node(*after), {}) == [other]
    assert wanted["n2"] == {remediation_rules.IMPAIRED_TAINT: "PreferNoSchedule"}
    assert remediation_rules.taints_wanted({"n1"}, {"n2"}, ("None", "None")) == {}


def test_what_fenced_a_node_goes_when_it_is_ready_unless_somebody_else_has_set_it() -> None:
    ours = {
        "key": remediation_rules.OUT_OF_SERVICE,
        "value": remediation_rules.OURS,
        "effect": "NoExecute",
    }
    theirs = {
        "key": remediation_rules.OUT_OF_SERVICE,
        "value": "nodeshutdown",
        "effect": "NoExecute",
    }
    assert remediation_rules.retainted(node(ours), {}) is None
    assert remediation_rules.retainted(node(ours, ready="True"), {}) == []
    assert remediation_rules.retainted(node(theirs, ready="True"), {}) is None


def test_of_several_effects_the_strongest_holds() -> None:
    assert remediation_rules.strongest(["None", "NoSchedule", "PreferNoSchedule"]) == "NoSchedule"
    assert remediation_rules.strongest([]) == "None"
