"""Chooses for the total free CPU of the nodes, and for less where that does not pack.

What is left over on nodes is lost, and by how much depends on sizes that the solvers do not see: of
500 nodes with 68.4 percent free each, costs in whole percents leave at least 200 percent unused.
A choice for the sum then has to be repaired, which costs far more than choosing for what can be
used. So a first choice is packed, and what stays over says by how much the next is made smaller.
Called by `solver`; `placement_repair` packs and repairs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from rekindle.planning.problem_arrays import (
    ROUNDING_CPU_PERCENT,
    Instance,
    QuerySelection,
    SolverBudget,
)
from rekindle.planning.upper_bound import Relaxation, relax

Solver = Callable[[Instance, Relaxation, SolverBudget], QuerySelection]

CHOICES_MAX = 6
FIRST_SHARE = 0.4  # of the budget, for the first choice
NEXT_SHARE = 0.5  # of what is left then, for each other
BOUND_SHARE = 0.25  # of that, unless the bound is found sooner
NEAR = 0.002  # of all capacity: what packs and what does not are not told apart any closer


def chosen_for_nodes(
    instance: Instance,
    relaxation: Relaxation,
    solvers: tuple[Solver, Solver],
    over: Callable[[QuerySelection], float],
    budget: SolverBudget,
) -> list[QuerySelection]:
    """Choices for the sum of the nodes and for less, the first for the sum.

    The first of `solvers` begins, the second goes on from what was found (`Instance.start`).
    `over` says how many percent of CPU of a choice do not go onto the nodes.
    """
    solve, refine = solvers
    share = budget.part(FIRST_SHARE)
    selections = [solve(instance, relaxation, share)]
    capacities = _Capacities(instance.capacity)
    dearest = float(instance.bundles_of.sums(instance.costs).max(initial=0.0))
    while len(selections) < CHOICES_MAX and not budget.spent():
        last, unfinished = selections[-1], share.spent()
        capacities.learn(instance.cost(last.chosen), over(last))
        capacity = capacities.next(unfinished=unfinished)
        late_seconds = -share.left_seconds()
        if capacity is None or capacity < dearest or budget.left_seconds() <= late_seconds:
            break
        share = budget.part(NEXT_SHARE)
        smaller = replace(instance, capacity=capacity, start=last.chosen)
        selections.append(refine(smaller, relax(smaller, share.part(BOUND_SHARE)), share))
    return selections


@dataclass(slots=True)
class _Capacities:
    """What is known of how much packs: choices that cost `packed` did, such that cost `overfull`
    did not, and of these at most `usable` found its place."""

    whole: float
    packed: float = 0.0
    usable: float = 0.0
    overfull: float = math.inf

    def learn(self, cost: float, over: float) -> None:
        """Of a choice of this cost, so much did not go onto the nodes."""
        if over > ROUNDING_CPU_PERCENT:
            self.overfull = min(self.overfull, cost)
        else:
            self.packed = max(self.packed, cost)
        self.usable = max(self.usable, cost - over)

    def next(self, *, unfinished: bool) -> float | None:
        """For how much to choose next; None where another choice would hardly be better."""
        if math.isinf(self.overfull):
            return self.whole if unfinished else None
        target = self.usable
        if target >= self.overfull - ROUNDING_CPU_PERCENT:  # tried, and did not pack
            target = (self.packed + self.overfull) / 2
        if target - self.packed > NEAR * self.whole or unfinished:
            return target
        return None
