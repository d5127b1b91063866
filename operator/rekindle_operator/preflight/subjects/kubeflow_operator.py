"""An application from a SparkApplication of kubeflow's operator.

Its fields become the Spark settings that the operator makes of them, so that the checks know one
language. Pure; the plugin calls `workload`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from rekindle_operator.cluster.pods import KUBEFLOW, SIDECAR, Role
from rekindle_operator.preflight.subjects import executor_sizes, workloads

Record = Mapping[str, Any]
DRIVER_NAME = "spark.kubernetes.driver.pod.name"
# Fields of driver and executor with the setting that the operator makes of each.
FIELDS = {
    "cores": "spark.{role}.cores",
    "coreRequest": "spark.kubernetes.{role}.request.cores",
    "coreLimit": "spark.kubernetes.{role}.limit.cores",
    "memory": "spark.{role}.memory",
    "memoryOverhead": "spark.{role}.memoryOverhead",
    "instances": "spark.{role}.instances",
}


def workload(body: Record) -> workloads.Workload:
    """The application of a manifest, or of an object; InputError for sizes that are none."""
    metadata, spec = body["metadata"], body.get("spec") or {}
    driver, executor = spec.get("driver") or {}, spec.get("executor") or {}
    conf = _settings(spec, driver, executor)
    driver_name, driver_name_field = _driver_name(metadata["name"], driver, conf)
    python = spec.get("type") in ("Python", "R")
    labels = workloads.settings(metadata.get("labels"))
    demands = {
        "driver": executor_sizes.driver_demand(conf, python=python),
        "executor": executor_sizes.executor_demand(conf, python=python),
    }
    template = _template(driver)
    own = workloads.settings((template.get("metadata") or {}).get("labels")) | workloads.settings(
        driver.get("labels")
    )
    pod_spec = _template(executor).get("spec") or {}
    return workloads.Workload(
        namespace=metadata.get("namespace") or "",
        name=metadata["name"],
        kind="SparkApplication",
        group=KUBEFLOW,
        labels=labels,
        # The operator copies the labels of the SparkApplication to its pods.
        driver_labels=labels | own,
        driver_labels_field="spec.driver.labels",
        conf=conf,
        executors=executor_sizes.executors_wanted(conf),
        executor=demands["executor"],
        driver=demands["driver"],
        claims=(*workloads.claims_of_settings(conf), *_claims(spec)),
        driver_name=driver_name,
        driver_name_field=driver_name_field,
        restart=_restart(spec.get("restartPolicy") or {}),
        spread=workloads.is_spread(executor) or workloads.is_spread(pod_spec),
        spread_field="spec.executor.affinity",
        brings_sidecar=_brings_sidecar(driver, template),
        pods={
            role: workloads.containers_of_pod(
                role,
                conf,
                demands[role],
                _template(part).get("spec") or {},
                (*(part.get("initContainers") or ()), *(part.get("sidecars") or ())),
            )
            for role, part in _roles(driver, executor)
        },
        unquoted=workloads.unquoted(body),
    )


def _roles(driver: Record, executor: Record) -> tuple[tuple[Role, Record], ...]:
    return ("driver", driver), ("executor", executor)


def _settings(spec: Record, driver: Record, executor: Record) -> dict[str, str]:
    conf = workloads.settings(spec.get("sparkConf"))
    for role, part in _roles(driver, executor):
        for name, setting in FIELDS.items():
            if part.get(name) is not None:
                conf[setting.format(role=role)] = str(part[name])
    if spec.get("memoryOverheadFactor"):
        conf["spark.kubernetes.memoryOverheadFactor"] = str(spec["memoryOverheadFactor"])
    dynamic = spec.get("dynamicAllocation") or {}
    if dynamic.get("enabled"):
        conf["spark.dynamicAllocation.enabled"] = "true"
        if dynamic.get("maxExecutors") is not None:
            conf["spark.dynamicAllocation.maxExecutors"] = str(dynamic["maxExecutors"])
    return conf


def _template(part: Record) -> Record:
    template: Record = part.get("template") or {}
    return template


def _claims(spec: Record) -> Iterator[workloads.MountedClaim]:
    roles: tuple[Role, ...] = ("driver", "executor")
    for role in roles:
        part = spec.get(role) or {}
        mounted = [mount.get("name") for mount in part.get("volumeMounts") or ()]
        yield from workloads.claims_of_pod_spec(role, spec, "spec", mounted)
        template = _template(part).get("spec") or {}
        yield from workloads.claims_of_pod_spec(role, template, f"spec.{role}.template.spec")


def _driver_name(name: str, driver: Record, conf: Mapping[str, str]) -> tuple[str, str]:
    """The name that every driver of the application has, and what says so."""
    if driver.get("podName"):
        return str(driver["podName"]), "spec.driver.podName"
    if conf.get(DRIVER_NAME):
        return conf[DRIVER_NAME], f"spec.sparkConf[{DRIVER_NAME}]"
    return f"{name}-driver", "as kubeflow's operator names it"


def _restart(policy: Record) -> workloads.Restart:
    kind, retries = policy.get("type") or "Never", policy.get("onFailureRetries")
    if kind == "Always":
        return workloads.Restart("always", "spec.restartPolicy.type")
    remedy = "set spec.restartPolicy.type to Always"
    if kind == "OnFailure" and retries:
        return workloads.Restart(
            "limited", "spec.restartPolicy.onFailureRetries", remedy, int(retries)
        )
    field = "spec.restartPolicy.type"
    if kind == "OnFailure":
        field = "spec.restartPolicy.onFailureRetries"
    return workloads.Restart("never", field, remedy)


def _brings_sidecar(driver: Record, template: Record) -> bool:
    """Whether the manifest has the sidecar itself, so that nothing need be injected."""
    pod_spec = template.get("spec") or {}
    there = [*(driver.get("initContainers") or ()), *(driver.get("sidecars") or ())]
    there += [*(pod_spec.get("initContainers") or ()), *(pod_spec.get("containers") or ())]
    return any(container.get("name") == SIDECAR for container in there)
