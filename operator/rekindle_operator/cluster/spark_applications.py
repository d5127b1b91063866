"""The kept fields of a SparkApplication, of kubeflow's operator or of apache's.

Both call it `SparkApplication`; only the API group tells them apart, so everything here is by
group. Nothing is ever written to one. Pure; the shell calls it with each object of a list or a
watch.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from rekindle.model.errors import InputError
from rekindle_operator.cluster import pods

# States from which neither operator starts a driver again.
ENDED_STATES = frozenset(
    {"COMPLETED", "FAILED", "ResourceReleased", "TerminatedWithoutReleaseResources"}
)
# States in which kubeflow's operator removes its pods, and makes none until people resume it.
SUSPENDED_STATES = frozenset({"SUSPENDING", "SUSPENDED"})
# States before its first driver runs; kubeflow's are in capitals.
WAITING_STATES = frozenset(
    {
        "",
        "NEW",
        "SUBMITTED",
        "SUBMISSION_FAILED",
        "SUSPENDED",
        "Submitted",
        "SchedulingFailure",
        "DriverRequested",
        "DriverStartTimedOut",
    }
)
# Apache's operator ends an application in such a state whose pods do not run within the time of
# this setting, or within its default.
START_TIMEOUTS = {
    "DriverRequested": "driverStartTimeoutMillis",
    "DriverReady": "executorStartTimeoutMillis",
    "InitializedBelowThresholdExecutors": "executorStartTimeoutMillis",
}
START_MILLIS = 300_000
MILLIS = 1_000
Record = Mapping[str, Any]


class SparkApplicationSeen(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A SparkApplication. `state` is in its operator's words, `restart_policy` too: `Never` means
    that a driver that is lost stays lost. Where pods do not run within `start_seconds_max` of the
    state, the operator ends the application; None where it waits without a limit."""

    group: str
    namespace: str
    name: str
    uid: str
    created_at: int = 0
    labels: tuple[tuple[str, str], ...] = ()
    state: str = ""
    restart_policy: str = "Never"
    start_seconds_max: float | None = None

    @property
    def ended(self) -> bool:
        """Whether it has come to its end, so that nothing is to be brought back."""
        return self.state in ENDED_STATES

    @property
    def suspended(self) -> bool:
        """Whether people have stopped it for now."""
        return self.state in SUSPENDED_STATES

    @property
    def had_driver(self) -> bool:
        """Whether a driver of it has run."""
        return self.state not in WAITING_STATES


def application_seen(body: Record) -> SparkApplicationSeen:
    """What is kept of a SparkApplication; raises InputError for one of a third group."""
    metadata, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    group = body.get("apiVersion", "").partition("/")[0]
    if group not in pods.SPARK_APPLICATION_GROUPS:
        raise InputError(
            where=f"SparkApplication {metadata.get('namespace')}/{metadata.get('name')}",
            what=f"is of the API group {group or 'without a name'}, which nobody here knows",
            remedy=f"known are: {', '.join(pods.SPARK_APPLICATION_GROUPS)}",
        )
    if group == pods.KUBEFLOW:
        state, restart_policy, start_seconds_max = *_kubeflow(spec, status), None
    else:
        state, restart_policy, start_seconds_max = _apache(spec, status)
    return SparkApplicationSeen(
        group=pods.interned(group),
        namespace=pods.interned(metadata.get("namespace")),
        name=pods.interned(metadata["name"]),
        uid=metadata["uid"],
        created_at=pods.moment(metadata.get("creationTimestamp")),
        labels=pods.shared(metadata.get("labels")),
        state=pods.interned(state),
        restart_policy=pods.interned(restart_policy or "Never"),
        start_seconds_max=start_seconds_max,
    )


def _kubeflow(spec: Record, status: Record) -> tuple[str | None, str | None]:
    state = (status.get("applicationState") or {}).get("state")
    return state, (spec.get("restartPolicy") or {}).get("type")


def _apache(spec: Record, status: Record) -> tuple[str | None, str | None, float | None]:
    state = (status.get("currentState") or {}).get("currentStateSummary")
    tolerations = spec.get("applicationTolerations") or {}
    restart_policy = (tolerations.get("restartConfig") or {}).get("restartPolicy")
    name = START_TIMEOUTS.get(state or "")
    if name is None:
        return state, restart_policy, None
    millis = (tolerations.get("applicationTimeoutConfig") or {}).get(name)
    start_millis = START_MILLIS if millis is None else int(millis)
    return state, restart_policy, start_millis / MILLIS if start_millis > 0 else None
