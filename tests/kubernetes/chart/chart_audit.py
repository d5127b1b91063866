"""A control plane that writes down every request, and what the operator was seen to ask.

`arguments_here` are the chart's arguments for an operator on this machine.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chart_commands import NAMESPACE, pick
from chart_rights import OPERATOR, Right
from kubernetes import client

from testbed.control_plane import ControlPlane

__all__ = ["arguments_here", "asked", "audited", "refused"]

AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}
FORBIDDEN = 403
# Shorter than in a cluster, so that a lost node is NotReady within seconds.
NODE_GRACE_SECONDS, NODE_MONITOR_SECONDS = 8.0, 1.0


@contextmanager
def audited(directory: Path, programs: dict[str, Path], log: Path) -> Iterator[ControlPlane]:
    """One with the operator's namespace; a line in `log` for every request."""
    policy = log.with_suffix(".json")
    policy.write_text(json.dumps(AUDIT))
    with ControlPlane(
        directory=directory,
        programs=programs,
        node_grace_seconds=NODE_GRACE_SECONDS,
        node_monitor_seconds=NODE_MONITOR_SECONDS,
        arguments={"kube-apiserver": [f"--audit-policy-file={policy}", f"--audit-log-path={log}"]},
    ) as plane:
        with plane.api_client() as api_client:
            named = client.V1ObjectMeta(name=NAMESPACE)
            client.CoreV1Api(api_client).create_namespace(client.V1Namespace(metadata=named))
        yield plane


def asked(log: Path) -> list[tuple[Right, int]]:
    """What the operator has asked about objects, and the status of each answer."""
    found = []
    for line in log.read_text().splitlines():
        event = json.loads(line)
        target = event.get("objectRef")
        if event["user"]["username"] == OPERATOR and target:
            group, part = target.get("apiGroup", ""), target.get("subresource", "")
            resource = f"{target['resource']}.{group}".rstrip(".") + (f"/{part}" if part else "")
            right = Right(target.get("namespace", ""), resource, "", event["verb"])
            found.append((right, event["responseStatus"]["code"]))
    return found


def refused(log: Path) -> set[Right]:
    """For what it had no right."""
    return {right for right, status in asked(log) if status == FORBIDDEN}


def arguments_here(objects: list[dict[str, Any]]) -> list[str]:
    """Those of the chart, but for ports, which are this machine's."""
    deployment = pick(objects, "Deployment", "rekindle-operator")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return [
        word for word in container["args"] if not word.startswith(("--port=", "--webhook-port="))
    ]
