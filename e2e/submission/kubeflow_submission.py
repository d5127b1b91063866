"""A SparkApplication of kubeflow's operator: what it submits, and its next status.

    New ─► SUBMITTED ─► RUNNING ─► FAILING ──► PENDING_RERUN ─► SUBMITTED
                           │          └─► FAILED        (the old pod has gone)
                           └─► SUCCEEDING ─► COMPLETED, or PENDING_RERUN

The pod of a driver is called NAME-driver each time, so the next one waits until the object of the
last one has gone, however long that is: the operator deletes it, but not by force. Pure.
"""

from typing import Any

from submission import pod_templates
from submission.spark_submit import DRIVER, EXECUTOR, Submission
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

GROUP, VERSION, PLURAL = "sparkoperator.k8s.io", "v1beta2", "sparkapplications"
SPEC = (
    *("arguments", "driver", "executor", "image", "imagePullPolicy", "mainApplicationFile", "mode"),
    *("mainClass", "restartPolicy", "sparkConf", "sparkVersion", "type", "volumes"),
)
# Fields of driver and executor with the setting that the operator makes of each.
SETTINGS = {
    "cores": "spark.{role}.cores",
    "coreRequest": "spark.kubernetes.{role}.request.cores",
    "coreLimit": "spark.kubernetes.{role}.limit.cores",
    "image": "spark.kubernetes.{role}.container.image",
    "instances": "spark.{role}.instances",
    "javaOptions": "spark.{role}.extraJavaOptions",
    "memory": "spark.{role}.memory",
    "memoryOverhead": "spark.{role}.memoryOverhead",
    "serviceAccount": "spark.kubernetes.authenticate.{role}.serviceAccountName",
}
ROLE = (*SETTINGS, *pod_templates.FIELDS, "annotations", "deleteOnTermination", "labels", "podName")
UI_PORT = 4040
EXECUTOR_STATES = {"Succeeded": "COMPLETED", "Failed": "FAILED"}


def driver_name(application: Body) -> str:
    """The name of every driver's pod."""
    said = application["spec"]["driver"].get("podName")
    return str(said or f"{application['metadata']['name']}-driver")


def labels(application: Body) -> dict[str, str]:
    """By which the operator finds an application's pods."""
    return {f"{GROUP}/app-name": application["metadata"]["name"]}


def submission(application: Body, identity: str) -> Submission:
    """What it submits; `identity` is the id of this submission. InputError for other fields."""
    metadata, spec = application["metadata"], application["spec"]
    name = metadata["name"]
    only(f"SparkApplication {name}: spec", spec, SPEC)
    conf = {key: str(value) for key, value in (spec.get("sparkConf") or {}).items()}
    conf["spark.kubernetes.driver.pod.name"] = driver_name(application)
    for field, setting in (
        ("image", "container.image"),
        ("imagePullPolicy", "container.image.pullPolicy"),
    ):
        if field in spec:
            conf[f"spark.kubernetes.{setting}"] = spec[field]
    for role in ("driver", "executor"):
        only(f"SparkApplication {name}: spec.{role}", spec[role], ROLE)
        conf |= _settings(application, role, identity)
    owner = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "SparkApplication",
        "name": name,
        "uid": metadata["uid"],
        "blockOwnerDeletion": True,
    }
    volumes = spec.get("volumes") or []
    return Submission(
        namespace=metadata["namespace"],
        name=name,
        file=spec["mainApplicationFile"],
        arguments=tuple(spec.get("arguments") or ()),
        conf=conf,
        driver=pod_templates.pod_template(
            spec["driver"], volumes, container=DRIVER, owner={**owner, "controller": True}
        ),
        executor=pod_templates.pod_template(
            spec["executor"], volumes, container=EXECUTOR, owner={**owner, "controller": False}
        ),
    )


def _settings(application: Body, role: str, identity: str) -> dict[str, str]:
    """The fields of a role as settings of Spark, and the labels of its pods."""
    own = application["spec"][role]
    conf = {
        setting.format(role=role): str(own[field])
        for field, setting in SETTINGS.items()
        if field in own
    }
    marks = {
        **labels(application),
        f"{GROUP}/launched-by-spark-operator": "true",
        f"{GROUP}/mutated-by-spark-operator": "true",
        f"{GROUP}/submission-id": identity,
        **(application["metadata"].get("labels") or {}),
        **(own.get("labels") or {}),
    }
    conf |= {f"spark.kubernetes.{role}.label.{key}": value for key, value in marks.items()}
    notes = own.get("annotations") or {}
    return conf | {f"spark.kubernetes.{role}.annotation.{k}": v for k, v in notes.items()}


def decide(scene: SubmissionState) -> SubmissionStep:
    """What the operator does next about an application."""
    state = (scene.status.get("applicationState") or {}).get("state") or ""
    match state:
        case "" | "NEW":
            return SubmissionStep(Action.SUBMIT, _submitted(scene))
        case "SUBMITTED" | "RUNNING":
            return _running(scene, state)
        case "FAILING" | "SUCCEEDING":
            return _ending(scene, state)
        case "PENDING_RERUN" if scene.driver is None:
            return SubmissionStep(Action.SUBMIT, _submitted(scene))
        case _:
            return SubmissionStep()


def _submitted(scene: SubmissionState) -> Body:
    before = scene.status
    return {
        "applicationState": {"state": "SUBMITTED"},
        "driverInfo": {
            "podName": driver_name(scene.application),
            "webUIPort": UI_PORT,
            "webUIServiceName": f"{scene.name}-ui-svc",
        },
        "executionAttempts": int(before.get("executionAttempts") or 0) + 1,
        "executorState": {},
        "lastSubmissionAttemptTime": moment(scene.now),
        "submissionAttempts": 1,
        "submissionID": scene.identity,
        "terminationTime": None,
    }


def _running(scene: SubmissionState, state: str) -> SubmissionStep:
    """By the phase of the driver's pod; one that is deleted counts until it has gone."""
    match phase(scene.driver):
        case "":
            return SubmissionStep(status=_ended(scene, "FAILING", "driver pod not found"))
        case "Succeeded":
            return SubmissionStep(status=_ended(scene, "SUCCEEDING", ""))
        case "Failed":
            return SubmissionStep(status=_ended(scene, "FAILING", "driver container failed"))
        case "Running":
            state = "RUNNING"
    assert scene.driver is not None
    run = (scene.driver["metadata"].get("labels") or {}).get("spark-app-selector", "")
    after = {
        **scene.status,
        "applicationState": {"state": state},
        "executorState": _executors(scene),
        "sparkApplicationId": run,
    }
    return SubmissionStep(status=after if after != scene.status else None)


def _ended(scene: SubmissionState, state: str, message: str) -> Body:
    told = {"state": state, **({"errorMessage": message} if message else {})}
    return {**scene.status, "applicationState": told, "terminationTime": moment(scene.now)}


def _ending(scene: SubmissionState, state: str) -> SubmissionStep:
    """Again, after an interval that grows with each time, or never."""
    policy: dict[str, Any] = scene.application["spec"].get("restartPolicy") or {}
    kind, attempts = policy.get("type") or "Never", int(scene.status["executionAttempts"])
    failed = state == "FAILING"
    again = kind == "Always" or (
        failed and kind == "OnFailure" and attempts <= int(policy.get("onFailureRetries") or 0)
    )
    if not again:
        told = {"state": "FAILED" if failed else "COMPLETED"}
        return SubmissionStep(status={**scene.status, "applicationState": told})
    wait = int(policy.get("onFailureRetryInterval") or 0) * attempts if failed else 0
    if seconds_between(scene.status["terminationTime"], scene.now) < wait:
        return SubmissionStep()
    told = {"state": "PENDING_RERUN"}
    return SubmissionStep(Action.DELETE_DRIVER, {**scene.status, "applicationState": told})


def _executors(scene: SubmissionState) -> dict[str, str]:
    """Of each executor's pod that was ever seen; one that has gone has failed."""
    states = dict.fromkeys(scene.status.get("executorState") or {}, "FAILED")
    for pod in scene.executors:
        found = phase(pod)
        states[pod["metadata"]["name"]] = EXECUTOR_STATES.get(found, found.upper())
    return states
