"""What it costs to check exchanged rows: the share of all CPU that goes into their checksums.

The demo's queries on a few nodes without a quota, with more input than they can take. Each host
counts the CPU time of its checksums (`counting`), of what it sends and of what it reads; the time
of a call that counts is in it, so the true share is lower. It is over the CPU time of driver and
nodes, for the same epochs.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

import rekindle
from rekindle_bench import bar_results, counting, saturated_run
from rekindle_bench.bar_results import Bar
from rekindle_bench.saturated_run import CHECKPOINT_SECONDS, SaturatedRun, Way
from rekindle_local.flights import flight_data

PERCENT_MAX = 1.5
WAY = Way("all on", "always", "always", CHECKPOINT_SECONDS)


@dataclass(frozen=True, slots=True)
class Reading:
    """Up to a moment: CPU seconds of all, and of checksums, with their calls and bytes."""

    cpu_seconds: float
    seconds: float
    calls: int
    bytes: int


def measure(rounds: int, seconds: float, directory: Path) -> dict[str, Any]:
    """Run for `seconds`, `rounds` times; returns what `checks.json` holds."""
    console = Console(highlight=False)
    flights = directory / "input"
    flight_data.prepare(flights)
    found = []
    for number in range(1, rounds + 1):
        found.append(_run(directory / f"run-{number}", flights, seconds))
        console.print(found[-1])
    return _judge(
        found, f"rekindle bench checks --rounds {rounds} --seconds {seconds:g}", directory
    )


def _run(directory: Path, flights: Path, seconds: float) -> dict[str, float]:
    counts = directory / "counts"
    counts.mkdir(parents=True)
    roots = (counting.FOLDER, Path(str(rekindle.__file__)).parents[1], os.environ.get("PYTHONPATH"))
    path = os.pathsep.join(str(root) for root in roots if root)
    environment = {"PYTHONPATH": path, counting.VARIABLE: str(counts)}
    with saturated_run.cluster(directory / "cluster", environment=environment) as nodes:
        driver = saturated_run.start(
            WAY, directory / "driver", flights, nodes, environment={"PYTHONPATH": path}
        )
        try:
            run = SaturatedRun(
                driver, nodes, lambda run: Reading(run.cpu_seconds(), *count(counts))
            )
            saturated_run.follow([run], seconds, "bench checks")
        finally:
            driver.end()
    return _figures(run)


def count(folder: Path) -> tuple[float, int, int]:
    """What all processes have counted so far: seconds, calls, bytes."""
    parts = [path.read_text().split() for path in folder.glob("*.count")]
    return (
        sum(float(part[0]) for part in parts),
        sum(int(part[1]) for part in parts),
        sum(int(part[2]) for part in parts),
    )


def _figures(run: SaturatedRun[Reading]) -> dict[str, float]:
    begin, end = run.readings
    spent, cpu = end.seconds - begin.seconds, end.cpu_seconds - begin.cpu_seconds
    return {
        "percent": 100 * spent / cpu,
        "rows": run.rows,
        "cpu_seconds_per_million_rows": 1e6 * cpu / run.rows,
        "checked_bytes_per_row": (end.bytes - begin.bytes) / run.rows,
        "calls": end.calls - begin.calls,
    }


def _judge(found: Sequence[Mapping[str, float]], command: str, directory: Path) -> dict[str, Any]:
    percent = median(one["percent"] for one in found)
    bar = Bar(
        f"checks of exchanged rows: at most {PERCENT_MAX:g} % of CPU per row",
        f"{percent:.2f} %",
        0 < percent <= PERCENT_MAX,
        command,
    )
    return bar_results.write(
        directory / "checks.json", {"percent": percent, "runs": list(found)}, [bar]
    )
