"""Makes a chosen set of queries placeable on the nodes that there are.

The solvers see the nodes as one capacity. Here a choice is packed; what does not fit is repaired
by giving up the least dense queries, and what room remains goes to queries that still place. Called
by `solver`; `placement` knows how to place.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rekindle.model.plan_problem import NO_CAPACITY, UNPLACEABLE, Answer, Problem
from rekindle.planning.placement import SEARCH_STEPS_MAX, Packing, Placement, place, spread
from rekindle.planning.problem_arrays import ROUNDING_CPU_PERCENT, SolverBudget

# Sorts a problem's queries by their losses, before any choosing.


@dataclass(frozen=True, slots=True)
class LostQueries:
    """Queries that lost something, with the failed partitions that each needs (`missing`, ascending
    by id): `free` ones cost nothing to bring back, `candidates` can be chosen, `hopeless` ones
    (query -> reason) cannot. Queries that run are in none of them. `capacity_cpu_percent` is that
    of all nodes together.
    """

    capacity_cpu_percent: float
    missing: Mapping[str, tuple[str, ...]]
    free: frozenset[str]
    candidates: frozenset[str]
    hopeless: Mapping[str, str]


def sort_queries(problem: Problem) -> LostQueries:
    capacity, largest_node = problem.capacity_cpu_percent, math.inf
    if problem.nodes is not None:
        capacity = math.fsum(problem.nodes.values())
        largest_node = max(problem.nodes.values(), default=-math.inf)
    assert capacity is not None, "a problem has a capacity or nodes"
    missing, free, candidates, hopeless = {}, set(), set(), {}
    for query, demand in problem.queries.items():
        lost = tuple(sorted(problem.failed.intersection(demand.partitions)))
        if not lost:
            continue
        missing[query] = lost
        costs = [problem.partitions[partition].cpu_percent for partition in lost]
        if max(costs) > largest_node + ROUNDING_CPU_PERCENT:
            hopeless[query] = UNPLACEABLE
        elif sum(costs) > capacity + ROUNDING_CPU_PERCENT:
            hopeless[query] = NO_CAPACITY
        elif max(costs) == 0:
            free.add(query)
        else:
            candidates.add(query)
    return LostQueries(capacity, missing, frozenset(free), frozenset(candidates), hopeless)


ANEW_PARTITIONS_MAX = 500  # beyond, placing all of them anew takes long and gains little
EVENED_LATE_MAX = 10_000  # partitions that are placed in 50 ms


@dataclass(frozen=True, slots=True)
class RepairedPlacement:
    """The queries that run, and where all partitions that they lost go."""

    queries: frozenset[str]
    placement: Placement
    priority_sum: float


@dataclass(slots=True)
class _Plan:
    """Queries that all have their place, and room for more."""

    packing: Packing
    queries: set[str] = field(default_factory=set)


def place_only(demand: "LostDemand", chosen: Iterable[str]) -> RepairedPlacement:
    """Place `chosen`, less what does not fit: for a baseline that shall not be improved."""
    return demand.settled(demand.reduced(chosen))


def settle(
    demand: "LostDemand", choices: Sequence[frozenset[str]], start: Answer | None
) -> RepairedPlacement:
    """Place the first of `choices`, then as many other candidates as go beside it; or the same with
    `start`, the last plan, as it was placed, or with another choice, where that comes to more.

    While the budget lasts, every query left out may also come first, with the rest filled up
    around it. Independent of the budget, the result is never worse than the best query that
    places alone, nor than what of `start` still fits where it was.
    """
    everyone = choices[0] | demand.candidates
    best, *others = demand.completed(choices[0])
    kept = None
    if start is not None and not best.queries.issuperset(demand.lost(start)):
        kept = demand.filled(demand.kept(start), demand.by_density(everyone))
        others.append(kept)
    best = max([best, *others], key=lambda settled: settled.priority_sum)
    for choice in choices[1:]:
        if demand.limit.spent():
            break
        best = max([best, *demand.completed(choice)], key=lambda settled: settled.priority_sum)
    left_out = everyone - best.queries
    order = demand.by_density(best.queries) + demand.by_density(left_out)
    limit = demand.limit
    for query in sorted(left_out, key=lambda name: (-demand.priority(name), name)):
        if limit.spent() and demand.priority(query) <= best.priority_sum:
            break
        if (alone := demand.alone(query)) is not None:
            candidate = demand.filled(alone, order, limit)
            best = max(best, candidate, key=lambda settled: settled.priority_sum)
    return best if best is kept else demand.evened(best)


class LostDemand:
    """What each query lost, what that costs, and how it goes onto the nodes."""

    def __init__(self, problem: Problem, loss: LostQueries, budget: SolverBudget) -> None:
        assert problem.nodes is not None, "only what has nodes is placed"
        self.candidates = loss.candidates
        self._problem = problem
        self._loss = loss
        self._nodes = problem.nodes
        self._budget = budget
        self._packing_seconds = 0.0  # that packing a choice from scratch took
        self._missing: dict[str, dict[str, float]] = {}
        self._packed: dict[frozenset[str], tuple[Packing, dict[str, float]]] = {}

    @property
    def limit(self) -> SolverBudget:
        """The budget, less the time to place everything once more."""
        return self._budget.less(self._packing_seconds)

    def priority(self, query: str) -> float:
        return self._problem.queries[query].priority

    def missing(self, query: str) -> dict[str, float]:
        """The costs of all partitions that `query` lost, the largest first."""
        if query not in self._missing:
            costs = {p: self._problem.partitions[p].cpu_percent for p in self._loss.missing[query]}
            self._missing[query] = _descending(costs)
        return self._missing[query]

    def lost(self, start: Answer) -> frozenset[str]:
        """What of the last plan is lost, and could come back."""
        return (self._loss.free | self.candidates).intersection(start.queries)

    def by_density(self, queries: Iterable[str], placed: Iterable[str] = ()) -> list[str]:
        """Queries by priority over what they cost beside what is `placed`, the densest first."""
        paid = frozenset(placed)
        prices = {
            query: sum(cost for p, cost in self.missing(query).items() if p not in paid)
            / self.priority(query)
            for query in queries
        }
        return sorted(prices, key=lambda query: (prices[query], query))

    def unpacked(self, queries: frozenset[str]) -> dict[str, float]:
        """The costs of what does not go onto the nodes when all of `queries` is packed."""
        if queries not in self._packed:
            begun = self._budget.clock()
            self._packed[queries] = self._pack(queries)
            self._packing_seconds = max(self._packing_seconds, self._budget.clock() - begun)
        return self._packed[queries][1]

    def known_to_pack(self, queries: frozenset[str]) -> bool:
        """Whether all of `queries` was packed, and went onto the nodes."""
        return queries in self._packed and not self._packed[queries][1]

    def reduced(self, queries: Iterable[str], *, in_the_way: bool = True) -> _Plan:
        """`queries` without the least dense, as many as it takes; only such whose partitions are
        `in_the_way`, or, the first time, any."""
        kept = frozenset(queries)
        while over := self.unpacked(kept):
            del self._packed[kept]
            kept -= self._given_up(kept, over, in_the_way=in_the_way)
            in_the_way = True
        return _Plan(self._packed.pop(kept)[0], set(kept))

    def completed(self, queries: frozenset[str]) -> list[RepairedPlacement]:
        """`queries` reduced to what fits, and filled up: one way, or in a small plan two."""
        everyone = queries | self.candidates
        small = len(self._problem.failed) <= ANEW_PARTITIONS_MAX
        several = small and self.unpacked(queries) and not self._budget.spent()
        plans = [self.reduced(queries, in_the_way=False)]
        if several:
            plans.append(self.reduced(queries))
        return [
            self.filled(plan, self.by_density(everyone, plan.packing.node_of)) for plan in plans
        ]

    def kept(self, start: Answer) -> _Plan:
        """The last plan, as far as its partitions still fit where they were; then the rest of it
        as far as that fits beside."""
        node_of = {p: node for node, held in start.placement.items() for p in held}
        plan, moved = _Plan(Packing(self._nodes)), []
        for query in self.by_density(self.lost(start)):
            costs = self._beside(plan, query)
            if plan.packing.put_all(costs, node_of, elsewhere=False):
                plan.queries.add(query)
            else:
                moved.append(query)
        for query in moved:
            if plan.packing.put_all(self._beside(plan, query), node_of):
                plan.queries.add(query)
        return plan

    def alone(self, query: str) -> _Plan | None:
        """One query on empty nodes, searched for whatever the budget; None where it does not go."""
        packing = Packing(self._nodes)
        if not packing.put_all(self.missing(query)):
            placement = place(self.missing(query), self._nodes)
            if placement.unplaced:
                return None
            packing.put_all(self.missing(query), placement.node_of)
        return _Plan(packing, {query})

    def filled(
        self, plan: _Plan, order: Iterable[str], limit: SolverBudget | None = None
    ) -> RepairedPlacement:
        """`plan` and every query of `order` that goes beside it, as far as a `limit` allows.

        In a small plan, while the budget lasts, also what goes only with everything placed anew.
        """
        for query in order:
            if limit is not None and limit.spent():
                break
            if query not in plan.queries:
                self._join(plan, query)
        return self.settled(plan)

    def settled(self, plan: _Plan) -> RepairedPlacement:
        """What the plan comes to."""
        value = sum(self.priority(query) for query in sorted(plan.queries))
        placement = Placement(plan.packing.node_of, (), plan.packing.free)
        return RepairedPlacement(frozenset(plan.queries), placement, value)

    def evened(self, settled: RepairedPlacement) -> RepairedPlacement:
        """The same queries on evenly loaded nodes, where they go there that way."""
        if len(settled.placement.node_of) > EVENED_LATE_MAX and self._budget.spent():
            return settled
        placed = {p: self._problem.partitions[p].cpu_percent for p in settled.placement.node_of}
        even = spread(placed, self._nodes)
        return settled if even is None else replace(settled, placement=even)

    def _join(self, plan: _Plan, query: str) -> None:
        """Put `query` beside the plan, if that goes."""
        packing = plan.packing
        costs = self._beside(plan, query)
        if packing.put_all(costs):
            plan.queries.add(query)
        elif (
            sum(costs.values()) <= packing.left + ROUNDING_CPU_PERCENT
            and len(packing.node_of) <= ANEW_PARTITIONS_MAX
            and not self._budget.spent()
        ):
            placement = place(costs, packing.free)
            if not placement.unplaced:
                packing.put_all(costs, placement.node_of)
                plan.queries.add(query)
                return
            anew, over = self._pack({*plan.queries, query})
            if not over:
                plan.packing = anew
                plan.queries.add(query)

    def _beside(self, plan: _Plan, query: str) -> dict[str, float]:
        node_of = plan.packing.node_of
        return {p: cost for p, cost in self.missing(query).items() if p not in node_of}

    def _pack(self, queries: Iterable[str]) -> tuple[Packing, dict[str, float]]:
        """All of `queries` from scratch: the tightest first, and where that leaves something over
        by any way that there is time for; and the costs of what stays over."""
        needed: dict[str, float] = {}
        for query in sorted(queries):
            needed.update(self.missing(query))
        costs = _descending(needed)
        packing = Packing(self._nodes)
        over = {p: cost for p, cost in costs.items() if not packing.put(p, cost)}
        if over and (len(costs) <= ANEW_PARTITIONS_MAX or not self._budget.spent()):
            steps = 0 if self._budget.spent() else SEARCH_STEPS_MAX
            placement = place(costs, self._nodes, search_steps_max=steps)
            if not placement.unplaced:
                packing = Packing(self._nodes)
                packing.put_all(costs, placement.node_of)
                over = {}
        return packing, over

    def _given_up(
        self, queries: frozenset[str], over: Mapping[str, float], *, in_the_way: bool
    ) -> frozenset[str]:
        """The least dense of `queries`, so many that they free as much as is `over`. What several
        need counts for each of them in part, and is free when the last of them is given up."""
        users = Counter(p for query in queries for p in self.missing(query))
        touched = [
            q for q in queries if not in_the_way or not over.keys().isdisjoint(self.missing(q))
        ]
        prices = {
            query: sum(cost / users[p] for p, cost in self.missing(query).items())
            / self.priority(query)
            for query in touched
        }
        freed, wanted, gone = 0.0, sum(over.values()), set()
        for query in sorted(prices, key=lambda query: (-prices[query], query)):
            gone.add(query)
            for partition, cost in self.missing(query).items():
                users[partition] -= 1
                freed += cost if not users[partition] else 0.0
            if freed >= wanted:
                break
        return frozenset(gone)


def _descending(costs: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(costs.items(), key=lambda item: (-item[1], item[0])))
