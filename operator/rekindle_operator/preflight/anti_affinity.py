"""Executors, and servers of the coordination store, that one failure may take together.

Pure; `preflight_checks` calls it: `check` for an application, `check_cluster` once for all.
"""

from collections.abc import Iterator

from rekindle_operator.preflight.preflight_findings import (
    Concern,
    PreflightFinding,
    PreflightSeverity,
)
from rekindle_operator.preflight.subjects.environment import PreflightEnvironment
from rekindle_operator.preflight.subjects.workloads import Workload

SERVERS = 3


def check(application: Workload) -> Iterator[PreflightFinding]:
    """Whether anything keeps executors apart."""
    if application.spread is None:
        yield PreflightFinding(
            Concern.NOT_CHECKED,
            PreflightSeverity.NOTE,
            "No executor runs, and no manifest says whether executors are kept apart.",
            "run it again when they are up",
        )
    elif not application.spread:
        yield PreflightFinding(
            Concern.EXECUTORS_TOGETHER,
            PreflightSeverity.WARNING,
            "Nothing keeps executors apart: one node, or one zone, may take all of them at once.",
            f"give {application.spread_field} a podAntiAffinity by hostname, or topology spread "
            "constraints by zone",
        )


def check_cluster(around: PreflightEnvironment, key: str) -> Iterator[PreflightFinding]:
    """Whether three servers of the store can lie in failure domains of their own, by a label."""
    if around.nodes is None:
        yield PreflightFinding(
            Concern.NOT_CHECKED,
            PreflightSeverity.NOTE,
            "Nodes could not be read, so failure domains were not counted.",
            around.remedy("let whoever may list nodes run it too"),
        )
        return
    named = sorted({labels[key] for labels in around.nodes if labels.get(key)})
    if not named:
        yield PreflightFinding(
            Concern.DOMAINS_UNLABELLED,
            PreflightSeverity.WARNING,
            f"No node has the label {key}, so nothing is known of failure domains: replacements "
            "are asked for anywhere, and the store's servers may share one.",
            "label the nodes, or give the policy other failureDomainKeys",
        )
    elif len(named) < SERVERS:
        yield PreflightFinding(
            Concern.DOMAINS_TOO_FEW,
            PreflightSeverity.WARNING,
            f"{_domains(named)} by {key}: with it the store's majority would be gone, and drivers "
            "would plan by themselves.",
            "spread nodes over three domains, or run ZooKeeper elsewhere",
        )


def _domains(named: list[str]) -> str:
    if len(named) == 1:
        return f"All three servers of ZooKeeper would share the one failure domain ({named[0]})"
    return f"Two of three servers of ZooKeeper would share a failure domain ({', '.join(named)})"
