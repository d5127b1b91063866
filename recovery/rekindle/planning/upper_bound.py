"""An upper bound on the value of any plan, by minimum cuts.

Lets no plan be called good without a certificate. The capacity is priced: every unit of cost is
charged λ, and what remains is a closure problem that one maximum flow solves (source → query with
its priority, query → bundle without limit, bundle → sink with λ × its cost). Used by `solver` for
every plan and by `density_search`, which starts from the sets behind the cuts.

Why it bounds: a flow pays out s(q, b) from query q for bundle b such that no query pays more than
its priority and no bundle receives more than λ × its cost. For every set S of queries whose
bundles B fit into the capacity R,

    Σ_S priority = Σ_S (priority - paid) + Σ_S paid ≤ (Σ_all priority - flow) + λ Σ_B cost
                 ≤ Σ_all priority - flow + λ R

for every λ ≥ 0 and every flow, maximal or not; so rounding capacities down to integers keeps it
valid. The smallest such value over λ equals that of the linear relaxation with one constraint
x(q) ≤ y(b) per pair, because the inner problem has integral corners.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from rekindle.planning.problem_arrays import (
    ROUNDING_CPU_PERCENT,
    BoolArray,
    FloatArray,
    Instance,
    SolverBudget,
)

CUTS_MAX = 40
UNITS = 2**30  # of flow for the sum of priorities: scipy's flows are 32-bit integers


@dataclass(frozen=True, slots=True)
class Relaxation:
    """`upper_bound` on the sum of priorities, and `cores`: affordable sets behind the cuts."""

    upper_bound: float
    cores: tuple[BoolArray, ...]

    @property
    def enough(self) -> float:
        """The sum of priorities from which on a choice is proved to be the best."""
        return sufficient(self.upper_bound)


def sufficient(upper_bound: float) -> float:
    """The sum of priorities from which on nothing above `upper_bound` could be better."""
    return upper_bound * (1 - 1e-12)


@dataclass(frozen=True, slots=True)
class _Corner:
    """The best set of candidates at one price of capacity."""

    chosen: BoolArray
    value: float
    cost: float


def relax(instance: Instance, budget: SolverBudget) -> Relaxation:
    """Bound `instance`; at least one cut, more until the price is right or the budget spent.

    Each price is where the best affordable and the best unaffordable set known so far are worth
    the same (the lower envelope of their lines, Newton's method on the Lagrangian dual).
    """
    nothing = _Corner(np.zeros(len(instance.queries), dtype=bool), 0.0, 0.0)
    everything = _corner(instance, np.ones(len(instance.queries), dtype=bool))
    capacity = instance.capacity + ROUNDING_CPU_PERCENT
    if everything.cost <= capacity:
        return Relaxation(everything.value, (everything.chosen,))
    below, above, best = nothing, everything, everything.value
    cores: list[BoolArray] = []
    for cut in range(CUTS_MAX):
        if cut and budget.spent():
            break
        price = (above.value - below.value) / (above.cost - below.cost)
        bound, chosen = _cut(instance, capacity, price)
        best = min(best, bound)
        corner = _corner(instance, chosen)
        if corner.cost <= capacity:
            cores.append(chosen)
            if corner.cost <= below.cost:
                break
            below = corner
        else:
            if corner.cost >= above.cost:
                break
            above = corner
        if above.value <= below.value:
            break
    return Relaxation(whole(instance.priorities, best), tuple(reversed(cores)))


def _corner(instance: Instance, chosen: BoolArray) -> _Corner:
    return _Corner(chosen, instance.value(chosen), instance.cost(chosen))


def _cut(instance: Instance, capacity: float, price: float) -> tuple[float, BoolArray]:
    """The bound at `price` and the candidates on the source's side of the minimum cut."""
    queries, bundles = len(instance.queries), len(instance.costs)
    source, sink = 0, queries + bundles + 1
    total = float(instance.priorities.sum())
    scale = UNITS / total
    worth = np.floor(instance.priorities * scale)
    toll = np.floor(np.minimum(price * scale * instance.costs, UNITS))
    payer = instance.bundles_of.row_of_each()
    tails = np.concatenate([np.full(queries, source), 1 + payer, np.arange(1 + queries, sink)])
    heads = np.concatenate(
        [
            np.arange(1, 1 + queries),
            1 + queries + instance.bundles_of.indices,
            np.full(bundles, sink),
        ]
    )
    limits = np.concatenate([worth, worth[payer], toll]).astype(np.int32)
    network = csr_array((limits, (tails, heads)), shape=(sink + 1, sink + 1))
    result = maximum_flow(network, source, sink)
    residual = csr_array(network - result.flow)
    residual.eliminate_zeros()
    reached = np.zeros(sink + 1, dtype=bool)
    reached[breadth_first_order(residual, source, return_predecessors=False)] = True
    bound = price * capacity + total - float(result.flow_value) / scale
    return bound, reached[1 : 1 + queries]


def whole(priorities: FloatArray, bound: float) -> float:
    """`bound` rounded down where all priorities, and so all sums of them, are whole numbers."""
    if np.all(priorities == np.floor(priorities)):
        return float(np.floor(bound + 1e-6))
    return bound
