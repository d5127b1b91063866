"""What is written to the API server for a simulated node, its lease and its pods.

As a kubelet would write it, as far as controllers, the scheduler and clients look. Pure: values in,
JSON-like values out. simulated_kubelets.py, node_heartbeats.py and pod_runner.py send them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import IPv4Address
from typing import Any

Body = dict[str, Any]

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
# Container runtimes give a process that a signal has ended this code and the signal's number.
SIGNALLED = 128
# Nobody listens at these addresses. A loopback address would do as well, but may not be an endpoint
# of a service.
_NODE_ADDRESSES = IPv4Address("10.64.0.0")
_POD_ADDRESSES = IPv4Address("10.128.0.0")
_POD_ADDRESSES_MAX = 1 << 23
# The pressures that a node can be under, and how a kubelet says that it is not.
_PRESSURES = {
    "MemoryPressure": "KubeletHasSufficientMemory",
    "DiskPressure": "KubeletHasNoDiskPressure",
    "PIDPressure": "KubeletHasSufficientPID",
}


@dataclass(frozen=True, slots=True)
class NodeShape:
    """What a node has: resources as Kubernetes writes them, labels, and taints (as in a Node).

    On a `real` one containers really run (pod_processes.py).
    """

    cpu: str = "4"
    memory: str = "16Gi"
    pods: int = 110
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    real: bool = False


@dataclass(frozen=True, slots=True)
class PodContainer:
    """A container of a pod; `initial` ones have ended by the time it runs, unless they `stay`."""

    name: str
    image: str
    initial: bool = False
    stays: bool = True


def node_address(number: int) -> str:
    """The address of the node of this number."""
    return str(_NODE_ADDRESSES + number)


def pod_address(number: int) -> str:
    """The address of the pod of this number; after eight million they come again."""
    return str(_POD_ADDRESSES + number % _POD_ADDRESSES_MAX)


def node(
    name: str,
    shape: NodeShape,
    *,
    address: str,
    labels: Mapping[str, str],
    version: str,
    now: datetime,
) -> Body:
    """A Node as its kubelet, of this version of Kubernetes, registers it; `labels` come on top of
    those of the shape."""
    resources = {
        "cpu": shape.cpu,
        "memory": shape.memory,
        "pods": str(shape.pods),
        "ephemeral-storage": "100Gi",
    }
    own = {HOSTNAME: name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**own, **shape.labels, **labels}},
        "spec": {"taints": [dict(taint) for taint in shape.taints]},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "addresses": [
                {"type": "InternalIP", "address": address},
                {"type": "Hostname", "address": name},
            ],
            "conditions": conditions(now),
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": "",
                "containerRuntimeVersion": "simulated://1",
                "kernelVersion": "",
                "kubeProxyVersion": "",
                "kubeletVersion": f"v{version}",
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": "simulated",
                "systemUUID": "",
            },
        },
    }


def lease(name: str, uid: str, *, seconds: int, labels: Mapping[str, str], now: datetime) -> Body:
    """The lease of the node with this name and uid; it goes when the node is deleted."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "labels": dict(labels), "ownerReferences": [owner]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": seconds, **renewal(now)["spec"]},
    }


def renewal(now: datetime) -> Body:
    """What changes in a lease that is renewed."""
    return {"spec": {"renewTime": f"{now:%Y-%m-%dT%H:%M:%S.%f}Z"}}


def conditions(
    now: datetime, *, ready: bool = True, reason: str = "", message: str = ""
) -> list[Body]:
    """By which a kubelet says that its node is under no pressure, and whether it is ready."""
    usual = "KubeletReady" if ready else "KubeletNotReady"
    return [
        *(_condition(kind, "False", relief, "", now) for kind, relief in _PRESSURES.items()),
        _condition("Ready", str(ready), reason or usual, message, now),
    ]


def saying(said: Sequence[Body]) -> Body:
    """A strategic merge patch of a node's status that says these conditions."""
    return {"status": {"conditions": list(said)}}


def running_status(
    containers: Sequence[PodContainer], *, node_address: str, address: str, now: datetime
) -> Body:
    """A merge patch of a pod's status: it runs, and all its containers are ready."""
    at = _moment(now)
    steps = ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready", "PodScheduled")
    return {
        "status": {
            "phase": "Running",
            "startTime": at,
            "hostIP": node_address,
            "hostIPs": [{"ip": node_address}],
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": [
                {"type": step, "status": "True", "lastTransitionTime": at} for step in steps
            ],
            "initContainerStatuses": [_container(one, at) for one in containers if one.initial],
            "containerStatuses": [_container(one, at) for one in containers if not one.initial],
        }
    }


def ended_status(codes: Mapping[str, int], *, now: datetime) -> Body:
    """A strategic merge patch of a pod's status: it is over, all containers have ended.

    `codes` (name -> exit code) are as Python says them: negative ones are signals.
    """
    at = _moment(now)
    failed = any(codes.values())
    return {
        "status": {
            "phase": "Failed" if failed else "Succeeded",
            "conditions": [
                {"type": step, "status": "False", "reason": "PodFailed", "lastTransitionTime": at}
                for step in ("ContainersReady", "Ready")
            ],
            "containerStatuses": [_ended(name, code, at) for name, code in codes.items()],
        }
    }


def _ended(name: str, code: int, at: str) -> Body:
    exit_code = SIGNALLED - code if code < 0 else code
    reason = "Error" if exit_code else "Completed"
    return {
        "name": name,
        "ready": False,
        "started": False,
        "state": {"terminated": {"exitCode": exit_code, "reason": reason, "finishedAt": at}},
    }


def _container(container: PodContainer, at: str) -> Body:
    state: Body = {"running": {"startedAt": at}}
    if not container.stays:
        ended = {"exitCode": 0, "reason": "Completed", "startedAt": at, "finishedAt": at}
        state = {"terminated": ended}
    return {
        "name": container.name,
        "image": container.image,
        "imageID": container.image,
        "containerID": f"simulated://{container.name}",
        "ready": True,
        "started": container.stays,
        "restartCount": 0,
        "state": state,
    }


def _condition(kind: str, status: str, reason: str, message: str, now: datetime) -> Body:
    at = _moment(now)
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": at,
        "lastTransitionTime": at,
    }


def _moment(now: datetime) -> str:
    return f"{now:%Y-%m-%dT%H:%M:%S}Z"
