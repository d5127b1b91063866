"""Builds the answer: the chosen queries, a certificate, and a reason for each query left out.

Decides nothing any more; called by `solver`.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rekindle.model.plan_problem import (
    DOES_NOT_FIT_A_NODE,
    NO_CAPACITY,
    RUNNING,
    UNPLACEABLE,
    Answer,
    Problem,
)
from rekindle.planning.lost_queries import LostQueries
from rekindle.planning.placement import Placement
from rekindle.planning.placement_repair import RepairedPlacement
from rekindle.planning.problem_arrays import ROUNDING_CPU_PERCENT

PROVED = 1e-9  # relative gap that counts as none


@dataclass(frozen=True, slots=True)
class Optimum:
    """Who chose, and the sum of priorities that no choice exceeds. A `wasteful` solver spends
    capacity on what completes no query, so what is left says nothing about who would have fit.
    """

    solver: str
    seed: int
    upper_bound: float
    wasteful: bool = False


def answer(
    problem: Problem, loss: LostQueries, settled: RepairedPlacement, certificate: Optimum
) -> Answer:
    """The answer, without its `seconds`."""
    partitions = _missing(loss, settled.queries)
    used = _cost(problem, partitions)
    left = max(0.0, loss.capacity_cpu_percent - used)
    skipped = {
        query: _reason(problem, loss, query, partitions, left, certificate.wasteful)
        for query in sorted(problem.queries)
        if query not in settled.queries
    }
    fragmented = problem.nodes is not None and any(
        _cost(problem, _missing(loss, [query]) - partitions) <= left + ROUNDING_CPU_PERCENT
        for query, reason in skipped.items()
        if reason in (DOES_NOT_FIT_A_NODE, UNPLACEABLE)
    )
    bound = max(certificate.upper_bound, settled.priority_sum)
    if bound - settled.priority_sum <= PROVED * bound:
        bound = settled.priority_sum
    return Answer(
        status="optimal" if bound == settled.priority_sum else "feasible",
        solver=certificate.solver,
        seed=certificate.seed,
        queries=tuple(sorted(settled.queries)),
        skipped=skipped,
        partitions=tuple(sorted(partitions)),
        placement=_by_node(settled.placement),
        priority_sum=settled.priority_sum,
        used_cpu_percent=used,
        fragmentation_cpu_percent=left if fragmented else 0.0,
        upper_bound=bound,
        gap=(bound - settled.priority_sum) / bound if bound else 0.0,
        seconds=0.0,
    )


def _reason(
    problem: Problem,
    loss: LostQueries,
    query: str,
    there: frozenset[str],
    left_cpu_percent: float,
    wasteful: bool,
) -> str:
    missing = _missing(loss, [query])
    if not missing:
        return RUNNING
    if query in loss.hopeless:
        return loss.hopeless[query]
    dear = _cost(problem, missing - there) > left_cpu_percent + ROUNDING_CPU_PERCENT
    return NO_CAPACITY if dear or wasteful or problem.nodes is None else DOES_NOT_FIT_A_NODE


def _missing(loss: LostQueries, queries: Iterable[str]) -> frozenset[str]:
    return frozenset(p for query in queries for p in loss.missing.get(query, ()))


def _cost(problem: Problem, partitions: Iterable[str]) -> float:
    return math.fsum(problem.partitions[partition].cpu_percent for partition in partitions)


def _by_node(placement: Placement) -> Mapping[str, tuple[str, ...]]:
    held: dict[str, list[str]] = {}
    for partition, node in sorted(placement.node_of.items()):
        held.setdefault(node, []).append(partition)
    return {node: tuple(held[node]) for node in sorted(held)}
