"""The exact solvers: `dp`, dynamic programming, and `exact`, a mixed-integer program for HiGHS.

Dynamic programming over sets of bundles is after the paper's Appendix B, and exponential. Query by
query, every set of bundles that some affordable choice needs is kept once, with its best choice.
The paper walks the same sets in order of their cost. Made for checking the other solvers: it
refuses more queries than it can go through.
"""

import math
from dataclasses import replace

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult, milp
from scipy.sparse import coo_array

from rekindle.model.errors import InputError
from rekindle.planning.density_search import best_density
from rekindle.planning.local_search import grown
from rekindle.planning.problem_arrays import (
    ROUNDING_CPU_PERCENT,
    BoolArray,
    Instance,
    QuerySelection,
    SolverBudget,
)
from rekindle.planning.upper_bound import Relaxation, whole

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


# Exact: the plan as a mixed-integer program, solved by HiGHS under the time budget.
#
#     maximise Σ priority(q) x(q)   with   x(q) ≤ y(b) for every bundle b that query q needs,
#                                          Σ cost(b) y(b) ≤ capacity,  x binary,  0 ≤ y ≤ 1
#
# One row per pair (disaggregated) is much tighter than one per query, and y needs no integrality.
# Hopeless for hundreds of heavily shared queries; `solver` chooses it for small problems. HiGHS
# may print a line to the process's standard output; who prints there himself keeps it away.

SEARCH_SHARE = 0.7  # of the budget, for HiGHS; best-density gets the rest where that is too short
SECONDS_MIN = 0.01
RESOLUTION = 1e-5  # HiGHS tells no priority from 0 that is much less than 1e-6 of the highest
TOLERANCE = 1e-6  # of HiGHS, for constraints and for its bound
OPTIMAL = 0  # status of scipy's milp


def exact(instance: Instance, relaxation: Relaxation, budget: SolverBudget) -> QuerySelection:
    """The best plan; where the budget ends first, the better of HiGHS's and best-density's."""
    quick = best_density(instance, relaxation, budget.part(0))
    if quick.optimal or not len(instance.queries):
        return quick
    found = program(instance, budget.part(SEARCH_SHARE).left_seconds())
    if found is not None and found.optimal:
        return found
    fallback = best_density(instance, relaxation, budget)
    if found is None:
        return fallback
    if instance.value(found.chosen) < instance.value(fallback.chosen):
        return replace(fallback, upper_bound=found.upper_bound)
    return found


def program(instance: Instance, seconds: float) -> QuerySelection | None:
    """HiGHS's plan, checked with our own sums: it allows itself to be a little over capacity.

    `seconds` are those of the machine's clock, for HiGHS reads no other.
    """
    result = milp(
        -_objective(instance),
        constraints=_constraints(instance),
        integrality=_objective(instance) > 0,
        bounds=Bounds(0, 1),
        options={"time_limit": max(SECONDS_MIN, seconds), "mip_rel_gap": 0},
    )
    if result.x is None:
        return None
    chosen: BoolArray = result.x[: len(instance.queries)] > 0.5
    if not instance.fits(chosen):
        return None
    filled = grown(instance, np.flatnonzero(chosen), shared=False).chosen
    comparable = float(instance.priorities.min() / instance.priorities.max()) > RESOLUTION
    if not comparable:
        return QuerySelection(filled)
    return QuerySelection(filled, result.status == OPTIMAL, _upper_bound(instance, result))


def _upper_bound(instance: Instance, result: OptimizeResult) -> float:
    """HiGHS's bound in our unit, with room for the errors that it allows itself."""
    if result.mip_dual_bound is None or not math.isfinite(result.mip_dual_bound):
        return math.inf
    bound = -float(result.mip_dual_bound) * float(instance.priorities.max())
    return whole(instance.priorities, bound * (1 + TOLERANCE))


def _objective(instance: Instance) -> np.typing.NDArray[np.float64]:
    """Priorities, scaled to at most 1, of the x; zeros for the y."""
    priorities = instance.priorities / instance.priorities.max()
    return np.concatenate([priorities, np.zeros(len(instance.costs))])


def _constraints(instance: Instance) -> list[LinearConstraint]:
    queries, bundles = len(instance.queries), len(instance.costs)
    pairs = len(instance.bundles_of.indices)
    rows = np.tile(np.arange(pairs), 2)
    columns = np.concatenate(
        [instance.bundles_of.row_of_each(), queries + instance.bundles_of.indices]
    )
    signs = np.repeat([1.0, -1.0], pairs)
    needs = coo_array((signs, (rows, columns)), shape=(pairs, queries + bundles)).tocsr()
    scale = max(instance.capacity, float(instance.costs.max()))
    load = np.concatenate([np.zeros(queries), instance.costs / scale])
    return [
        LinearConstraint(needs, -np.inf, 0),
        LinearConstraint(load[np.newaxis, :], -np.inf, instance.capacity / scale),
    ]
