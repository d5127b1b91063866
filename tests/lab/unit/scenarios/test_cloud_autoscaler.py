"""What the cloud of scenarios does about pods that wait: nodes where these may run, in time."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes import client

from scenarios.cloud_autoscaler import Autoscaler
from scenarios.deployment import ZONES
from testbed.node_objects import ZONE

A, B, C = ZONES


def term(*excluded: str) -> client.V1NodeSelectorTerm:
    """An alternative that excludes zones, and asks for something else."""
    other = client.V1NodeSelectorRequirement(key="disk", operator="NotIn", values=[C])
    zones = client.V1NodeSelectorRequirement(key=ZONE, operator="NotIn", values=[*excluded])
    return client.V1NodeSelectorTerm(match_expressions=[other, *([zones] if excluded else [])])


def waiting(*terms: client.V1NodeSelectorTerm, reason: str = "Unschedulable") -> client.V1Pod:
    required = client.V1NodeSelector(node_selector_terms=[*terms])
    affinity = client.V1NodeAffinity(required_during_scheduling_ignored_during_execution=required)
    condition = client.V1PodCondition(type="PodScheduled", status="False", reason=reason)
    return client.V1Pod(
        spec=client.V1PodSpec(
            containers=[client.V1Container(name="spark")],
            affinity=client.V1Affinity(node_affinity=affinity) if terms else None,
        ),
        status=client.V1PodStatus(conditions=[condition]),
    )


def scaler(*pods: client.V1Pod, **fields: Any) -> tuple[Autoscaler, list[str]]:
    """One whose nodes are due at once, and the zones in which it brings them."""
    brought: list[str] = []

    def add(_: int, __: object, *, zones: tuple[str, ...]) -> tuple[str, ...]:
        brought.extend(zones)
        return zones

    core = SimpleNamespace(list_namespaced_pod=lambda *_, **__: SimpleNamespace(items=[*pods]))
    cluster: Any = SimpleNamespace(add=add)
    due = {"first_seconds": 0.0, "every_seconds": 0.0, "nodes_max": 2}
    return Autoscaler(core, cluster, "factory", **{**due, **fields}), brought


@pytest.mark.parametrize(
    ("pods", "zones"),
    [
        ([], []),
        ([waiting(reason="SchedulingGated")], []),
        ([waiting()], [A, B]),
        ([waiting(term(A))], [B, C]),
        ([waiting(term(A), term(A, B))], [B, C]),
        ([waiting(term(A), term())], [A, B]),
        ([waiting(term(*ZONES)), waiting(term(A, B))], [C, C]),
        ([waiting(term(*ZONES))], []),
    ],
)
def test_nodes_come_in_zones_where_a_pod_that_waits_may_run(
    pods: list[client.V1Pod], zones: list[str]
) -> None:
    autoscaler, brought = scaler(*pods)
    for _ in range(3):  # it brings two at most
        autoscaler.look()
    assert brought == zones


def test_the_first_node_comes_after_a_while_and_then_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    autoscaler, brought = scaler(waiting(), first_seconds=10.0, every_seconds=6.0)
    counts = {}
    for now in (100.0, 109.0, 110.0, 115.0, 116.0):
        monkeypatch.setattr(time, "monotonic", lambda now=now: now)
        autoscaler.look()
        counts[now] = len(brought)
    assert counts == {100.0: 0, 109.0: 0, 110.0: 1, 115.0: 1, 116.0: 2}
