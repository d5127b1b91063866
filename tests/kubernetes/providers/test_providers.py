"""What providers make is accepted by a real API server with the real definitions of its kinds."""

import time
from dataclasses import replace
from typing import Any

import pytest
from kubernetes.dynamic.exceptions import ConflictError
from provider_shell import RECOVERY, ZONE, Shell, condition, make_demand, notes, settle

from rekindle_local import process_sets
from rekindle_operator.cluster.json_access import ObjectKind, text
from rekindle_operator.provisioning import Create, Delete, NodeNow
from rekindle_operator.provisioning.providers.node_claims import NODE_CLAIM
from rekindle_operator.provisioning.providers.provisioning_requests import (
    POD_TEMPLATE,
    PROVISIONING_REQUEST,
)

KARPENTER: dict[str, Any] = {
    "name": "karpenter",
    "provider": "Karpenter",
    "karpenter": {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "spark"},
        "requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gt", "values": ["7"]},
            {"key": "node.kubernetes.io/instance-type", "operator": "Exists"},
        ],
        "labels": {"team": "flights"},
        "taints": [{"key": "spark", "value": "only", "effect": "NoSchedule"}],
        "startupTaints": [{"key": "cni/starting", "effect": "NoExecute"}],
        "expireAfter": "24h",
    },
}
AUTOSCALER: dict[str, Any] = {
    "name": "autoscaler",
    "provider": "ProvisioningRequest",
    "provisioningRequest": {
        "className": "best-effort-atomic-scale-up.autoscaling.x-k8s.io",
        "parameters": {"ValidUntilSeconds": "600"},
        "executorsPerNode": 2,
    },
}


@pytest.mark.parametrize(
    ("entry", "kinds"),
    [
        (KARPENTER, {"ConfigMap", "NodeClaim"}),
        (AUTOSCALER, {"ConfigMap", "PodTemplate", "ProvisioningRequest"}),
    ],
    ids=["Karpenter", "ProvisioningRequest"],
)
def test_every_manifest_passes_the_strict_validation_of_its_definition(
    entry: dict[str, Any], kinds: set[str], shell: Shell, namespace: str
) -> None:
    actions = shell.decide(make_demand(shell, entry), time.time()).actions
    assert {action.kind.name for action in actions if isinstance(action, Create)} == kinds
    for action in actions:
        assert isinstance(action, Create)
        answer = shell.api(action.kind).create(
            body=dict(action.manifest),
            namespace=action.manifest["metadata"].get("namespace"),
            dry_run="All",
            field_validation="Strict",
        )
        kept = answer.to_dict()
        for section in action.manifest.keys() - {"metadata"}:
            assert contains(kept[section], action.manifest[section]), section
    assert shell.all(PROVISIONING_REQUEST, namespace) == []


@pytest.mark.parametrize(
    ("entry", "kinds"),
    [(KARPENTER, [NODE_CLAIM]), (AUTOSCALER, [POD_TEMPLATE, PROVISIONING_REQUEST])],
    ids=["Karpenter", "ProvisioningRequest"],
)
def test_an_operator_that_is_killed_at_any_step_makes_each_object_once(
    entry: dict[str, Any], kinds: list[ObjectKind], shell: Shell, namespace: str
) -> None:
    demand = make_demand(shell, entry)
    for actions in range(6):
        shell.act(shell.decide(demand, time.time()).actions[:actions])
    settle(shell, demand)
    assert sorted(shell.created) == sorted(
        ["ConfigMap", *(kind.name for kind in kinds for _ in range(2))]
    )
    settle(shell, replace(demand, over=True))
    assert [body for kind in kinds for body in shell.all(kind, namespace_of(kind, namespace))] == []
    assert notes(shell) == []


def test_of_two_operators_that_saw_the_same_only_one_acts(shell: Shell) -> None:
    demand = make_demand(shell, KARPENTER)
    other = Shell(shell.dynamic.client, shell.home)
    first, second = (one.decide(demand, time.time()) for one in (shell, other))
    shell.act(first.actions)
    other.act(second.actions)
    assert (len(shell.created), len(other.created)) == (3, 0)
    grown = make_demand(shell, KARPENTER, count=3)
    first, second = (one.decide(grown, time.time()) for one in (shell, other))
    other.act(second.actions)
    shell.act(first.actions)
    assert len(shell.all(NODE_CLAIM)) == 3


def test_a_claim_arrives_by_its_status_and_goes_after_the_incident(shell: Shell) -> None:
    demand = make_demand(shell, KARPENTER, count=1)
    settle(shell, demand)
    (claim,) = shell.all(NODE_CLAIM)
    conditions = [condition(name) for name in ("Launched", "Registered", "Initialized")]
    shell.custom.patch_cluster_custom_object_status(
        "karpenter.sh",
        "v1",
        NODE_CLAIM.plural,
        text(claim, "metadata", "name"),
        {"status": {"nodeName": "n7", "conditions": conditions}},
    )
    assert [row.outcome for row in settle(shell, demand)] == ["Pending"]
    shell.nodes["n7"] = NodeNow("2026-11-21T18:00:00Z")
    (row,) = settle(shell, demand)
    assert (row.outcome, row.message) == ("Arrived", "Nodes: n7.")
    settle(shell, replace(demand, over=True))
    assert len(shell.all(NODE_CLAIM)) == 1
    shell.idle_seconds["n7"] = 700.0
    settle(shell, replace(demand, over=True))
    assert shell.all(NODE_CLAIM) == []


def test_a_request_arrives_by_its_status_and_leaves_nothing(shell: Shell, namespace: str) -> None:
    demand = make_demand(shell, AUTOSCALER, count=1)
    settle(shell, demand)
    (request,) = shell.all(PROVISIONING_REQUEST, namespace)
    shell.custom.patch_namespaced_custom_object_status(
        "autoscaling.x-k8s.io",
        "v1",
        namespace,
        PROVISIONING_REQUEST.plural,
        text(request, "metadata", "name"),
        {"status": {"conditions": [condition("Accepted"), condition("Provisioned")]}},
    )
    assert [row.outcome for row in settle(shell, demand)] == ["Pending"]
    created = text(request, "metadata", "creationTimestamp")
    shell.nodes["n7"] = NodeNow(created, labels={ZONE: "b"})
    assert [row.outcome for row in settle(shell, demand)] == ["Arrived"]
    assert shell.all(PROVISIONING_REQUEST, namespace) == []
    assert shell.all(POD_TEMPLATE, namespace) == []


def test_what_a_definition_refuses_is_told_and_the_next_provider_is_asked(shell: Shell) -> None:
    settings = {**KARPENTER["karpenter"]}
    settings["requirements"] = [{"key": "kubernetes.io/hostname", "operator": "Exists"}]
    bad = {**KARPENTER, "name": "bad", "karpenter": settings}
    demand = make_demand(shell, bad, AUTOSCALER, count=1)
    first, second = settle(shell, demand)
    assert first.outcome == "Failed"
    assert 'label "kubernetes.io/hostname" is restricted' in first.message
    assert (second.provider, second.outcome) == ("autoscaler", "Pending")


def test_only_the_very_object_is_deleted(shell: Shell) -> None:
    demand = make_demand(shell, KARPENTER, count=1)
    settle(shell, demand)
    deletes = [
        action
        for action in shell.decide(replace(demand, over=True), time.time()).actions
        if isinstance(action, Delete)
    ]
    (claim,) = deletes
    assert claim.kind == NODE_CLAIM
    with pytest.raises(ConflictError):
        shell.carry_out(replace(claim, uid="another"))
    shell.carry_out(claim)
    shell.carry_out(claim)
    assert shell.all(NODE_CLAIM) == []


def test_what_belongs_to_a_recovery_goes_with_it(shell: Shell, namespace: str) -> None:
    settle(shell, make_demand(shell, AUTOSCALER, count=1))
    assert len(shell.all(PROVISIONING_REQUEST, namespace)) == 1
    shell.api(RECOVERY).delete(
        name=text(shell.recovery(), "metadata", "name"),
        namespace=namespace,
        body={"propagationPolicy": "Background"},
    )
    kinds = (PROVISIONING_REQUEST, POD_TEMPLATE)
    assert process_sets.await_condition(
        lambda: not any(shell.all(kind, namespace) for kind in kinds), limit_seconds=180
    )


def contains(whole: Any, part: Any) -> bool:
    """Whether all of `part` is in `whole`, which may have defaults besides."""
    if isinstance(part, dict):
        return all(key in whole and contains(whole[key], part[key]) for key in part)
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(contains, whole, part))
    return bool(whole == part) or str(whole) == str(part)


def namespace_of(kind: ObjectKind, namespace: str) -> str | None:
    return namespace if kind.namespaced else None
