"""What safety costs: CPU time per row with checkpoints, buffering and ordering, and with each off.

The demo's queries on a few nodes without a quota, with more input than they can take. CPU is what
bounds them then, so what takes more of it per row sustains as much less. The two ways that are
compared run at the same time, each on a cluster of its own: the speed of a machine that others use
too swings by more than what is measured, but it is the same for both. They change places from turn
to turn, and the median of their ratios counts.

Beside these, what catching up costs those that run (`interference`), and the paper's sweeps (Su and
Zhou, figures 17 to 20): intervals of checkpoints, and sizes of epochs.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from rekindle_bench import bar_results, interference, saturated_run
from rekindle_bench.bar_results import Bar, of_median
from rekindle_bench.interference import Slowdown
from rekindle_bench.saturated_run import CHECKPOINT_SECONDS, SaturatedRun, Way
from rekindle_local.flights import flight_data

NEVER_SECONDS = 86_400
INTERVALS_SECONDS = (1, 2, 5, 10, 30)
EPOCH_ROWS = (10_000, 30_000, 100_000, 300_000)
CHECKPOINT_PERCENT_MAX, ALWAYS_PERCENT_MAX, CATCH_UP_PERCENT_MAX = 3.0, 5.0, 10.0


@dataclass(frozen=True, slots=True)
class OverheadSample:
    """What one run came to: of the driver and all nodes together."""

    rows_per_second: float
    cpu_seconds_per_million_rows: float


BARE = Way("ordered, no checkpoints", "adaptive", "always", NEVER_SECONDS)
CHECKPOINTS = Way("ordered, checkpoints", "adaptive", "always", CHECKPOINT_SECONDS)
ADAPTIVE = Way("unordered, checkpoints", "adaptive", "adaptive", CHECKPOINT_SECONDS)
ALWAYS = Way("all on", "always", "always", CHECKPOINT_SECONDS)
PAIRS = ((BARE, CHECKPOINTS), (ADAPTIVE, ALWAYS))
SWEEP = (
    *(Way(f"all on, every {n} s", "always", "always", n) for n in INTERVALS_SECONDS),
    *(Way(f"all on, {n} rows", "always", "always", CHECKPOINT_SECONDS, n) for n in EPOCH_ROWS),
)


def measure(rounds: int, seconds: float, sweep: bool, directory: Path) -> dict[str, Any]:
    """Run every pair of ways `rounds` times for `seconds`; returns what `overhead.json` holds."""
    console = Console(highlight=False)
    flights = directory / "input"
    flight_data.prepare(flights)
    samples: dict[Way, list[OverheadSample]] = {}
    with ExitStack() as stack:
        clusters = [
            stack.enter_context(saturated_run.cluster(directory / f"cluster-{n}")) for n in (1, 2)
        ]
        for number, ways in enumerate(_turns(rounds, sweep), start=1):
            runs = saturated_run.run_together(
                ways, directory / f"run-{number}", flights, clusters, seconds, "bench overhead"
            )
            for way, sample in zip(ways, map(_sample, runs), strict=True):
                samples.setdefault(way, []).append(sample)
                console.print(
                    f"{way.name}: {sample.rows_per_second:,.0f} rows a second, "
                    f"{sample.cpu_seconds_per_million_rows:.2f} s of CPU per million"
                )
    slowdowns = interference.measure(rounds, directory)
    command = f"rekindle bench overhead --rounds {rounds} --seconds {seconds:g}"
    command += " --sweep" if sweep else ""
    return _judge(samples, slowdowns, command, directory)


def _turns(rounds: int, sweep: bool) -> Iterator[tuple[Way, ...]]:
    """The pairs in turn, either way round; then the sweep, one by one."""
    for turn in range(rounds):
        for pair in PAIRS:
            yield pair if turn % 2 == 0 else pair[::-1]
    for way in SWEEP if sweep else ():
        yield (way,)


def _sample(run: SaturatedRun[float]) -> OverheadSample:
    begin, end = run.readings
    return OverheadSample(run.rows / run.seconds, 1e6 * (end - begin) / run.rows)


def _judge(
    samples: Mapping[Way, Sequence[OverheadSample]],
    slowdowns: Sequence[Slowdown],
    command: str,
    directory: Path,
) -> dict[str, Any]:
    rates = {way: [one.rows_per_second for one in found] for way, found in samples.items()}
    costs = {
        way: [one.cpu_seconds_per_million_rows for one in found] for way, found in samples.items()
    }
    checkpoint = 100 * (1 - _ratio(costs, BARE, CHECKPOINTS))
    always = 100 * (1 - _ratio(costs, ADAPTIVE, ALWAYS))
    catch_up = median(one.before for one in slowdowns)
    figures = {
        "checkpoint_percent": checkpoint,
        "always_buffering_and_ordering_percent": always,
        "catch_up_percent": catch_up,
        "rows_per_second": {way.name: found for way, found in rates.items()},
        "cpu_seconds_per_million_rows": {way.name: found for way, found in costs.items()},
        "catch_up_percents": [one.before for one in slowdowns],
        "catch_up_against_alone_percents": [one.alone for one in slowdowns],
    }
    bars = [
        _bar("checkpoints cost", "% of throughput", checkpoint, CHECKPOINT_PERCENT_MAX, command),
        _bar(
            "always-on buffering and ordering cost",
            "% of throughput",
            always,
            ALWAYS_PERCENT_MAX,
            command,
        ),
        _bar(
            "beside catching up epochs take",
            "% longer than before the failure",
            catch_up,
            CATCH_UP_PERCENT_MAX,
            command,
        ),
    ]
    bars = [of_median(bar, len(slowdowns)) for bar in bars]
    return bar_results.write(directory / "overhead.json", figures, bars)


def _ratio(figures: Mapping[Way, Sequence[float]], one: Way, other: Way) -> float:
    """The median over the turns of what one way came to over what the other did."""
    return median(a / b for a, b in zip(figures[one], figures[other], strict=True))


def _bar(what: str, unit: str, percent: float, most: float, command: str) -> Bar:
    return Bar(f"{what} at most {most:g} {unit}", f"{percent:.1f} %", percent <= most, command)
