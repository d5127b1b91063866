"""Sorts a problem's queries by what they lost, before any choosing.

Called by `solving`; `outcome` takes the reasons of hopeless queries from here.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rekindle.planning.instance import ROUNDING_CPU_PERCENT, missing_partitions
from rekindle.problem import NO_CAPACITY, UNPLACEABLE, Problem

__all__ = ["Loss", "sort_queries"]


@dataclass(frozen=True, slots=True)
class Loss:
    """Queries that lost something: `free` ones cost nothing to bring back, `candidates` can be
    chosen, `hopeless` ones (query -> reason) cannot. Queries that run are in none of them.
    `capacity_cpu_percent` is that of all nodes together.
    """

    capacity_cpu_percent: float
    free: frozenset[str]
    candidates: frozenset[str]
    hopeless: Mapping[str, str]


def sort_queries(problem: Problem) -> Loss:
    capacity, largest_node = problem.capacity_cpu_percent, math.inf
    if problem.nodes is not None:
        capacity = math.fsum(problem.nodes.values())
        largest_node = max(problem.nodes.values(), default=-math.inf)
    assert capacity is not None, "a problem has a capacity or nodes"
    free, candidates, hopeless = set(), set(), {}
    for query in problem.queries:
        missing = missing_partitions(problem, query)
        costs = [problem.partitions[partition].cpu_percent for partition in missing]
        if not costs:
            continue
        if max(costs) > largest_node + ROUNDING_CPU_PERCENT:
            hopeless[query] = UNPLACEABLE
        elif sum(costs) > capacity + ROUNDING_CPU_PERCENT:
            hopeless[query] = NO_CAPACITY
        elif max(costs) == 0:
            free.add(query)
        else:
            candidates.add(query)
    return Loss(capacity, frozenset(free), frozenset(candidates), hopeless)
