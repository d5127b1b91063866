"""Solver auto, for problems that are too large to be solved exactly.

The last plan and the starts of best-density grow by density, in a share of the budget; then a local
search makes the best of them better: by swaps where the pairs of a chosen and another query are
few enough, else by taking out and filling up.
"""

from rekindle.planning import density, swaps
from rekindle.planning.bound import Relaxation
from rekindle.planning.instance import Budget, Instance, Selection

__all__ = ["combined"]

STARTS_SHARE = 0.2  # of the budget; the rest is the local search's


def combined(instance: Instance, relaxation: Relaxation, budget: Budget) -> Selection:
    """Never worse than the best single query, nor than what of `instance.start` still fits;
    deterministic while the budget is not spent."""
    enough = relaxation.enough
    best = density.started(instance, relaxation, budget.part(STARTS_SHARE))
    if instance.start.any():
        best = max(density.continued(instance), best, key=lambda growth: growth.value)
    if swaps.suits(best):
        swaps.swap(instance, best, enough, budget)
    else:
        density.improve(instance, best, enough, budget)
    best = density.counted_anew(instance, best)
    return Selection(best.chosen, optimal=best.value >= enough)
