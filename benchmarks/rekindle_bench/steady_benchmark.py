"""The highest rate that systems keep up with, and how late output is at a part of it.

The flights on a few nodes with a quota of CPU, all queries and one alone, the systems in turn, each
on nodes of its own that are alike. First each gets more input than it can take: what its slowest
query works off is the rate that it sustains, with lag bounded by its portions. Then it gets a part
of that rate, and the lag of all queries is sampled.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from rekindle.model.errors import RunError
from rekindle_bench import bar_results, system_comparison
from rekindle_bench.bar_results import Bar, of_median
from rekindle_local import process_sets
from rekindle_local.demo.driver_process import DriverProcess
from rekindle_local.flights import flight_data
from rekindle_local.flights.flight_pipeline import QUERY_KEYS
from rekindle_local.local_nodes import LocalNodes
from rekindle_peers import freshness, peer_starters
from rekindle_peers.freshness import Commits
from rekindle_peers.peer_starters import EPOCH_SECONDS, NodeSize, PeerWork

SYSTEMS = tuple(peer_starters.CONTENDERS)
SIZE = NodeSize(nodes=2, cpu_quota=0.6, slots=2)
ONE_QUERY = "destination-weeks"
LOAD_SHARE = 0.6
EPOCHS_MIN = 3
# Without a quota, so that compilers have had their time: Flink's nodes need 100 s of CPU each.
WARM_SECONDS = 45.0
# Then with it, before it counts.
SETTLE_SECONDS = 10.0
EPOCHS_SECONDS_MAX = 600.0
POLL_SECONDS = 0.2
RATIO_MIN = 1.5
LAG_EPOCHS_MAX = 2.5


@dataclass(frozen=True, slots=True)
class SteadySample:
    """What one system came to in one turn: rows a second at full speed, and at `LOAD_SHARE` of
    that rate the CPU seconds of driver and nodes per million rows, and lags in seconds; whether
    nodes had their quota."""

    system: str
    queries: int
    rows_per_second: float
    cpu_seconds_per_million_rows: float
    lag_p50: float
    lag_p99: float
    quota_enforced: bool


def measure(systems: Sequence[str], rounds: int, seconds: float, directory: Path) -> dict[str, Any]:
    """Run every system `rounds` times with all queries and with one; returns what `steady.json`
    holds, which says after each round what the rounds so far come to."""
    console = Console(highlight=False)
    flight_data.prepare(directory / "input")
    command = f"rekindle bench steady --systems {','.join(systems)} --rounds {rounds}"
    command += f" --seconds {seconds:g}"
    samples: list[SteadySample] = []
    found: dict[str, Any] = {}
    for turn in range(rounds):
        for names in (tuple(QUERY_KEYS), (ONE_QUERY,)):
            for system in systems if turn % 2 == 0 else systems[::-1]:
                if system == peer_starters.SHARED and len(names) == 1:
                    continue  # there is nobody to share with
                place = directory / f"{system}-{len(names)}-{turn + 1}"
                with peer_starters.machines(system, SIZE, place / "cluster") as nodes:
                    work = PeerWork(directory / "input", names, nodes)
                    samples.append(_sample(system, work, place, seconds))
                console.print(_line(samples[-1]))
        found = _judge(samples, command, directory)
    bar_results.show(found)
    return found


def _sample(system: str, work: PeerWork, place: Path, seconds: float) -> SteadySample:
    full = _run(system, work, place / "full", None, seconds)
    rate = _rate(full)
    if not rate:
        raise _too_few(place)
    part = _run(system, work, place / "part", LOAD_SHARE * rate, seconds)
    lags = freshness.lags(part.commits.of, part.begin, part.end)
    return SteadySample(
        system,
        len(work.names),
        rate,
        _cpu_seconds_per_million_rows(part, place),
        lags[len(lags) // 2],
        lags[len(lags) * 99 // 100],
        work.nodes.quota_enforced,
    )


@dataclass(frozen=True, slots=True)
class _Run:
    """What was seen of a driver from `begin` to `end`, seconds since 1970."""

    commits: Commits
    begin: float
    end: float
    cpu_seconds: float


def _rate(run: _Run) -> float:
    """The rows a second of the slowest query."""
    return freshness.rows_per_second(run.commits.between(run.begin, run.end))


def _cpu_seconds_per_million_rows(part: _Run, place: Path) -> float:
    """Where all queries go at the rate of the input: at full speed those of Structured Streaming
    work off more rows than the slowest, at the cost of CPU that is all counted."""
    rows = _rate(part) * (part.end - part.begin)
    if not rows:
        raise _too_few(place)
    return 1e6 * part.cpu_seconds / rows


def _too_few(log: Path) -> RunError:
    return RunError(
        where="bench steady",
        what=f"not every query had {EPOCHS_MIN} epochs in {EPOCHS_SECONDS_MAX:.0f} s",
        remedy=f"see {log}",
    )


def _run(
    system: str, work: PeerWork, place: Path, rows_per_second: float | None, seconds: float
) -> _Run:
    driver = peer_starters.start(system, work, place, rows_per_second)
    try:
        for node in work.nodes.nodes:
            work.nodes.lift_quota(node.name)
        commits = Commits(tuple(work.names))
        _await_commits(driver, commits, 0.0)
        _watch(driver, commits, WARM_SECONDS)
        for node in work.nodes.nodes:
            work.nodes.enforce_quota(node.name)
        _watch(driver, commits, SETTLE_SECONDS)
        begin, before = time.time(), _cpu_seconds(driver, work.nodes)
        _watch(driver, commits, seconds)
        _await_commits(driver, commits, begin)
        end, after = time.time(), _cpu_seconds(driver, work.nodes)
        _watch(driver, commits, 1.0)  # events are told a little later than they were
        return _Run(commits, begin, end, after - before)
    finally:
        driver.end()


def _await_commits(driver: DriverProcess, commits: Commits, begin: float) -> None:
    """Wait until each query has committed some epochs since `begin`."""
    limit = time.monotonic() + EPOCHS_SECONDS_MAX
    while freshness.fewest_epochs(commits.between(begin, time.time())) < EPOCHS_MIN:
        _watch(driver, commits, POLL_SECONDS)
        if time.monotonic() > limit:
            raise _too_few(driver.log)


def _watch(driver: DriverProcess, commits: Commits, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(min(POLL_SECONDS, seconds))
        driver.check()
        for event in driver.fresh_events():
            commits.add(event)


def _cpu_seconds(driver: DriverProcess, nodes: LocalNodes) -> float:
    """Of the driver, the nodes, and who leads these."""
    own = process_sets.cpu_seconds(driver.processes)
    return own + nodes.leading_cpu_seconds() + nodes.all_cpu_seconds()


def _line(sample: SteadySample) -> str:
    return (
        f"{sample.system}, {_counted(sample.queries)}: "
        f"{sample.rows_per_second:,.0f} rows a second; at {LOAD_SHARE:.0%} "
        f"{sample.cpu_seconds_per_million_rows:.1f} s of CPU per million, lag "
        f"p50 {sample.lag_p50:.1f} s, p99 {sample.lag_p99:.1f} s"
    )


def _judge(samples: Sequence[SteadySample], command: str, directory: Path) -> dict[str, Any]:
    sizes = sorted({sample.queries for sample in samples}, reverse=True)
    ratios: dict[str, float] = {}
    cpu_ratios: dict[str, float] = {}
    bars: list[Bar] = []
    for queries in sizes:
        of: dict[str, list[SteadySample]] = {}
        for sample in samples:
            if sample.queries == queries:
                of.setdefault(sample.system, []).append(sample)
        if "rekindle" not in of:
            continue
        rows = [_lag_bar(queries, of["rekindle"], command)]
        if "structured-streaming" in of:
            ratio = median(_ratios(of["rekindle"], of["structured-streaming"]))
            ratios[str(queries)] = ratio
            bar = f"{_counted(queries)}: at least {RATIO_MIN} x Structured Streaming"
            rows.append(Bar(bar, f"{ratio:.2f}", ratio >= RATIO_MIN, command))
        there = [of[name] for name in system_comparison.FLINK if name in of]
        flinks = [median(_cpu_ratios(of["rekindle"], theirs)) for theirs in there]
        if flinks:
            ratio = cpu_ratios[str(queries)] = min(flinks)  # beside its better scheduler
            if queries == len(QUERY_KEYS):
                bar = f"{_counted(queries)}: rows per CPU second not below Flink's"
                rows.append(Bar(bar, f"{ratio:.2f} x", ratio >= 1, command))
        bars += [of_median(row, len(of["rekindle"])) for row in rows]
    enforced = all(sample.quota_enforced for sample in samples)
    figures: Mapping[str, Any] = {
        **asdict(SIZE),
        "quota_enforced": enforced,
        "ratio": ratios,
        "cpu_ratio": cpu_ratios,
        "samples": [asdict(sample) for sample in samples],
    }
    judged = bars if enforced else [replace(bar, met=False) for bar in bars]
    return bar_results.save(directory / "steady.json", dict(figures), judged)


def _counted(queries: int) -> str:
    return "1 query" if queries == 1 else f"{queries} queries"


def _lag_bar(queries: int, samples: Sequence[SteadySample], command: str) -> Bar:
    late = median(sample.lag_p99 for sample in samples)
    return Bar(
        f"{_counted(queries)}: p99 lag at {LOAD_SHARE:.0%} at most {LAG_EPOCHS_MAX} epochs",
        f"{late / EPOCH_SECONDS:.1f}",
        late <= LAG_EPOCHS_MAX * EPOCH_SECONDS,
        command,
    )


def _ratios(ours: Sequence[SteadySample], theirs: Sequence[SteadySample]) -> list[float]:
    return [a.rows_per_second / b.rows_per_second for a, b in zip(ours, theirs, strict=True)]


def _cpu_ratios(ours: Sequence[SteadySample], theirs: Sequence[SteadySample]) -> list[float]:
    """Our rows per CPU second over theirs."""
    return [
        b.cpu_seconds_per_million_rows / a.cpu_seconds_per_million_rows
        for a, b in zip(ours, theirs, strict=True)
    ]
