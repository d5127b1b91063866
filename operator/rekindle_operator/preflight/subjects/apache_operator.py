"""An application from a SparkApplication of apache's operator.

Nearly all of it is in Spark's own settings. Pure; the plugin calls `workload`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from rekindle_operator.cluster.pods import APACHE, SIDECAR, Role
from rekindle_operator.preflight.subjects import executor_sizes, workloads

Record = Mapping[str, Any]
ATTEMPTS_DEFAULT = 3
LABEL_SETTING = "spark.kubernetes.driver.label."


def workload(body: Record) -> workloads.Workload:
    """The application of a manifest, or of an object; InputError for sizes that are none."""
    metadata, spec = body["metadata"], body.get("spec") or {}
    conf = workloads.settings(spec.get("sparkConf"))
    python = bool(spec.get("pyFiles") or spec.get("sparkRFiles"))
    template = _template(spec, "driver")
    labels = workloads.settings((template.get("metadata") or {}).get("labels"))
    named = {
        name.removeprefix(LABEL_SETTING): value
        for name, value in conf.items()
        if name.startswith(LABEL_SETTING)
    }
    executor = _template(spec, "executor").get("spec") or {}
    driver_demand = executor_sizes.driver_demand(conf, python=python)
    executor_demand = executor_sizes.executor_demand(conf, python=python)
    return workloads.Workload(
        namespace=metadata.get("namespace") or "",
        name=metadata["name"],
        kind="SparkApplication",
        group=APACHE,
        labels=workloads.settings(metadata.get("labels")),
        driver_labels=labels | named,
        driver_labels_field="spec.driverSpec.podTemplateSpec.metadata.labels",
        conf=conf,
        executors=executor_sizes.executors_wanted(conf),
        executor=executor_demand,
        driver=driver_demand,
        claims=(*workloads.claims_of_settings(conf), *_claims(spec)),
        driver_name=conf.get("spark.kubernetes.driver.pod.name", ""),
        driver_name_field="spec.sparkConf[spark.kubernetes.driver.pod.name]",
        restart=_restart(spec),
        spread=workloads.is_spread(executor),
        spread_field="spec.executorSpec.podTemplateSpec.spec.affinity",
        brings_sidecar=_brings_sidecar(template.get("spec") or {}),
        pods={
            "driver": workloads.containers_of_pod(
                "driver", conf, driver_demand, template.get("spec") or {}
            ),
            "executor": workloads.containers_of_pod("executor", conf, executor_demand, executor),
        },
        unquoted=workloads.unquoted(body),
    )


def _template(spec: Record, role: Role) -> Record:
    template: Record = (spec.get(f"{role}Spec") or {}).get("podTemplateSpec") or {}
    return template


def _claims(spec: Record) -> Iterator[workloads.MountedClaim]:
    roles: tuple[Role, ...] = ("driver", "executor")
    for role in roles:
        pod_spec = _template(spec, role).get("spec") or {}
        yield from workloads.claims_of_pod_spec(
            role, pod_spec, f"spec.{role}Spec.podTemplateSpec.spec"
        )


def _restart(spec: Record) -> workloads.Restart:
    field = "spec.applicationTolerations.restartConfig"
    config = (spec.get("applicationTolerations") or {}).get("restartConfig") or {}
    if (config.get("restartPolicy") or "Never") == "Never":
        remedy = f"set {field}.restartPolicy to Always or OnInfrastructureFailure"
        return workloads.Restart("never", f"{field}.restartPolicy", remedy)
    attempts = config.get("maxRestartAttempts")
    attempts = ATTEMPTS_DEFAULT if attempts is None else int(attempts)
    if int(config.get("restartCounterResetMillis") or -1) > 0:
        return workloads.Restart("always", f"{field}.restartPolicy")
    remedy = f"set {field}.restartCounterResetMillis, so that the count begins anew"
    how: workloads.Restarts = "limited" if attempts > 0 else "never"
    return workloads.Restart(how, f"{field}.maxRestartAttempts", remedy, attempts)


def _brings_sidecar(pod_spec: Record) -> bool:
    """Whether the manifest has the sidecar itself, so that nothing need be injected."""
    there = [*(pod_spec.get("initContainers") or ()), *(pod_spec.get("containers") or ())]
    return any(container.get("name") == SIDECAR for container in there)
