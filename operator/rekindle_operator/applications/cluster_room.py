"""Room for pods of whole applications: free CPU of nodes, and the nodes to ask for beside it.

    nodes, what pods request ──► free CPU where waiting pods may run ──► the plan
    pods on announced nodes, what the plan leaves free ──► nodes to ask for in their place

CPU counts as pods request it. A node that is announced to go gets nothing new while there is any
other. `application_recovery` asks it with each plan.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rekindle.coordination.coordination_events import LossNotice
from rekindle.protocol.store_paths import Place
from rekindle_operator.applications import application_incident, wanted_nodes
from rekindle_operator.applications.application_incident import ApplicationLook
from rekindle_operator.applications.application_plan import (
    MILLIS_PER_PERCENT,
    ApplicationPlan,
    reserve,
)
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.cluster.pods import PodSeen
from rekindle_operator.detection.detection_runner import DetectionRunner

Notices = Mapping[str, LossNotice]


@dataclass(slots=True)
class ClusterRoom:
    """`node_millis` is the CPU of the largest node, also once there is none."""

    known: ClusterView
    judge: DetectionRunner
    node_millis: int = 0

    def free(self, looks: Mapping[Place, ApplicationLook], notices: Notices) -> dict[str, int]:
        """Free CPU (thousandths of a core) of nodes on which something that waits or has yet to be
        made may run, less what has been admitted, and with CPU that is about to be free."""
        registry = self.known.registry
        leaving: dict[str, int] = {}
        for pod in (pod for look in looks.values() for pod in look.leaving):
            leaving[pod.node] = leaving.get(pod.node, 0) + pod.held_millis
        there = self._open_nodes(pod for look in looks.values() for pod in look.expected)
        # where all are announced to go, what waits runs on them for as long as they are there
        there = (there - notices.keys()) or there
        free = {name: registry.free_millis(name) + leaving.get(name, 0) for name in there}
        pending = (
            pod.cpu_millis
            for look in looks.values()
            for pod in look.awaited
            if not pod.gated_by_others
        )
        return reserve(free, pending)

    def may_run(self, nodes: Iterable[str], looks: Iterable[ApplicationLook]) -> frozenset[str]:
        """Nodes on which all pods that wait may run."""
        needs = {(pod.tolerates, pod.node_labels) for look in looks for pod in look.waiting}
        known = self.known.registry.nodes
        return frozenset(
            name
            for name in nodes
            if all(application_incident.suits(known[name], *need) for need in needs)
        )

    def largest_node(self) -> int:
        """The CPU of the largest node, in thousandths of a core."""
        nodes = self.known.registry.nodes.values()
        self.node_millis = max((node.cpu_millis for node in nodes), default=self.node_millis)
        return self.node_millis

    def replacements(
        self, made: ApplicationPlan, ordered: Iterable[ApplicationLook], notices: Notices
    ) -> dict[str, int]:
        """How many nodes to ask for on behalf of each application in place of those that are
        announced to go: for pods that have no room beside what the plan places."""
        looks = [look for look in ordered if look.going]
        if not looks:
            return {}
        there = self._open_nodes(pod for look in looks for pod in look.going) - notices.keys()
        free = {name: self.known.registry.free_millis(name) for name in there}
        for name, percent in made.left.items():
            if name in free:
                free[name] = min(free[name], int(percent * MILLIS_PER_PERCENT))
        return wanted_nodes.replacements(looks, free, self.largest_node())

    def _open_nodes(self, pods: Iterable[PodSeen]) -> frozenset[str]:
        """Nodes on which some of these pods may be put."""
        needs = {(pod.tolerates, pod.node_labels) for pod in pods}
        silent = self.judge.avoidance.silent
        return frozenset(
            name
            for name, node in self.known.registry.nodes.items()
            if name not in silent
            and application_incident.is_open(node)
            and any(application_incident.suits(node, *need) for need in needs)
        )
