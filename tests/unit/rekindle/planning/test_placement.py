"""Placing partitions on nodes, and choices that have to be placed."""

import itertools
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rekindle import planning
from rekindle.model.plan_problem import Answer, PartitionCost, Problem, QueryDemand
from rekindle.planning.placement import Packing

TOLERANCE = 1e-6

costs_of = st.dictionaries(
    st.sampled_from([f"p/{i}" for i in range(8)]), st.integers(0, 60).map(float), max_size=8
)
free_of = st.dictionaries(
    st.sampled_from(["n1", "n2", "n3"]), st.integers(0, 100).map(float), max_size=3
)


def loads(costs: Mapping[str, float], node_of: Mapping[str, str]) -> dict[str, float]:
    load = dict.fromkeys(node_of.values(), 0.0)
    for partition, node in node_of.items():
        load[node] += costs[partition]
    return load


def packs(costs: Mapping[str, float], nodes: Mapping[str, float]) -> bool:
    """Whether any assignment at all holds every partition."""
    return any(
        all(
            load <= nodes[node]
            for node, load in loads(costs, dict(zip(costs, way, strict=True))).items()
        )
        for way in itertools.product(nodes, repeat=len(costs))
    )


def test_the_largest_partition_goes_first_and_to_the_freest_node() -> None:
    placed = planning.place({"a": 10, "b": 50, "c": 30}, {"n1": 60, "n2": 70})
    assert placed.node_of == {"b": "n2", "c": "n1", "a": "n1"}
    assert placed.free_cpu_percent == {"n1": 20, "n2": 20}


def test_a_preferred_node_is_used_where_it_holds_the_partition() -> None:
    preferred = {"a": "n1", "b": "n1", "c": "gone"}
    placed = planning.place({"a": 40, "b": 50, "c": 5}, {"n1": 60, "n2": 100}, preferred)
    assert placed.node_of == {"b": "n1", "a": "n2", "c": "n2"}


def test_a_tight_set_is_packed_where_the_freest_node_would_waste_room() -> None:
    assert not planning.place({"a": 50, "b": 50, "c": 100}, {"n1": 100, "n2": 100}).unplaced
    hard = {"a": 6, "b": 5, "c": 5, "d": 4, "e": 3, "f": 3, "g": 2, "h": 2}
    assert not planning.place(hard, {"n1": 15, "n2": 15}).unplaced


def test_what_fits_on_no_node_stays_unplaced_and_the_rest_is_placed() -> None:
    placed = planning.place({"big": 90, "small": 10}, {"n1": 80})
    assert placed.unplaced == ("big",)
    assert placed.node_of == {"small": "n1"}
    assert planning.place({"a": 0}, {}).unplaced == ("a",)


@given(costs_of, free_of)
def test_no_node_gets_more_than_it_has_free(
    costs: dict[str, float], nodes: dict[str, float]
) -> None:
    placed = planning.place(costs, nodes)
    assert set(placed.node_of) | set(placed.unplaced) == set(costs)
    assert not set(placed.node_of) & set(placed.unplaced)
    load = loads(costs, placed.node_of)
    for node, free in placed.free_cpu_percent.items():
        assert free >= -TOLERANCE
        assert free == pytest.approx(nodes[node] - load.get(node, 0.0))


@given(costs_of.filter(lambda costs: len(costs) <= 6), free_of)
def test_everything_is_placed_where_that_is_possible_at_all(
    costs: dict[str, float], nodes: dict[str, float]
) -> None:
    assert bool(planning.place(costs, nodes).unplaced) != packs(costs, nodes)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    partitions = {
        f"p/{i}": PartitionCost(float(cost))
        for i, cost in enumerate(draw(st.lists(st.integers(0, 60), min_size=1, max_size=6)))
    }
    names = st.sampled_from(sorted(partitions))
    queries = {
        f"q/{i}": QueryDemand(float(priority), tuple(needed))
        for i, (priority, needed) in enumerate(
            draw(st.lists(st.tuples(st.integers(1, 10), st.sets(names)), max_size=6))
        )
    }
    failed = draw(st.sets(names))
    return Problem(partitions, queries, frozenset(failed), nodes=draw(free_of))


def solve(problem: Problem, solver: str = "auto") -> Answer:
    return planning.solve(problem, clock=lambda: 0.0, solver=solver)


def missing(problem: Problem, query: str) -> frozenset[str]:
    return problem.failed.intersection(problem.queries[query].partitions)


@settings(max_examples=60)
@given(problems(), st.sampled_from(["auto", *planning.SOLVERS]))
def test_a_plan_never_exceeds_the_capacity_of_any_node(problem: Problem, solver: str) -> None:
    answer = solve(problem, solver)
    assert problem.nodes is not None
    for node, held in answer.placement.items():
        used = sum(problem.partitions[partition].cpu_percent for partition in held)
        assert used <= problem.nodes[node] + TOLERANCE


@settings(max_examples=60)
@given(problems(), st.sampled_from(["auto", *planning.SOLVERS]))
def test_every_lost_partition_of_a_chosen_query_is_placed_once(
    problem: Problem, solver: str
) -> None:
    answer = solve(problem, solver)
    placed = sorted(partition for held in answer.placement.values() for partition in held)
    needed = {partition for query in answer.queries for partition in missing(problem, query)}
    assert placed == sorted(needed) == list(answer.partitions)


@settings(max_examples=40)
@given(problems(), st.sampled_from(["auto", "best-density", "dp", "exact"]))
def test_a_plan_on_nodes_is_never_worse_than_its_best_single_query(
    problem: Problem, solver: str
) -> None:
    answer = solve(problem, solver)
    for query, demand in problem.queries.items():
        alone = {p: problem.partitions[p].cpu_percent for p in missing(problem, query)}
        if alone and packs(alone, problem.nodes or {}):
            assert answer.priority_sum >= demand.priority


@settings(max_examples=40)
@given(problems())
def test_the_bound_holds_for_every_choice_that_can_be_placed(problem: Problem) -> None:
    bound = solve(problem).upper_bound
    lost = [query for query in problem.queries if missing(problem, query)]
    for count in range(1, len(lost) + 1):
        for chosen in itertools.combinations(lost, count):
            needed = {p for query in chosen for p in missing(problem, query)}
            costs = {p: problem.partitions[p].cpu_percent for p in sorted(needed)}
            if sum(problem.queries[q].priority for q in chosen) > bound + TOLERANCE:
                assert not packs(costs, problem.nodes or {})


def test_a_query_that_fits_in_total_but_on_no_node_is_skipped_with_the_reason() -> None:
    problem = Problem(
        {"a": PartitionCost(60.0), "b": PartitionCost(60.0), "c": PartitionCost(90.0)},
        {
            "first": QueryDemand(5.0, ("a",)),
            "second": QueryDemand(3.0, ("b",)),
            "third": QueryDemand(9.0, ("c",)),
        },
        frozenset({"a", "b", "c"}),
        nodes={"n1": 80.0, "n2": 50.0},
    )
    answer = solve(problem)
    assert answer.queries == ("first",)
    assert answer.skipped == {"second": "does-not-fit-a-node", "third": "unplaceable"}
    assert answer.placement == {"n1": ("a",)}
    assert answer.fragmentation_cpu_percent == 70.0
    assert answer.status == "feasible"


def test_a_choice_that_does_not_place_is_repaired_by_what_does() -> None:
    costs = {"wide": 70.0, "left": 45.0, "right": 45.0, "small": 10.0}
    problem = Problem(
        {name: PartitionCost(cost) for name, cost in costs.items()},
        {name: QueryDemand(cost / 10, (name,)) for name, cost in costs.items()},
        frozenset(costs),
        nodes={"n1": 60.0, "n2": 60.0, "n3": 5.0},
    )
    answer = solve(problem)
    assert answer.queries == ("left", "right", "small")
    assert answer.skipped == {"wide": "unplaceable"}


def test_a_smaller_query_comes_back_where_the_choice_of_both_does_not_place() -> None:
    problem = Problem(
        {"a": PartitionCost(18.0), "b": PartitionCost(30.0)},
        {"both": QueryDemand(6.0, ("a", "b")), "one": QueryDemand(9.0, ("a",))},
        frozenset({"a", "b"}),
        nodes={"n1": 37.0, "n2": 14.0},
    )
    answer = solve(problem)
    assert answer.queries == ("one",)
    assert answer.skipped == {"both": "does-not-fit-a-node"}


def test_without_any_node_nothing_can_be_placed() -> None:
    problem = Problem(
        {"a": PartitionCost(0.0)}, {"q": QueryDemand(1.0, ("a",))}, frozenset({"a"}), nodes={}
    )
    answer = solve(problem)
    assert (answer.queries, answer.skipped) == ((), {"q": "unplaceable"})
    assert (answer.upper_bound, answer.gap, answer.status) == (0.0, 0.0, "optimal")


def in_whole_percents(
    queries: int, partitions: int, nodes: int, seed: int, free_cpu_percent: float
) -> Problem:
    """Queries of up to eight partitions of 1 to 20 percent each, on equal nodes."""
    rng = np.random.default_rng(seed)
    names = [f"p/{number}" for number in range(partitions)]
    return Problem(
        {name: PartitionCost(float(rng.integers(1, 21))) for name in names},
        {
            f"q/{number}": QueryDemand(
                float(rng.integers(1, 11)),
                tuple(rng.choice(names, rng.integers(1, 9), replace=False)),
            )
            for number in range(queries)
        },
        frozenset(names),
        nodes={f"n{number}": free_cpu_percent for number in range(nodes)},
    )


@pytest.mark.parametrize(
    ("seed", "budget_seconds", "share"),
    [(1, 0.0, 0.995), (2, 0.0, 0.995), (1, 60.0, 0.999), (2, 60.0, 0.999)],
)
def test_on_many_nodes_nearly_all_fits_that_their_usable_sum_allows(
    seed: int, budget_seconds: float, share: float
) -> None:
    """Of 34.45 percent each, costs in whole percents leave 0.45 unused."""
    problem = in_whole_percents(150, 400, 60, seed, 34.45)
    whole = replace(problem, nodes=None, capacity_cpu_percent=60 * 34.0)
    best, placed = (
        planning.solve(given, clock=Ticking(0.1), budget_seconds=budget_seconds)
        for given in (whole, problem)
    )
    assert placed.priority_sum >= share * best.priority_sum


class Ticking:
    """A clock that moves on by a fixed time whenever it is read."""

    def __init__(self, step_seconds: float) -> None:
        self.now = 0.0
        self._step_seconds = step_seconds

    def __call__(self) -> float:
        self.now += self._step_seconds
        return self.now


def test_filling_many_nodes_looks_at_the_clock_no_more_often_than_the_budget_allows() -> None:
    problem = in_whole_percents(300, 1_600, 300, 3, 20.45)
    answer = planning.solve(problem, clock=Ticking(0.01), budget_seconds=0.5)
    assert answer.skipped
    assert answer.seconds < 0.7


@settings(max_examples=60)
@given(problems(), st.integers(0, 20), st.sampled_from(["auto", "best-density"]))
def test_a_last_plan_that_still_fits_where_it_was_is_not_made_worse(
    problem: Problem, more: int, solver: str
) -> None:
    last = solve(problem, solver)
    larger = replace(problem, nodes={**(problem.nodes or {}), "new": float(more)})
    again = planning.solve(larger, clock=lambda: 0.0, solver=solver, budget_seconds=0.0, start=last)
    assert again.priority_sum >= last.priority_sum


def test_a_tight_packing_is_kept_where_there_is_no_time_to_find_it_again() -> None:
    costs = {"a": 4, "b": 3, "c": 6, "d": 3, "e": 9, "f": 9, "g": 9, "h": 8}
    problem = Problem(
        {name: PartitionCost(float(cost)) for name, cost in costs.items()},
        {name: QueryDemand(float(cost), (name,)) for name, cost in costs.items()},
        frozenset(costs),
        nodes={"n1": 16.0, "n2": 35.0},
    )
    last = solve(problem)
    assert not last.skipped
    larger = replace(problem, nodes={"n1": 16.0, "n2": 35.0, "n3": 0.5})
    again = planning.solve(larger, clock=lambda: 0.0, budget_seconds=0.0, start=last)
    assert again.placement == last.placement


def test_what_does_not_go_onto_nodes_as_a_whole_leaves_them_as_they_were() -> None:
    packing = Packing({"n1": 10.0, "n2": 7.0})
    assert packing.put_all({"a": 6.0}, {"a": "n1"})
    before = (dict(packing.node_of), dict(packing.free), packing.left)
    assert not packing.put_all({"b": 5.0, "c": 3.0, "d": 3.0})
    assert not packing.put_all({"e": 5.0}, {"e": "n1"}, elsewhere=False)
    assert (packing.node_of, packing.free, packing.left) == before
    assert packing.put_all({"b": 5.0, "c": 4.0})
    assert packing.node_of == {"a": "n1", "b": "n2", "c": "n1"}
