"""An application from a driver's pod and its executors' pods, without a SparkApplication.

Spark's settings are in a ConfigMap that Spark makes for a driver in cluster mode, else in the
driver's command line, else nobody knows them. `with_pods` adds what runs to an application that a
manifest tells. Pure; the plugin calls it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from rekindle_operator.api import quantities
from rekindle_operator.cluster.pods import PodSeen, Role, pod_seen
from rekindle_operator.preflight.subjects import executor_sizes, workloads
from rekindle_operator.preflight.subjects.executor_sizes import NOTHING, QuotaDemand

CONF_VOLUMES = ("spark-conf-volume-driver", "spark-conf-volume")
ENDED_PHASES = ("Succeeded", "Failed")
# Whoever owns a driver's pod and makes another one in its place.
OWNERS_THAT_RESTART = ("ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController")
_PROPERTY = re.compile(r"\s*([^#!\s=:][^\s=:]*)\s*[=:\s]\s*(.*)")
Record = Mapping[str, Any]


def workload(
    name: str, driver: Record, executors: Sequence[Record], conf: Mapping[str, str] | None
) -> workloads.Workload:
    """The application `name` of these pods; InputError for a setting that is no number."""
    metadata, spec = driver["metadata"], driver.get("spec") or {}
    known = conf if conf is not None else command_settings(spec) or None
    labels = workloads.settings(metadata.get("labels"))
    wanted = len(executors) if known is None else executor_sizes.executors_wanted(known)
    each = _largest(executors)
    if known is not None and each == NOTHING:
        each = executor_sizes.executor_demand(known, python=_is_python(spec))
    found = workloads.Workload(
        namespace=metadata.get("namespace") or "",
        name=name,
        kind="Driver",
        labels=labels,
        driver_labels=labels,
        driver_labels_field="the driver pod's labels",
        conf=known,
        executors=max(wanted, len(executors)),
        executor=each,
        driver=demand((driver,)),
        claims=tuple(_claims(driver, executors, known or {})),
        restart=_restart(driver),
        spread=_spread(executors),
        spread_field="the executors' pod template",
    )
    fixed = (known or {}).get("spark.kubernetes.driver.pod.name", "")
    if _owner(driver) == "StatefulSet":
        where = "the StatefulSet"
        found = replace(found, driver_name=metadata["name"], driver_name_field=where)
    elif fixed and fixed == metadata["name"] and labels.get("spark-role") == "driver":
        where = "spark.kubernetes.driver.pod.name"
        found = replace(found, driver_name=fixed, driver_name_field=where)
    return with_pods(found, driver, executors)


def with_pods(
    found: workloads.Workload, driver: Record | None, executors: Sequence[Record]
) -> workloads.Workload:
    """The application with what its pods have now, and its driver's sidecar."""
    there = [*executors] if driver is None else [driver, *executors]
    seen = None if driver is None else pod_seen(driver)
    sidecar = seen.sidecar if isinstance(seen, PodSeen) and not seen.ended else None
    return replace(found, held=demand(there), sidecar=sidecar)


def demand(pods: Iterable[Record]) -> QuotaDemand:
    """What pods request in all, without those that have ended."""
    total = NOTHING
    for body in pods:
        if not _has_ended(body):
            total += QuotaDemand(
                pods=1,
                cpu_millis=quantities.requested(body, "cpu", quantities.cpu_millis),
                memory_bytes=quantities.requested(body, "memory", quantities.memory_bytes),
                cpu_limit_millis=sum(
                    quantities.limited(container, "cpu", quantities.cpu_millis)
                    for container in (body.get("spec") or {}).get("containers") or ()
                ),
            )
    return total


def conf_map_name(driver: Record) -> str:
    """The ConfigMap with the settings of a driver in cluster mode; "" without one."""
    for volume in (driver.get("spec") or {}).get("volumes") or ():
        if volume.get("name") in CONF_VOLUMES:
            return str((volume.get("configMap") or {}).get("name") or "")
    return ""


def properties(text: str) -> dict[str, str]:
    """Settings in Java's form of properties, as far as Spark uses it."""
    found = {}
    for line in text.splitlines():
        setting = _PROPERTY.fullmatch(line)
        if setting is not None:
            found[setting[1]] = setting[2].strip().replace("\\:", ":").replace("\\=", "=")
    return found


def command_settings(spec: Record) -> dict[str, str]:
    """Settings that stand in a container's command line, as `--conf NAME=VALUE`."""
    found = {}
    for container in spec.get("containers") or ():
        words = [*(container.get("command") or ()), *(container.get("args") or ())]
        words = [part for word in words for part in str(word).split()]
        for word, following in zip_longest(words, words[1:], fillvalue=""):
            setting = following if word in ("--conf", "-c") else ""
            if word.startswith("--conf="):
                setting = word.removeprefix("--conf=")
            if setting.startswith("spark.") and "=" in setting:
                name, _, value = setting.partition("=")
                found[name] = value
    return found


def _is_python(spec: Record) -> bool:
    words = [
        str(word)
        for container in spec.get("containers") or ()
        for word in (*(container.get("command") or ()), *(container.get("args") or ()))
    ]
    return any(".py" in word or "PythonRunner" in word for word in words)


def _largest(executors: Sequence[Record]) -> QuotaDemand:
    return max(
        (demand((body,)) for body in executors),
        key=lambda found: (found.cpu_millis, found.memory_bytes),
        default=NOTHING,
    )


def _spread(executors: Sequence[Record]) -> bool | None:
    specs = [body.get("spec") or {} for body in executors]
    return all(map(workloads.is_spread, specs)) if specs else None


def _claims(
    driver: Record, executors: Sequence[Record], conf: Mapping[str, str]
) -> Iterator[workloads.MountedClaim]:
    """Of the settings; and of the pods, but for those that a setting has them make."""
    said = tuple(workloads.claims_of_settings(conf))
    yield from said
    names = {claim.name for claim in said}
    every: list[tuple[Role, Record]] = [("driver", driver)]
    every += [("executor", body) for body in executors]
    for role, body in every:
        pod = body["metadata"]["name"]
        for claim in workloads.claims_of_pod_spec(role, body.get("spec") or {}, f"pod {pod}"):
            own = claim.per_pod or claim.name.startswith(f"{pod}-")
            if claim.name in names:
                continue
            names.add(claim.name)
            if not own:
                yield claim
            elif not any(other.role == role and other.per_pod for other in said):
                yield replace(claim, per_pod=True)


def _owner(driver: Record) -> str:
    for owner in driver["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner.get("kind"))
    return ""


def _restart(driver: Record) -> workloads.Restart:
    kind = _owner(driver)
    if kind in OWNERS_THAT_RESTART:
        return workloads.Restart("always", f"its {kind}")
    if kind:
        return workloads.Restart("unknown", f"its {kind}")
    remedy = "run the driver in a Deployment, or through a SparkApplication"
    return workloads.Restart("never", "the driver's pod, which nobody owns", remedy)


def _has_ended(body: Record) -> bool:
    return (body.get("status") or {}).get("phase") in ENDED_PHASES
