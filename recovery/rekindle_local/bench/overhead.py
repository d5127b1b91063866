"""What safety costs: throughput with checkpoints, buffering and ordering, and with each off.

The demo's queries on a few nodes without a quota, with more input than they can take, so that the
rows of an epoch over its time are what they sustain. The ways of running take turns, and those of
one turn are compared with each other, so that a machine that becomes slower harms none of them; of
the ratios the median counts. CPU time per row is told as well: it tells the same where others need
the machine too.
Beside these, what catching up costs those that run (`interference`), and the paper's sweeps (Su and
Zhou, figures 17 to 20): intervals of checkpoints, and sizes of epochs.
"""

import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from rekindle.errors import RunError
from rekindle_local import processes
from rekindle_local.bench import interference, results
from rekindle_local.bench.results import Bar
from rekindle_local.cluster import LocalCluster
from rekindle_local.demo import inputs
from rekindle_local.demo.driving import DriverProcess
from rekindle_local.flights import data
from rekindle_spark import jar

__all__ = ["measure"]

NODES = 4
SEED = 1
ROWS_PER_EPOCH = 100_000
NEVER_SECONDS = 86_400
CHECKPOINT_SECONDS = 10
INTERVALS_SECONDS = (1, 2, 5, 10, 30)
EPOCH_ROWS = (10_000, 30_000, 100_000, 300_000)
START_SECONDS_MAX = 180.0
# for which a run is left alone before it counts: compilers are at work, costs are yet to be known
WARM_SECONDS = 15.0
POLL_SECONDS = 0.1
CHECKPOINT_PERCENT_MAX, ALWAYS_PERCENT_MAX, CATCH_UP_PERCENT_MAX = 3.0, 5.0, 10.0


@dataclass(frozen=True, slots=True)
class Way:
    """A way of running: what is on, how often states are kept, how large epochs are."""

    name: str
    buffering: str
    ordering: str
    checkpoint_seconds: int
    rows_per_epoch: int = ROWS_PER_EPOCH


@dataclass(frozen=True, slots=True)
class Sample:
    """What one run came to: of the driver and all nodes together."""

    rows_per_second: float
    cpu_seconds_per_million_rows: float


BARE = Way("ordered, no checkpoints", "adaptive", "always", NEVER_SECONDS)
CHECKPOINTS = Way("ordered, checkpoints", "adaptive", "always", CHECKPOINT_SECONDS)
ADAPTIVE = Way("unordered, checkpoints", "adaptive", "adaptive", CHECKPOINT_SECONDS)
ALWAYS = Way("all on", "always", "always", CHECKPOINT_SECONDS)
SWEEP = (
    *(Way(f"all on, every {n} s", "always", "always", n) for n in INTERVALS_SECONDS),
    *(Way(f"all on, {n} rows", "always", "always", CHECKPOINT_SECONDS, n) for n in EPOCH_ROWS),
)


def measure(rounds: int, seconds: float, sweep: bool, directory: Path) -> dict[str, Any]:
    """Run every way `rounds` times for `seconds`; returns what `overhead.json` holds."""
    console = Console(highlight=False)
    flights = directory / "input"
    data.prepare(flights)
    samples: dict[Way, list[Sample]] = {}
    with LocalCluster(
        nodes=NODES, cpu_quota=None, directory=directory / "cluster", class_path=[Path(jar.path())]
    ) as cluster:
        for way, place in _turns(rounds, sweep, directory):
            place.mkdir()
            sample = _run(way, place, flights, cluster, seconds)
            samples.setdefault(way, []).append(sample)
            console.print(
                f"{way.name}: {sample.rows_per_second:,.0f} rows a second, "
                f"{sample.cpu_seconds_per_million_rows:.2f} s of CPU per million"
            )
    slowdowns = interference.measure(rounds, directory)
    return _judge(samples, slowdowns, rounds, seconds, directory)


def _turns(rounds: int, sweep: bool, directory: Path) -> Iterator[tuple[Way, Path]]:
    """The four ways in turn, the first of a round being another one each time; then the sweep."""
    ways = [BARE, CHECKPOINTS, ADAPTIVE, ALWAYS]
    numbers = itertools.count(1)
    for turn in range(rounds):
        for way in ways[turn % 4 :] + ways[: turn % 4]:
            yield way, directory / f"run-{next(numbers)}"
    for way in SWEEP if sweep else ():
        yield way, directory / f"run-{next(numbers)}"


def _run(way: Way, directory: Path, flights: Path, cluster: LocalCluster, seconds: float) -> Sample:
    """Once every query runs; `flights` has the input."""
    pipeline, settings = inputs.write(
        directory, flights, SEED, policy=_policy(way), runtime=_runtime(way)
    )
    driver = DriverProcess(directory)
    driver.start(pipeline, cluster.master_url, settings, cluster.spark_options())
    try:
        return _follow(driver, cluster, seconds)
    finally:
        driver.end()


def _policy(way: Way) -> dict[str, Any]:
    return {"buffering": way.buffering, "ordering": way.ordering}


def _runtime(way: Way) -> dict[str, Any]:
    return {
        "nodes_expected": NODES,
        "checkpoint_seconds": way.checkpoint_seconds,
        "rows_per_second": 1e9,
        "rows_per_epoch_max": way.rows_per_epoch,
    }


def _follow(driver: DriverProcess, cluster: LocalCluster, seconds: float) -> Sample:
    """Rows of the epochs that were cut in a stretch of time; each is cut when the last has run."""
    warm_at, cuts, cpu_seconds = math.inf, list[Mapping[str, Any]](), 0.0
    limit = time.monotonic() + START_SECONDS_MAX + WARM_SECONDS
    while not cuts or cuts[-1]["at"] - cuts[0]["at"] < seconds:
        for event in driver.fresh_events():
            if event["kind"] == "recovered":
                warm_at = min(warm_at, event["at"] + WARM_SECONDS)
            if event["kind"] == "cut" and event["at"] > warm_at:
                cpu_seconds = cpu_seconds or _cpu_seconds(driver, cluster)
                cuts.append(event)
        driver.check()
        if time.monotonic() > limit + seconds:
            raise RunError(
                where="bench overhead",
                what="queries did not come to run in time",
                remedy=f"see {driver.log}",
            )
        time.sleep(POLL_SECONDS)
    rows = sum(cut["rows"] for cut in cuts[:-1])
    spent = _cpu_seconds(driver, cluster) - cpu_seconds
    return Sample(rows / (cuts[-1]["at"] - cuts[0]["at"]), 1e6 * spent / rows)


def _cpu_seconds(driver: DriverProcess, cluster: LocalCluster) -> float:
    """CPU time so far of the driver and of all nodes."""
    assert driver.process is not None
    spent = processes.cpu_seconds(processes.session_processes(driver.process.pid))
    return spent + sum(cluster.cpu_seconds(node.name) for node in cluster.nodes)


def _judge(
    samples: Mapping[Way, Sequence[Sample]],
    slowdowns: Sequence[float],
    rounds: int,
    seconds: float,
    directory: Path,
) -> dict[str, Any]:
    rates = {way: [one.rows_per_second for one in found] for way, found in samples.items()}
    costs = {
        way: [one.cpu_seconds_per_million_rows for one in found] for way, found in samples.items()
    }
    checkpoint = 100 * (1 - _ratio(rates, CHECKPOINTS, BARE))
    always = 100 * (1 - _ratio(rates, ALWAYS, ADAPTIVE))
    catch_up = median(slowdowns)
    figures = {
        "checkpoint_percent": checkpoint,
        "always_buffering_and_ordering_percent": always,
        "catch_up_percent": catch_up,
        "checkpoint_cpu_percent": 100 * (_ratio(costs, CHECKPOINTS, BARE) - 1),
        "always_buffering_and_ordering_cpu_percent": 100 * (_ratio(costs, ALWAYS, ADAPTIVE) - 1),
        "rows_per_second": {way.name: found for way, found in rates.items()},
        "cpu_seconds_per_million_rows": {way.name: found for way, found in costs.items()},
        "catch_up_percents": list(slowdowns),
    }
    command = f"rekindle bench overhead --rounds {rounds} --seconds {seconds:g}"
    bars = [
        _bar("checkpoints cost", "% of throughput", checkpoint, CHECKPOINT_PERCENT_MAX, command),
        _bar(
            "always-on buffering and ordering cost",
            "% of throughput",
            always,
            ALWAYS_PERCENT_MAX,
            command,
        ),
        _bar("beside catching up epochs take", "% longer", catch_up, CATCH_UP_PERCENT_MAX, command),
    ]
    return results.write(directory / "overhead.json", figures, bars)


def _ratio(figures: Mapping[Way, Sequence[float]], one: Way, other: Way) -> float:
    """The median over the turns of what one way came to over what the other did."""
    return median(a / b for a, b in zip(figures[one], figures[other], strict=True))


def _bar(what: str, unit: str, percent: float, most: float, command: str) -> Bar:
    return Bar(f"{what} at most {most:g} {unit}", f"{percent:.1f} %", percent <= most, command)
