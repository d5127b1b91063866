"""Planner problems of a given size and kind, the same for the same seed."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rekindle.model.plan_problem import PartitionCost, Problem, QueryDemand

PARTITIONS_PER_QUERY = (10, 200)
PRIORITIES = (1, 10)
CPU_PERCENT = (0.5, 5.0)
WEIGHTS = (1, 500)
FEW_PER_QUERY = (2, 6)
WIDE_CPU_PERCENT = (1.0, 20.0)
PARTITIONS_PER_QUERY_MEAN = 30


def shared_by_zipf(
    queries: int,
    partitions: int,
    seed: int,
    *,
    exponent: float = 0.8,
    capacity_share: float = 0.5,
    nodes: int | None = None,
) -> Problem:
    """Everything is lost, and capacity is `capacity_share` of what all of it costs.

    A query needs 10 to 200 partitions (fewer where there are fewer), drawn with probabilities by
    Zipf's law: a few are needed by very many queries. Priorities are 1 to 10; a partition costs
    0.5 to 5 percent of a core. With `nodes` the capacity is that of so many equal ones.
    """
    rng = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, partitions + 1) ** exponent
    chances = np.cumsum(weights / weights.sum())
    ranks = rng.permutation(partitions)
    costs = rng.uniform(*CPU_PERCENT, partitions)
    names = [f"p/{number}" for number in range(partitions)]
    low, high = (min(count, partitions) for count in PARTITIONS_PER_QUERY)
    demands, needed = {}, np.zeros(partitions, dtype=bool)
    for number in range(queries):
        drawn = np.searchsorted(chances, rng.random(rng.integers(low, high + 1)))
        held = np.unique(ranks[np.minimum(drawn, partitions - 1)])
        needed[held] = True
        priority = float(rng.integers(PRIORITIES[0], PRIORITIES[1] + 1))
        demands[f"q/{number}"] = QueryDemand(priority, tuple(names[index] for index in held))
    capacity = capacity_share * float(costs[needed].sum())
    return Problem(
        partitions={
            name: PartitionCost(float(cost)) for name, cost in zip(names, costs, strict=True)
        },
        queries=demands,
        failed=frozenset(names),
        capacity_cpu_percent=None if nodes else capacity,
        nodes={f"node/{number}": capacity / nodes for number in range(nodes)} if nodes else None,
    )


def shared_by_pareto(
    queries: int,
    partitions: int,
    seed: int,
    *,
    exponent: float,
    capacity_share: float,
) -> Problem:
    """Everything is lost, and capacity is `capacity_share` of what all that is needed costs.

    A query needs 2 to 6 partitions by Pareto's law: nearly all share the first few, and each has
    hardly any of its own. Priorities are 1 to 10; a partition costs 1 to 20 percent of a core.
    """
    rng = np.random.default_rng(seed)
    costs = rng.uniform(*WIDE_CPU_PERCENT, partitions)
    names = [f"p/{number}" for number in range(partitions)]
    demands, needed = {}, np.zeros(partitions, dtype=bool)
    for number in range(queries):
        drawn = rng.pareto(exponent, rng.integers(FEW_PER_QUERY[0], FEW_PER_QUERY[1] + 1))
        held = np.unique(np.minimum(drawn, partitions - 1).astype(int))
        needed[held] = True
        priority = float(rng.integers(PRIORITIES[0], PRIORITIES[1] + 1))
        demands[f"q/{number}"] = QueryDemand(priority, tuple(names[index] for index in held))
    return Problem(
        partitions={
            name: PartitionCost(float(cost)) for name, cost in zip(names, costs, strict=True)
        },
        queries=demands,
        failed=frozenset(names),
        capacity_cpu_percent=capacity_share * float(costs[needed].sum()),
    )


def dense_union(
    queries: int, partitions: int, seed: int, *, density: float, capacity_share: float
) -> Problem:
    """A set-union knapsack of the literature's kind: every query needs every partition with
    probability `density`; priorities and costs are whole numbers of 1 to 500."""
    rng = np.random.default_rng(seed)
    needs = rng.random((queries, partitions)) < density
    needs[np.arange(queries), rng.integers(partitions, size=queries)] = True
    costs = rng.integers(WEIGHTS[0], WEIGHTS[1] + 1, partitions)
    priorities = rng.integers(WEIGHTS[0], WEIGHTS[1] + 1, queries)
    names = [f"p/{number}" for number in range(partitions)]
    return Problem(
        partitions={
            name: PartitionCost(float(cost)) for name, cost in zip(names, costs, strict=True)
        },
        queries={
            f"q/{number}": QueryDemand(
                float(priority), tuple(names[index] for index in np.flatnonzero(row))
            )
            for number, (priority, row) in enumerate(zip(priorities, needs, strict=True))
        },
        failed=frozenset(names),
        capacity_cpu_percent=capacity_share * float(costs.sum()),
    )


@dataclass(frozen=True, slots=True)
class Sharing:
    """By how many queries a partition is needed: 1 to `most`, the number f with a probability
    proportional to 1 / f**exponent."""

    most: int
    exponent: float = 0.0

    @property
    def chances(self) -> NDArray[np.float64]:
        """Of 1, 2, ..., `most` queries."""
        weights = np.arange(1, self.most + 1, dtype=np.float64) ** -self.exponent
        return np.asarray(weights / weights.sum())


def shared_by_frequency(
    queries: int, seed: int, sharing: Sharing, *, linear: bool, capacity_share: float
) -> Problem:
    """A random topology of the paper's kind (section 7, Fig. 16), of which everything is lost.

    A query needs 30 partitions in the mean, some thrice as many as others; a partition costs 0.5 to
    5 percent of a core. Priorities are whole numbers of 1 to 10 by chance, or, `linear`, grow from
    1 to 10 with the CPU of what a query needs. Capacity is `capacity_share` of what all of it
    costs. The same seed gives the same topology for every capacity.
    """
    rng = np.random.default_rng(seed)
    needed_by = float(sharing.chances @ np.arange(1, sharing.most + 1))
    count = round(queries * PARTITIONS_PER_QUERY_MEAN / needed_by)
    weights = rng.uniform(0.5, 1.5, queries)
    needs = np.zeros((queries, count), dtype=bool)
    for partition, frequency in enumerate(
        rng.choice(np.arange(1, sharing.most + 1), count, p=sharing.chances)
    ):
        needs[
            rng.choice(queries, frequency, replace=False, p=weights / weights.sum()), partition
        ] = True
    costs = rng.uniform(*CPU_PERCENT, count)
    priorities = rng.integers(PRIORITIES[0], PRIORITIES[1] + 1, queries).astype(float)
    if linear:
        ranks = np.argsort(np.argsort(needs @ costs))
        priorities = PRIORITIES[0] + (PRIORITIES[1] - PRIORITIES[0]) * ranks / (queries - 1)
    names = [f"p/{number}" for number in range(count)]
    return Problem(
        partitions={
            name: PartitionCost(float(cost)) for name, cost in zip(names, costs, strict=True)
        },
        queries={
            f"q/{number}": QueryDemand(
                float(priority), tuple(names[index] for index in np.flatnonzero(row))
            )
            for number, (priority, row) in enumerate(zip(priorities, needs, strict=True))
            if row.any()
        },
        failed=frozenset(names),
        capacity_cpu_percent=capacity_share * float(costs.sum()),
    )
