"""The planner's problem as arrays: which candidate query needs which bundle of partitions.

A *candidate* is a query that lost something, that costs something and that could be brought back
alone. A *bundle* is all lost partitions that exactly the same candidates need: they are only ever
chosen together, so the solvers see them as one item. Decides nothing; made once per plan by
`solver`, read by all solvers and by the bound.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from rekindle.model.plan_problem import Problem

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

ROUNDING_CPU_PERCENT = 1e-9  # so that three times 0.1 fits into 0.3


@dataclass(frozen=True, slots=True)
class Incidence:
    """Rows of indices in one array: row i is `indices[starts[i]:starts[i + 1]]`, ascending."""

    starts: IntArray
    indices: IntArray

    def row(self, i: int) -> IntArray:
        return self.indices[self.starts[i] : self.starts[i + 1]]

    def rows(self, numbers: IntArray) -> IntArray:
        """The indices of several rows, one row after the other."""
        starts, sizes = self.starts[numbers], np.diff(self.starts)[numbers]
        ends = np.cumsum(sizes)
        total = int(ends[-1]) if len(ends) else 0
        found: IntArray = self.indices[np.arange(total) + np.repeat(starts - ends + sizes, sizes)]
        return found

    def row_of_each(self) -> IntArray:
        """The row that each entry of `indices` belongs to."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def sums(self, weights: FloatArray) -> FloatArray:
        """Per row, the sum of `weights[i]` over its indices."""
        sums = np.zeros(len(self.starts) - 1)
        np.add.at(sums, self.row_of_each(), weights[self.indices])
        return sums

    def matrix(self, columns: int) -> csr_array:
        """Ones at (row, index), shape (rows, columns)."""
        ones = np.ones(len(self.indices))
        return csr_array((ones, self.indices, self.starts), shape=(len(self.starts) - 1, columns))


@dataclass(frozen=True, slots=True)
class Instance:
    """Candidates (ascending by id) and bundles; costs and `capacity` in percent of one core.

    `shares[b]` is the number of candidates that need bundle b (f_k in the paper, section 5);
    `partition_costs[b]` are the costs of the partitions in `bundles[b]`, `costs[b]` their sum.
    `start` are candidates that the last plan chose.
    """

    queries: tuple[str, ...]
    priorities: FloatArray
    bundles: tuple[tuple[str, ...], ...]
    partition_costs: tuple[tuple[float, ...], ...]
    costs: FloatArray
    shares: IntArray
    bundles_of: Incidence
    queries_of: Incidence
    capacity: float
    start: BoolArray

    def cost(self, chosen: BoolArray) -> float:
        """What the chosen candidates cost together, each bundle paid once."""
        needed = np.zeros(len(self.costs), dtype=bool)
        needed[self.bundles_of.indices[chosen[self.bundles_of.row_of_each()]]] = True
        return float(self.costs[needed].sum())

    def fits(self, chosen: BoolArray) -> bool:
        return self.cost(chosen) <= self.capacity + ROUNDING_CPU_PERCENT

    def value(self, chosen: BoolArray) -> float:
        return float(self.priorities[chosen].sum())

    def taken(self, chosen: BoolArray) -> frozenset[str]:
        """The ids of the chosen candidates."""
        return frozenset(self.queries[query] for query in np.flatnonzero(chosen))


@dataclass(frozen=True, slots=True)
class QuerySelection:
    """What a solver chose: one bool per candidate, whether no other choice is better, and a sum of
    priorities that no choice exceeds."""

    chosen: BoolArray
    optimal: bool = False
    upper_bound: float = math.inf


@dataclass(frozen=True, slots=True)
class SolverBudget:
    """Until when a solver may work, by a clock in seconds, and the seed of its tie-breaks."""

    clock: Callable[[], float]
    deadline: float
    seed: int = 0

    def left_seconds(self) -> float:
        return self.deadline - self.clock()

    def spent(self) -> bool:
        return self.left_seconds() <= 0

    def part(self, share: float) -> "SolverBudget":
        """The first `share` (0 to 1) of what is left."""
        now = self.clock()
        return SolverBudget(self.clock, now + share * max(0.0, self.deadline - now), self.seed)

    def less(self, seconds: float) -> "SolverBudget":
        """All but the last `seconds`."""
        return SolverBudget(self.clock, self.deadline - seconds, self.seed)


def from_problem(
    problem: Problem,
    missing: Mapping[str, Sequence[str]],
    capacity: float,
    start: Collection[str],
) -> Instance:
    """Arrays for the candidates in `missing` (query -> its failed partitions, ascending by id):
    each costs something and fits alone. `start` may name others, too."""
    queries = tuple(sorted(missing))
    needed_by: dict[str, list[int]] = {}
    for i, query in enumerate(queries):
        for partition in missing[query]:
            if problem.partitions[partition].cpu_percent > 0:
                needed_by.setdefault(partition, []).append(i)
    bundles: dict[tuple[int, ...], list[str]] = {}
    for partition, sharing in needed_by.items():
        bundles.setdefault(tuple(sharing), []).append(partition)
    names = tuple(tuple(partitions) for partitions in bundles.values())
    costs = tuple(tuple(problem.partitions[p].cpu_percent for p in b) for b in names)
    queries_of = _incidence(list(bundles))
    known = frozenset(start)
    return Instance(
        queries=queries,
        priorities=np.array([problem.queries[query].priority for query in queries], dtype=float),
        bundles=names,
        partition_costs=costs,
        costs=np.array([sum(bundle) for bundle in costs], dtype=float),
        shares=np.diff(queries_of.starts),
        bundles_of=_transposed(queries_of, len(queries)),
        queries_of=queries_of,
        capacity=capacity,
        start=np.array([query in known for query in queries], dtype=bool),
    )


def _incidence(rows: Sequence[Sequence[int]]) -> Incidence:
    starts = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in rows], out=starts[1:])
    indices = np.fromiter((i for row in rows for i in row), dtype=np.int64, count=int(starts[-1]))
    return Incidence(starts, indices)


def _transposed(incidence: Incidence, columns: int) -> Incidence:
    order = np.argsort(incidence.indices, kind="stable")
    starts = np.zeros(columns + 1, dtype=np.int64)
    np.cumsum(np.bincount(incidence.indices, minlength=columns), out=starts[1:])
    return Incidence(starts, incidence.row_of_each()[order])
