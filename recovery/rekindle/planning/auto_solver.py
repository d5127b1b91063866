"""Solver auto, for problems that are too large to be solved exactly in any case.

The last plan and the starts of best-density grow by density, in a share of the budget. Where the
best of them comes near the bound, as it does where few partitions are shared by many, HiGHS gets a
share to find the best plan. Unless it proves one, a local search makes the best of all better: by
swaps where the pairs of a chosen and another query are few enough, else by taking out and filling
up; what swaps leave of the budget is best-density's.
"""

import numpy as np

from rekindle.planning import density_search, local_search
from rekindle.planning.density_search import best_density
from rekindle.planning.greedy_selection import Growth, grown
from rekindle.planning.mixed_integer import program
from rekindle.planning.problem_arrays import Instance, QuerySelection, SolverBudget
from rekindle.planning.upper_bound import Relaxation, sufficient

__all__ = ["combined", "refined"]

STARTS_SHARE = 0.2  # of the budget; the rest is HiGHS's and the local search's
PROGRAM_SHARE = 0.5  # of what is left then, at most, for HiGHS
SWAPS_SHARE = 0.6  # of what is left then, where the rest is enough for best-density
# HiGHS is asked up to so many pairs of query and bundle, if the best choice that has grown is at
# most so far below the bound: then it proves a best plan in 0.01 to 0.3 s of CPU up to 2,000 pairs
# and in about 1 s at 3,500; further below, it finds nothing in seconds.
PROGRAM_PAIRS_MAX = 2_500
PROGRAM_GAP_MAX = 0.1


def combined(instance: Instance, relaxation: Relaxation, budget: SolverBudget) -> QuerySelection:
    """Never worse than the best single query, nor than what of `instance.start` still fits, nor,
    while the budget is not spent, than best-density; deterministic so long."""
    begun = budget.clock()
    best = density_search.started(instance, relaxation, budget.part(STARTS_SHARE))
    growing_seconds = budget.clock() - begun
    if instance.start.any():
        best = max(density_search.continued(instance), best, key=lambda growth: growth.value)
    return _improved(instance, best, relaxation, budget, growing_seconds)


def refined(instance: Instance, relaxation: Relaxation, budget: SolverBudget) -> QuerySelection:
    """The same, but from `instance.start` and the sets behind the bound's cuts only."""
    begun = budget.clock()
    best = density_search.restarted(instance, relaxation, budget)
    return _improved(instance, best, relaxation, budget, budget.clock() - begun)


def _improved(
    instance: Instance,
    best: Growth,
    relaxation: Relaxation,
    budget: SolverBudget,
    growing_seconds: float,
) -> QuerySelection:
    """By HiGHS and local search; `growing_seconds` took what best-density would have to repeat."""
    upper_bound = relaxation.upper_bound
    if not budget.spent() and _suits_program(instance, best, relaxation):
        found = program(instance, budget.part(PROGRAM_SHARE).left_seconds())
        if found is not None:
            value = instance.value(found.chosen)
            upper_bound = min(upper_bound, value if found.optimal else found.upper_bound)
            if value > best.value:
                best = grown(instance, np.flatnonzero(found.chosen), shared=False)
    enough = sufficient(upper_bound)
    swapped = local_search.suits(best)
    spare = (1 - SWAPS_SHARE) * budget.left_seconds() > growing_seconds
    if swapped:
        local_search.swap(instance, best, enough, budget.part(SWAPS_SHARE) if spare else budget)
    else:
        density_search.improve(instance, best, enough, budget)
    chosen = density_search.counted_anew(instance, best).chosen
    if swapped and spare and instance.value(chosen) < enough:
        other = best_density(instance, relaxation, budget).chosen
        chosen = max(chosen, other, key=instance.value)
    return QuerySelection(chosen, instance.value(chosen) >= enough, upper_bound)


def _suits_program(instance: Instance, best: Growth, relaxation: Relaxation) -> bool:
    near = (1 - PROGRAM_GAP_MAX) * relaxation.upper_bound <= best.value < relaxation.enough
    return near and len(instance.bundles_of.indices) <= PROGRAM_PAIRS_MAX
