"""From a problem to an answer: sorts the queries, bounds, chooses, places, gives reasons.

`solve` is what everyone calls: the coordinator for every plan, the command `rekindle plan`, the
benchmarks. Reads time only through the clock that it is given.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from rekindle.model.errors import InputError
from rekindle.model.plan_problem import WHOLE_NUMBER_MAX, Answer, Problem
from rekindle.planning import density_search
from rekindle.planning.answer_builder import Optimum, answer
from rekindle.planning.auto_solver import combined, refined
from rekindle.planning.capacity_search import Solver, chosen_for_nodes
from rekindle.planning.density_search import best_density, continued
from rekindle.planning.dynamic_programming import dynamic_programming
from rekindle.planning.lost_queries import LostQueries, sort_queries
from rekindle.planning.mixed_integer import exact
from rekindle.planning.operator_centric import operator_centric
from rekindle.planning.placement import Placement
from rekindle.planning.placement_repair import LostDemand, RepairedPlacement, place_only, settle
from rekindle.planning.problem_arrays import Instance, QuerySelection, SolverBudget, from_problem
from rekindle.planning.upper_bound import Relaxation, relax

__all__ = ["AUTO", "SOLVERS", "Solver", "solve"]

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
BOUND_SHARE = 0.25  # of the budget, unless it is done sooner
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
    relaxation = relax(instance, budget.part(BOUND_SHARE))
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
