"""Which pod, and so which node of the cluster, a driver means by a node of its report.

The runtime calls a node by its executor's host, which on Kubernetes is the pod's IP, and an
incarnation of it EXECUTOR.RELAPSES. Executor ids are unique in a driver's life and on the pod as a
label; IPs are given again. So the id decides, and an address that says otherwise makes it nobody's:
the next driver counts its executors from 1 again, and a pod of those has no address at first. An
executor that cannot be placed is never taken for one on a lost node. Pure; the shell calls it
before the core decides.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from rekindle.protocol import NodeSeen
from rekindle_operator.cluster.pods import PodSeen


@dataclass(frozen=True, slots=True)
class Located:
    """Nodes of a report with their pods, and those without one, by the report's names."""

    pods: Mapping[str, PodSeen]
    unknown: tuple[str, ...]

    def on(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """What the report calls the executors on some nodes of the cluster."""
        wanted = frozenset(nodes)
        return tuple(sorted(name for name, pod in self.pods.items() if pod.node in wanted))


def locate(nodes: Mapping[str, NodeSeen], executors: Iterable[PodSeen]) -> Located:
    """The pods of a report's nodes among the executors of the driver that reports."""
    there = tuple(executors)
    numbered = {pod.executor_id: pod for pod in there if pod.executor_id}
    found: dict[str, PodSeen] = {}
    for name, seen in nodes.items():
        executor, _, _ = seen.incarnation.rpartition(".")
        pod = numbered.get(executor) if executor else None
        if pod is None:
            # Without a label (old Spark on a StatefulSet) only those that have none come into
            # question.
            among = there if not executor else [pod for pod in there if not pod.executor_id]
            pod = _only(pod for pod in among if _is_at(pod, name))
        if pod is not None and not _contradicts(pod, name):
            found[name] = pod
    unknown = tuple(sorted(name for name in nodes if name not in found))
    return Located(found, unknown)


def _only(pods: Iterable[PodSeen]) -> PodSeen | None:
    """The one pod that there is; None where there is no telling."""
    found = tuple(pods)
    return found[0] if len(found) == 1 else None


def _is_at(pod: PodSeen, name: str) -> bool:
    """Whether a node's name in a report can mean a pod: by its IP, or by the node that it is on."""
    address = _address(name)
    return pod.node == name if address is None else _address(pod.ip) == address


def _contradicts(pod: PodSeen, name: str) -> bool:
    if pod.ip == name:  # as nearly always: parsing takes longer than all else here
        return False
    address = _address(name)
    return address is not None and _address(pod.ip) != address


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """An IP address, in brackets or not, as Spark writes those of version 6; None for a name."""
    try:
        return ip_address(text.strip("[]"))
    except ValueError:
        return None
