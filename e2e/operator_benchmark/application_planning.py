"""The first plan for many whole applications: how long it takes, and how much memory.

All of them wait at once on an empty cluster, the worst case: pods of all wait at the gate. Free CPU
is for every pod in the first round and for two in five in the second. Nothing runs but the
operator's own planning, in a process of its own; the planner's budget is that of a policy.
"""

import multiprocessing
import random
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from operator_benchmark.operator_bars import MEMORY_MEGABYTES_MAX
from rekindle.model.settings import Policy
from rekindle_bench import bar_results
from rekindle_bench.bar_results import Bar
from rekindle_operator.applications import application_plan
from rekindle_operator.applications.application_plan import (
    ApplicationDemand,
    PlanSolver,
    PodDemand,
)

PLAN_SECONDS_MAX = 2.0
NODE_MILLIS, DRIVER_MILLIS, EXECUTOR_MILLIS = 8_000, 1_000, (1_000, 2_000)
SCARCE_SHARE = 0.4
DEPENDENT_EVERY = 7


@dataclass(frozen=True, slots=True)
class PlanningSize:
    """How large the cluster is; `executors` of each application."""

    applications: int = 2_000
    executors: int = 20
    nodes: int = 5_000
    seed: int = 1


def measure(size: PlanningSize, directory: Path, command: str) -> bool:
    """Measure and print; whether all bars are met. `application-planning.json` has the figures."""
    rounds = []
    for share in (1.0, SCARCE_SHARE):
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            rounds.append(pool.submit(plan_once, size, share).result())
    figures = {"size": asdict(size), "rounds": rounds}
    bars = bars_of(rounds, size, command)
    bar_results.write(directory / "application-planning.json", figures, bars)
    return all(bar.met for bar in bars)


def plan_once(size: PlanningSize, node_share: float) -> dict[str, Any]:
    """Figures of one plan on such a share of the nodes."""
    demands = waiting(size)
    nodes = {f"node-{number}": NODE_MILLIS for number in range(int(node_share * size.nodes))}
    policy = Policy()
    solver = PlanSolver(
        solver=policy.solver, budget_seconds=policy.solver_budget_seconds, clock=time.monotonic
    )
    began, cpu = time.monotonic(), time.process_time()
    made = application_plan.plan(demands, nodes, solver)
    return {
        "nodes": len(nodes),
        "seconds": time.monotonic() - began,
        "cpu_seconds": time.process_time() - cpu,
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024,
        "chosen": len(made.chosen),
        "admitted": len(made.admitted),
    }


def waiting(size: PlanningSize) -> list[ApplicationDemand]:
    """Applications all of whose pods wait; minimums, sizes and priorities are by chance."""
    rng = random.Random(size.seed)
    return [
        ApplicationDemand(
            name=f"application-{number}",
            priority=float(rng.randint(1, 10)),
            driver=PodDemand(f"driver-{number}", DRIVER_MILLIS),
            executors=tuple(
                PodDemand(f"executor-{number}-{index}", rng.choice(EXECUTOR_MILLIS))
                for index in range(size.executors)
            ),
            minimum=rng.randint(1, size.executors),
            depends_on=(f"application-{number - 1}",) if number % DEPENDENT_EVERY == 1 else (),
            driver_millis=DRIVER_MILLIS,
            executor_millis=max(EXECUTOR_MILLIS),
        )
        for number in range(size.applications)
    ]


def bars_of(rounds: list[dict[str, Any]], size: PlanningSize, command: str) -> list[Bar]:
    """One row for each promise."""
    who = f"{size.applications:,} applications of {size.executors} executors"
    seconds = max(one["seconds"] for one in rounds)
    megabytes = max(one["peak_megabytes"] for one in rounds)
    shown = ", ".join(
        f"{one['seconds']:.2f} s ({one['cpu_seconds']:.2f} s of CPU) for {one['chosen']:,} chosen "
        f"on {one['nodes']:,} nodes"
        for one in rounds
    )
    return [
        Bar(
            f"{who} on {size.nodes:,} nodes: first plan within {PLAN_SECONDS_MAX:g} s",
            shown,
            seconds <= PLAN_SECONDS_MAX,
            command,
        ),
        Bar(
            f"in the operator's memory: at most {MEMORY_MEGABYTES_MAX} MiB",
            f"{megabytes:.0f} MiB",
            megabytes <= MEMORY_MEGABYTES_MAX,
            command,
        ),
    ]
