"""Sorts a problem's queries by their losses, before any choosing.

Called by `solver`; `answer_builder` takes the reasons of hopeless queries from here.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rekindle.model.plan_problem import NO_CAPACITY, UNPLACEABLE, Problem
from rekindle.planning.problem_arrays import ROUNDING_CPU_PERCENT


@dataclass(frozen=True, slots=True)
class LostQueries:
    """Queries that lost something, with the failed partitions that each needs (`missing`, ascending
    by id): `free` ones cost nothing to bring back, `candidates` can be chosen, `hopeless` ones
    (query -> reason) cannot. Queries that run are in none of them. `capacity_cpu_percent` is that
    of all nodes together.
    """

    capacity_cpu_percent: float
    missing: Mapping[str, tuple[str, ...]]
    free: frozenset[str]
    candidates: frozenset[str]
    hopeless: Mapping[str, str]


def sort_queries(problem: Problem) -> LostQueries:
    capacity, largest_node = problem.capacity_cpu_percent, math.inf
    if problem.nodes is not None:
        capacity = math.fsum(problem.nodes.values())
        largest_node = max(problem.nodes.values(), default=-math.inf)
    assert capacity is not None, "a problem has a capacity or nodes"
    missing, free, candidates, hopeless = {}, set(), set(), {}
    for query, demand in problem.queries.items():
        lost = tuple(sorted(problem.failed.intersection(demand.partitions)))
        if not lost:
            continue
        missing[query] = lost
        costs = [problem.partitions[partition].cpu_percent for partition in lost]
        if max(costs) > largest_node + ROUNDING_CPU_PERCENT:
            hopeless[query] = UNPLACEABLE
        elif sum(costs) > capacity + ROUNDING_CPU_PERCENT:
            hopeless[query] = NO_CAPACITY
        elif max(costs) == 0:
            free.add(query)
        else:
            candidates.add(query)
    return LostQueries(capacity, missing, frozenset(free), frozenset(candidates), hopeless)
