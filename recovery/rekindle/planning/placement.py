"""Which node gets which partition: the largest first, to the node with the most free CPU.

That rule (paper, end of section 5) is tried first; where it leaves something over, tightest fit
and then a short search for an exact packing. Chooses no queries: `placement_repair` does, on top.
"""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field

from rekindle.planning.packing import Packing
from rekindle.planning.problem_arrays import ROUNDING_CPU_PERCENT

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
