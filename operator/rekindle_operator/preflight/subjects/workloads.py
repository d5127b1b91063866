"""An application as the checks of preflight see it, whoever runs it.

A value that `kubeflow_operator`, `apache_operator` and `spark_pods` make, each from what it knows.
What is around the application is for `environment`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rekindle_operator.api.recovery_policy import ApplicationKind
from rekindle_operator.cluster.pods import Role, Sidecar
from rekindle_operator.preflight.subjects.executor_sizes import NOTHING, QuotaDemand

# Persistent volume claims that drivers and executors mount, as settings, specs and pods say it.

ON_DEMAND = "OnDemand"
_CLAIM_SETTING = re.compile(
    r"spark\.kubernetes\.(driver|executor)\.volumes\.persistentVolumeClaim\."
    r"(?P<volume>[^.]+)\.options\.claimName"
)
Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MountedClaim:
    """A claim that a role mounts. `field` is what says so. With `per_pod` every pod has a claim of
    its own, made with it, and `name` is no claim's."""

    role: Role
    name: str
    field: str
    per_pod: bool = False


def claims_of_settings(conf: Mapping[str, str]) -> Iterator[MountedClaim]:
    """Claims that Spark's own settings name."""
    for name, value in sorted(conf.items()):
        found = _CLAIM_SETTING.fullmatch(name)
        if found is not None:
            role: Role = "driver" if found[1] == "driver" else "executor"
            per_pod = value == ON_DEMAND or "SPARK_EXECUTOR_ID" in value
            yield MountedClaim(role, value, name, per_pod)


def claims_of_pod_spec(
    role: Role, spec: Record, field: str, mounted: Iterable[str] | None = None
) -> Iterator[MountedClaim]:
    """Claims of a pod's volumes; of those that `mounted` names, where it is given."""
    names = None if mounted is None else frozenset(mounted)
    for volume in spec.get("volumes") or ():
        if names is not None and volume.get("name") not in names:
            continue
        where = f"{field}.volumes[{volume.get('name')}]"
        if volume.get("ephemeral"):
            yield MountedClaim(role, str(volume.get("name")), where, per_pod=True)
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if claim:
            yield MountedClaim(role, str(claim), where)


# What maps text to text, whatever has it.
TEXTS = ("labels", "annotations", "matchLabels", "nodeSelector", "sparkConf", "hadoopConf")
Restarts = Literal["never", "limited", "always", "unknown"]


@dataclass(frozen=True, slots=True)
class Restart:
    """Whether somebody starts a driver again that is lost: how often, as `field` says it; `remedy`
    is the setting that mends it."""

    how: Restarts
    field: str
    remedy: str = ""
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Container:
    """A container of a pod that is to be made: quantities by resource, as they are written."""

    name: str
    requests: Mapping[str, object]
    limits: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Workload:
    """An application before its failure.

    `labels` are the SparkApplication's, or the pod's of a plain driver; `driver_labels` are those
    that a driver's pod will have. `conf` are Spark's settings, None where nobody knows them.
    `executors` of `executor` each, and `driver`, are what it asks for in all; `held` is what its
    pods have now. `driver_name` is the name that every driver's pod has, "" where each has its own.
    `spread` says whether anything keeps executors apart, None where that is not known. `sidecar` is
    that of the driver that runs, None without one; with `brings_sidecar` the manifest has it.
    `named` is false for a driver that no label gives a name; `name` is then its pod's.
    `pods` are the containers that pods of each role will have, none of pods that are there already.
    `unquoted` are fields that have to be text and are written as something else.
    """

    namespace: str
    name: str
    kind: ApplicationKind
    restart: Restart
    group: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    driver_labels: Mapping[str, str] = field(default_factory=dict)
    driver_labels_field: str = ""
    conf: Mapping[str, str] | None = None
    executors: int = 0
    executor: QuotaDemand = NOTHING
    driver: QuotaDemand = NOTHING
    held: QuotaDemand = NOTHING
    claims: tuple[MountedClaim, ...] = ()
    driver_name: str = ""
    driver_name_field: str = ""
    spread: bool | None = None
    spread_field: str = ""
    sidecar: Sidecar | None = None
    brings_sidecar: bool = False
    named: bool = True
    pods: Mapping[Role, tuple[Container, ...]] = field(default_factory=dict)
    unquoted: tuple[str, ...] = ()

    @property
    def whole(self) -> QuotaDemand:
        """The driver and all executors."""
        return self.driver + self.executor.times(self.executors)


def settings(record: Mapping[str, Any] | None) -> dict[str, str]:
    """Spark's settings as strings: manifests also have them as numbers and truth values."""
    return {
        str(name): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in (record or {}).items()
        if value is not None
    }


def is_spread(spec: Record) -> bool:
    """Whether a pod's spec keeps pods of a kind apart: anti-affinity, or spread constraints."""
    affinity = (spec.get("affinity") or {}).get("podAntiAffinity") or {}
    wanted = (
        affinity.get("requiredDuringSchedulingIgnoredDuringExecution"),
        affinity.get("preferredDuringSchedulingIgnoredDuringExecution"),
        spec.get("topologySpreadConstraints"),
    )
    return any(wanted)


def unquoted(body: Record) -> tuple[str, ...]:
    """Fields of a manifest that have to be text and that YAML has read as something else, as it
    does with `true`, `no`, 1.10 or 2026-11-28 without quotes: the API server refuses these."""
    return tuple(_unquoted(body, ""))


def _unquoted(value: object, path: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        of_text = path.rpartition(".")[2] in TEXTS
        for key, item in value.items():
            if of_text and not isinstance(item, str) and item is not None:
                yield f"{path}[{key}], which is {item}"
            else:
                yield from _unquoted(item, f"{path}.{key}".removeprefix("."))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _unquoted(item, f"{path}[{number}]")


# Containers of the pods that Spark will make: its own, and those of templates and manifests.
#
# Spark's own keeps what its template gives it and gets CPU and memory from the settings: a
# request and a limit of memory, a limit of CPU only where a setting or the template names one.


def containers_of_pod(
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
    return (_spark_container(role, conf, demand, own), *map(_container_of, others))


def _spark_container(
    role: Role, conf: Mapping[str, str], demand: QuotaDemand, template: Record
) -> Container:
    kept = _container_of(template)
    memory = str(demand.memory_bytes)
    limits = {**kept.limits, "memory": memory}
    if limit := conf.get(f"spark.kubernetes.{role}.limit.cores"):
        limits["cpu"] = limit
    requests = {**kept.requests, "cpu": f"{demand.cpu_millis}m", "memory": memory}
    return Container(str(template.get("name") or f"spark-kubernetes-{role}"), requests, limits)


def _container_of(container: Record) -> Container:
    resources = container.get("resources") or {}
    return Container(
        str(container.get("name") or "without a name"),
        resources.get("requests") or {},
        resources.get("limits") or {},
    )
