"""Terms into JSON patch operations (RFC 6902) for a pod that is about to be made.

Whatever is there already stays as it is, so a pod that comes a second time gets nothing more. What
would make the API server refuse the pod is not added: the answer is a Refusal. Pure;
`admission_review` calls `patch`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from rekindle_operator.cluster.json_access import items, mapping, text
from rekindle_operator.cluster.pods import AWAITED, GATE, KEPT_OFF_ANNOTATION, SIDECAR, has_gate
from rekindle_operator.detection import failure_domains
from rekindle_operator.detection.failure_domains import away_from
from rekindle_operator.webhook import sidecar_container
from rekindle_operator.webhook.injection_spec import (
    Body,
    ExecutorTerms,
    InjectionRefusal,
    SidecarTerms,
    Terms,
)
from rekindle_operator.webhook.sidecar_container import MOUNT_PATH

NODE_VARIABLE = "REKINDLE_NODE"
Operation = Mapping[str, Any]


def patch(pod: Body, terms: Terms) -> tuple[Operation, ...] | InjectionRefusal:
    """What is to be added to a pod; nothing where all of it is there."""
    if not items(pod, "spec", "containers"):
        return InjectionRefusal("the pod has no container; give it the one that runs Spark")
    if isinstance(terms, ExecutorTerms):
        return tuple(_executor(pod, terms))
    if _has_sidecar(pod):
        return ()
    return _obstacle(pod, terms) or tuple(_driver(pod, terms))


def gate(pod: Body) -> tuple[Operation, ...]:
    """The gate at which a pod waits for its turn, and the label that says so; nothing where it is
    there. Gates of others stay."""
    there = items(pod, "spec", "schedulingGates")
    if has_gate(there):
        return ()
    labels = {**mapping(pod, "metadata", "labels"), GATE: AWAITED}
    return (
        _add("/spec/schedulingGates", [*there, {"name": GATE}]),
        _add("/metadata/labels", labels),
    )


def _has_sidecar(pod: Body) -> bool:
    """Whether the sidecar is there, as we add it or as somebody has written it."""
    places = (*items(pod, "spec", "initContainers"), *items(pod, "spec", "containers"))
    return any(text(container, "name") == SIDECAR for container in places)


def _obstacle(pod: Body, terms: SidecarTerms) -> InjectionRefusal | None:
    """What the pod has under a name or a path of ours."""
    ours = {volume["name"] for volume in sidecar_container.volumes(terms)}
    taken = ours & {text(volume, "name") for volume in items(pod, "spec", "volumes")}
    if taken:
        name = min(taken)
        return InjectionRefusal(
            f"the driver has a volume {name} of its own; give that another name"
        )
    _, spark = _spark(pod)
    paths = (text(mount, "mountPath") for mount in items(spark, "volumeMounts"))
    if any(path.rstrip("/") == MOUNT_PATH for path in paths):
        return InjectionRefusal(f"the driver mounts a volume at {MOUNT_PATH}; mount that elsewhere")
    return None


def _driver(pod: Body, terms: SidecarTerms) -> Iterator[Operation]:
    """The sidecar before all other init containers, so that they and Spark start after it."""
    path, spark = _spark(pod)
    ours = sidecar_container.driver_environment(terms)
    names = {variable["name"] for variable in ours}
    others = [item for item in items(spark, "env") if item.get("name") not in names]
    yield _add("/spec/volumes", [*items(pod, "spec", "volumes"), *sidecar_container.volumes(terms)])
    mounts = [*items(spark, "volumeMounts"), *sidecar_container.mounts_of_driver()]
    yield _add(f"{path}/volumeMounts", mounts)
    # First, so that Spark's own variables may refer to them.
    yield _add(f"{path}/env", [*ours, *others])
    first = sidecar_container.sidecar(pod, terms)
    yield _add("/spec/initContainers", [first, *items(pod, "spec", "initContainers")])


def _executor(pod: Body, terms: ExecutorTerms) -> Iterator[Operation]:
    path, spark = _spark(pod)
    variables = items(spark, "env")
    if all(variable.get("name") != NODE_VARIABLE for variable in variables):
        source = {"fieldRef": {"fieldPath": "spec.nodeName"}}
        yield _add(f"{path}/env", [*variables, {"name": NODE_VARIABLE, "valueFrom": source}])
    affinity = mapping(pod, "spec", "affinity")
    wanted = away_from(affinity, terms.avoided)
    if wanted != affinity:
        yield _add("/spec/affinity", wanted)
        # by which it is known later what was ours, and may be wrong by then
        ours = {KEPT_OFF_ANNOTATION: failure_domains.listed(terms.avoided)}
        yield _add("/metadata/annotations", {**mapping(pod, "metadata", "annotations"), **ours})


def _spark(pod: Body) -> tuple[str, Body]:
    """The container that runs Spark, and the path to it."""
    number = sidecar_container.spark_container(pod)
    return f"/spec/containers/{number}", items(pod, "spec", "containers")[number]


def _add(path: str, value: object) -> Operation:
    """Sets a member of an object, whether it is there or not."""
    return {"op": "add", "path": path, "value": value}
