"""Quotas that the application, or replacements of its executors, do not fit into.

Pods on lost nodes count until they are deleted, so replacements need room beside them. Pure;
`preflight_checks` calls it.
"""

from collections.abc import Iterator

from rekindle_operator.preflight.preflight_findings import (
    Concern,
    PreflightFinding,
    PreflightSeverity,
)
from rekindle_operator.preflight.subjects.environment import PreflightEnvironment, Quota
from rekindle_operator.preflight.subjects.executor_sizes import QuotaDemand
from rekindle_operator.preflight.subjects.workloads import Workload


def check(application: Workload, around: PreflightEnvironment) -> Iterator[PreflightFinding]:
    """Of each quota the worst that holds."""
    if around.quotas is None:
        yield PreflightFinding(
            Concern.NOT_CHECKED,
            PreflightSeverity.NOTE,
            "Quotas could not be read, so whether replacements fit was not looked at.",
            around.remedy("ask whoever runs the cluster, or for the right to list resourcequotas"),
        )
        return
    for quota in around.quotas:
        found = _scoped(quota) if quota.scoped else _judged(application, quota)
        if found is not None:
            yield found


def _scoped(quota: Quota) -> PreflightFinding:
    return PreflightFinding(
        Concern.NOT_CHECKED,
        PreflightSeverity.NOTE,
        f"Quota {quota.name} holds for some pods only, so it was not looked at.",
        "see that executors fit beside those of lost nodes",
    )


def _judged(application: Workload, quota: Quota) -> PreflightFinding | None:
    whole, held, each = application.whole, application.held, application.executor
    short = quota.short(whole, held)
    if short:
        return PreflightFinding(
            Concern.QUOTA_EXCEEDED,
            PreflightSeverity.ERROR,
            f"Quota {quota.name} is too small ({', '.join(short)}): {_shown(application)}.",
            "raise the quota, or ask for less",
        )
    count = application.executors
    if count == 0:
        return None
    # What is missing comes first; what is there already counts as used.
    missing = QuotaDemand(
        max(0, whole.pods - held.pods),
        max(0, whole.cpu_millis - held.cpu_millis),
        max(0, whole.memory_bytes - held.memory_bytes),
        max(0, whole.cpu_limit_millis - held.cpu_limit_millis),
    )
    fitting = count
    while fitting and quota.short(missing + each.times(fitting), QuotaDemand()):
        fitting -= 1
    if fitting == count:
        return None
    short = quota.short(missing + each.times(fitting + 1), QuotaDemand())
    return PreflightFinding(
        Concern.QUOTA_WITHOUT_HEADROOM,
        PreflightSeverity.NOTE if fitting else PreflightSeverity.WARNING,
        f"Quota {quota.name} has room for {fitting or 'no'} of {count} executors beside those that "
        f"are there ({', '.join(short)}), and pods on lost nodes count until they are deleted.",
        "raise the quota, or leave executors.deletePodsOfLostNodes of the class on",
    )


def _shown(application: Workload) -> str:
    whole, each = application.whole, application.executor
    return (
        f"the driver and {application.executors} executors of {each.cpu_millis} m CPU and "
        f"{_mebibytes(each)} MiB ask for {whole.cpu_millis} m CPU and {_mebibytes(whole)} MiB"
    )


def _mebibytes(demand: QuotaDemand) -> int:
    return -(-demand.memory_bytes // 2**20)
