"""Names that two pods cannot have at a time, so that an old one keeps a new one from starting.

A pod on a lost node stays, Terminating, until the node is fenced or somebody deletes it by force.
Pure; `preflight_checks` calls it.
"""

from collections.abc import Iterator

from rekindle_operator.preflight.preflight_findings import (
    Concern,
    PreflightFinding,
    PreflightSeverity,
)
from rekindle_operator.preflight.subjects.environment import (
    PreflightEnvironment,
    class_of,
    policies_of,
)
from rekindle_operator.preflight.subjects.workloads import Workload

PREFIX = "spark.kubernetes.executor.podNamePrefix"


def check(application: Workload, around: PreflightEnvironment) -> Iterator[PreflightFinding]:
    """Executors' names, then the driver's."""
    prefix = (application.conf or {}).get(PREFIX)
    if prefix:
        yield PreflightFinding(
            Concern.EXECUTOR_NAMES_FIXED,
            PreflightSeverity.WARNING,
            f"{PREFIX} is {prefix}: executors of a new driver have the names of the old one's, "
            "and are refused as long as one of these is still on a lost node.",
            f"leave {PREFIX} out, so that each driver has names of its own",
        )
    if application.driver_name:
        yield from _driver(application, around)


def _driver(application: Workload, around: PreflightEnvironment) -> Iterator[PreflightFinding]:
    """A driver's name is no danger where its lost node is fenced."""
    sentence = (
        f"Every driver's pod is called {application.driver_name} ({application.driver_name_field})"
    )
    holding = policies_of(application, around.policies or ())
    never = bool(holding) and holding[0].spec.guards.fencing == "Never"
    class_ = class_of(application, around)
    remedy = (
        "let the class fence lost nodes (fencing.mode), or be ready to delete the pod by force "
        "once the node is off"
    )
    who = f"policy {holding[0].metadata.name}" if never else ""
    if class_ is not None and class_.spec.fencing.mode == "None":
        who = f"class {class_.metadata.name}"
    if who:
        yield PreflightFinding(
            Concern.DRIVER_NAME_FIXED,
            PreflightSeverity.WARNING,
            f"{sentence}, and {who} fences no node: when the driver's node is lost, its pod keeps "
            "the next driver from starting until a person deletes it.",
            remedy,
        )
    elif class_ is None:
        yield PreflightFinding(
            Concern.DRIVER_NAME_FIXED,
            PreflightSeverity.NOTE,
            f"{sentence}, and whether its lost node is fenced is not known.",
            remedy,
        )
