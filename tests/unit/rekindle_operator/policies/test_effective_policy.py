"""Policies within their classes: what holds of them, and what is said of the rest."""

from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.model.settings import Policy
from rekindle.protocol.messages import PriorityOverride
from rekindle_operator.api.node_providers import ProviderLimits
from rekindle_operator.policies import effective_policy, policy_conditions
from rekindle_testing.operator_builders import make_class, make_policy

NODE_CLASS = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
KARPENTER = {
    "name": "karpenter",
    "provider": "Karpenter",
    "karpenter": {
        "nodeClassRef": NODE_CLASS,
        "requirements": [{"key": "kubernetes.io/arch", "operator": "Exists"}],
    },
}
PODS = {"name": "pods", "provider": "PendingPods"}


def held(policy: dict[str, Any] | None = None, class_: dict[str, Any] | None = None) -> Any:
    return effective_policy.effective(
        make_policy(**policy or {}), make_class("shared", **class_ or {})
    )


def test_the_defaults_are_the_cores_but_for_what_kubernetes_needs() -> None:
    assert held().policy == Policy(stabilisation_seconds=10.0)
    assert held().narrowed == ()


def test_every_setting_of_the_core_can_be_reached() -> None:
    found = held(
        {
            "strategy": "blocking",
            "buffering": "adaptive",
            "ordering": "adaptive",
            "correlated": {"nodesMin": 3, "windowSeconds": 60},
            "stabilisationSeconds": 5,
            "placement": "domains",
            "nodeCpuCapPercent": 60,
            "planning": {
                "solver": "dp",
                "solverBudgetSeconds": 2,
                "catchUpSeconds": 45,
                "catchUpCostPercent": 75,
                "unevenSeconds": 25,
                "defaultCpuMillicores": 35,
            },
            "priorities": [{"query": "worst-delays", "priority": 10}],
            "lagGoals": [{"query": "worst-delays", "seconds": 10}],
        },
        {"detection": {"driverSilenceSeconds": 20}},
    ).policy
    assert found == Policy(
        strategy="blocking",
        buffering="adaptive",
        ordering="adaptive",
        correlated_nodes_min=3,
        correlated_window_seconds=60.0,
        stabilisation_seconds=5.0,
        silent_seconds=20.0,
        placement="domains",
        cpu_cap=0.6,
        solver="dp",
        solver_budget_seconds=2.0,
        catch_up_seconds=45.0,
        catch_up_cost_ratio=0.75,
        uneven_seconds=25.0,
        default_cpu_percent=3.5,
        priorities={"worst-delays": 10.0},
        lag_goals={"worst-delays": 10.0},
    )
    untouched = [
        item.name
        for item in fields(Policy)
        if getattr(found, item.name) == getattr(Policy(), item.name)
    ]
    assert untouched == []


def test_priorities_with_an_end_are_orders_and_the_others_are_policy() -> None:
    until = datetime(2030, 1, 1, 12, tzinfo=UTC)
    found = held(
        {
            "priorities": [
                {"query": "for-good", "priority": 4},
                {"query": "for-now", "priority": 9, "until": "2030-01-01T12:00:00Z"},
            ]
        }
    )
    assert found.policy.priorities == {"for-good": 4.0}
    assert found.overrides == {"for-now": PriorityOverride(priority=9, until=until.timestamp())}


@pytest.mark.parametrize(
    ("policy", "class_", "field", "sentence"),
    [
        (
            {"nodeCpuCapPercent": 90},
            {"limits": {"nodeCpuCapPercentMax": 70}},
            "nodeCpuCapPercent",
            "nodeCpuCapPercent asks for 90, class shared allows 70: 70 holds.",
        ),
        (
            {"planning": {"solverBudgetSeconds": 9}},
            {},
            "planning.solverBudgetSeconds",
            "planning.solverBudgetSeconds asks for 9, class shared allows 5: 5 holds.",
        ),
        (
            {"guards": {"nodesPerIncidentMax": 500}},
            {},
            "guards.nodesPerIncidentMax",
            "guards.nodesPerIncidentMax asks for 500, class shared allows 100: 100 holds.",
        ),
        (
            {"guards": {"nodesAtOnceMax": 51}},
            {},
            "guards.nodesAtOnceMax",
            "guards.nodesAtOnceMax asks for 51, class shared allows 50: 50 holds.",
        ),
        (
            {"guards": {"concurrentRecoveriesMax": 3}},
            {"limits": {"concurrentRecoveriesMax": 2}},
            "guards.concurrentRecoveriesMax",
            "guards.concurrentRecoveriesMax asks for 3, class shared allows 2: 2 holds.",
        ),
        ({}, {"paused": True}, "paused", "Class shared is paused, and so is the policy."),
        ({}, {"dryRun": True}, "dryRun", "Class shared is a dry run, and so is the policy."),
        (
            {},
            {"approval": "Manual"},
            "approval",
            "Class shared wants every recovery approved by a person.",
        ),
        (
            {"guards": {"providers": ["pods", "gold"]}},
            {"provisioning": [PODS, KARPENTER]},
            "guards.providers",
            "guards.providers names gold, class shared has pods, karpenter: pods may be used.",
        ),
        (
            {"guards": {"providers": ["gold"]}},
            {"provisioning": [PODS]},
            "guards.providers",
            "guards.providers names gold, class shared has pods: none may be used.",
        ),
    ],
)
def test_what_a_class_narrows_is_said_in_a_sentence(
    policy: dict[str, Any], class_: dict[str, Any], field: str, sentence: str
) -> None:
    (found,) = held(policy, class_).narrowed
    assert (found.field, found.message) == (field, sentence)


@pytest.mark.parametrize(
    ("policy", "class_"),
    [
        ({"nodeCpuCapPercent": 70}, {"limits": {"nodeCpuCapPercentMax": 70}}),
        ({"paused": True, "dryRun": True}, {"paused": True, "dryRun": True}),
        ({"approval": "Manual"}, {"approval": "Manual"}),
        ({"approval": "Manual", "paused": True, "dryRun": True}, {}),
        ({"guards": {"providers": []}}, {"provisioning": [PODS]}),
        ({"guards": {"fencing": "Never"}}, {"fencing": {"mode": "DeleteNode"}}),
    ],
)
def test_a_policy_that_asks_for_no_more_than_it_may_have_is_not_narrowed(
    policy: dict[str, Any], class_: dict[str, Any]
) -> None:
    assert held(policy, class_).narrowed == ()


@pytest.mark.parametrize(
    ("policy", "class_", "name", "value"),
    [
        ({"guards": {"nodesPerIncidentMax": 7}}, {}, "nodes_per_incident_max", 7),
        ({"guards": {"nodesPerIncidentMax": 7}}, {}, "nodes_at_once_max", 7),
        ({}, {"limits": {"nodesPerIncidentMax": 4, "nodesAtOnceMax": 3}}, "nodes_at_once_max", 3),
        ({"guards": {"nodesAtOnceMax": 2}}, {}, "nodes_at_once_max", 2),
        ({"guards": {"concurrentRecoveriesMax": 2}}, {}, "concurrent_recoveries_max", 2),
        ({"paused": True}, {}, "paused", True),
        ({"dryRun": True}, {}, "dry_run", True),
        ({}, {"paused": True}, "paused", True),
        ({}, {"dryRun": True}, "dry_run", True),
        ({}, {"approval": "Manual"}, "approval_needed", True),
        ({"approval": "Manual"}, {}, "approval_needed", True),
        ({}, {}, "approval_needed", False),
    ],
)
def test_of_two_bounds_the_lower_holds_and_of_two_switches_the_more_careful(
    policy: dict[str, Any], class_: dict[str, Any], name: str, value: object
) -> None:
    assert getattr(held(policy, class_), name) == value


def test_the_limits_of_providers_go_down_with_the_policys_guards() -> None:
    guards = {"nodesPerIncidentMax": 7, "nodesAtOnceMax": 3}
    many = {"nodesPerRequestMax": 10, "nodesAtOnceMax": 20, "nodesPerIncidentMax": 40}
    found = held({"guards": guards}, {"provisioning": [PODS, {**KARPENTER, "limits": many}]})
    assert [provider.name for provider in found.providers] == ["pods", "karpenter"]
    assert found.providers[1].limits == ProviderLimits(
        nodes_per_request_max=3, nodes_per_incident_max=7, nodes_at_once_max=3
    )


@pytest.mark.parametrize(
    ("guards", "names"),
    [
        ({}, ["pods", "karpenter"]),
        ({"providers": ["karpenter"]}, ["karpenter"]),
        ({"providers": ["karpenter", "pods"]}, ["pods", "karpenter"]),
        ({"providers": []}, []),
        ({"nodesPerIncidentMax": 0}, ["pods"]),
        ({"nodesAtOnceMax": 0}, ["pods"]),
    ],
)
def test_providers_are_the_classs_in_its_order_as_far_as_the_policy_wants_them(
    guards: dict[str, Any], names: list[str]
) -> None:
    found = held({"guards": guards}, {"provisioning": [PODS, KARPENTER]})
    assert [provider.name for provider in found.providers] == names


@pytest.mark.parametrize(("wish", "mode"), [("Class", "DeleteNode"), ("Never", "None")])
def test_a_policy_may_refuse_fencing(wish: str, mode: str) -> None:
    fencing = {"mode": "DeleteNode", "certainty": ["MachineGone"]}
    assert held({"guards": {"fencing": wish}}, {"fencing": fencing}).fencing.mode == mode


@given(
    cap=st.integers(5, 100),
    cap_max=st.integers(5, 100),
    incident=st.integers(0, 5_000),
    incident_max=st.integers(0, 5_000),
    budget=st.integers(1, 60),
    budget_max=st.integers(1, 60),
)
def test_nothing_ever_holds_that_is_above_what_both_allow(
    cap: int, cap_max: int, incident: int, incident_max: int, budget: int, budget_max: int
) -> None:
    found = held(
        {
            "nodeCpuCapPercent": cap,
            "planning": {"solverBudgetSeconds": budget},
            "guards": {"nodesPerIncidentMax": incident},
        },
        {
            "limits": {
                "nodeCpuCapPercentMax": cap_max,
                "solverBudgetSecondsMax": budget_max,
                "nodesPerIncidentMax": incident_max,
            },
            "provisioning": [KARPENTER],
        },
    )
    assert found.policy.cpu_cap == min(cap, cap_max) / 100
    assert found.policy.solver_budget_seconds == min(budget, budget_max)
    assert found.nodes_at_once_max <= found.nodes_per_incident_max == min(incident, incident_max)
    assert len(found.narrowed) == (cap > cap_max) + (budget > budget_max) + (
        incident > incident_max
    )
    for provider in found.providers:
        assert 1 <= provider.limits.nodes_per_request_max <= provider.limits.nodes_at_once_max
        assert provider.limits.nodes_per_incident_max <= found.nodes_per_incident_max


def test_priorities_of_other_applications_queries_are_left_out_and_named() -> None:
    priorities = [
        {"query": "worst-delays", "priority": 9},
        {"query": "elsewhere", "priority": 3},
        {"query": "for-now", "priority": 2, "until": "2030-01-01T12:00:00Z"},
    ]
    everything = held({"priorities": priorities})
    found, unknown = effective_policy.known(everything, {"worst-delays", "busiest-airports"})
    assert (found.policy.priorities, found.overrides) == ({"worst-delays": 9.0}, {})
    assert [item.query for item in unknown] == ["elsewhere", "for-now"]
    assert unknown[0].known == ("busiest-airports", "worst-delays")
    assert effective_policy.known(everything, {"worst-delays", "elsewhere", "for-now"}) == (
        everything,
        (),
    )


def test_goals_of_other_applications_queries_are_left_out_and_named() -> None:
    goals = [{"query": name, "seconds": 5} for name in ("worst-delays", "elsewhere")]
    everything = held({"lagGoals": goals, "priorities": [{"query": "rare", "priority": 1}]})
    found, unknown = effective_policy.known(everything, {"worst-delays"})
    assert (found.policy.lag_goals, found.policy.priorities) == ({"worst-delays": 5.0}, {})
    assert [(item.field, item.query) for item in unknown] == [
        ("priorities", "rare"),
        ("lagGoals", "elsewhere"),
    ]
    said = policy_conditions.accepted(everything, 1, unknown).message
    assert "lagGoals names elsewhere, which no pipeline has; there are: worst-delays." in said


@pytest.mark.parametrize(
    ("own", "limits", "most"),
    [(60.0, (), 1.0), (0.5, (), 0.5), (60.0, (5, 3, 30), 3.0), (2.0, (5,), 2.0)],
    ids=["no class", "less than that", "the smallest limit", "within it"],
)
def test_planning_without_a_policy_takes_no_longer_than_any_class_allows(
    own: float, limits: tuple[int, ...], most: float
) -> None:
    classes = [
        make_class(f"class-{seconds}", limits={"solverBudgetSecondsMax": seconds})
        for seconds in limits
    ]
    policy = Policy(solver_budget_seconds=own)
    assert effective_policy.without_policy(policy, classes) == replace(
        policy, solver_budget_seconds=most
    )
