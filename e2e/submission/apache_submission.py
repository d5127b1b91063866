"""A SparkApplication of apache's operator: what it submits, and its next status.

    Submitted ─► DriverRequested ─► DriverStarted ─► DriverReady
    ─► InitializedBelowThresholdExecutors ─► RunningHealthy ◄─► RunningWithPartialCapacity
                                                           ◄─► RunningWithBelowThresholdExecutors
    of each: ─► Succeeded, Failed, DriverEvicted ─► ScheduledToRestart ─► DriverRequested
                                                └─► ResourceReleased

Each attempt has a number of its own, and so have its pods: NAME-ATTEMPT-driver. What an attempt has
left is deleted, and after five minutes by force. Pure.
"""

from typing import Any

from submission.spark_submit import Submission
from submission.submission_steps import (
    Action,
    Body,
    SubmissionState,
    SubmissionStep,
    moment,
    only,
    phase,
    seconds_between,
)

GROUP, VERSION, PLURAL = "spark.apache.org", "v1", "sparkapplications"
SPEC = (
    *("applicationTolerations", "deploymentMode", "driverArgs", "driverSpec", "executorSpec"),
    *("pyFiles", "runtimeVersions", "sparkConf"),
)
# A driver whose pod nobody finds is looked for again, for so long, before it counts as removed.
MISSING_SECONDS = 60.0
FORCE_SECONDS = 300.0
REMOVED = "Driver removed. This could caused by 'exit' called in driver process with non-zero code."
RUNNING = (
    *("DriverRequested", "DriverStarted", "DriverReady", "InitializedBelowThresholdExecutors"),
    *("RunningHealthy", "RunningWithPartialCapacity", "RunningWithBelowThresholdExecutors"),
)
ENDED = ("Succeeded", "Failed", "DriverEvicted")
INFRASTRUCTURE = ("DriverEvicted",)


def labels(application: Body) -> dict[str, str]:
    """By which the operator finds an application's pods."""
    return {"spark.operator/spark-app-name": application["metadata"]["name"]}


def driver_name(application: Body) -> str:
    """The name of the pod of the present attempt."""
    return f"{_run(application, _attempt(application))}-driver"


def submission(application: Body, identity: str) -> Submission:  # noqa: ARG001 - as of the other
    """What it submits. InputError for fields that are not acted on here."""
    metadata, spec = application["metadata"], application["spec"]
    name = metadata["name"]
    only(f"SparkApplication {name}: spec", spec, SPEC)
    state = ((application.get("status") or {}).get("currentState") or {}).get("currentStateSummary")
    run = _run(application, _attempt(application) + int(state == "ScheduledToRestart"))
    conf = {key: str(value) for key, value in (spec.get("sparkConf") or {}).items()}
    conf |= {
        "spark.app.id": run,
        "spark.kubernetes.driver.pod.name": f"{run}-driver",
        "spark.kubernetes.executor.podNamePrefix": run,
    }
    marks = {"spark.operator/name": "spark-kubernetes-operator", **labels(application)}
    for role in ("driver", "executor"):
        conf |= {f"spark.kubernetes.{role}.label.{key}": value for key, value in marks.items()}
    owner = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "SparkApplication",
        "name": name,
        "uid": metadata["uid"],
        "blockOwnerDeletion": True,
    }
    driver = _template(spec, "driver")
    driver["metadata"] = {**(driver.get("metadata") or {}), "ownerReferences": [owner]}
    return Submission(
        namespace=metadata["namespace"],
        name=name,
        file=spec["pyFiles"],
        arguments=tuple(spec.get("driverArgs") or ()),
        conf=conf,
        driver=driver,
        executor=_template(spec, "executor"),
    )


def decide(scene: SubmissionState) -> SubmissionStep:
    """What the operator does next about an application."""
    state = (scene.status.get("currentState") or {}).get("currentStateSummary") or ""
    if state in ("", "Submitted"):
        return SubmissionStep(Action.SUBMIT, _moved(scene, "DriverRequested"))
    if state == "ScheduledToRestart":
        return _scheduled(scene)
    if state in RUNNING:
        return _running(scene, state)
    return _ended(scene, state) if state in ENDED else SubmissionStep()


def _running(scene: SubmissionState, state: str) -> SubmissionStep:
    match phase(scene.driver):
        case "":
            since = scene.status["currentState"]["lastTransitionTime"]
            if seconds_between(since, scene.now) < MISSING_SECONDS:
                return SubmissionStep()
            return SubmissionStep(status=_moved(scene, "Failed", REMOVED))
        case "Succeeded":
            return SubmissionStep(status=_moved(scene, "Succeeded"))
        case "Failed":
            evicted = (scene.driver or {})["status"].get("reason") == "Evicted"
            return SubmissionStep(status=_moved(scene, "DriverEvicted" if evicted else "Failed"))
        case "Running":
            after = _by_executors(scene, state) if _is_ready(scene.driver) else "DriverStarted"
            return SubmissionStep(status=_moved(scene, after) if after != state else None)
    return SubmissionStep()


def _by_executors(scene: SubmissionState, state: str) -> str:
    """How it stands by the number of executors that are ready, within the bounds of the spec."""
    tolerations = scene.application["spec"].get("applicationTolerations") or {}
    bounds: dict[str, int] = tolerations.get("instanceConfig") or {}
    ready = sum(_is_ready(pod) for pod in scene.executors)
    begun = state in RUNNING[RUNNING.index("RunningHealthy") :]
    if ready >= int(bounds.get("initExecutors") or 0):
        if not begun or ready >= int(bounds.get("maxExecutors") or 0):
            return "RunningHealthy"
    elif not begun:
        return "InitializedBelowThresholdExecutors" if ready else "DriverReady"
    low = ready < int(bounds.get("minExecutors") or 0)
    return "RunningWithBelowThresholdExecutors" if low else "RunningWithPartialCapacity"


def _ended(scene: SubmissionState, state: str) -> SubmissionStep:
    """The attempt's pod goes; then another one is due, or nothing more."""
    since = seconds_between(scene.status["currentState"]["lastTransitionTime"], scene.now)
    if scene.driver is not None:
        if since > FORCE_SECONDS:
            return SubmissionStep(Action.FORCE_DRIVER)
        deleted = scene.driver["metadata"].get("deletionTimestamp")
        return SubmissionStep(Action.NOTHING if deleted else Action.DELETE_DRIVER)
    config = _restart(scene)
    kind = config.get("restartPolicy") or "Never"
    wanted = {
        "Always": True,
        "OnFailure": state != "Succeeded",
        "OnInfrastructureFailure": state in INFRASTRUCTURE,
    }.get(kind, False)
    if not wanted or _attempt(scene.application) >= int(config.get("maxRestartAttempts", 3)):
        return SubmissionStep(status=_moved(scene, "ResourceReleased"))
    return SubmissionStep(status=_moved(scene, "ScheduledToRestart"))


def _scheduled(scene: SubmissionState) -> SubmissionStep:
    wait = int(_restart(scene).get("restartBackoffMillis", 30_000)) / 1000
    if seconds_between(scene.status["currentState"]["lastTransitionTime"], scene.now) < wait:
        return SubmissionStep()
    after = dict(_moved(scene, "DriverRequested"))
    attempt = _attempt(scene.application) + 1
    after["previousAttemptSummary"] = scene.status.get("currentAttemptSummary")
    after["currentAttemptSummary"] = {"attemptInfo": {"id": attempt, "restartCounter": attempt}}
    return SubmissionStep(Action.SUBMIT, after)


def _moved(scene: SubmissionState, state: str, message: str = "") -> Body:
    """The status in another state, which is added to the history."""
    now = {"currentStateSummary": state, "lastTransitionTime": moment(scene.now)}
    if message:
        now["message"] = message
    history = dict(scene.status.get("stateTransitionHistory") or {})
    history[str(len(history))] = now
    return {
        "currentAttemptSummary": {"attemptInfo": {"id": 0, "restartCounter": 0}},
        **scene.status,
        "currentState": now,
        "stateTransitionHistory": history,
    }


def _attempt(application: Body) -> int:
    summary = (application.get("status") or {}).get("currentAttemptSummary") or {}
    return int((summary.get("attemptInfo") or {}).get("id") or 0)


def _run(application: Body, attempt: int) -> str:
    """Spark's application id, which is also what pods' names begin with."""
    return f"{application['metadata']['name']}-{attempt}"


def _restart(scene: SubmissionState) -> dict[str, Any]:
    tolerations = scene.application["spec"].get("applicationTolerations") or {}
    return dict(tolerations.get("restartConfig") or {})


def _template(spec: Body, role: str) -> dict[str, Any]:
    return dict((spec.get(f"{role}Spec") or {}).get("podTemplateSpec") or {})


def _is_ready(pod: Body | None) -> bool:
    conditions = ((pod or {}).get("status") or {}).get("conditions") or ()
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
