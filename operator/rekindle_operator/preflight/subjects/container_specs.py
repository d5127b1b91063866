"""Containers of the pods that Spark will make: its own, and those of templates and manifests.

Spark's own keeps what its template gives it and gets CPU and memory from the settings: a request
and a limit of memory, a limit of CPU only where a setting or the template names one. Pure;
`kubeflow_operator` and `apache_operator` call it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from rekindle_operator.cluster.pods import Role
from rekindle_operator.preflight.subjects.executor_sizes import QuotaDemand
from rekindle_operator.preflight.subjects.workloads import Container

Record = Mapping[str, Any]


def of_pod(
    role: Role,
    conf: Mapping[str, str],
    demand: QuotaDemand,
    template: Record,
    beside: Iterable[Record] = (),
) -> tuple[Container, ...]:
    """The containers of a role's pod, Spark's first. `template` is a pod's spec, `beside` what
    else a manifest adds."""
    containers = [*(template.get("containers") or ())]
    name = conf.get(f"spark.kubernetes.{role}.podTemplateContainerName")
    named = (item for item in containers if item.get("name") == name)
    own: Record = next(named, containers[0] if containers else {})
    others = [item for item in containers if item is not own]
    others += [*(template.get("initContainers") or ()), *beside]
    return (_spark(role, conf, demand, own), *map(_written, others))


def _spark(role: Role, conf: Mapping[str, str], demand: QuotaDemand, template: Record) -> Container:
    kept = _written(template)
    memory = str(demand.memory_bytes)
    limits = {**kept.limits, "memory": memory}
    if limit := conf.get(f"spark.kubernetes.{role}.limit.cores"):
        limits["cpu"] = limit
    requests = {**kept.requests, "cpu": f"{demand.cpu_millis}m", "memory": memory}
    return Container(str(template.get("name") or f"spark-kubernetes-{role}"), requests, limits)


def _written(container: Record) -> Container:
    resources = container.get("resources") or {}
    return Container(
        str(container.get("name") or "without a name"),
        resources.get("requests") or {},
        resources.get("limits") or {},
    )
