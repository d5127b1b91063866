"""What a cloud does about its machines: brings some, and tells of those that are off.

    Autoscaler          looks at pods alone: whoever waits in vain for a node gets one in a zone
                        where it may run, the first after a while, then one in every so many seconds
    mark_machines_off   the mark of a cloud's controller manager, which asks about machines that
                        are not Ready and learns that they are off
    remove_machines     what it does about machines that are no more, as those of a spot pool: it
                        deletes their nodes

`scenario_run` calls them with each look.
"""

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from kubernetes.client.exceptions import ApiException

from scenarios.deployment import EXECUTOR, ZONES
from scenarios.scenario_clusters import SHUTDOWN, ScenarioCluster, is_ready
from testbed.cluster.node_configuration import NodeSpec
from testbed.node_objects import ZONE


@dataclass(slots=True)
class Autoscaler:
    """Seconds from the first look at which pods wait; `zones` are those that still have nodes.

    `nodes_max` is how many it brings at most: a cloud that is short of machines. Each is a `node`.
    """

    core: Any
    cluster: ScenarioCluster
    namespace: str
    first_seconds: float = 10.0
    every_seconds: float = 6.0
    zones: tuple[str, ...] = ZONES
    nodes_max: int = 0
    node: NodeSpec = EXECUTOR
    added: list[str] = field(default_factory=list)
    _due: float | None = None

    def look(self) -> None:
        """Add a node if one is due and wanted."""
        now = time.monotonic()
        zones = self._wanted() if len(self.added) < self.nodes_max else ()
        if not zones:
            return
        if self._due is None:
            self._due = now + self.first_seconds
        if now >= self._due:
            self._due = now + self.every_seconds
            zone = zones[len(self.added) % len(zones)]
            self.added += self.cluster.add(1, self.node, zones=(zone,))

    def _wanted(self) -> Sequence[str]:
        """The zones for one of the pods of which the scheduler says that no node takes them."""
        pods = self.core.list_namespaced_pod(
            self.namespace, field_selector="status.phase=Pending"
        ).items
        offered = (self._suiting(pod) for pod in pods if _waits(pod))
        return next(filter(None, offered), ())

    def _suiting(self, pod: Any) -> Sequence[str]:
        """The zones where a pod may run: elsewhere a node would come in vain."""
        excluded = _excluded_zones(pod)
        return [zone for zone in self.zones if zone not in excluded]


def mark_machines_off(core: Any, killed: Collection[str]) -> Iterator[str]:
    """Mark those of these nodes that are not Ready any more; each once that is done."""
    for name in killed:
        node = _read(core, name)
        if node is not None and not is_ready(node):
            taints = node.spec.taints or []
            if all(taint.key != SHUTDOWN for taint in taints):
                mark = {"key": SHUTDOWN, "effect": "NoSchedule"}
                core.patch_node(name, {"spec": {"taints": [*map(_plain, taints), mark]}})
            yield name


def remove_machines(core: Any, killed: Collection[str]) -> Iterator[str]:
    """Delete those of these nodes that are not Ready any more; each once it is gone."""
    for name in killed:
        node = _read(core, name)
        if node is not None and is_ready(node):
            continue
        if node is not None:
            core.delete_node(name)
        yield name


def _waits(pod: Any) -> bool:
    return any(
        condition.type == "PodScheduled" and condition.reason == "Unschedulable"
        for condition in pod.status.conditions or ()
    )


def _excluded_zones(pod: Any) -> set[str]:
    """The zones that each alternative of its node affinity names as those where it must not run."""
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    required = affinity and affinity.required_during_scheduling_ignored_during_execution
    excluded = [
        {
            zone
            for expression in term.match_expressions or ()
            if (expression.key, expression.operator) == (ZONE, "NotIn")
            for zone in expression.values
        }
        for term in (required.node_selector_terms if required else ())
    ]
    return set.intersection(*excluded) if excluded else set()


def _read(core: Any, name: str) -> Any:
    """None for a Node that is gone."""
    try:
        return core.read_node(name)
    except ApiException as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return None


def _plain(taint: Any) -> dict[str, Any]:
    fields = {"key": taint.key, "value": taint.value, "effect": taint.effect}
    return {name: value for name, value in fields.items() if value is not None}
