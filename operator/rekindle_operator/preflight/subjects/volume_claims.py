"""Persistent volume claims that drivers and executors mount, as settings, specs and pods say it.

Whether a claim is a danger is for `node_bound_claims`. Pure; the modules that make workloads call
it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rekindle_operator.cluster.pods import Role

ON_DEMAND = "OnDemand"
_SETTING = re.compile(
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


def of_settings(conf: Mapping[str, str]) -> Iterator[MountedClaim]:
    """Claims that Spark's own settings name."""
    for name, value in sorted(conf.items()):
        found = _SETTING.fullmatch(name)
        if found is not None:
            role: Role = "driver" if found[1] == "driver" else "executor"
            per_pod = value == ON_DEMAND or "SPARK_EXECUTOR_ID" in value
            yield MountedClaim(role, value, name, per_pod)


def of_pod_spec(
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
