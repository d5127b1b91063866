"""From a problem to an answer: sorts the queries, bounds, chooses, places, gives reasons.

`solve` is what everyone calls: the coordinator for every plan, the command `rekindle plan`, the
benchmarks. Reads time only through the clock that it is given.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from rekindle.errors import InputError
from rekindle.planning.bound import Relaxation, relax
from rekindle.planning.combination import combined
from rekindle.planning.density import best_density, continued
from rekindle.planning.enumeration import dynamic_programming
from rekindle.planning.instance import Budget, Instance, Selection, from_problem
from rekindle.planning.loss import Loss, sort_queries
from rekindle.planning.mixed_integer import exact
from rekindle.planning.operator_order import operator_centric
from rekindle.planning.outcome import Certificate, answer
from rekindle.planning.placement import Placement
from rekindle.planning.settlement import Settled, place_only, settle
from rekindle.problem import Answer, Problem

__all__ = ["AUTO", "SOLVERS", "Solver", "solve"]

Solver = Callable[[Instance, Relaxation, Budget], Selection]

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

EXACT_QUERIES_MAX = 60  # with at most
EXACT_BUNDLES_MAX = 200  # "auto" takes the exact solver
BOUND_SHARE = 0.25  # of the budget, unless it is done sooner
CHOICE_SHARE = 0.9  # of what is left then: the answer is written with the rest, or,
SOLVER_SHARE = 0.85  # of what is left then, where nodes have to be filled afterwards


def solve(
    problem: Problem,
    *,
    clock: Callable[[], float],
    solver: str = AUTO,
    budget_seconds: float = 1.0,
    seed: int = 0,
    start: Collection[str] = (),
) -> Answer:
    """Choose the queries to bring back (paper, sections 2.3 and 5) and place their partitions.

    `clock` gives seconds and never goes back. Whatever the budget, there is an answer with a
    bound; while it is not spent, the answer depends on problem, solver, seed and start only.
    `start` are queries of the last plan: without nodes the answer is not worse than what of these
    still fits (`operator-centric` has no use for them). Raises InputError for an unknown solver, a
    budget or a seed below 0, and for more queries than `dp` takes.
    """
    _check(solver, budget_seconds, seed)
    started = clock()
    budget = Budget(clock, started + budget_seconds, seed)
    loss = sort_queries(problem)
    lost = {query: loss.missing[query] for query in loss.candidates}
    instance = from_problem(problem, lost, loss.capacity_cpu_percent, start)
    relaxation = relax(instance, budget.part(BOUND_SHARE))
    name = _named(solver, instance)
    working = budget.part(SOLVER_SHARE if problem.nodes is not None else CHOICE_SHARE)
    selection = _BY_NAME[name](instance, relaxation, working)
    if name != OPERATOR_CENTRIC:
        selection = _no_worse(instance, selection)
    settled = _settled(problem, loss, instance.taken(selection.chosen), start, name, budget)
    reachable = min(relaxation.upper_bound, selection.upper_bound)
    if selection.optimal:
        reachable = instance.value(selection.chosen)
    bound = reachable + sum(problem.queries[query].priority for query in sorted(loss.free))
    certificate = Certificate(name, seed, bound, wasteful=name == OPERATOR_CENTRIC)
    plan = answer(problem, loss, settled, certificate)
    return replace(plan, seconds=clock() - started)


def _check(solver: str, budget_seconds: float, seed: int) -> None:
    if solver not in _BY_NAME:
        remedy = f"use one of {', '.join((AUTO, *SOLVERS))}"
        raise InputError(where="solver", what=f"{solver!r} is not known", remedy=remedy)
    if not (budget_seconds >= 0 and math.isfinite(budget_seconds)):
        remedy = "give a number of seconds from 0"
        raise InputError(where="budget-seconds", what=f"is {budget_seconds}", remedy=remedy)
    if seed < 0:
        raise InputError(where="seed", what=f"is {seed}", remedy="give a whole number from 0")


def _named(solver: str, instance: Instance) -> str:
    if solver != AUTO:
        return solver
    small = len(instance.queries) <= EXACT_QUERIES_MAX and len(instance.costs) <= EXACT_BUNDLES_MAX
    return EXACT if small else AUTO


def _no_worse(instance: Instance, selection: Selection) -> Selection:
    """What was selected, or what of the last plan still fits where that is worth more."""
    if not instance.start.any():
        return selection
    last = continued(instance)
    worse = last.value > instance.value(selection.chosen) and instance.fits(last.chosen)
    return replace(selection, chosen=last.chosen, optimal=False) if worse else selection


def _settled(
    problem: Problem,
    loss: Loss,
    selected: frozenset[str],
    start: Collection[str],
    solver: str,
    budget: Budget,
) -> Settled:
    """The selected queries and all that cost nothing, on nodes where there are any."""
    chosen = loss.free | selected
    if problem.nodes is None:
        priority_sum = sum(problem.queries[query].priority for query in sorted(chosen))
        return Settled(chosen, Placement({}, (), {}), priority_sum)
    if solver == OPERATOR_CENTRIC:
        return place_only(problem, loss, chosen, budget)
    return settle(problem, loss, chosen, budget, start)
