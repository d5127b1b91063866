"""Failures that Spark counts until it gives up on the application.

`spark.executor.maxNumFailures` is twice the number of executors by default, 3 at least, and a
failure counts for as long as the driver lives, unless `spark.executor.failuresValidityInterval` is
set (Spark 3.5 and newer). A pod fails for instance when its Node object is deleted. Pure;
`preflight_checks` calls it.
"""

from collections.abc import Iterator

from rekindle_operator.preflight.preflight_findings import (
    Concern,
    PreflightFinding,
    PreflightSeverity,
)
from rekindle_operator.preflight.subjects.workloads import Workload

LIMIT = "spark.executor.maxNumFailures"
INTERVAL = "spark.executor.failuresValidityInterval"
EXCLUDE = "spark.excludeOnFailure.enabled"
DEFAULT_MIN = 3


def check(application: Workload) -> Iterator[PreflightFinding]:
    """The limit at its default; and nodes that Spark itself leaves out after failures."""
    conf = application.conf
    if conf is None:
        yield PreflightFinding(
            Concern.NOT_CHECKED,
            PreflightSeverity.NOTE,
            "Spark's settings are not known: they are neither in a SparkApplication, nor in a "
            "ConfigMap of the driver, nor in its command line.",
            f"see that {LIMIT} or {INTERVAL} is set, and that executor names have no fixed prefix",
        )
        return
    if not conf.get(LIMIT) and not conf.get(INTERVAL):
        limit = max(DEFAULT_MIN, 2 * application.executors)
        yield PreflightFinding(
            Concern.FAILURES_LIMITED,
            PreflightSeverity.WARNING,
            f"{LIMIT} is at its default: the driver ends after {limit} failed executors, however "
            "long ago they failed.",
            f"set {INTERVAL}, to 1h for instance, and {LIMIT} to several times the executors",
        )
    if conf.get(EXCLUDE, "").lower() == "true":
        yield PreflightFinding(
            Concern.FAILURES_LIMITED,
            PreflightSeverity.NOTE,
            f"{EXCLUDE} is true: after failures Spark may leave out nodes that a plan counts on.",
            f"leave {EXCLUDE} out",
        )
