"""The nodes of a cluster that several tests use, one after the other.

Sound ones go from test to test, which saves their start and keeps the cluster from ever being
empty; what a test has lost, tainted, drained or given another clock gives way to new ones. The
conftest makes it.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from testbed.node_objects import ZONE
from testbed.simulated_kubelets import SimulatedKubelets

__all__ = ["Grounds"]


@dataclass(frozen=True, slots=True)
class Grounds:
    """`lay_out` says which nodes there are from now on."""

    nodes: SimulatedKubelets
    core: Any

    def lay_out(self, wanted: Mapping[str, int]) -> None:
        """As many sound nodes in each zone as are wanted, and no others."""
        there = self._sound()
        kept = {zone: names[: wanted.get(zone, 0)] for zone, names in there.items()}
        staying = {name for names in kept.values() for name in names}
        for zone, count in wanted.items():
            missing = count - len(kept.get(zone, ()))
            if missing:
                self.nodes.add(missing, zone=zone, wait=False)
                staying |= set(self.nodes.names[-missing:])
        self.nodes.remove(*(name for name in self.nodes.names if name not in staying))
        self.nodes.await_ready(*self.nodes.names)

    def _sound(self) -> dict[str, list[str]]:
        """By zone, the nodes that are as they were made."""
        found: dict[str, list[str]] = defaultdict(list)
        living = set(self.nodes.living) - set(self.nodes.with_set_clocks)
        listed: Any = self.core.list_node()
        for node in listed.items:
            name, zone = node.metadata.name, (node.metadata.labels or {}).get(ZONE, "")
            if name in living and _is_sound(node):
                found[zone].append(name)
        return found


def _is_sound(node: Any) -> bool:
    ready = {item.type: item.status for item in node.status.conditions or ()}.get("Ready")
    return ready == "True" and not node.spec.taints and not node.spec.unschedulable
