"""The size and the needs of an executor, taken from one of its pods.

A request for nodes must ask for what the executors will need, or the nodes that come do not fit. Of
a pod only that is kept which decides where it may run. Makes no pods: no pod is ever made of the
templates here. The shell calls `executor_of` on any executor pod of the application, best before
those of lost nodes are deleted; the providers make templates and requirements of it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rekindle_operator.api import quantities
from rekindle_operator.cluster.json_access import Body, items, mapping, text
from rekindle_operator.cluster.spark_containers import spark_container
from rekindle_operator.detection.failure_domains import Domain, away_from

# What tells one executor from another, or makes others take a template's pod for a real one.
_OWN_LABELS = ("spark-exec-id", "spark-exec-inactive", "pod-template-hash")
_KEPT = ("nodeSelector", "affinity", "schedulerName", "runtimeClassName")
# Kubernetes adds these two to every pod.
_ADDED_TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_CPU = "cpu"
# A template needs an image.
_NO_IMAGE = "never-run"


@dataclass(frozen=True, slots=True)
class ExecutorShape:
    """`requests` (resource -> amount, of CPU in thousandths of a core) are those of the whole pod;
    `spec` and `labels` are what decides where it may run."""

    requests: Mapping[str, int]
    image: str = _NO_IMAGE
    spec: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


def executor_of(pod: Body) -> ExecutorShape:
    """An executor as its pod has it. InputError for a quantity that is none."""
    spec = mapping(pod, "spec")
    kept: dict[str, Any] = {key: spec[key] for key in _KEPT if spec.get(key)}
    tolerations = [
        item
        for item in items(spec, "tolerations")
        if not (text(item, "key") in _ADDED_TOLERATIONS and "tolerationSeconds" in item)
    ]
    if tolerations:
        kept["tolerations"] = tolerations
    containers = items(spec, "containers")
    first = containers[spark_container(spec, mapping(pod, "metadata")) :][:1]
    images = (text(container, "image") for container in (*first, *containers))
    labels = mapping(pod, "metadata", "labels")
    return ExecutorShape(
        requests={
            name: quantities.requested(pod, name, _amount(name))
            for name in sorted({*_resources(spec)})
        },
        image=next(filter(None, images), _NO_IMAGE),
        spec=kept,
        labels={key: value for key, value in labels.items() if key not in _OWN_LABELS},
    )


def requests_of(executor: ExecutorShape, count: int = 1) -> dict[str, str]:
    """What `count` of them request together, as quantities."""
    return {
        name: f"{amount * count}m" if name == _CPU else str(amount * count)
        for name, amount in executor.requests.items()
    }


def pod_template(executor: ExecutorShape, avoided: Iterable[Domain]) -> dict[str, Any]:
    """The template of a pod like that executor, which may run in none of the domains `avoided`."""
    spec = dict(executor.spec)
    affinity = away_from(mapping(spec, "affinity"), avoided)
    if affinity:
        spec["affinity"] = affinity
    container = {
        "name": "executor",
        "image": executor.image,
        "resources": {"requests": requests_of(executor)},
    }
    return {
        "metadata": {"labels": dict(executor.labels)},
        "spec": {**spec, "containers": [container]},
    }


def _resources(spec: Body) -> Iterator[str]:
    """Names of all resources that anything in the pod requests."""
    for holder in (spec, *items(spec, "containers"), *items(spec, "initContainers")):
        yield from mapping(holder, "resources", "requests")
    yield from mapping(spec, "overhead")


def _amount(resource: str) -> quantities.Amount:
    return quantities.cpu_millis if resource == _CPU else quantities.memory_bytes
