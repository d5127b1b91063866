"""Operator-centric: the baseline that restarts partitions, not queries (paper, section 7).

Takes partitions in topological order, the cheapest first, while they fit; a query is back when all
its partitions happen to be. A problem names no edges, so the number of lost queries that need a
partition stands for its place in the order: what is upstream is needed by at least as many.
Partitions that complete no query take capacity here and are left out of the plan.
"""

import numpy as np

from rekindle.planning.problem_arrays import (
    ROUNDING_CPU_PERCENT,
    Instance,
    QuerySelection,
    SolverBudget,
)
from rekindle.planning.upper_bound import Relaxation

__all__ = ["operator_centric"]


def operator_centric(
    instance: Instance, relaxation: Relaxation, budget: SolverBudget
) -> QuerySelection:
    """The baseline's choice; needs no bound and hardly any time."""
    del relaxation, budget
    order = sorted(
        (-int(instance.shares[bundle]), cost, name, bundle)
        for bundle, names in enumerate(instance.bundles)
        for name, cost in zip(names, instance.partition_costs[bundle], strict=True)
    )
    missing = np.array([len(names) for names in instance.bundles], dtype=np.int64)
    left = instance.capacity + ROUNDING_CPU_PERCENT
    for _, cost, _, bundle in order:
        if cost <= left:
            left -= cost
            missing[bundle] -= 1
    incomplete = instance.bundles_of.sums((missing > 0).astype(float))
    return QuerySelection(incomplete == 0)
