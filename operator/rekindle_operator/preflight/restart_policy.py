"""Whether anybody starts the driver again, and how often.

The loss of the driver's node is a complete failure of its application: recovery begins with a new
driver, which Rekindle does not start. Pure; `preflight_checks` calls it.
"""

from collections.abc import Iterator

from rekindle_operator.preflight.preflight_findings import (
    Concern,
    PreflightFinding,
    PreflightSeverity,
)
from rekindle_operator.preflight.subjects.workloads import Workload


def check(application: Workload) -> Iterator[PreflightFinding]:
    """By the word of whoever makes the driver's pod."""
    restart = application.restart
    if restart.how == "never":
        yield PreflightFinding(
            Concern.DRIVER_NOT_RESTARTED,
            PreflightSeverity.ERROR,
            f"A driver that is lost stays lost: {restart.field} lets nobody start it again.",
            restart.remedy,
        )
    elif restart.how == "limited":
        times = "once" if restart.attempts == 1 else f"{restart.attempts} times"
        yield PreflightFinding(
            Concern.RESTARTS_LIMITED,
            PreflightSeverity.WARNING,
            f"The driver is started again {times} in its life ({restart.field}); the count does "
            "not begin anew after a healthy time.",
            restart.remedy,
        )
    elif restart.how == "unknown":
        yield PreflightFinding(
            Concern.NOT_CHECKED,
            PreflightSeverity.NOTE,
            f"The driver's pod belongs to {restart.field}: whether that starts it again is not "
            "known.",
            "see that it does, and how often",
        )
