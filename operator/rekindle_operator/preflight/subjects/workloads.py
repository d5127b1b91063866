"""An application as the checks of preflight see it, whoever runs it.

A value that `kubeflow_operator`, `apache_operator` and `spark_pods` make, each from what it knows.
What is around the application is for `environment`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rekindle_operator.api.recovery_policy import ApplicationKind
from rekindle_operator.cluster.pods import Role, Sidecar
from rekindle_operator.preflight.subjects.executor_sizes import NOTHING, QuotaDemand
from rekindle_operator.preflight.subjects.volume_claims import MountedClaim

Record = Mapping[str, Any]
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
