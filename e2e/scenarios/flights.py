"""The flights' pipeline of the demo on Kubernetes: its files, and how it is submitted.

All of it lies in one folder of the shared volume: input, pipeline, settings, store, events.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rekindle_local.demo import inputs
from rekindle_local.distribution import SMALL_NODE_OPTIONS
from rekindle_local.flights import data
from scenarios.site import ROLE
from submission.spark_submit import DRIVER, Submission
from submission.spark_submit import EXECUTOR as EXECUTOR_CONTAINER

__all__ = ["Flights"]

NAME = "flights"
USER = 185
CPU_PERCENT = 20

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Flights:
    """`directory` is a folder of the shared volume, `image` Spark's, `strategy` a policy's."""

    directory: Path
    image: str
    executors: int = 10
    strategy: str = "incremental"
    seed: int = 1
    rows_per_second: float = 30_000.0

    @property
    def store(self) -> Path:
        return self.directory / "store"

    @property
    def events(self) -> Path:
        return self.directory / "driver-events.jsonl"

    @property
    def input(self) -> Path:
        return self.directory / "input"

    def prepare(self) -> Mapping[str, Any]:
        """Write input, pipeline and settings; what `data.prepare` tells of the input."""
        self.directory.mkdir()
        self.directory.chmod(0o777)  # the driver writes there as another user
        files = data.prepare(self.input)
        inputs.write(
            self.directory,
            self.input,
            self.seed,
            policy={"strategy": self.strategy},
            runtime={
                "nodes_expected": self.executors,
                "node_cpu_percent": CPU_PERCENT,
                "rows_per_second": self.rows_per_second,
                "load_target_percent": inputs.LOAD_TARGET_PERCENT,
            },
        )
        return files

    def submission(self, namespace: str) -> Submission:
        """What spark-submit is told."""
        folder = self.directory
        return Submission(
            namespace=namespace,
            name=NAME,
            file="local:///opt/rekindle/run.py",
            arguments=(
                *(str(folder / "pipeline.py"), "--store", str(self.store)),
                *("--settings", str(folder / "settings.yaml"), "--events", str(self.events)),
            ),
            conf={
                "spark.kubernetes.container.image": self.image,
                "spark.kubernetes.container.image.pullPolicy": "Never",
                "spark.kubernetes.authenticate.driver.serviceAccountName": "spark",
                "spark.executor.instances": str(self.executors),
                "spark.executor.cores": "2",
                "spark.executor.memory": "512m",
                "spark.executor.memoryOverhead": "512m",
                "spark.kubernetes.executor.request.cores": f"{CPU_PERCENT * 10}m",
                "spark.kubernetes.executor.limit.cores": f"{CPU_PERCENT * 10}m",
                "spark.executor.extraJavaOptions": shlex.join(SMALL_NODE_OPTIONS),
                "spark.driver.memory": "1g",
                "spark.driver.memoryOverhead": "512m",
                "spark.kubernetes.driver.request.cores": "200m",
            },
            driver=_pod(DRIVER, "service", self.directory, {"rekindle.dev/inject": "true"}),
            executor=_pod(EXECUTOR_CONTAINER, "executor", self.directory, {}, apart=True),
        )


def _pod(
    container: str, role: str, shared: Path, labels: Mapping[str, str], *, apart: bool = False
) -> Object:
    """A template: on nodes of a role, with the shared folder at its own place, one per node."""
    places = {"temporary": "/tmp", "shared": str(shared)}
    mounts = [{"name": name, "mountPath": path} for name, path in places.items()]
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"spark-role": "executor", "spark-app-name": NAME}},
    }
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {
        "metadata": {"labels": {"rekindle.dev/application": NAME, **labels}},
        "spec": {
            "nodeSelector": {ROLE: role},
            "securityContext": {"runAsUser": USER, "runAsGroup": USER, "fsGroup": USER},
            "affinity": {"podAntiAffinity": required} if apart else {},
            "containers": [
                {
                    "name": container,
                    "volumeMounts": mounts,
                    "securityContext": {
                        "readOnlyRootFilesystem": True,
                        "allowPrivilegeEscalation": False,
                    },
                }
            ],
            "volumes": [
                {"name": "temporary", "emptyDir": {"sizeLimit": "2Gi"}},
                {"name": "shared", "hostPath": {"path": str(shared)}},
            ],
        },
    }
