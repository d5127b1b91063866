"""The paper's comparison of planners (section 7, Fig. 16), with ours beside them.

Random topologies of 18 queries, everything lost, capacity for a share of it: which share of all
priority does each solver bring back?
"""

import itertools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from rekindle import planning
from rekindle_testing.problem_builders import Sharing, shared_by_frequency

QUERIES = 18
RESOURCE_SHARES = tuple(tenth / 10 for tenth in range(1, 10))
SOLVERS = ("dp", "auto", "best-density", "operator-centric")
# the reference has as long as it takes, the others what a policy gives them by default
BUDGET_SECONDS = {"dp": 600.0}
BUDGET_SECONDS_ELSE = 1.0
PROCESSES = 2


@dataclass(frozen=True, slots=True)
class Setting:
    """What the topologies of one panel of the figure have in common."""

    panel: str
    name: str
    sharing: Sharing
    linear: bool = False


FIG16 = (
    Setting("partitions shared by at most", "3 queries", Sharing(3)),
    Setting("partitions shared by at most", "6 queries", Sharing(6)),
    Setting("sharing by Zipf's law", "s = 0.2", Sharing(QUERIES, 0.2)),
    Setting("sharing by Zipf's law", "s = 0.5", Sharing(QUERIES, 0.5)),
    Setting("priorities", "random", Sharing(6)),
    Setting("priorities", "linear", Sharing(6), linear=True),
)


@dataclass(frozen=True, slots=True)
class SolverCurve:
    """Of one solver in one setting: for each of `RESOURCE_SHARES` the share of all priority that
    its plans bring back, the mean over topologies (`restored`), and the least part of what `dp`
    brings back in any of them (`worst`)."""

    panel: str
    setting: str
    solver: str
    restored: tuple[float, ...]
    worst: tuple[float, ...]


def compare(
    settings: Sequence[Setting], seeds: Sequence[int], show: Callable[[str], None]
) -> list[SolverCurve]:
    """All solvers on the same topologies, one for each seed. `show` is told of progress."""
    kinds = dict.fromkeys((setting.sharing, setting.linear) for setting in settings)
    restored = {}
    with ProcessPoolExecutor(PROCESSES) as pool:
        for number, kind in enumerate(kinds, start=1):
            show(f"kind {number} of {len(kinds)}: {len(seeds)} topologies")
            restored[kind] = list(pool.map(partial(_restored, *kind), seeds))
    return [
        _curve(setting, solver, restored[setting.sharing, setting.linear])
        for setting in settings
        for solver in SOLVERS
    ]


def _curve(
    setting: Setting, solver: str, topologies: Sequence[dict[tuple[str, float], float]]
) -> SolverCurve:
    return SolverCurve(
        panel=setting.panel,
        setting=setting.name,
        solver=solver,
        restored=tuple(
            fmean(restored[solver, share] for restored in topologies) for share in RESOURCE_SHARES
        ),
        worst=tuple(
            min(_part(restored[solver, share], restored["dp", share]) for restored in topologies)
            for share in RESOURCE_SHARES
        ),
    )


def _part(restored: float, best: float) -> float:
    return restored / best if best else 1.0


def _restored(sharing: Sharing, linear: bool, seed: int) -> dict[tuple[str, float], float]:
    """By solver and share of resources: the share of all priority that comes back."""
    found = {}
    for share, solver in itertools.product(RESOURCE_SHARES, SOLVERS):
        problem = shared_by_frequency(QUERIES, seed, sharing, linear=linear, capacity_share=share)
        answer = planning.solve(
            problem,
            clock=time.monotonic,
            solver=solver,
            budget_seconds=BUDGET_SECONDS.get(solver, BUDGET_SECONDS_ELSE),
            seed=seed,
        )
        total = sum(query.priority for query in problem.queries.values())
        found[solver, share] = answer.priority_sum / total
    return found
