"""Dynamic programming over sets of bundles, after the paper's Appendix B: exact, exponential.

Query by query, every set of bundles that some affordable choice needs is kept once, with its best
choice. The paper walks the same sets in order of their cost. Made for checking the other solvers:
it refuses more queries than it can go through.
"""

import numpy as np

from rekindle.model.errors import InputError
from rekindle.planning.greedy_selection import grown
from rekindle.planning.problem_arrays import (
    ROUNDING_CPU_PERCENT,
    Instance,
    QuerySelection,
    SolverBudget,
)
from rekindle.planning.upper_bound import Relaxation

QUERIES_MAX = 20


def dynamic_programming(
    instance: Instance, relaxation: Relaxation, budget: SolverBudget
) -> QuerySelection:
    """The best plan; where the budget ends first, the best one so far, filled up by density.

    Raises InputError above 20 queries.
    """
    count = len(instance.queries)
    if count > QUERIES_MAX:
        raise InputError(
            where="solver dp",
            what=f"would have to go through up to 2^{count} plans for {count} lost queries",
            remedy=f"use best-density, or exact; dp takes at most {QUERIES_MAX}",
        )
    best, complete = _best_choice(instance, budget)
    filled = grown(instance, [q for q in range(count) if best >> q & 1], shared=False)
    return QuerySelection(filled.chosen, optimal=complete or filled.value >= relaxation.enough)


def _best_choice(instance: Instance, budget: SolverBudget) -> tuple[int, bool]:
    """The chosen queries as bits, and whether all choices were gone through.

    A plan is (value, choice, cost) under the bits of its bundles; of two plans with the same
    bundles the better one is kept. Plans that can no longer beat the best one go.
    """
    masks = [
        sum(1 << int(bundle) for bundle in instance.bundles_of.row(query))
        for query in range(len(instance.queries))
    ]
    limit = instance.capacity + ROUNDING_CPU_PERCENT
    to_come = [*np.cumsum(instance.priorities[::-1])[::-1].tolist(), 0.0]
    plans: dict[int, tuple[float, int, float]] = {0: (0.0, 0, 0.0)}
    best = (0.0, 0)
    for query, mask in enumerate(masks):
        priority = float(instance.priorities[query])
        plans = {b: plan for b, plan in plans.items() if plan[0] + to_come[query] >= best[0]}
        for bundles, (value, choice, cost) in list(plans.items()):
            if budget.spent():
                return best[1], False
            total = cost + _cost(instance, mask & ~bundles)
            known = plans.get(bundles | mask)
            if total > limit or (known and known[0] >= value + priority):
                continue
            plans[bundles | mask] = (value + priority, choice | 1 << query, total)
            best = max(best, (value + priority, choice | 1 << query))
    return best[1], True


def _cost(instance: Instance, bundles: int) -> float:
    total = 0.0
    while bundles:
        lowest = bundles & -bundles
        total += float(instance.costs[lowest.bit_length() - 1])
        bundles ^= lowest
    return total
