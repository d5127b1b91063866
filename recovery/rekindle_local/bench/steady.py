"""The highest rate that systems keep up with, and how late output is at a part of it.

The flights on a few nodes with a quota of CPU, all queries and one alone, the systems in turn on
the same nodes. First each gets more input than it can take: what its slowest query works off is
the rate that it sustains, with lag bounded by its portions. Then it gets a part of that rate, and
the lag of all queries is sampled.
"""

import os
import platform
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from rekindle.errors import RunError
from rekindle_local import processes
from rekindle_local.bench import contenders, freshness, results
from rekindle_local.bench.contenders import EPOCH_SECONDS, Contest
from rekindle_local.bench.freshness import Commits
from rekindle_local.bench.results import Bar
from rekindle_local.cluster import LocalCluster
from rekindle_local.demo.driving import DriverProcess
from rekindle_local.flights import data
from rekindle_local.flights.pipeline import QUERY_KEYS
from rekindle_local.machines import Machines
from rekindle_spark import jar

__all__ = ["SYSTEMS", "measure"]

SYSTEMS = ("rekindle", "structured-streaming")
NODES, CPU_QUOTA, SLOTS = 2, 0.6, 2
ONE_QUERY = "destination-weeks"
LOAD_SHARE = 0.6
COMMITS_MIN = 3
WARM_SECONDS = 20.0
COMMITS_SECONDS_MAX = 600.0
POLL_SECONDS = 0.2
RATIO_MIN = 1.5
LAG_EPOCHS_MAX = 2.5


@dataclass(frozen=True, slots=True)
class Sample:
    """What one system came to in one turn: rows a second at full speed, the CPU seconds of driver
    and nodes per million rows there, and lags in seconds at `LOAD_SHARE` of that rate."""

    system: str
    queries: int
    rows_per_second: float
    cpu_seconds_per_million_rows: float
    lag_p50: float
    lag_p99: float


def measure(systems: Sequence[str], rounds: int, seconds: float, directory: Path) -> dict[str, Any]:
    """Run every system `rounds` times with all queries and with one; returns what `steady.json`
    holds."""
    console = Console(highlight=False)
    data.prepare(directory / "input")
    samples: list[Sample] = []
    with _cluster(directory) as nodes:
        for turn in range(rounds):
            for names in (tuple(QUERY_KEYS), (ONE_QUERY,)):
                contest = Contest(directory / "input", names, nodes)
                for system in systems if turn % 2 == 0 else systems[::-1]:
                    place = directory / f"{system}-{len(names)}-{turn + 1}"
                    samples.append(_sample(system, contest, place, seconds))
                    console.print(_line(samples[-1]))
    return _judge(samples, systems, rounds, seconds, directory)


def _cluster(directory: Path) -> LocalCluster:
    return LocalCluster(
        nodes=NODES,
        cpu_quota=CPU_QUOTA,
        slots=SLOTS,
        directory=directory / "cluster",
        class_path=[Path(jar.path())],
    )


def _sample(system: str, contest: Contest, place: Path, seconds: float) -> Sample:
    full = _run(system, contest, place / "full", None, seconds)
    rate = freshness.rows_per_second(full.commits.between(full.begin, full.end))
    part = _run(system, contest, place / "part", LOAD_SHARE * rate, seconds)
    lags = freshness.lags(part.commits.of, part.begin, part.end)
    rows = rate * (full.end - full.begin)
    return Sample(
        system,
        len(contest.names),
        rate,
        1e6 * full.cpu_seconds / rows,
        lags[len(lags) // 2],
        lags[len(lags) * 99 // 100],
    )


@dataclass(frozen=True, slots=True)
class _Run:
    """What was seen of a driver from `begin` to `end`, seconds since 1970."""

    commits: Commits
    begin: float
    end: float
    cpu_seconds: float


def _run(
    system: str, contest: Contest, place: Path, rows_per_second: float | None, seconds: float
) -> _Run:
    driver = contenders.start(system, contest, place, rows_per_second)
    try:
        for node in contest.nodes.nodes:
            contest.nodes.enforce_quota(node.name)
        commits = Commits(tuple(contest.names))
        _await_commits(driver, commits, 0.0)
        _watch(driver, commits, WARM_SECONDS)
        begin, before = time.time(), _cpu_seconds(driver, contest.nodes)
        _watch(driver, commits, seconds)
        _await_commits(driver, commits, begin)
        end, after = time.time(), _cpu_seconds(driver, contest.nodes)
        _watch(driver, commits, 1.0)  # events are told a little later than they were
        return _Run(commits, begin, end, after - before)
    finally:
        driver.end()


def _await_commits(driver: DriverProcess, commits: Commits, begin: float) -> None:
    """Wait until each query has some commits since `begin`."""
    limit = time.monotonic() + COMMITS_SECONDS_MAX
    while min(map(len, commits.between(begin, time.time()).values())) < COMMITS_MIN:
        _watch(driver, commits, POLL_SECONDS)
        if time.monotonic() > limit:
            raise RunError(
                where="bench steady",
                what=f"not every query had {COMMITS_MIN} commits in {COMMITS_SECONDS_MAX:.0f} s",
                remedy=f"see {driver.log}",
            )


def _watch(driver: DriverProcess, commits: Commits, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(min(POLL_SECONDS, seconds))
        driver.check()
        for event in driver.fresh_events():
            commits.add(event)


def _cpu_seconds(driver: DriverProcess, nodes: Machines) -> float:
    assert driver.process is not None
    own = processes.cpu_seconds(processes.session_processes(driver.process.pid))
    return own + sum(nodes.cpu_seconds(node.name) for node in nodes.nodes)


def _line(sample: Sample) -> str:
    return (
        f"{sample.system}, {sample.queries} queries: {sample.rows_per_second:,.0f} rows a second, "
        f"{sample.cpu_seconds_per_million_rows:.1f} s of CPU per million; at {LOAD_SHARE:.0%} lag "
        f"p50 {sample.lag_p50:.1f} s, p99 {sample.lag_p99:.1f} s"
    )


def _judge(
    samples: Sequence[Sample],
    systems: Collection[str],
    rounds: int,
    seconds: float,
    directory: Path,
) -> dict[str, Any]:
    command = f"rekindle bench steady --rounds {rounds} --seconds {seconds:g}"
    sizes = sorted({sample.queries for sample in samples}, reverse=True)
    ratios: dict[str, float] = {}
    bars = []
    for queries in sizes:
        of = {
            system: [s for s in samples if (s.system, s.queries) == (system, queries)]
            for system in systems
        }
        if "rekindle" not in of:
            continue
        late = median(sample.lag_p99 for sample in of["rekindle"])
        bars.append(
            Bar(
                f"{queries} queries: p99 lag at {LOAD_SHARE:.0%} at most {LAG_EPOCHS_MAX} epochs",
                f"{late / EPOCH_SECONDS:.1f}",
                late <= LAG_EPOCHS_MAX * EPOCH_SECONDS,
                command,
            )
        )
        if "structured-streaming" in of:
            ratio = ratios[str(queries)] = median(
                _ratios(of["rekindle"], of["structured-streaming"])
            )
            bars.append(
                Bar(
                    f"{queries} queries: at least {RATIO_MIN} x Structured Streaming",
                    f"{ratio:.2f}",
                    ratio >= RATIO_MIN,
                    command,
                )
            )
    figures: Mapping[str, Any] = {
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        "nodes": NODES,
        "cpu_quota": CPU_QUOTA,
        "slots": SLOTS,
        "ratio": ratios,
        "samples": [asdict(sample) for sample in samples],
    }
    return results.write(directory / "steady.json", dict(figures), bars)


def _ratios(ours: Sequence[Sample], theirs: Sequence[Sample]) -> list[float]:
    return [a.rows_per_second / b.rows_per_second for a, b in zip(ours, theirs, strict=True)]
