"""A Recovery or a policy by the name that a person gives.

Reads the cluster; who decides what to do with them is the command.
"""

import difflib
from collections.abc import Sequence
from contextlib import suppress

from rekindle.model.errors import InputError
from rekindle_operator.api import recovery_policy, recovery_resource
from rekindle_operator.api.custom_resources import ACCEPTED, ResourceReason, camel_case
from rekindle_operator.api.recovery_policy import PolicyStatus
from rekindle_operator.api.recovery_resource import Recovery, age
from rekindle_operator.kubectl.api_connection import (
    PODS,
    POLICIES,
    RECOVERIES,
    ApiConnection,
    ApiRefusal,
    Object,
    ResourceKind,
)

APPLICATION = "application"
NEAR_MAX = 3
EXECUTORS = "spark-role=executor"
FORBIDDEN = 403
# Of the condition Accepted: what concerns the order in which whole applications come back.
REMARKED = tuple(
    camel_case(reason)
    for reason in (ResourceReason.UNKNOWN_APPLICATIONS, ResourceReason.DEPENDENCY_CYCLE)
)


def recovery(cluster: ApiConnection, name: str) -> Recovery:
    """The Recovery of a name."""
    record = _found(cluster, RECOVERIES, name)
    if record is None:
        names = [found.metadata.name for found in _all(cluster)]
        raise _absent(cluster, name, "Recovery", names)
    return recovery_resource.from_object(record)


def recovery_or_newest(cluster: ApiConnection, name: str) -> Recovery | None:
    """The Recovery of a name, else the newest one of the application of that name; None for an
    application of which nothing has been lost."""
    record = _found(cluster, RECOVERIES, name)
    if record is not None:
        return recovery_resource.from_object(record)
    there = _all(cluster)
    fitting = [item for item in there if item.spec.application.name == name]
    if not fitting:
        selected = _selected(cluster)
        if name in selected:
            return None
        names = [item.spec.application.name for item in there]
        names += [*(item.metadata.name for item in there), *selected]
        raise _absent(cluster, name, APPLICATION, names)
    return max(fitting, key=age)


def policy(cluster: ApiConnection, name: str | None) -> Object:
    """The policy of a name; without one, the only policy of the namespace."""
    record = None if name is None else _found(cluster, POLICIES, name)
    if record is not None:
        return record
    there = cluster.list(POLICIES, cluster.default_namespace)
    names = [item["metadata"]["name"] for item in there]
    if name is not None:
        raise _absent(cluster, name, "RecoveryPolicy", names)
    if len(there) == 1:
        return there[0]
    raise InputError(
        where=f"namespace {cluster.default_namespace}",
        what=f"has {len(there)} policies" if there else "has no RecoveryPolicy",
        remedy=f"choose with --policy: {', '.join(sorted(names))}" if there else "see -n",
    )


def executors(cluster: ApiConnection, application: str) -> tuple[Object, ...]:
    """Executors' pods with a label that names their application; none where they may not be
    read."""
    try:
        there = cluster.list(PODS, cluster.default_namespace, labelSelector=EXECUTORS)
    except ApiRefusal as refusal:
        if refusal.status != FORBIDDEN:
            raise
        return ()
    return tuple(
        pod for pod in there if application in (pod["metadata"].get("labels") or {}).values()
    )


def policy_remark(cluster: ApiConnection, found: Recovery) -> str:
    """What a Recovery's policy says of names and cycles in it, by which its applications come back
    in another order than its author may think; "" where it says nothing, or cannot be read."""
    name = found.spec.policy_name
    with suppress(InputError):
        record = _found(cluster, POLICIES, name)
        status = PolicyStatus() if record is None else recovery_policy.from_object(record).status
        for condition in status.conditions:
            if condition.type == ACCEPTED and condition.reason in REMARKED:
                where = f"RecoveryPolicy {cluster.default_namespace}/{name}"
                return f"{where} ({condition.reason}): {condition.message}"
    return ""


def nothing_lost(cluster: ApiConnection, name: str) -> str:
    """What there is to tell of an application without a Recovery."""
    return (
        f"{cluster.default_namespace}/{name}: nothing of it has been lost since recoveries are "
        "kept, so it has no Recovery."
    )


def _selected(cluster: ApiConnection) -> list[str]:
    """Applications that the statuses of policies name; of a policy that cannot be read none."""
    found = []
    for item in cluster.list(POLICIES, cluster.default_namespace):
        with suppress(InputError):
            status = recovery_policy.from_object(item).status
            found += [application.name for application in status.applications]
    return found


def _found(cluster: ApiConnection, kind: ResourceKind, name: str) -> Object | None:
    """The object of a name; None where there is none, although the kind is there."""
    try:
        return cluster.get(kind, name)
    except ApiRefusal as refusal:
        if refusal.status != 404 or refusal.missing_kind:
            raise
        return None


def _all(cluster: ApiConnection) -> list[Recovery]:
    found = cluster.list(RECOVERIES, cluster.default_namespace)
    return [recovery_resource.from_object(item) for item in found]


def _absent(cluster: ApiConnection, name: str, kind: str, there: Sequence[str]) -> InputError:
    near = difflib.get_close_matches(name, sorted(set(there)), n=NEAR_MAX)
    what = f"there is no {kind} of this name"
    if kind == APPLICATION:
        what = "there is no Recovery and no selected application of this name"
    remedy = "see `kubectl rekindle status` for what is there, and the namespace (-n)"
    if near:
        remedy = f"did you mean {' or '.join(near)}?"
    elif kind == "RecoveryPolicy":
        remedy = f"there are: {', '.join(sorted(there)) or 'none'}; see -n"
    return InputError(where=f"{cluster.default_namespace}/{name}", what=what, remedy=remedy)
