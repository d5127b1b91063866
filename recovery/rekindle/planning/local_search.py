"""Local search by swaps: one chosen query out, one in, whichever pair is worth most.

A tabu search. Each step makes the best swap that fits, also where it is worse than what is
there, and for some steps bars what it has touched; then what still fits is added. All pairs of a
chosen and another query are looked at, so it is for problems in which these are not too many
(`suits`). Called by `solver`.
"""

from collections.abc import Iterable

import numpy as np

from rekindle.planning.problem_arrays import (
    ROUNDING_CPU_PERCENT,
    BoolArray,
    FloatArray,
    Instance,
    IntArray,
    SolverBudget,
)

# A choice of queries that grows and shrinks, with the further cost of each query.
#
# Keeps, for every candidate, its cost and its shared cost over the bundles that nothing chosen
# needs yet, and updates both in time proportional to what changes. Does not know what is worth
# dropping or starting from: `density_search` does, and every solver's answer is filled up here.

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


# Looked at in one step. More may come while it goes on: then some of the chosen queries, by chance.
PAIRS_MAX = 200_000
# Steps without any gain, at least and for each query: then the best choice is disturbed, and after
# some of these the search ends.
PATIENCE_MIN, PATIENCE_PER_QUERY = 30, 2
DISTURBANCES_MAX = 10
# Steps for which what was put in stays in, and what was taken out stays out; some more by chance.
KEPT_STEPS, BARRED_STEPS, CHANCE_STEPS = 3, 7, 6
DISTURBED_SHARE = 0.3
# of the highest priority: what all capacity is worth where swaps are worth the same
TIE = 1e-6


def suits(growth: Growth) -> bool:
    """Whether the pairs of a chosen and another query are few enough to look at all of them."""
    return 0 < int(growth.chosen.sum()) * len(growth.chosen) <= PAIRS_MAX


def swap(instance: Instance, growth: Growth, enough: float, budget: SolverBudget) -> None:
    """Improve `growth` in place; never worse than before. Ends at a value of `enough`, with the
    budget, or after so many steps without any gain; the same for the same seed until then."""
    search = _Search(instance, growth, np.random.default_rng(budget.seed))
    patience = max(PATIENCE_MIN, PATIENCE_PER_QUERY * len(instance.queries))
    stale = disturbances = 0
    while search.best_value < enough and not budget.spent():
        if stale >= patience:
            disturbances += 1
            if disturbances > DISTURBANCES_MAX:
                break
            search.disturb()
            stale = 0
        stale += 1
        if search.step():
            stale = disturbances = 0
    search.restore()


class _Search:
    """Where the search is, the best that it has seen, and until which step queries are barred."""

    def __init__(self, instance: Instance, growth: Growth, rng: np.random.Generator) -> None:
        self._instance = instance
        self._growth = growth
        self._rng = rng
        self._now = 0
        self._barred_until: IntArray = np.zeros(len(instance.queries), dtype=np.int64)
        self.best: BoolArray = growth.chosen.copy()
        self.best_value = growth.value

    def step(self) -> bool:
        """One swap, or, where none fits, one query out; whether it is the best so far."""
        growth = self._growth
        self._now += 1
        free = self._barred_until <= self._now
        inside = np.flatnonzero(growth.chosen & free)
        pair = self._best_pair(inside, ~growth.chosen & free)
        if pair is None:
            self._drop_one()
        else:
            self._swap(*pair)
        self._fill()
        if growth.value <= self.best_value * (1 + 1e-12):
            return False
        self.best, self.best_value = growth.chosen.copy(), growth.value
        return True

    def disturb(self) -> None:
        """Begin again from the best choice, less some of it."""
        self.restore()
        self._barred_until[:] = 0
        chosen = np.flatnonzero(self._growth.chosen)
        count = max(1, round(DISTURBED_SHARE * len(chosen)))
        for query in self._rng.choice(chosen, min(count, len(chosen)), replace=False):
            self._drop(int(query))
        self._fill()

    def restore(self) -> None:
        """Back to the best choice."""
        growth = self._growth
        for query in np.flatnonzero(growth.chosen & ~self.best):
            growth.drop(int(query))
        for query in np.flatnonzero(self.best & ~growth.chosen):
            growth.add(int(query))

    def _best_pair(self, inside: IntArray, outside: BoolArray) -> tuple[int, int] | None:
        """The swap that fits and is worth most; of equals the one that leaves most free."""
        if not len(inside):
            return None
        rows = max(1, PAIRS_MAX // len(outside))
        if len(inside) > rows:
            inside = np.sort(self._rng.choice(inside, rows, replace=False))
        growth, priorities = self._growth, self._instance.priorities
        left = growth.left - growth.cost + self._released(inside)
        gains = priorities - priorities[inside][:, np.newaxis]
        worth = gains + left * (TIE * priorities.max() / self._instance.capacity)
        worth[:, ~outside] = -np.inf
        worth[left < 0] = -np.inf
        best = int(worth.argmax())
        if not np.isfinite(worth.flat[best]):
            return None
        row, column = divmod(best, len(priorities))
        return int(inside[row]), column

    def _released(self, inside: IntArray) -> FloatArray:
        """Per chosen and per other query, by how much there is more room for the one when the other
        goes: what nobody else needs comes free, except what both need."""
        instance, count = self._instance, len(self._instance.queries)
        owner = np.full(len(instance.costs), -1)
        for row, query in enumerate(inside):
            owner[instance.bundles_of.row(query)] = row
        alone = np.flatnonzero((self._growth.users == 1) & (owner >= 0))
        shares, costs, rows = instance.shares[alone], instance.costs[alone], owner[alone]
        needing = instance.queries_of.rows(alone)
        pairs = np.repeat(rows * count, shares) + needing
        shared = np.bincount(pairs, np.repeat(costs, shares), minlength=len(inside) * count)
        released = np.bincount(rows, costs, minlength=len(inside)).astype(float)
        room: FloatArray = released[:, np.newaxis] - shared.reshape(len(inside), count)
        return room

    def _drop_one(self) -> None:
        chosen = np.flatnonzero(self._growth.chosen)
        if len(chosen):
            self._drop(int(self._rng.choice(chosen)))

    def _fill(self) -> None:
        growth = self._growth
        barred = np.flatnonzero(self._barred_until > self._now)
        for query in growth.fill(growth.cost, barred=barred):
            self._barred_until[query] = self._until(KEPT_STEPS)

    def _drop(self, query: int) -> None:
        self._growth.drop(query)
        self._barred_until[query] = self._until(BARRED_STEPS)

    def _swap(self, out: int, into: int) -> None:
        """What fits only by sums that were rounded otherwise stays out."""
        self._drop(out)
        if self._growth.cost[into] <= self._growth.left:
            self._growth.add(into)
        self._barred_until[into] = self._until(KEPT_STEPS)

    def _until(self, steps: int) -> int:
        return self._now + steps + int(self._rng.integers(CHANCE_STEPS))
