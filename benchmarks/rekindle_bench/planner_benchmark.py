"""How fast the planner is and how good its plans are, on problems made from seeds.

size    one large problem within the budget, in a process of its own: seconds, memory, gap
exact   `auto` against the best plan, on problems just too large for `auto` to solve exactly in any
        case: shared by chance, and sparse ones in which nearly all share the same few partitions
dense   `auto` in a second against the best that any solver has found in a minute, on dense
        set-union knapsacks; the best are stored with the instances
nodes   what goes onto nodes, ten and hundreds, against the same capacity in one piece
"""

import json
import multiprocessing
import resource
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console

from rekindle import planning
from rekindle.model.plan_problem import Answer, Problem
from rekindle_bench import bar_results
from rekindle_bench.bar_results import Bar
from rekindle_testing import problem_builders

MIB_MAX = 1_024
EXACT_MEAN_MIN, EXACT_WORST_MIN = 0.995, 0.97
EXACT_CASES, EXACT_SECONDS = 24, 20.0
SPARSE_QUERIES = (61, 65, 70, 75, 80, 90, 120, 150, 200, 250, 300, 400)
DENSE_GAP_MAX = 0.01
DENSE_SECONDS, RENEW_SECONDS, RENEW_SEEDS = 1.0, 60.0, 10
NODES, MANY_NODES, NODES_CASES, NODES_SECONDS = 10, 300, 5, 1.0
ON_MANY_NODES_MIN = 0.99
STORED = "dense_unions.json"


@dataclass(frozen=True, slots=True)
class Dense:
    """An instance, and the best sum of priorities that is known of it, by which solver."""

    queries: int
    partitions: int
    density: float
    capacity_share: float
    seed: int
    best: float = 0.0
    solver: str = ""

    @property
    def problem(self) -> Problem:
        """What it stands for."""
        return problem_builders.dense_union(
            self.queries,
            self.partitions,
            self.seed,
            density=self.density,
            capacity_share=self.capacity_share,
        )


DENSE = (
    Dense(100, 85, 0.10, 0.75, 1),
    Dense(85, 100, 0.15, 0.85, 2),
    Dense(200, 200, 0.10, 0.85, 3),
    Dense(300, 285, 0.15, 0.75, 4),
    Dense(500, 500, 0.10, 0.75, 5),
    Dense(1_000, 985, 0.15, 0.85, 6),
)


def measure(
    queries: int, partitions: int, budget_seconds: float, seed: int, directory: Path
) -> dict[str, Any]:
    """All of them; returns what `planner.json` holds."""
    size = _in_own_process(queries, partitions, budget_seconds, seed)
    console = Console(highlight=False)
    shares = list(_against_exact(_random(seed), "random", seed, console))
    sparse = list(_against_exact(_sparse(seed), "sparse", seed, console))
    gaps = list(_dense_gaps(seed))
    fitting = list(_on_nodes(NODES, 200, 1_000 * seed, seed))
    fitting_many = list(_on_nodes(MANY_NODES, 500, seed, seed))
    figures = {
        "size": size,
        "auto_against_exact": shares,
        "auto_against_exact_sparse": sparse,
        "dense_gaps": gaps,
        "on_nodes_against_capacity": fitting,
        "on_many_nodes_against_capacity": fitting_many,
    }
    command = (
        f"rekindle bench planner --queries {queries} --partitions {partitions} "
        f"--budget-seconds {budget_seconds:g}"
    )
    gap = fmean(gaps)
    bars = [
        Bar(
            f"{queries} queries of {partitions} partitions within {budget_seconds:g} s",
            f"{size['seconds']:.2f} s",
            size["seconds"] <= budget_seconds,
            command,
        ),
        Bar(
            f"in at most {MIB_MAX} MiB",
            f"{size['peak_mib']:.0f} MiB",
            size["peak_mib"] <= MIB_MAX,
            command,
        ),
        _against_bar("auto", shares, command),
        _against_bar("on sparse sharing auto", sparse, command),
        Bar(
            f"dense unions in {DENSE_SECONDS:g} s at most {DENSE_GAP_MAX:.0%} below the best known",
            f"{gap:.2%}",
            gap <= DENSE_GAP_MAX,
            command,
        ),
        Bar(
            f"on {MANY_NODES} nodes at least {ON_MANY_NODES_MIN:g} of what one capacity gives",
            f"{fmean(fitting_many):.4f}",
            fmean(fitting_many) >= ON_MANY_NODES_MIN,
            command,
        ),
    ]
    return bar_results.write(directory / "planner.json", figures, bars)


def renew(directory: Path) -> None:
    """Look for better plans of the dense instances, a minute for each solver and seed, and write
    the best of them, and of those that are stored, into `directory`."""
    console = Console(highlight=False)
    known = {(one.seed, one.queries): one for one in _stored()}
    found = []
    for dense in DENSE:
        best = known.get((dense.seed, dense.queries), dense)
        for solver, seed in _attempts():
            answer = _solve(dense.problem, RENEW_SECONDS, seed, solver)
            console.print(f"{dense.queries} queries, {solver}, {seed}: {answer.priority_sum:g}")
            if answer.priority_sum > best.best:
                best = replace(dense, best=answer.priority_sum, solver=solver)
        found.append(best)
        lines = [json.dumps(asdict(one)) for one in found]
        (directory / STORED).write_text("[\n " + ",\n ".join(lines) + "\n]\n")


def _attempts() -> Iterator[tuple[str, int]]:
    """Solvers with their seeds; the exact one has no use for any."""
    yield "exact", 0
    for seed in range(RENEW_SEEDS):
        yield "auto", seed
    yield "best-density", 0


def _stored() -> Iterable[Dense]:
    text = resources.files("rekindle_bench").joinpath(STORED).read_text()
    return [Dense(**one) for one in json.loads(text)]


def _solve(problem: Problem, seconds: float, seed: int, solver: str = "auto") -> Answer:
    return planning.solve(
        problem, clock=time.monotonic, solver=solver, budget_seconds=seconds, seed=seed
    )


def _in_own_process(
    queries: int, partitions: int, budget_seconds: float, seed: int
) -> dict[str, Any]:
    """Where nothing else has used memory."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(_size, queries, partitions, budget_seconds, seed).result()


def _size(queries: int, partitions: int, budget_seconds: float, seed: int) -> dict[str, Any]:
    problem = problem_builders.shared_by_zipf(queries, partitions, seed)
    answer = _solve(problem, budget_seconds, seed)
    return {
        "queries": queries,
        "partitions": partitions,
        "budget_seconds": budget_seconds,
        "seconds": answer.seconds,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024,
        "chosen": len(answer.queries),
        "priority_sum": answer.priority_sum,
        "gap": answer.gap,
    }


def _against_bar(who: str, shares: Sequence[float], command: str) -> Bar:
    return Bar(
        f"{who} against exact at least {EXACT_MEAN_MIN:g}, the worst {EXACT_WORST_MIN:g}",
        f"{fmean(shares):.4f}, {min(shares):.4f} of {len(shares)}" if shares else "none proved",
        bool(shares) and fmean(shares) >= EXACT_MEAN_MIN and min(shares) >= EXACT_WORST_MIN,
        command,
    )


def _against_exact(
    cases: Sequence[Problem], family: str, seed: int, console: Console
) -> Iterator[float]:
    """Shares of the best plan, where HiGHS has proved one in time."""
    for number, problem in enumerate(cases, start=1):
        best = _solve(problem, EXACT_SECONDS, seed, "exact")
        console.print(f"{family} {number} of {len(cases)} against exact: {best.status}")
        if best.status == "optimal":
            yield _solve(problem, DENSE_SECONDS, seed).priority_sum / best.priority_sum


def _random(seed: int) -> list[Problem]:
    return [
        problem_builders.shared_by_zipf(
            70 + 10 * (case % 8),
            600 * (1 + case % 3),
            1_000 * seed + case,
            exponent=(0.5, 0.8, 1.2)[case % 3],
            capacity_share=(0.3, 0.5, 0.7)[case // 3 % 3],
        )
        for case in range(EXACT_CASES)
    ]


def _sparse(seed: int) -> list[Problem]:
    return [
        problem_builders.shared_by_pareto(
            queries,
            2 * queries,
            1_000 * seed + queries,
            exponent=(0.4, 0.7)[case % 2],
            capacity_share=(0.2, 0.4, 0.6)[case % 3],
        )
        for case, queries in enumerate(SPARSE_QUERIES)
    ]


def _dense_gaps(seed: int) -> Iterator[float]:
    for dense in _stored():
        answer = _solve(dense.problem, DENSE_SECONDS, seed)
        yield max(0.0, 1.0 - answer.priority_sum / dense.best)


def _on_nodes(nodes: int, queries: int, first: int, seed: int) -> Iterator[float]:
    """Shares of the plan for the same capacity in one piece, of problems from `first` on; on many
    nodes a partition is up to a third of what one has free."""
    for number in range(first, first + NODES_CASES):
        one, placed = (
            _solve(
                problem_builders.shared_by_zipf(queries, 10 * queries, number, nodes=count),
                NODES_SECONDS,
                seed,
            )
            for count in (None, nodes)
        )
        yield placed.priority_sum / one.priority_sum
