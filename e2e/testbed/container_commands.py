"""What a container of a pod would run, as a command on this machine.

Of a container counts what a kubelet gives to a runtime: image, command, arguments, environment with
references to fields of the pod resolved. An *image* here is a function that makes a command line of
that (spark_image.py has Spark's). Nothing is isolated, no volume is mounted, no limit holds. Pure;
pod_processes.py starts what comes out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ContainerCommand:
    """A container that stays; `environment` holds only what the pod says."""

    name: str
    image: str
    command: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Launch:
    """A command line with its whole environment."""

    command: Sequence[str]
    environment: Mapping[str, str]


# Makes a launch of a container and of a folder that is its own and goes with it.
Image = Callable[[ContainerCommand, Path], Launch]


def read_containers(pod: Body, *, address: str, node_address: str) -> tuple[ContainerCommand, ...]:
    """The containers of a pod that stay: native sidecars, then the others.

    `address` is what the pod is given: its status does not have it yet.
    """
    fields = _fields(pod, address, node_address)
    spec = pod["spec"]
    initial = [one for one in spec.get("initContainers", ()) if one.get("restartPolicy")]
    return tuple(_read(one, fields) for one in (*initial, *spec["containers"]))


def _read(container: Body, fields: Mapping[str, str]) -> ContainerCommand:
    environment: dict[str, str] = {}
    for variable in container.get("env", ()):
        path = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        environment[variable["name"]] = variable.get("value", "") if path is None else fields[path]
    return ContainerCommand(
        name=container["name"],
        image=container.get("image", ""),
        command=tuple(container.get("command", ())),
        arguments=tuple(container.get("args", ())),
        environment=environment,
    )


def _fields(pod: Body, address: str, node_address: str) -> dict[str, str]:
    """What the downward API gives, by path."""
    metadata, spec = pod["metadata"], pod["spec"]
    own = {
        f"metadata.{kind}['{key}']": value
        for kind in ("labels", "annotations")
        for key, value in metadata.get(kind, {}).items()
    }
    return {
        **own,
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec["nodeName"],
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.podIP": address,
        "status.podIPs": address,
        "status.hostIP": node_address,
        "status.hostIPs": node_address,
    }
