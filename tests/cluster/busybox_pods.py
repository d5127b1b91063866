"""Pods of busybox on real nodes: scripts that end, servers, and what they say."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rekindle_local import process_sets
from testbed.cluster.containerd_images import BUSYBOX
from testbed.node_objects import HOSTNAME

WAIT_SECONDS_MAX = 180.0
SHARED = "/shared"


class Pods:
    """Pods of busybox in a namespace of their own, with the cluster's shared folder."""

    def __init__(self, core: Any, namespace: str, shared: Path) -> None:
        self.core = core
        self.namespace = namespace
        self._shared = shared

    def start(
        self, name: str, script: str, *, node: str, limits: Mapping[str, str] | None = None
    ) -> None:
        """Start a pod that runs a script on a node; its label `app` is its name up to a dash."""
        container: dict[str, Any] = {
            "name": "main",
            "image": BUSYBOX,
            "command": ["sh", "-c", script],
            "volumeMounts": [{"name": "shared", "mountPath": SHARED}],
            "resources": {"limits": dict(limits or {})},
        }
        volume = {"name": "shared", "hostPath": {"path": str(self._shared), "type": "Directory"}}
        spec = {
            "nodeSelector": {HOSTNAME: node},
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "volumes": [volume],
        }
        metadata = {"name": name, "labels": {"app": name.partition("-")[0]}}
        self.core.create_namespaced_pod(self.namespace, {"metadata": metadata, "spec": spec})

    def await_phase(self, name: str, phase: str) -> Any:
        """The pod, once it is in this phase."""

        def has_settled() -> bool:
            return self.read(name).status.phase in {phase, "Succeeded", "Failed"}

        process_sets.await_condition(
            has_settled, limit_seconds=WAIT_SECONDS_MAX, interval_seconds=0.2
        )
        pod = self.read(name)
        assert pod.status.phase == phase, f"{name}: {pod.status}"
        return pod

    def read(self, name: str) -> Any:
        return self.core.read_namespaced_pod(name, self.namespace)

    def run(self, name: str, script: str, *, node: str) -> list[str]:
        """What a script prints on a node, by lines; it must succeed."""
        self.start(name, script, node=node)
        self.await_phase(name, "Succeeded")
        said: str = self.core.read_namespaced_pod_log(name, self.namespace)
        return said.splitlines()

    def serve(self, name: str, *, node: str) -> str:
        """Start a server that answers with its name at port 8080; its address."""
        script = f"mkdir /www; echo {shlex.quote(name)} > /www/index.html; httpd -f -p 8080 -h /www"
        self.start(name, script, node=node)
        address: str = self.await_phase(name, "Running").status.pod_ip
        return address
