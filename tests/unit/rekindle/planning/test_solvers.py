"""Choosing queries: limits that every solver keeps, and how good the answers are."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rekindle import planning
from rekindle.model.errors import InputError
from rekindle.model.plan_problem import Answer, PartitionCost, Problem, QueryDemand

TOLERANCE = 1e-6
SOLVERS = ["auto", *planning.SOLVERS]
# Operator-centric is the baseline: it promises neither the best single query nor free ones beside.
GOOD = ["auto", "best-density", "dp", "exact"]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    costs = draw(st.lists(st.integers(0, 20), min_size=1, max_size=8))
    partitions = {f"p/{i}": PartitionCost(cost / 10) for i, cost in enumerate(costs)}
    names = st.sampled_from(sorted(partitions))
    demands = draw(st.lists(st.tuples(st.integers(1, 10), st.sets(names)), max_size=7))
    queries = {
        f"q/{i}": QueryDemand(priority / 2, tuple(sorted(needed)))
        for i, (priority, needed) in enumerate(demands)
    }
    failed = frozenset(draw(st.sets(names)))
    return Problem(partitions, queries, failed, draw(st.integers(0, 60)) / 10)


def solve(problem: Problem, solver: str = "auto", budget_seconds: float = 1.0) -> Answer:
    """With a clock that stands still: the budget never ends, the limits of the solvers do."""
    return planning.solve(problem, clock=lambda: 0.0, solver=solver, budget_seconds=budget_seconds)


def missing(problem: Problem, *queries: str) -> frozenset[str]:
    return problem.failed.intersection(
        partition for query in queries for partition in problem.queries[query].partitions
    )


def cost(problem: Problem, *queries: str) -> float:
    return sum(problem.partitions[p].cpu_percent for p in missing(problem, *queries))


def fits(problem: Problem, *queries: str) -> bool:
    return cost(problem, *queries) <= (problem.capacity_cpu_percent or 0.0) + 1e-9


def best_sum(problem: Problem) -> float:
    """The highest sum of priorities, by trying every set of queries."""
    lost = [query for query in problem.queries if missing(problem, query)]
    return max(
        sum(problem.queries[query].priority for query in chosen)
        for count in range(len(lost) + 1)
        for chosen in itertools.combinations(lost, count)
        if fits(problem, *chosen)
    )


@settings(max_examples=80)
@given(problems(), st.sampled_from(SOLVERS))
def test_a_plan_never_exceeds_the_capacity(problem: Problem, solver: str) -> None:
    answer = solve(problem, solver)
    used = sum(problem.partitions[partition].cpu_percent for partition in answer.partitions)
    assert used <= (problem.capacity_cpu_percent or 0.0) + TOLERANCE
    assert answer.used_cpu_percent == pytest.approx(used)


@settings(max_examples=80)
@given(problems(), st.sampled_from(SOLVERS))
def test_a_plan_holds_all_that_its_queries_lost_and_nothing_else(
    problem: Problem, solver: str
) -> None:
    answer = solve(problem, solver)
    assert set(answer.partitions) == missing(problem, *answer.queries)
    assert set(answer.queries) | set(answer.skipped) == set(problem.queries)
    assert not set(answer.queries) & set(answer.skipped)


@settings(max_examples=60)
@given(problems(), st.sampled_from(GOOD))
def test_a_plan_is_never_worse_than_its_best_single_query(problem: Problem, solver: str) -> None:
    answer = solve(problem, solver)
    for query, demand in problem.queries.items():
        if missing(problem, query) and fits(problem, query):
            assert answer.priority_sum >= demand.priority - TOLERANCE


@settings(max_examples=60)
@given(problems())
def test_exact_and_dynamic_programming_find_the_best_plan_and_the_others_do_not_exceed_it(
    problem: Problem,
) -> None:
    best = pytest.approx(best_sum(problem))
    answers = {solver: solve(problem, solver) for solver in SOLVERS}
    assert answers["exact"].priority_sum == best
    assert answers["dp"].priority_sum == best
    assert answers["auto"].priority_sum == best
    assert {answers[solver].status for solver in ("exact", "dp", "auto")} == {"optimal"}
    for answer in answers.values():
        assert answer.priority_sum <= answers["exact"].priority_sum + TOLERANCE


@settings(max_examples=60)
@given(problems(), st.sampled_from(SOLVERS), st.sampled_from([0.0, 1.0]))
def test_the_bound_is_never_below_the_best_plan(
    problem: Problem, solver: str, budget_seconds: float
) -> None:
    answer = solve(problem, solver, budget_seconds)
    assert answer.upper_bound >= best_sum(problem) - TOLERANCE
    assert answer.upper_bound >= answer.priority_sum
    expected = (answer.upper_bound - answer.priority_sum) / (answer.upper_bound or 1.0)
    assert answer.gap == pytest.approx(expected)
    assert 0 <= answer.gap <= 1


@settings(max_examples=60)
@given(problems(), st.sampled_from(GOOD))
def test_every_skipped_query_has_its_reason(problem: Problem, solver: str) -> None:
    answer = solve(problem, solver)
    for query, reason in answer.skipped.items():
        assert reason == ("no-capacity" if missing(problem, query) else "running")
        if reason == "no-capacity":
            assert not fits(problem, *answer.queries, query)


@settings(max_examples=40)
@given(problems(), st.sampled_from(SOLVERS))
def test_a_query_that_costs_nothing_is_always_in(problem: Problem, solver: str) -> None:
    answer = solve(problem, solver)
    for query in problem.queries:
        if missing(problem, query) and cost(problem, query) == 0:
            assert query in answer.queries


def shared_tree(queries: int, partitions: int, seed: int) -> Problem:
    """Queries over partitions of which some are shared by many (a rank-size rule)."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, partitions + 1)
    needed = [
        np.unique(rng.choice(partitions, rng.integers(5, 21), p=weights / weights.sum()))
        for _ in range(queries)
    ]
    costs = rng.integers(1, 11, partitions)
    used = sorted({int(partition) for chosen in needed for partition in chosen})
    return Problem(
        {f"p/{i}": PartitionCost(float(costs[i])) for i in range(partitions)},
        {
            f"q/{i}": QueryDemand(float(rng.integers(1, 11)), tuple(f"p/{p}" for p in chosen))
            for i, chosen in enumerate(needed)
        },
        frozenset(f"p/{i}" for i in range(partitions)),
        0.3 * float(costs[used].sum()),
    )


def test_a_large_problem_gets_a_plan_near_its_bound_without_any_budget() -> None:
    answer = solve(shared_tree(400, 1_000, seed=1), budget_seconds=0.0)
    assert answer.solver == "auto"
    assert answer.queries
    assert 0 < answer.gap < 0.2


def test_best_density_beats_the_operator_centric_baseline_by_far() -> None:
    problem = shared_tree(60, 150, seed=2)
    baseline = solve(problem, "operator-centric", 0.0)
    assert solve(problem, "best-density", 0.0).priority_sum > 1.3 * baseline.priority_sum


def test_the_same_seed_gives_the_same_answer_whatever_the_order_of_the_problem() -> None:
    problem = shared_tree(18, 100, seed=3)
    turned = replace(
        problem,
        partitions=dict(reversed(problem.partitions.items())),
        queries=dict(reversed(problem.queries.items())),
    )
    for solver in SOLVERS:
        assert solve(problem, solver) == solve(turned, solver)


def test_three_tenths_fit_into_the_sum_of_three_tenths() -> None:
    names = ("a", "b", "c")
    problem = Problem(
        dict.fromkeys(names, PartitionCost(0.1)),
        {"q": QueryDemand(1.0, names)},
        frozenset(names),
        0.3,
    )
    for solver in SOLVERS:
        assert solve(problem, solver).queries == ("q",)


def test_partitions_that_run_already_cost_nothing() -> None:
    problem = Problem(
        {"source": PartitionCost(90.0, running_on="n1"), "sink": PartitionCost(10.0)},
        {"q": QueryDemand(1.0, ("source", "sink")), "r": QueryDemand(9.0, ("source",))},
        frozenset({"sink"}),
        10.0,
    )
    answer = solve(problem)
    assert (answer.queries, answer.partitions) == (("q",), ("sink",))
    assert answer.skipped == {"r": "running"}
    assert (answer.priority_sum, answer.used_cpu_percent) == (1.0, 10.0)


def test_nothing_lost_is_an_empty_plan_without_a_gap() -> None:
    answer = solve(Problem({}, {}, frozenset(), 100.0))
    assert (answer.queries, answer.upper_bound, answer.gap) == ((), 0.0, 0.0)


@pytest.mark.parametrize(
    ("room", "reason"),
    [
        ({"capacity_cpu_percent": 0.0}, "no-capacity"),
        ({"capacity_cpu_percent": 4.9}, "no-capacity"),
        ({"nodes": {"n": 4.9}}, "unplaceable"),
        ({"nodes": {}}, "unplaceable"),
    ],
)
def test_less_than_any_query_needs_is_an_empty_plan_and_the_best(
    room: dict[str, Any], reason: str
) -> None:
    partitions = {"a": PartitionCost(5.0), "b": PartitionCost(6.0)}
    queries = {"q": QueryDemand(1.0, ("a",)), "r": QueryDemand(2.0, ("a", "b"))}
    answer = solve(Problem(partitions, queries, frozenset(partitions), **room))
    assert (answer.queries, answer.status) == ((), "optimal")
    assert (answer.priority_sum, answer.upper_bound, answer.gap) == (0.0, 0.0, 0.0)
    assert set(answer.skipped.values()) == {reason}


def test_sizes_that_are_worlds_apart_do_no_harm() -> None:
    problem = Problem(
        {"dust": PartitionCost(1e-9), "rock": PartitionCost(1e11), "stone": PartitionCost(3.0)},
        {
            "tiny": QueryDemand(1e-6, ("dust",)),
            "huge": QueryDemand(1e11, ("rock",)),
            "some": QueryDemand(4.0, ("stone", "dust")),
        },
        frozenset({"dust", "rock", "stone"}),
        5.0,
    )
    for solver in SOLVERS:
        assert solve(problem, solver).queries == ("some", "tiny")


class Ticking:
    """A clock that moves on by a fixed time whenever it is read."""

    def __init__(self, step_seconds: float) -> None:
        self.now = 0.0
        self._step_seconds = step_seconds

    def __call__(self) -> float:
        self.now += self._step_seconds
        return self.now


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_solver_stops_soon_after_its_budget(solver: str) -> None:
    clock = Ticking(0.01)
    problem = shared_tree(20, 100, seed=4)
    answer = planning.solve(problem, clock=clock, solver=solver, budget_seconds=0.5)
    assert answer.seconds < 1.0
    assert answer.upper_bound >= answer.priority_sum > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"solver": "magic"}, "solver: 'magic' is not known; use one of auto, best-density"),
        ({"budget_seconds": -1.0}, "budget-seconds: is -1.0; give a number of seconds from 0"),
        ({"budget_seconds": float("nan")}, "budget-seconds: is nan"),
        ({"budget_seconds": float("inf")}, "budget-seconds: is inf"),
        ({"seed": -1}, "seed: is -1; give a whole number from 0"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as refused:
        planning.solve(Problem({}, {}, frozenset(), 1.0), clock=lambda: 0.0, **arguments)  # type: ignore[arg-type]
    assert message in str(refused.value)


def test_dynamic_programming_refuses_more_queries_than_it_can_go_through() -> None:
    with pytest.raises(InputError) as refused:
        solve(shared_tree(40, 100, seed=5), "dp")
    assert "solver dp: would have to go through up to 2^" in str(refused.value)
    assert "use best-density, or exact" in str(refused.value)
