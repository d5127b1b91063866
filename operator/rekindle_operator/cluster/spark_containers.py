"""Finds the container of a pod that runs Spark: by its command first, then by name and place.

Spark takes one container of a pod template, under whatever name it has there, and puts it behind
the others; log shippers and meshes come before it and after it. What Spark adds to its own tells
it: the word `driver` or `executor` that its images' entry point takes, and variables. In client
mode nobody makes the container for Spark: there its command line tells, and last what the pod's
author calls its main one. Pure; `pods` and `webhook.containers` call it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

SIDECAR = "rekindle-sidecar"
NAMES = ("spark-kubernetes-driver", "spark-kubernetes-executor", "executor")
ROLES = ("driver", "executor")
VARIABLES = (
    "SPARK_DRIVER_BIND_ADDRESS",
    "SPARK_APPLICATION_ID",
    "SPARK_DRIVER_URL",
    "SPARK_EXECUTOR_ID",
)
PORTS = ("driver-rpc-port", "blockmanager", "spark-ui")
PROGRAMS = ("spark-submit", "org.apache.spark.", "spark-class", "rekindle run", "pyspark")
MAIN_ANNOTATION = "kubectl.kubernetes.io/default-container"

Record = Mapping[str, Any]
Evidence = tuple[bool, bool, bool, bool, bool, bool]


def spark_container(spec: Record, metadata: Record) -> int:
    """The place of the container that runs Spark, of several alike the first; 0 for none."""
    containers: Sequence[Record] = spec.get("containers") or ()
    if len(containers) < 2:
        return 0
    main = (metadata.get("annotations") or {}).get(MAIN_ANNOTATION)
    found = [_evidence(container, main) for container in containers]
    return found.index(max(found))


def _evidence(container: Record, main: object) -> Evidence:
    """What tells that Spark runs there, the strongest first."""
    return (
        _has_role(container),
        _is_furnished(container),
        container.get("name") in NAMES,
        _runs_program(container),
        container.get("name") == main,
        container.get("name") != SIDECAR,
    )


def _has_role(container: Record) -> bool:
    """Whether the entry point is told to be a driver or an executor."""
    command, args = container.get("command") or (), container.get("args") or ()
    return any(word in ROLES for word in (*command[-1:], *args[:1]))


def _is_furnished(container: Record) -> bool:
    """Whether it has what Spark puts into its own. A variable alone may be a log shipper's, which
    tells whose logs it ships."""
    own = {variable.get("name") for variable in container.get("env") or ()}
    ports = {port.get("name") for port in container.get("ports") or ()}
    return len(own.intersection(VARIABLES)) + len(ports.intersection(PORTS)) > 1


def _runs_program(container: Record) -> bool:
    words = (*(container.get("command") or ()), *(container.get("args") or ()))
    line = " ".join(map(str, words))
    return any(program in line for program in PROGRAMS)
