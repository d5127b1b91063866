"""Quotas and LimitRanges that the application, or replacements of its executors, do not fit into.

Pods on lost nodes count until they are deleted, so replacements need room beside them. Pure;
`preflight_checks` calls it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

from rekindle_operator.api import quantities
from rekindle_operator.api.custom_resources import written
from rekindle_operator.api.recovery_class import SidecarSpec
from rekindle_operator.cluster.pods import SIDECAR
from rekindle_operator.preflight.preflight_findings import (
    Concern,
    PreflightFinding,
    PreflightSeverity,
)
from rekindle_operator.preflight.subjects.environment import PreflightEnvironment, Quota, class_of
from rekindle_operator.preflight.subjects.executor_sizes import QuotaDemand
from rekindle_operator.preflight.subjects.workloads import Container, Workload
from rekindle_operator.webhook.injection_spec import INJECT_LABEL


def check_quotas(application: Workload, around: PreflightEnvironment) -> Iterator[PreflightFinding]:
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
            f"Quota {quota.name} is too small ({', '.join(short)}): {_amount_shown(application)}.",
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


def _amount_shown(application: Workload) -> str:
    whole, each = application.whole, application.executor
    return (
        f"the driver and {application.executors} executors of {each.cpu_millis} m CPU and "
        f"{_mebibytes(each)} MiB ask for {whole.cpu_millis} m CPU and {_mebibytes(whole)} MiB"
    )


def _mebibytes(demand: QuotaDemand) -> int:
    return -(-demand.memory_bytes // 2**20)


# Containers that a ResourceQuota or a LimitRange keeps the API server from making.
#
# A quota on CPU or memory wants each container to name its amount; a LimitRange gives amounts to
# who names none, and has bounds. Both count init containers, so the sidecar too. Pods that are
# there already have passed. As the API server's admission has it.

Amounts = dict[str, Decimal]
Kind = Literal["Container", "Pod"]
Record = Mapping[str, Any]
# What a quota wants each container to name; of other resources it counts what is named.
NAMED = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
UNCOUNTED = ("requests.", "limits.")
KIND_OF_PART = {"limits": "limit", "requests": "request"}


@dataclass(slots=True)
class _Made:
    """A container as admission will see it."""

    name: str
    requests: Amounts = field(default_factory=dict)
    limits: Amounts = field(default_factory=dict)


def check_objects(
    application: Workload, around: PreflightEnvironment
) -> Iterator[PreflightFinding]:
    """Of each quota and each range what it refuses, driver first."""
    if around.limit_ranges is None and application.pods:
        yield PreflightFinding(
            Concern.NOT_CHECKED,
            PreflightSeverity.NOTE,
            "LimitRanges could not be read, so whether pods are made was not looked at.",
            around.remedy("ask whoever runs the cluster, or for the right to list limitranges"),
        )
    ranges = around.limit_ranges or ()
    pods = {
        role: [_made(container, ranges) for container in containers]
        for role, containers in _pods(application, around).items()
    }
    for quota in around.quotas or ():
        if not quota.scoped:
            yield from _unnamed(quota.name, quota.resources, pods)
    for body in ranges:
        for item in (body.get("spec") or {}).get("limits") or ():
            yield from _out_of_range(str(body["metadata"]["name"]), item, pods)


def _pods(application: Workload, around: PreflightEnvironment) -> dict[str, tuple[Container, ...]]:
    """Of each role the containers that its pods will have."""
    found = {str(role): containers for role, containers in application.pods.items()}
    asks = application.driver_labels.get(INJECT_LABEL) == "true"
    if "driver" in found and asks and not application.brings_sidecar:
        class_ = class_of(application, around)
        sidecar = (class_.spec.sidecar if class_ is not None else None) or SidecarSpec()
        resources = written(sidecar.resources)
        own = Container(SIDECAR, resources.get("requests", {}), resources.get("limits", {}))
        found["driver"] = (*found["driver"], own)
    return found


def _made(container: Container, ranges: tuple[Record, ...]) -> _Made:
    """With what defaults and LimitRanges give it. InputError for a quantity that is none."""
    made = _Made(container.name, _exact(container.requests), _exact(container.limits))
    made.requests = {**made.limits, **made.requests}
    for body in ranges:
        for item in (body.get("spec") or {}).get("limits") or ():
            if item.get("type") == "Container":
                limits, requests = _defaults(item)
                made.limits = {**limits, **made.limits}
                made.requests = {**requests, **made.requests}
    return made


def _defaults(item: Record) -> tuple[Amounts, Amounts]:
    """Limits and requests for who names none, as the API server completes a LimitRange."""
    limits = {**_exact(item.get("max")), **_exact(item.get("default"))}
    requests = {**_exact(item.get("min")), **limits, **_exact(item.get("defaultRequest"))}
    return limits, requests


def _exact(record: Record | None) -> Amounts:
    return {name: quantities.exact(amount) for name, amount in (record or {}).items()}


def _unnamed(
    quota: str, resources: tuple[str, ...], pods: Mapping[str, list[_Made]]
) -> Iterator[PreflightFinding]:
    """What a quota wants named and is not."""
    for resource in sorted(resources):
        part, _, name = resource.rpartition(".")
        lacking = [
            f"{container.name} of the {role}"
            for role, containers in pods.items()
            for container in containers
            if name not in (container.limits if part == "limits" else container.requests)
        ]
        if resource in NAMED and lacking:
            yield PreflightFinding(
                Concern.LIMITS_REQUIRED,
                PreflightSeverity.ERROR,
                f"Quota {quota} counts {resource}, so the API server makes no pod with a container "
                f"that names no {KIND_OF_PART.get(part, 'request')} of {name}: "
                f"{', '.join(lacking)}.",
                _remedy(part, name),
            )
        elif resource not in NAMED and resource.startswith(UNCOUNTED) and pods:
            yield PreflightFinding(
                Concern.NOT_CHECKED,
                PreflightSeverity.NOTE,
                f"Quota {quota} counts {resource} too, which was not added up.",
                "see that driver and executors fit, those of lost nodes included",
            )


def _remedy(part: str, name: str) -> str:
    setting = {
        ("limits", "cpu"): "set spark.kubernetes.{driver,executor}.limit.cores, and limits.cpu in "
        "sidecar.resources of the class",
    }.get((part, name), f"name {name} in the pod template, and in sidecar.resources of the class")
    return f"{setting}; or make a LimitRange with a default"


def _out_of_range(
    name: str, item: Record, pods: Mapping[str, list[_Made]]
) -> Iterator[PreflightFinding]:
    kind = item.get("type")
    for role, containers in pods.items():
        if kind == "Container":
            whole = [(f"container {made.name} of the {role}", made) for made in containers]
        elif kind == "Pod":
            whole = [(f"the {role}'s pod", _together(containers))]
        else:
            continue
        for subject, made in whole:
            wrong = "; ".join(_faults(item, made))
            if wrong:
                yield PreflightFinding(
                    Concern.LIMIT_RANGE,
                    PreflightSeverity.ERROR,
                    f"LimitRange {name} keeps the API server from making {subject}: {wrong}.",
                    "change the amount in Spark's settings or in sidecar.resources of the class, "
                    "or the LimitRange",
                )


def _together(containers: list[_Made]) -> _Made:
    """A pod as a whole; the sidecar runs beside the others."""
    made = _Made("")
    for container in containers:
        for total, own in ((made.requests, container.requests), (made.limits, container.limits)):
            for name, amount in own.items():
                total[name] = total.get(name, Decimal(0)) + amount
    return made


def _faults(item: Record, made: _Made) -> Iterator[str]:
    for name, least in _exact(item.get("min")).items():
        asked = made.requests.get(name)
        if asked is None or asked < least:
            yield f"it requests {_shown(asked)} of {name}, and at least {_shown(least)} is wanted"
        elif made.limits.get(name, least) < least:
            yield f"its limit of {name} is below {_shown(least)}"
    for name, most in _exact(item.get("max")).items():
        allowed = made.limits.get(name)
        if allowed is None or allowed > most:
            yield f"its limit of {name} is {_shown(allowed)}, and at most {_shown(most)} is allowed"
        elif made.requests.get(name, most) > most:
            yield f"it requests more than {_shown(most)} of {name}"
    for name, ratio in _exact(item.get("maxLimitRequestRatio")).items():
        asked, allowed = made.requests.get(name), made.limits.get(name)
        if not asked or allowed is None or allowed / asked > ratio:
            yield (
                f"its limit of {name} is {_shown(allowed)} and its request {_shown(asked)}, "
                f"and the one may be {_shown(ratio)} times the other at most"
            )


def _shown(amount: Decimal | None) -> str:
    if amount is None:
        return "nothing"
    if 0 < abs(amount) < 1:
        return f"{(amount * 1000).normalize():f}m"
    if amount >= 2**20 and amount % 2**20 == 0:
        return f"{amount / 2**20:.0f}Mi"
    return f"{amount.normalize():f}"
