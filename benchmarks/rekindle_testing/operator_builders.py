"""Builders for tests: policies and classes with what a test is about, and the longest story.

Nothing here is for the operator itself.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from rekindle_operator.api import recovery_class, recovery_policy, recovery_resource
from rekindle_operator.api.custom_resources import API_VERSION, Condition
from rekindle_operator.api.recovery_class import RecoveryClass
from rekindle_operator.api.recovery_policy import RecoveryPolicy

CREATED = datetime(2026, 11, 21, 17, 14, 51, tzinfo=UTC)
SELECTS_ALL: dict[str, Any] = {"sparkApplications": {"labelSelector": {}}}


def policy_object(
    name: str = "departures",
    *,
    namespace: str = "flights",
    age_seconds: float = 0,
    **spec: Any,
) -> dict[str, Any]:
    """A policy as the API gives it; `spec` in its words, `age_seconds` before CREATED."""
    created = CREATED - timedelta(seconds=age_seconds)
    return {
        "apiVersion": API_VERSION,
        "kind": RecoveryPolicy.kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "generation": 1,
            "creationTimestamp": created.isoformat(timespec="seconds"),
        },
        "spec": {"selector": SELECTS_ALL, **spec},
    }


def make_policy(name: str = "departures", **fields: Any) -> RecoveryPolicy:
    """A policy; fields as of `policy_object`."""
    return recovery_policy.from_object(policy_object(name, **fields))


def make_class(name: str = "default", **spec: Any) -> RecoveryClass:
    """A class; `spec` in the API's words."""
    return recovery_class.from_object({"metadata": {"name": name}, "spec": spec})


def longest_story() -> recovery_resource.RecoveryStatus:
    """A status with twice as many of everything as an object may hold, each as long as can be."""
    at = CREATED.replace(microsecond=123_000)
    word, domains = "W" * 64, ("d" * 63,) * (2 * recovery_resource.DOMAINS_MAX)
    return recovery_resource.RecoveryStatus(
        observed_generation=2,
        phase="AwaitingCheckpoint",
        kind="Independent",
        reason=word,
        message="m" * 2 * recovery_resource.MESSAGE_LENGTH_MAX,
        started_at=at,
        ended_at=at,
        domains_impaired=",".join(domains),
        lost_nodes=tuple(
            _node(number, at) for number in range(2 * recovery_resource.LOST_NODES_MAX)
        ),
        driver=recovery_resource.DriverRecovery(at, at, "SelfNodeRemediation", at),
        requests=tuple(
            _request(number, at, domains) for number in range(2 * recovery_resource.REQUESTS_MAX)
        ),
        plans=tuple(_plan(number, at) for number in range(1, 2 * recovery_resource.PLANS_MAX + 1)),
        queries=tuple(_query(number, at) for number in range(2 * recovery_resource.QUERIES_MAX)),
        conditions=tuple(
            Condition(
                f"Condition{number}",
                "Unknown",
                word,
                "m" * recovery_resource.MESSAGE_LENGTH_MAX,
                at,
                2,
            )
            for number in range(10)
        ),
    )


def _node(number: int, at: datetime) -> recovery_resource.LostNode:
    name = f"{number:0>253}"
    return recovery_resource.LostNode(name, "u" * 64, "d" * 63, True, at, at, at)


def _request(number: int, at: datetime, domains: tuple[str, ...]) -> recovery_resource.NodeRequest:
    return recovery_resource.NodeRequest(
        name=f"{number:0>253}",
        provider="p" * 63,
        count=5_000,
        outcome="Withdrawn",
        requested_at=at,
        outside_domains=domains,
        reason="W" * 64,
        message="m" * 2 * recovery_resource.SENTENCE_LENGTH_MAX,
        ended_at=at,
    )


def _plan(number: int, at: datetime) -> recovery_resource.PlanMade:
    return recovery_resource.PlanMade(
        number=number,
        at=at,
        reason="W" * 64,
        text="t" * 2 * recovery_resource.MESSAGE_LENGTH_MAX,
        queries=tuple(f"{query:0>200}" for query in range(2 * recovery_resource.PLAN_QUERIES_MAX)),
        capacity_millicores=2**53 - 1,
        priority_sum=1e12 - 0.1,
        acknowledged_at=at,
        refused="r" * 2 * recovery_resource.SENTENCE_LENGTH_MAX,
    )


def _query(number: int, at: datetime) -> recovery_resource.QueryRecovery:
    """Every other one is back."""
    return recovery_resource.QueryRecovery(
        name=f"{number:0>200}",
        priority=1 + number % 10,
        lost_at=at,
        planned_at=at,
        back_at=at if number % 2 else None,
        reason="W" * 64,
        message="m" * 2 * recovery_resource.WAITING_LENGTH_MAX,
    )
