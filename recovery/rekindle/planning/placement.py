"""Which node gets which partition: the largest first, to the node with the most free CPU.

That rule (paper, end of section 5) is tried first; where it leaves something over, tightest fit
and then a short search for an exact packing. Chooses no queries: `placement_repair` does, on top.
"""

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, field

from rekindle.planning.problem_arrays import ROUNDING_CPU_PERCENT

# Nodes that fill up: the largest partition first, each to the node that it leaves the least free.
#
# Goes on from where it is, so that one more query costs hardly more on thousands of nodes than on
# ten. `place` packs from scratch with it, `placement_repair` query by query.

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


SEARCHED_PARTITIONS_MAX = 64
SEARCH_STEPS_MAX = 2_000
SEARCH_LOOKS_MAX = 100_000  # a step looks at every node

Costs = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Placement:
    """`node_of` each placed partition, what is `unplaced`, and each node's free CPU after it."""

    node_of: Mapping[str, str]
    unplaced: tuple[str, ...]
    free_cpu_percent: Mapping[str, float]


def place(
    costs: Costs,
    nodes: Costs,
    preferred: Mapping[str, str] | None = None,
    *,
    search_steps_max: int = SEARCH_STEPS_MAX,
) -> Placement:
    """Place partitions (id -> CPU) on nodes (id -> free CPU), all in percent of one core.

    A partition goes to its `preferred` node where that holds it. Of the three ways the first that
    places everything counts; where none does, the one that leaves the least CPU unplaced.
    Same input, same placement: ties go to the smaller id.
    """
    order = sorted(costs, key=lambda partition: (-costs[partition], partition))
    most_free = _most_free(order, costs, nodes, preferred or {})
    if not most_free.unplaced:
        return most_free
    tightest = _tightest(order, costs, nodes)
    if not tightest.unplaced:
        return tightest
    packed = _search(order, costs, nodes, search_steps_max)
    return packed or min(
        most_free,
        tightest,
        key=lambda placement: sum(costs[partition] for partition in placement.unplaced),
    )


def spread(costs: Costs, nodes: Costs) -> Placement | None:
    """All of them by the rule that is tried first, so that nodes are loaded evenly; or None."""
    order = sorted(costs, key=lambda partition: (-costs[partition], partition))
    placement = _most_free(order, costs, nodes, {})
    return None if placement.unplaced else placement


def _most_free(
    order: list[str], costs: Costs, nodes: Costs, preferred: Mapping[str, str]
) -> Placement:
    """Each to the node with the most free CPU; entries of the heap that are out of date go."""
    free, node_of = dict(nodes), {}
    heap = [(-cpu, node) for node, cpu in free.items()]
    heapq.heapify(heap)
    for partition in order:
        while heap and -heap[0][0] != free[heap[0][1]]:
            heapq.heappop(heap)
        node = preferred.get(partition, "")
        if not _holds(free.get(node, -1.0), costs[partition]):
            if not heap or not _holds(-heap[0][0], costs[partition]):
                continue
            node = heap[0][1]
        node_of[partition] = node
        free[node] -= costs[partition]
        heapq.heappush(heap, (-free[node], node))
    return _placement(order, node_of, free)


def _tightest(order: list[str], costs: Costs, nodes: Costs) -> Placement:
    """Each to the node that it leaves the least free."""
    packing = Packing(nodes)
    for partition in order:
        packing.put(partition, costs[partition])
    return _placement(order, packing.node_of, packing.free)


@dataclass(slots=True)
class _Attempt:
    """A search through all ways to pack, the tightest first, with a limit on steps."""

    order: list[str]
    costs: Costs
    free: dict[str, float]
    steps: int
    node_of: dict[str, str] = field(default_factory=dict)

    def complete_from(self, i: int) -> bool:
        """Whether the partitions from the i-th on fit beside what is placed; places them."""
        if i == len(self.order):
            return True
        cost, tried = self.costs[self.order[i]], set()
        for cpu, node in sorted((cpu, node) for node, cpu in self.free.items()):
            if not _holds(cpu, cost) or cpu in tried:
                continue
            tried.add(cpu)
            self.steps -= 1
            if self.steps < 0:
                return False
            self.node_of[self.order[i]] = node
            self.free[node] = cpu - cost
            if self.complete_from(i + 1):
                return True
            self.free[node] = cpu
            del self.node_of[self.order[i]]
        return False


def _search(order: list[str], costs: Costs, nodes: Costs, steps: int) -> Placement | None:
    """All of them or None; None too where there are too many, or too much for all nodes."""
    room = sum(nodes.values()) + ROUNDING_CPU_PERCENT
    steps = min(steps, SEARCH_LOOKS_MAX // max(1, len(nodes)))
    if len(order) > SEARCHED_PARTITIONS_MAX or sum(costs.values()) > room:
        return None
    attempt = _Attempt(order, costs, dict(nodes), steps)
    if not attempt.complete_from(0):
        return None
    return _placement(order, attempt.node_of, attempt.free)


def _placement(order: list[str], node_of: Mapping[str, str], free: Costs) -> Placement:
    return Placement(node_of, tuple(p for p in order if p not in node_of), free)


def _holds(free_cpu_percent: float, cpu_percent: float) -> bool:
    return cpu_percent <= free_cpu_percent + ROUNDING_CPU_PERCENT
