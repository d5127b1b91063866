"""Nodes for pods that find none, one after the other, as an autoscaler brings them.

It looks at pods alone: whoever waits for a node in vain gets one, the first after a while, then one
in every so many seconds. `losses` starts it with a loss.
"""

import time
from dataclasses import dataclass, field
from typing import Any

from scenarios.site import EXECUTOR, ZONES
from testbed.cluster.cluster import Cluster

__all__ = ["Autoscaler", "waiting"]


@dataclass(slots=True)
class Autoscaler:
    """Seconds from the first look at which pods wait; `zones` are those that still have nodes."""

    core: Any
    cluster: Cluster
    namespace: str
    first_seconds: float = 10.0
    every_seconds: float = 6.0
    zones: tuple[str, ...] = ZONES
    added: list[str] = field(default_factory=list)
    _due: float | None = None

    def look(self) -> tuple[str, ...]:
        """Add a node if one is due and wanted; what was added."""
        now = time.monotonic()
        if not waiting(self.core, self.namespace):
            return ()
        if self._due is None:
            self._due = now + self.first_seconds
        if now < self._due:
            return ()
        self._due = max(self._due + self.every_seconds, now)
        zone = self.zones[len(self.added) % len(self.zones)]
        names = self.cluster.add(1, EXECUTOR, zones=(zone,))
        self.added += names
        return names


def waiting(core: Any, namespace: str) -> list[str]:
    """Pods of which the scheduler says that no node takes them."""
    pods = core.list_namespaced_pod(namespace, field_selector="status.phase=Pending").items
    return [pod.metadata.name for pod in pods if _is_unschedulable(pod)]


def _is_unschedulable(pod: Any) -> bool:
    return any(
        condition.type == "PodScheduled" and condition.reason == "Unschedulable"
        for condition in pod.status.conditions or ()
    )
