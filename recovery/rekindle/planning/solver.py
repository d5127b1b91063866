"""From a problem to an answer: sorts the queries, bounds, chooses, places, gives reasons.

`solve` is what everyone calls: the coordinator for every plan, the command `rekindle plan`, the
benchmarks. Reads time only through the clock that it is given.

The solver `auto` is for problems that are too large to be solved exactly in any case. The last plan
and the starts of best-density grow by density, in a share of the budget. Where the best of them
comes near the bound, as it does where few partitions are shared by many, HiGHS gets a share to find
the best plan. Unless it proves one, a local search makes the best of all better: by swaps where the
pairs of a chosen and another query are few enough, else by taking out and filling up; what swaps
leave of the budget is best-density's.

`operator-centric` is the baseline that restarts partitions, not queries (paper, section 7). It
takes partitions in topological order, the cheapest first, while they fit; a query is back when all
its partitions happen to be. A problem names no edges, so the number of lost queries that need a
partition stands for its place in the order: what is upstream is needed by at least as many.
Partitions that complete no query take capacity here and are left out of the plan.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from rekindle.model.errors import InputError
from rekindle.model.plan_problem import (
    DOES_NOT_FIT_A_NODE,
    NO_CAPACITY,
    RUNNING,
    UNPLACEABLE,
    WHOLE_NUMBER_MAX,
    Answer,
    Problem,
)
from rekindle.planning import density_search, local_search
from rekindle.planning.density_search import best_density, continued
from rekindle.planning.exact_search import dynamic_programming, exact, program
from rekindle.planning.local_search import Growth, grown
from rekindle.planning.placement import Placement
from rekindle.planning.placement_repair import (
    LostDemand,
    LostQueries,
    RepairedPlacement,
    place_only,
    settle,
    sort_queries,
)
from rekindle.planning.problem_arrays import (
    ROUNDING_CPU_PERCENT,
    Instance,
    QuerySelection,
    SolverBudget,
    from_problem,
)
from rekindle.planning.upper_bound import Relaxation, relax, sufficient

# Builds the answer: the chosen queries, a certificate, and a reason for each query left out.

PROVED = 1e-9  # relative gap that counts as none


@dataclass(frozen=True, slots=True)
class Optimum:
    """Who chose, and the sum of priorities that no choice exceeds. A `wasteful` solver spends
    capacity on what completes no query, so what is left says nothing about who would have fit.
    """

    solver: str
    seed: int
    upper_bound: float
    wasteful: bool = False


def answer(
    problem: Problem, loss: LostQueries, settled: RepairedPlacement, certificate: Optimum
) -> Answer:
    """The answer, without its `seconds`."""
    partitions = _missing(loss, settled.queries)
    used = _cost(problem, partitions)
    left = max(0.0, loss.capacity_cpu_percent - used)
    skipped = {
        query: _reason(problem, loss, query, partitions, left, certificate.wasteful)
        for query in sorted(problem.queries)
        if query not in settled.queries
    }
    fragmented = problem.nodes is not None and any(
        _cost(problem, _missing(loss, [query]) - partitions) <= left + ROUNDING_CPU_PERCENT
        for query, reason in skipped.items()
        if reason in (DOES_NOT_FIT_A_NODE, UNPLACEABLE)
    )
    bound = max(certificate.upper_bound, settled.priority_sum)
    if bound - settled.priority_sum <= PROVED * bound:
        bound = settled.priority_sum
    return Answer(
        status="optimal" if bound == settled.priority_sum else "feasible",
        solver=certificate.solver,
        seed=certificate.seed,
        queries=tuple(sorted(settled.queries)),
        skipped=skipped,
        partitions=tuple(sorted(partitions)),
        placement=_by_node(settled.placement),
        priority_sum=settled.priority_sum,
        used_cpu_percent=used,
        fragmentation_cpu_percent=left if fragmented else 0.0,
        upper_bound=bound,
        gap=(bound - settled.priority_sum) / bound if bound else 0.0,
        seconds=0.0,
    )


def _reason(
    problem: Problem,
    loss: LostQueries,
    query: str,
    there: frozenset[str],
    left_cpu_percent: float,
    wasteful: bool,
) -> str:
    missing = _missing(loss, [query])
    if not missing:
        return RUNNING
    if query in loss.hopeless:
        return loss.hopeless[query]
    dear = _cost(problem, missing - there) > left_cpu_percent + ROUNDING_CPU_PERCENT
    return NO_CAPACITY if dear or wasteful or problem.nodes is None else DOES_NOT_FIT_A_NODE


def _missing(loss: LostQueries, queries: Iterable[str]) -> frozenset[str]:
    return frozenset(p for query in queries for p in loss.missing.get(query, ()))


def _cost(problem: Problem, partitions: Iterable[str]) -> float:
    return math.fsum(problem.partitions[partition].cpu_percent for partition in partitions)


def _by_node(placement: Placement) -> Mapping[str, tuple[str, ...]]:
    held: dict[str, list[str]] = {}
    for partition, node in sorted(placement.node_of.items()):
        held.setdefault(node, []).append(partition)
    return {node: tuple(held[node]) for node in sorted(held)}


# Chooses for the total free CPU of the nodes, and for less where that does not pack.
#
# What is left over on nodes is lost, and by how much depends on sizes that the solvers do not
# see: of 500 nodes with 68.4 percent free each, costs in whole percents leave at least 200
# percent unused. A choice for the sum then has to be repaired, which costs far more than choosing
# for what can be used. So a first choice is packed, and what stays over says by how much the next
# is made smaller. `placement_repair` packs and repairs.

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


AUTO = "auto"
BEST_DENSITY = "best-density"
EXACT = "exact"
OPERATOR_CENTRIC = "operator-centric"
SOLVERS: Mapping[str, Solver] = {
    BEST_DENSITY: best_density,
    "dp": dynamic_programming,
    EXACT: exact,
    OPERATOR_CENTRIC: operator_centric,
}

_BY_NAME: Mapping[str, Solver] = {**SOLVERS, AUTO: combined}
_REFINING: Mapping[str, Solver] = {
    BEST_DENSITY: density_search.refined,
    AUTO: refined,
}  # from a start

EXACT_QUERIES_MAX = 60  # with at most
EXACT_BUNDLES_MAX = 200  # "auto" takes the exact solver
RELAXATION_SHARE = 0.25  # of the budget, unless it is done sooner
CHOICE_SHARE = 0.9  # of what is left then: the answer is written with the rest, or,
SOLVER_SHARE = 0.85  # of what is left then, where nodes have to be filled afterwards; unless
# either takes longer. Making arrays of the problem is measured on the way, and nothing else that
# grows with it in the same way comes sooner.
PLACING_PER_PREPARATION = 1.5
ANSWER_PER_PREPARATION = 0.5


@dataclass(frozen=True, slots=True)
class _Case:
    """What is solved, by which solver, from which last plan."""

    problem: Problem
    loss: LostQueries
    instance: Instance
    relaxation: Relaxation
    solver: str
    start: Answer | None


def solve(
    problem: Problem,
    *,
    clock: Callable[[], float],
    solver: str = AUTO,
    budget_seconds: float = 1.0,
    seed: int = 0,
    start: Answer | None = None,
) -> Answer:
    """Choose the queries to bring back (paper, sections 2.3 and 5) and place their partitions.

    `clock` gives seconds and never goes back. Whatever the budget, there is an answer with a
    bound; while it is not spent, the answer depends on problem, solver, seed and start only.
    `start` is the last plan: the answer is not worse than what of it still fits, with nodes where
    it was placed (`operator-centric` has no use for it). Raises InputError for an unknown solver, a
    budget below 0, a seed that is not from 0 to 2^63 - 1, and for more queries than `dp` takes.
    """
    _check(solver, budget_seconds, seed)
    begun = clock()
    budget = SolverBudget(clock, begun + budget_seconds, seed)
    loss = sort_queries(problem)
    lost = {query: loss.missing[query] for query in loss.candidates}
    last = () if start is None else start.queries
    instance = from_problem(problem, lost, loss.capacity_cpu_percent, last)
    prepared_seconds = clock() - begun
    relaxation = relax(instance, budget.part(RELAXATION_SHARE))
    case = _Case(problem, loss, instance, relaxation, _named(solver, instance), start)
    answering = budget.less(ANSWER_PER_PREPARATION * prepared_seconds)
    if problem.nodes is None:
        choosing = _sooner(budget.part(CHOICE_SHARE), answering)
        selection, settled = _in_one_piece(case, choosing)
    else:
        placing = answering.less(PLACING_PER_PREPARATION * prepared_seconds)
        choosing = _sooner(answering.part(SOLVER_SHARE), placing)
        selection, settled = _on_nodes(case, LostDemand(problem, loss, answering), choosing)
    reachable = min(relaxation.upper_bound, selection.upper_bound)
    if selection.optimal:
        reachable = instance.value(selection.chosen)
    bound = reachable + sum(problem.queries[query].priority for query in sorted(loss.free))
    certificate = Optimum(case.solver, seed, bound, case.solver == OPERATOR_CENTRIC)
    plan = answer(problem, loss, settled, certificate)
    return replace(plan, seconds=clock() - begun)


def _sooner(one: SolverBudget, other: SolverBudget) -> SolverBudget:
    return min(one, other, key=lambda budget: budget.deadline)


def _check(solver: str, budget_seconds: float, seed: int) -> None:
    if solver not in _BY_NAME:
        remedy = f"use one of {', '.join((AUTO, *SOLVERS))}"
        raise InputError(where="solver", what=f"{solver!r} is not known", remedy=remedy)
    if not (budget_seconds >= 0 and math.isfinite(budget_seconds)):
        remedy = "give a number of seconds from 0"
        raise InputError(where="budget-seconds", what=f"is {budget_seconds}", remedy=remedy)
    if not 0 <= seed <= WHOLE_NUMBER_MAX:
        what = f"is {seed}" if seed < 0 else "is beyond all limits"
        remedy = f"give a whole number from 0 to {WHOLE_NUMBER_MAX}"
        raise InputError(where="seed", what=what, remedy=remedy)


def _named(solver: str, instance: Instance) -> str:
    if solver != AUTO:
        return solver
    small = len(instance.queries) <= EXACT_QUERIES_MAX and len(instance.costs) <= EXACT_BUNDLES_MAX
    return EXACT if small else AUTO


def _selected(case: _Case, budget: SolverBudget) -> QuerySelection:
    solver = _BY_NAME[case.solver]
    if case.solver == OPERATOR_CENTRIC:
        return solver(case.instance, case.relaxation, budget)
    return _no_worse_than_last(solver, case.instance, case.relaxation, budget)


def _no_worse_than_last(
    solver: Solver, instance: Instance, relaxation: Relaxation, budget: SolverBudget
) -> QuerySelection:
    """What is selected, or what of the last plan still fits where that is worth more."""
    selection = solver(instance, relaxation, budget)
    if not instance.start.any():
        return selection
    last = continued(instance)
    worse = last.value > instance.value(selection.chosen) and instance.fits(last.chosen)
    return replace(selection, chosen=last.chosen, optimal=False) if worse else selection


def _in_one_piece(case: _Case, budget: SolverBudget) -> tuple[QuerySelection, RepairedPlacement]:
    """The selection, and with it all that costs nothing."""
    selection = _selected(case, budget)
    chosen = case.loss.free | case.instance.taken(selection.chosen)
    priority_sum = sum(case.problem.queries[query].priority for query in sorted(chosen))
    return selection, RepairedPlacement(chosen, Placement({}, (), {}), priority_sum)


def _on_nodes(
    case: _Case, demand: LostDemand, budget: SolverBudget
) -> tuple[QuerySelection, RepairedPlacement]:
    """The selection for the sum of the nodes, and the best plan that goes onto them."""
    instance, free = case.instance, case.loss.free

    def named(selection: QuerySelection) -> frozenset[str]:
        return free | instance.taken(selection.chosen)

    if case.solver == OPERATOR_CENTRIC:
        selection = _selected(case, budget)
        return selection, place_only(demand, named(selection))
    solve = partial(_no_worse_than_last, _BY_NAME[case.solver])
    selections = chosen_for_nodes(
        instance,
        case.relaxation,
        (solve, _REFINING.get(case.solver, solve)),
        lambda selection: sum(demand.unpacked(named(selection)).values()),
        budget,
    )
    choices = sorted(
        {named(selection): instance.value(selection.chosen) for selection in selections}.items(),
        key=lambda item: (bool(demand.known_to_pack(item[0])), item[1]),
        reverse=True,
    )
    return selections[0], settle(demand, [choice for choice, _ in choices], case.start)
