"""What auto does with problems that are too large to be solved exactly."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rekindle import planning
from rekindle.model.plan_problem import Answer, PartitionCost, Problem, QueryDemand
from rekindle.planning import density_search, local_search
from rekindle.planning.density_search import best_density
from rekindle.planning.local_search import grown
from rekindle.planning.placement_repair import sort_queries
from rekindle.planning.problem_arrays import Instance, SolverBudget, from_problem
from rekindle.planning.solver import combined
from rekindle.planning.upper_bound import relax
from rekindle_testing.problem_builders import dense_union, shared_by_pareto, shared_by_zipf

UNLIMITED = SolverBudget(lambda: 0.0, 1.0)
SPENT = SolverBudget(lambda: 0.0, -1.0)


def instance_of(problem: Problem, start: tuple[str, ...] = ()) -> Instance:
    loss = sort_queries(problem)
    lost = {query: loss.missing[query] for query in loss.candidates}
    return from_problem(problem, lost, loss.capacity_cpu_percent, start)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    costs = draw(st.lists(st.integers(1, 20), min_size=1, max_size=8))
    names = [f"p/{number}" for number in range(len(costs))]
    demands = draw(
        st.lists(
            st.tuples(st.integers(1, 10), st.sets(st.sampled_from(names), min_size=1)),
            min_size=1,
            max_size=8,
        )
    )
    return Problem(
        {name: PartitionCost(float(cost)) for name, cost in zip(names, costs, strict=True)},
        {
            f"q/{number}": QueryDemand(float(priority), tuple(sorted(needed)))
            for number, (priority, needed) in enumerate(demands)
        },
        frozenset(names),
        float(draw(st.integers(1, 60))),
    )


def best_value(instance: Instance) -> float:
    count = len(instance.queries)
    choices = (np.array([bool(bits >> i & 1) for i in range(count)]) for bits in range(1 << count))
    return max(instance.value(choice) for choice in choices if instance.fits(choice))


@settings(max_examples=60)
@given(problems(), st.sampled_from([UNLIMITED, SPENT]))
def test_a_choice_fits_and_lies_between_the_best_query_and_the_best_choice(
    problem: Problem, budget: SolverBudget
) -> None:
    instance = instance_of(problem)
    if not instance.queries:
        return
    relaxation = relax(instance, budget)
    selection = combined(instance, relaxation, budget)
    value = instance.value(selection.chosen)
    best = best_value(instance)
    assert instance.fits(selection.chosen)
    assert float(instance.priorities.max()) <= value <= best
    assert relaxation.upper_bound >= best * (1 - 1e-9)
    if selection.optimal:
        assert value == best


@settings(max_examples=40)
@given(problems(), st.integers(0, 3))
def test_swaps_make_nothing_worse_and_exceed_no_capacity(problem: Problem, seed: int) -> None:
    instance = instance_of(problem)
    if not instance.queries:
        return
    growth = grown(instance, (), shared=True)
    before = growth.value
    local_search.swap(instance, growth, float("inf"), replace(UNLIMITED, seed=seed))
    assert growth.value >= before
    assert instance.fits(growth.chosen)
    assert growth.value == pytest.approx(instance.value(growth.chosen))


def test_swaps_find_what_growing_by_density_cannot() -> None:
    """The densest query is in the way of a better one."""
    problem = Problem(
        {"a": PartitionCost(2.0), "b": PartitionCost(10.0)},
        {"dense": QueryDemand(3.0, ("a",)), "better": QueryDemand(10.0, ("b",))},
        frozenset({"a", "b"}),
        10.0,
    )
    instance = instance_of(problem)
    growth = grown(instance, (1,), shared=False)
    assert instance.taken(growth.chosen) == {"dense"}
    local_search.swap(instance, growth, float("inf"), UNLIMITED)
    assert instance.taken(growth.chosen) == {"better"}


@settings(max_examples=40)
@given(problems(), st.integers(0, 20), st.sampled_from(["auto", "best-density", "dp", "exact"]))
def test_more_capacity_never_makes_a_plan_worse_that_starts_from_the_last_one(
    problem: Problem, more: int, solver: str
) -> None:
    def solved(given: Problem, start: Answer | None = None) -> Answer:
        return planning.solve(
            given, clock=lambda: 0.0, solver=solver, budget_seconds=0.0, start=start
        )

    last = solved(problem)
    larger = replace(problem, capacity_cpu_percent=(problem.capacity_cpu_percent or 0.0) + more)
    assert solved(larger, last).priority_sum >= last.priority_sum


def test_of_a_last_plan_that_does_not_fit_any_more_the_rest_counts() -> None:
    problem = dense_union(30, 60, 3, density=0.15, capacity_share=0.8)
    last = planning.solve(problem, clock=lambda: 0.0, solver="best-density")
    assert problem.capacity_cpu_percent is not None
    smaller = replace(problem, capacity_cpu_percent=last.used_cpu_percent - 1.0)
    instance = instance_of(smaller, last.queries)
    continued = instance.value(density_search.continued(instance).chosen)
    assert 0.8 * last.priority_sum < continued < last.priority_sum
    again = planning.solve(smaller, clock=lambda: 0.0, budget_seconds=0.0, start=last)
    assert again.priority_sum >= continued


def test_one_large_query_beside_many_small_ones_is_no_reason_to_look_at_all_pairs() -> None:
    """The first swap lets so many in that all pairs would be a hundred times as many."""
    names = [f"p/{number}" for number in range(2_000)]
    problem = Problem(
        {name: PartitionCost(1.0) for name in names},
        {
            "large": QueryDemand(5_000.0, tuple(names)),
            **{f"q/{n}": QueryDemand(3.0, (name,)) for n, name in enumerate(names)},
        },
        frozenset(names),
        2_000.0,
    )
    instance = instance_of(problem)
    growth = grown(instance, (instance.queries.index("large"),), shared=False)
    ticks = iter(range(20))
    budget = SolverBudget(lambda: float(next(ticks)), 10.0)
    local_search.swap(instance, growth, float("inf"), budget)
    assert growth.value >= 5_000.0


def test_on_dense_sharing_auto_finds_more_than_best_density_alone() -> None:
    instance = instance_of(dense_union(35, 60, 7, density=0.15, capacity_share=0.8))
    relaxation = relax(instance, UNLIMITED)
    auto, other = (
        instance.value(solver(instance, relaxation, UNLIMITED).chosen)
        for solver in (combined, best_density)
    )
    assert auto >= other


class Steps:
    """A clock that a step of a search moves on, and the speed of the machine does not."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.1
        return self.now


@pytest.mark.parametrize(("queries", "exponent"), [(61, 0.4), (150, 0.7)])
def test_where_few_partitions_are_shared_by_many_auto_proves_the_best_plan(
    queries: int, exponent: float
) -> None:
    problem = shared_by_pareto(queries, 2 * queries, 0, exponent=exponent, capacity_share=0.2)
    best = planning.solve(problem, clock=Steps(), solver="exact", budget_seconds=60.0)
    answer = planning.solve(problem, clock=Steps(), budget_seconds=60.0)
    assert best.status == answer.status == "optimal"
    assert answer.solver == "auto"
    assert answer.priority_sum == best.priority_sum


@pytest.mark.parametrize("seed", range(4))
def test_while_the_budget_lasts_auto_is_never_worse_than_best_density(seed: int) -> None:
    instance = instance_of(shared_by_zipf(20, 40, seed, exponent=0.3, capacity_share=0.8))
    relaxation, budget = relax(instance, UNLIMITED), replace(UNLIMITED, seed=seed)
    auto, other = (
        instance.value(solver(instance, relaxation, budget).chosen)
        for solver in (combined, best_density)
    )
    assert auto >= other


def test_the_same_seed_gives_the_same_choice() -> None:
    instance = instance_of(dense_union(35, 60, 8, density=0.15, capacity_share=0.8))
    relaxation, budget = relax(instance, UNLIMITED), replace(UNLIMITED, seed=3)
    first, second = (combined(instance, relaxation, budget).chosen for _ in range(2))
    assert np.array_equal(first, second)


def test_the_bound_is_that_of_the_linear_relaxation_by_networkx() -> None:
    """At the best of some prices: priorities less the minimum cut, plus price x capacity."""
    instance = instance_of(shared_by_zipf(30, 60, 1, capacity_share=0.4))
    total = float(instance.priorities.sum())
    bounds = []
    for price in np.linspace(0.0, 1.2, 241):
        graph = nx.DiGraph()
        for query, priority in enumerate(instance.priorities):
            graph.add_edge("source", ("query", query), capacity=float(priority))
            for bundle in instance.bundles_of.row(query):
                graph.add_edge(("query", query), ("bundle", int(bundle)))
        for bundle, cost in enumerate(instance.costs):
            graph.add_edge(("bundle", bundle), "sink", capacity=float(price * cost))
        cut = nx.minimum_cut_value(graph, "source", "sink")
        bounds.append(price * instance.capacity + total - cut)
    upper_bound = relax(instance, UNLIMITED).upper_bound
    assert upper_bound <= min(bounds) + 1e-6
    assert upper_bound >= np.floor(min(bounds)) - 1.0
