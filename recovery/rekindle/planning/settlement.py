"""Makes a chosen set of queries placeable on the nodes that there are.

The solvers see the nodes as one capacity. Here the choice is placed; what does not fit is repaired
by giving up the least dense query that it belongs to, and what room remains goes to queries that
still place. Called by `solving`; `placement` knows how to place.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rekindle.planning.instance import ROUNDING_CPU_PERCENT, Budget
from rekindle.planning.loss import Loss
from rekindle.planning.placement import SEARCH_STEPS_MAX, Placement, place
from rekindle.problem import Problem

__all__ = ["Settled", "place_only", "settle"]

ANEW_PARTITIONS_MAX = 500  # beyond, placing all of them anew takes long and gains little
DROPPED_PART = 8  # of the queries in the way, one in so many is given up per round


@dataclass(frozen=True, slots=True)
class Settled:
    """The queries that run, and where all partitions that they lost go."""

    queries: frozenset[str]
    placement: Placement
    priority_sum: float


def place_only(problem: Problem, loss: Loss, chosen: Iterable[str], budget: Budget) -> Settled:
    """Place `chosen`, less what does not fit: for a baseline that shall not be improved."""
    return _Demand(problem, loss, budget).reduced(frozenset(chosen))


def settle(
    problem: Problem,
    loss: Loss,
    chosen: Iterable[str],
    budget: Budget,
    start: Iterable[str] = (),
) -> Settled:
    """Place `chosen`, then as many other candidates as go beside it, or the same with `start`,
    what the last plan chose, where that comes to more.

    While the budget lasts, every query left out may also come first, with the rest filled up
    around it. Independent of the budget, the result is never worse than the best query that
    places alone.
    """
    demand = _Demand(problem, loss, budget)
    wanted = frozenset(chosen)
    everyone = wanted | loss.candidates
    best = demand.filled(demand.reduced(wanted), demand.by_density(everyone))
    last = (loss.free | loss.candidates).intersection(start)
    if last - best.queries:
        again = demand.filled(demand.reduced(last), demand.by_density(everyone))
        best = max(best, again, key=lambda settled: settled.priority_sum)
    left_out = everyone - best.queries
    order = demand.by_density(best.queries) + demand.by_density(left_out)
    for query in sorted(left_out, key=lambda name: (-demand.priority(name), name)):
        if budget.spent() and demand.priority(query) <= best.priority_sum:
            break
        alone = demand.alone(query)
        if not alone.placement.unplaced:
            candidate = demand.filled(alone, order, hurried=True)
            best = max(best, candidate, key=lambda settled: settled.priority_sum)
    return best


class _Demand:
    """What each query lost, what that costs, and how it goes onto the nodes."""

    def __init__(self, problem: Problem, loss: Loss, budget: Budget) -> None:
        assert problem.nodes is not None, "only what has nodes is placed"
        self._problem = problem
        self._loss = loss
        self._nodes = problem.nodes
        self._budget = budget
        self._missing: dict[str, dict[str, float]] = {}

    def priority(self, query: str) -> float:
        return self._problem.queries[query].priority

    def missing(self, query: str) -> dict[str, float]:
        """The costs of all partitions that `query` lost."""
        if query not in self._missing:
            lost = self._loss.missing[query]
            self._missing[query] = {p: self._problem.partitions[p].cpu_percent for p in lost}
        return self._missing[query]

    def by_density(self, queries: Iterable[str]) -> list[str]:
        """Queries by priority over cost, the densest first."""
        prices = {q: sum(self.missing(q).values()) / self.priority(q) for q in queries}
        return sorted(prices, key=lambda query: (prices[query], query))

    def settled(self, queries: frozenset[str]) -> Settled:
        """All of `queries` placed from scratch; the placement says what does not fit."""
        costs: dict[str, float] = {}
        for query in sorted(queries):
            costs.update(self.missing(query))
        return self._settled(queries, self._place(costs, self._nodes))

    def alone(self, query: str) -> Settled:
        """One query on empty nodes, searched for whatever the budget."""
        return self._settled(frozenset([query]), place(self.missing(query), self._nodes))

    def reduced(self, queries: frozenset[str]) -> Settled:
        """`queries` without those, least dense first, whose partitions are in the way."""
        while (settled := self.settled(queries)).placement.unplaced:
            unplaced = set(settled.placement.unplaced)
            touched = self.by_density(
                q for q in queries if not unplaced.isdisjoint(self.missing(q))
            )
            queries -= frozenset(touched[-max(1, len(touched) // DROPPED_PART) :])
        return settled

    def filled(self, settled: Settled, order: Iterable[str], *, hurried: bool = False) -> Settled:
        """`settled` and every query of `order` that goes beside it.

        In a small plan, while the budget lasts, also what goes only with everything placed anew.
        In a hurry the end of the budget ends it.
        """
        for query in order:
            if hurried and self._budget.spent():
                break
            if query not in settled.queries:
                settled = self._joined(settled, query) or settled
        return settled

    def _joined(self, settled: Settled, query: str) -> Settled | None:
        there = settled.placement
        extra = {p: cost for p, cost in self.missing(query).items() if p not in there.node_of}
        room = sum(there.free_cpu_percent.values()) + ROUNDING_CPU_PERCENT
        if sum(extra.values()) > room:
            return None
        queries = settled.queries | {query}
        free = there.free_cpu_percent
        if max(extra.values(), default=0.0) <= max(free.values()) + ROUNDING_CPU_PERCENT:
            added = self._place(extra, free)
            if not added.unplaced:
                node_of = {**there.node_of, **added.node_of}
                return self._settled(queries, Placement(node_of, (), added.free_cpu_percent))
        if self._budget.spent() or len(there.node_of) > ANEW_PARTITIONS_MAX:
            return None
        anew = self.settled(queries)
        return None if anew.placement.unplaced else anew

    def _place(self, costs: Mapping[str, float], nodes: Mapping[str, float]) -> Placement:
        steps = 0 if self._budget.spent() else SEARCH_STEPS_MAX
        return place(costs, nodes, search_steps_max=steps)

    def _settled(self, queries: frozenset[str], placement: Placement) -> Settled:
        return Settled(queries, placement, sum(self.priority(q) for q in sorted(queries)))
