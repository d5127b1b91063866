"""Nodes that fill up: the largest partition first, each to the node that it leaves the least free.

Goes on from where it is, so that one more query costs hardly more on thousands of nodes than on
ten. `placement` packs with it from scratch, `placement_repair` query by query.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Mapping

from rekindle.planning.problem_arrays import ROUNDING_CPU_PERCENT

LEFT_TOLERANCE = 1e-6  # of the sum, for thousands of roundings: each node is held to the exact sum


class Packing:
    """`node_of` each partition that has a place, what each node has `free`, and their sum, `left`:
    all in percent of one core."""

    def __init__(self, nodes: Mapping[str, float]) -> None:
        self.node_of: dict[str, str] = {}
        self.free = dict(nodes)
        self.left = math.fsum(nodes.values())
        self._tolerance = LEFT_TOLERANCE * max(1.0, self.left)
        self._ascending = sorted((cpu, node) for node, cpu in nodes.items())

    def put(self, partition: str, cpu_percent: float, preferred: str = "") -> bool:
        """To the `preferred` node where that holds it, else to the tightest; False where none."""
        at = self._at(cpu_percent, preferred)
        if at < len(self._ascending):
            self._charge(at, partition, cpu_percent)
            return True
        return False

    def put_all(
        self,
        costs: Mapping[str, float],
        preferred: Mapping[str, str] | None = None,
        *,
        elsewhere: bool = True,
    ) -> bool:
        """All of `costs` (id -> CPU, the largest first), or nothing; `elsewhere` says whether what
        its preferred node does not hold may go to another."""
        homes = preferred or {}
        if sum(costs.values()) > self.left + self._tolerance:
            return False
        left = self.left
        before: list[tuple[str, tuple[float, str]]] = []
        for partition, cost in costs.items():
            at = self._at(cost, home := homes.get(partition, ""))
            if at == len(self._ascending) or not (elsewhere or self._ascending[at][1] == home):
                for name, (free, node) in reversed(before):
                    del self.node_of[name]
                    self._set_free(node, free)
                self.left = left
                return False
            before.append((partition, self._ascending[at]))
            self._charge(at, partition, cost)
        return True

    def _at(self, cpu_percent: float, preferred: str) -> int:
        needed = cpu_percent - ROUNDING_CPU_PERCENT
        free = self.free.get(preferred, -math.inf)
        return bisect_left(self._ascending, (free, preferred) if free >= needed else (needed, ""))

    def _charge(self, at: int, partition: str, cpu_percent: float) -> None:
        free, node = self._ascending[at]
        self.node_of[partition] = node
        self._set_free(node, free - cpu_percent)
        self.left -= cpu_percent

    def _set_free(self, node: str, cpu_percent: float) -> None:
        at = bisect_left(self._ascending, (self.free[node], node))
        del self._ascending[at]
        self.free[node] = cpu_percent
        insort(self._ascending, (cpu_percent, node))
