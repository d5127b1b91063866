"""Problems made from a seed: what they are said to be."""

from collections import Counter

import pytest

from rekindle.model.plan_problem import Problem
from rekindle_testing.problem_builders import Sharing, shared_by_frequency


def made(seed: int = 1, share: float = 0.5, *, most: int = 3, linear: bool = False) -> Problem:
    return shared_by_frequency(18, seed, Sharing(most), linear=linear, capacity_share=share)


def test_the_same_seed_gives_the_same_topology_for_every_capacity() -> None:
    few, many = made(share=0.2), made(share=0.8)
    assert (few.queries, few.partitions) == (many.queries, many.partitions)
    assert few.queries != made(seed=2).queries
    assert few.capacity_cpu_percent is not None
    assert many.capacity_cpu_percent == pytest.approx(4 * few.capacity_cpu_percent)


@pytest.mark.parametrize("most", [3, 6])
def test_no_partition_is_needed_by_more_queries_than_are_said(most: int) -> None:
    problem = made(most=most)
    counts = Counter(p for query in problem.queries.values() for p in query.partitions)
    assert set(counts.values()) == set(range(1, most + 1))
    assert counts.keys() == problem.partitions.keys() == problem.failed
    sizes = [len(query.partitions) for query in problem.queries.values()]
    assert 20 < sum(sizes) / len(sizes) < 40


def test_more_skewed_sharing_has_more_partitions_of_one_query() -> None:
    shares = [Sharing(18, exponent).chances for exponent in (0.0, 0.2, 0.5)]
    assert [float(chances.sum()) for chances in shares] == pytest.approx([1.0, 1.0, 1.0])
    assert shares[0][0] < shares[1][0] < shares[2][0]


def test_linear_priorities_grow_with_what_a_query_costs() -> None:
    problem = made(linear=True)
    costs = {
        name: sum(problem.partitions[p].cpu_percent for p in query.partitions)
        for name, query in problem.queries.items()
    }
    ordered = sorted(problem.queries, key=costs.__getitem__)
    found = [problem.queries[name].priority for name in ordered]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (1.0, 10.0)
