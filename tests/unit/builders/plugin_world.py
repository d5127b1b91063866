"""A policy and a recovery as the API gives them, in the middle of an incident, for tests.

Three of four nodes are lost, one query is back, one catches up, two wait.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from rekindle_operator.api import recovery_policy, recovery_resource
from rekindle_operator.api.custom_resources import Condition
from rekindle_operator.api.recovery_policy import PolicyStatus, RecoveryPolicy, SelectedApplication
from rekindle_operator.api.recovery_resource import (
    ApplicationReference,
    LostNode,
    NodeRequest,
    PlanMade,
    QueryRecovery,
    Recovery,
    RecoverySpec,
    RecoveryStatus,
)
from rekindle_testing.operator_builders import policy_object

BEGAN = datetime(2026, 11, 21, 17, 14, 29, tzinfo=UTC)
NOW = BEGAN + timedelta(seconds=150)
APPLICATION = ApplicationReference("SparkApplication", "departures", "sparkoperator.k8s.io", "u-1")
Object = dict[str, Any]


def at(seconds: float) -> datetime:
    """So many seconds after the loss."""
    return BEGAN + timedelta(seconds=seconds)


REQUESTS = (
    NodeRequest(
        "departures-7-1f3a9-0",
        "spare",
        1,
        "Arrived",
        at(6),
        ("zone-a",),
        "CorrelatedFailure",
        "Provisioned",
        at(93),
    ),
    NodeRequest(
        "departures-7-1f3a9-1",
        "spare",
        1,
        "Pending",
        at(6),
        ("zone-a",),
        "CorrelatedFailure",
    ),
)

PLANS = (
    PlanMade(
        8,
        at(6),
        "CorrelatedFailure",
        "Plan 8 of incident 7 (correlated-failure): 1 of 4 queries on 1 node.",
        ("worst-delays",),
        1,
        800,
        10.0,
        at(6.6),
    ),
    PlanMade(
        9,
        at(103),
        "NodeBack",
        "Plan 9 of incident 7 (node-back): 1 of 3 queries on 2 nodes.",
        ("busiest-airports",),
        1,
        400,
        8.0,
    ),
)

QUERIES = (
    QueryRecovery("worst-delays", 10.0, at(5.4), at(6), at(20)),
    QueryRecovery(
        "busiest-airports",
        8.0,
        at(5.4),
        at(103),
        None,
        "PlanAwaited",
        "Plan 9 is on its way to the driver.",
    ),
    QueryRecovery("rare", 2.0, at(5.4), None, None, "NoCapacity", "No room: 2 of 4 nodes are up."),
    QueryRecovery(
        "rarest", 1.0, at(5.4), None, None, "NoCapacity", "No room: 2 of 4 nodes are up."
    ),
)


def story() -> RecoveryStatus:
    """Of three nodes lost, in the middle of it."""
    return RecoveryStatus(
        observed_generation=1,
        phase="Recovering",
        kind="Correlated",
        reason="CorrelatedFailure",
        message="3 of 4 nodes were lost within 12 s; 2 of 4 queries wait for capacity.",
        started_at=at(0),
        domains_impaired="zone-a",
        lost_nodes=(
            LostNode("worker-1", None, "zone-a", True, at(0), at(5.4)),
            LostNode("worker-2", None, "zone-a", False, at(0), at(5.4)),
            LostNode("worker-3", None, "zone-a", False, at(0), at(5.4), at(140)),
        ),
        driver=recovery_resource.DriverRecovery(at(7), at(23), "ShutdownTaint", at(51)),
        requests=REQUESTS,
        plans=PLANS,
        queries=QUERIES,
    )


def recovery_spec(incident: int = 7) -> RecoverySpec:
    return RecoverySpec(APPLICATION, incident, "departures", "default")


def recovery_object(
    namespace: str = "flights", incident: int = 7, status: RecoveryStatus | None = None
) -> Object:
    """A Recovery with its status, as the API gives it."""
    record = recovery_resource.to_object(namespace, recovery_spec(incident))
    record["metadata"]["creationTimestamp"] = at(incident).isoformat()
    return {**record, "status": recovery_resource.to_status(story() if status is None else status)}


def recovery(**changed: Any) -> Recovery:
    """A Recovery; `changed` are fields of its status."""
    status = msgspec.structs.replace(story(), **changed)
    return recovery_resource.from_object(recovery_object(status=status))


def condition(kind: str, status: Any, reason: str, message: str) -> Condition:
    return Condition(kind, status, reason, message, BEGAN, 1)


def policy_status(**changed: Any) -> PolicyStatus:
    status = PolicyStatus(
        observed_generation=1,
        applications=(
            SelectedApplication("SparkApplication", "departures", True, "sparkoperator.k8s.io"),
            SelectedApplication(
                "Driver",
                "backfill",
                False,
                None,
                "SidecarMissing",
                "Driver backfill-0 runs without its sidecar.",
            ),
        ),
        conditions=(
            condition("Accepted", "True", "AsWritten", "It holds for 2 applications."),
            condition("CoordinationAtRisk", "False", "CoordinationSound", "All answer."),
        ),
    )
    return msgspec.structs.replace(status, **changed)


def policy_record(
    namespace: str = "flights", status: PolicyStatus | None = None, **spec: Any
) -> Object:
    """A RecoveryPolicy with its status, as the API gives it."""
    record = policy_object("departures", namespace=namespace, **spec)
    written = recovery_policy.to_status(policy_status() if status is None else status)
    return {**record, "status": written}


def policy(**changed: Any) -> RecoveryPolicy:
    """A policy; `changed` are fields of its status."""
    return recovery_policy.from_object(policy_record(status=policy_status(**changed)))
