"""Best-density: start from several small sets, grow each by profit density, repair the best.

The paper's Algorithm 3 (section 5) starts from every pair of queries. Here the starts are, in this
order and while the budget lasts: nothing; the affordable sets behind the bound's cuts, which alone
come within 1 % of the bound where sharing is skewed; the single queries of highest priority and
highest density; the pairs in order of their density. Growing by plain costs (priority over what a
query would cost now) is tried beside the paper's shared costs: on random sharing it gives 4 % more.
Then a local search takes out one to three chosen queries, keeps one of them out and fills up again
(add, drop and swap in one move).
Called by `solver`; does not look at nodes (see `placement_repair`).
"""

import math
from collections.abc import Iterator

import numpy as np

from rekindle.planning.local_search import SMALLEST_COST, Growth, grown
from rekindle.planning.problem_arrays import (
    ROUNDING_CPU_PERCENT,
    FloatArray,
    Instance,
    IntArray,
    QuerySelection,
    SolverBudget,
)
from rekindle.planning.upper_bound import Relaxation

CORES_MAX = 2
PAIRED_QUERIES_MAX = 1_000  # of highest density: a matrix of their shared costs is 8 MB
PAIRS_SHARE = 0.5  # of the budget; the rest is the local search's
DROPPED_MAX = 3
REPAIRS_PER_QUERY = 20  # without any gain, then the search ends
REPAIRS_MIN = 100


def best_density(
    instance: Instance, relaxation: Relaxation, budget: SolverBudget
) -> QuerySelection:
    """Never worse than the best single query; deterministic while the budget is not spent."""
    best = started(instance, relaxation, budget.part(PAIRS_SHARE))
    return _searched(instance, best, relaxation.enough, budget)


def refined(instance: Instance, relaxation: Relaxation, budget: SolverBudget) -> QuerySelection:
    """From `instance.start`, with the local search."""
    best = restarted(instance, relaxation, budget)
    return _searched(instance, best, relaxation.enough, budget)


def _searched(
    instance: Instance, best: Growth, enough: float, budget: SolverBudget
) -> QuerySelection:
    improve(instance, best, enough, budget)
    best = counted_anew(instance, best)
    return QuerySelection(best.chosen, optimal=best.value >= enough)


def restarted(instance: Instance, relaxation: Relaxation, budget: SolverBudget) -> Growth:
    """What of `instance.start` fits, filled up; or, while the budget lasts, what grows from the
    sets behind the cuts, where that is more."""
    best = continued(instance)
    for core in relaxation.cores[:CORES_MAX]:
        if budget.spent():
            break
        best = _better(best, grown(instance, np.flatnonzero(core), shared=False))
    return best


def started(instance: Instance, relaxation: Relaxation, budget: SolverBudget) -> Growth:
    """The best choice that grows from one of the starts, as many as the budget has time for."""
    begun = budget.clock()
    best = grown(instance, (), shared=False)
    longest = budget.clock() - begun
    for start, shared in _starts(instance, relaxation):
        begun = budget.clock()
        if best.value >= relaxation.enough or budget.deadline - begun <= longest:
            break
        best = _better(best, grown(instance, start, shared=shared))
        longest = max(longest, budget.clock() - begun)
    if len(instance.queries) and best.value < instance.priorities.max():
        best = grown(instance, (int(instance.priorities.argmax()),), shared=False)
    return best


def continued(instance: Instance) -> Growth:
    """What of the last plan still fits, the densest queries first, filled up."""
    growth, last = Growth(instance), np.flatnonzero(instance.start)
    for query in last[np.argsort(-_densities(instance)[last], kind="stable")]:
        if growth.cost[query] <= growth.left:
            growth.add(int(query))
    growth.fill(growth.cost)
    return growth


def _better(best: Growth, other: Growth) -> Growth:
    return other if other.value > best.value else best


def counted_anew(instance: Instance, growth: Growth) -> Growth:
    """The same choice as far as it fits, without the rounding errors of thousands of moves."""
    if instance.fits(growth.chosen):
        return growth
    fresh = Growth(instance)
    for query in np.flatnonzero(growth.chosen):
        if fresh.cost[query] <= fresh.left:
            fresh.add(int(query))
    return fresh


def _starts(instance: Instance, relaxation: Relaxation) -> Iterator[tuple[tuple[int, ...], bool]]:
    """Sets to start from, each with whether to grow by shared costs."""
    for core in relaxation.cores[:CORES_MAX]:
        yield tuple(int(query) for query in np.flatnonzero(core)), False
    yield (), True
    if len(instance.queries):
        for single in (instance.priorities.argmax(), _densities(instance).argmax()):
            yield (int(single),), True
            yield (int(single),), False
    for pair in _pairs(instance):
        yield pair, True


def _densities(instance: Instance) -> FloatArray:
    shared_costs = instance.bundles_of.sums(instance.costs / instance.shares)
    densities: FloatArray = instance.priorities / np.maximum(shared_costs, SMALLEST_COST)
    return densities


def _pairs(instance: Instance) -> Iterator[tuple[int, int]]:
    """Affordable pairs of the densest queries, the densest pair first.

    The density of a pair is the sum of its priorities over what both cost together.
    """
    densest = np.argsort(-_densities(instance), kind="stable")[:PAIRED_QUERIES_MAX]
    if len(densest) < 2:
        return
    costs, overlaps = _overlaps(instance, densest)
    first, second = np.triu_indices(len(densest), k=1)
    together = costs[first] + costs[second] - overlaps[first, second]
    affordable = together <= instance.capacity + ROUNDING_CPU_PERCENT
    first, second, together = first[affordable], second[affordable], together[affordable]
    priorities = instance.priorities[densest]
    worth = priorities[first] + priorities[second]
    order = np.argsort(-worth / np.maximum(together, SMALLEST_COST), kind="stable")
    for i in order:
        yield int(densest[first[i]]), int(densest[second[i]])


def _overlaps(instance: Instance, queries: IntArray) -> tuple[FloatArray, FloatArray]:
    """Each query's cost, and the cost of the bundles that each two of them share."""
    needs = instance.bundles_of.matrix(len(instance.costs))[queries]
    weighted = needs.multiply(np.sqrt(instance.costs)).tocsr()
    overlaps: FloatArray = (weighted @ weighted.T).toarray()
    return instance.bundles_of.sums(instance.costs)[queries], overlaps


def improve(instance: Instance, growth: Growth, enough: float, budget: SolverBudget) -> None:
    """Take out a few, keep one of them out, fill up; keep it when it is no worse."""
    rng = np.random.default_rng(budget.seed)
    patience = max(REPAIRS_MIN, REPAIRS_PER_QUERY * len(instance.queries))
    stale = 0
    while stale < patience and growth.value < enough and not budget.spent():
        stale += 1
        before = growth.value
        dropped = _some_chosen(instance, growth, rng)
        if not dropped:
            return
        for query in dropped:
            growth.drop(query)
        costs = growth.cost if stale % 2 else growth.shared_cost
        added = growth.fill(costs, barred=dropped[:1])
        added += growth.fill(costs)
        if growth.value > before * (1 + 1e-12):
            stale = 0
        elif growth.value < before * (1 - 1e-12):
            for query in added:
                growth.drop(query)
            for query in dropped:
                growth.add(query)


def _some_chosen(instance: Instance, growth: Growth, rng: np.random.Generator) -> list[int]:
    """One to three chosen queries: any, or such that share a bundle."""
    chosen = np.flatnonzero(growth.chosen)
    if not len(chosen):
        return []
    first = int(rng.choice(chosen))
    if rng.random() < 0.5:
        bundle = int(rng.choice(instance.bundles_of.row(first)))
        sharing = instance.queries_of.row(bundle)
        chosen = sharing[growth.chosen[sharing]]
    others = chosen[chosen != first]
    count = min(len(others), math.floor(DROPPED_MAX * rng.random()))
    return [first, *(int(query) for query in rng.choice(others, count, replace=False))]
