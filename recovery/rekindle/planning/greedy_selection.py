"""A choice of queries that grows and shrinks, with the further cost of each query.

Keeps, for every candidate, its cost and its shared cost over the bundles that nothing chosen needs
yet, and updates both in time proportional to what changes. Does not know what is worth dropping or
starting from: `density_search` does, and every solver's answer is filled up here.
"""

from collections.abc import Iterable

import numpy as np

from rekindle.planning.problem_arrays import (
    ROUNDING_CPU_PERCENT,
    BoolArray,
    FloatArray,
    Instance,
    IntArray,
)

SMALLEST_COST = 1e-12  # keeps the density of a query that costs nothing more finite


class Growth:
    """A choice that fits into the capacity.

    `cost[q]` is what adding q costs now, in percent of one core; `shared_cost[q]` the same with
    each bundle's cost divided by the number of candidates that need it (the denominator of
    Definition 3 in the paper, section 5; a bundle that nothing chosen needs is shared by
    unrecovered queries only, so the number never changes). `users[b]` counts the chosen queries
    that need bundle b; `left` is free capacity, `value` the sum of priorities.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._cost_per_share = instance.costs / instance.shares
        self.chosen: BoolArray = np.zeros(len(instance.queries), dtype=bool)
        self.users: IntArray = np.zeros(len(instance.costs), dtype=np.int64)
        self.cost: FloatArray = instance.bundles_of.sums(instance.costs)
        self.shared_cost: FloatArray = instance.bundles_of.sums(self._cost_per_share)
        self.left = instance.capacity + ROUNDING_CPU_PERCENT
        self.value = 0.0

    def add(self, query: int) -> None:
        bundles = self._instance.bundles_of.row(query)
        self._charge(bundles[self.users[bundles] == 0], -1.0)
        self.users[bundles] += 1
        self.chosen[query] = True
        self.value += float(self._instance.priorities[query])

    def drop(self, query: int) -> None:
        bundles = self._instance.bundles_of.row(query)
        self.users[bundles] -= 1
        self._charge(bundles[self.users[bundles] == 0], 1.0)
        self.chosen[query] = False
        self.value -= float(self._instance.priorities[query])

    def fill(self, costs: FloatArray, barred: Iterable[int] = ()) -> list[int]:
        """Add the affordable query of the highest priority / `costs` until none is left.

        `costs` is `cost` or `shared_cost`; both follow each pick (Algorithm 3, lines 21 to 31).
        A query that has become too expensive stays so: what a pick saves it, the pick has itself
        taken from `left`. Returns what was added, in order; ties go to the smaller index.
        """
        added: list[int] = []
        affordable = ~self.chosen & (self.cost <= self.left)
        affordable[list(barred)] = False
        waiting = np.flatnonzero(affordable)
        while len(waiting):
            prices = np.maximum(costs[waiting], SMALLEST_COST)
            query = int(waiting[(self._instance.priorities[waiting] / prices).argmax()])
            self.add(query)
            added.append(query)
            waiting = waiting[(self.cost[waiting] <= self.left) & (waiting != query)]
        return added

    def _charge(self, bundles: IntArray, sign: float) -> None:
        """Bundles come into (-1) or go out of (+1) the choice: tell all that need them."""
        if not len(bundles):
            return
        costs, shares = self._instance.costs[bundles], self._instance.shares[bundles]
        self.left += sign * float(costs.sum())
        needing = self._instance.queries_of.rows(bundles)
        np.add.at(self.cost, needing, sign * np.repeat(costs, shares))
        np.add.at(
            self.shared_cost, needing, sign * np.repeat(self._cost_per_share[bundles], shares)
        )


def grown(instance: Instance, queries: Iterable[int], *, shared: bool) -> Growth:
    """A choice that starts with `queries`, which fit together, and is filled up by density:
    with shared costs (the paper's) or with plain ones.
    """
    growth = Growth(instance)
    for query in queries:
        growth.add(int(query))
    growth.fill(growth.shared_cost if shared else growth.cost)
    return growth
