"""Epochs over links beside epochs as Spark jobs: from cut to commit, and CPU per epoch.

Both run the same queries at the same rate and at the same time, each on a cluster of its own, and
change places from round to round, so that what else the machine does is the same for both. The
medians of the rounds' ratios count.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from rich.console import Console

from rekindle.model.settings import JOBS, LINKS
from rekindle_bench import bar_results, saturated_run
from rekindle_bench.bar_results import Bar, of_median
from rekindle_bench.saturated_run import CHECKPOINT_SECONDS, SaturatedRun, Way
from rekindle_local.flights import flight_data

ROWS_PER_SECOND = 1_000.0
EPOCH_SECONDS = 0.1
TIME_RATIO_MAX, CPU_RATIO_MAX = 0.4, 0.6
# One query of two keyed levels, and all of the demo's.
CASES: Mapping[str, tuple[str, ...] | None] = {
    "one query": ("top-destinations",),
    "18 queries": None,
}


@dataclass(frozen=True, slots=True)
class FlowSample:
    """Of the epochs of one run: their number, CPU seconds of each, of driver and nodes together,
    and seconds from cut to commit, in the middle and for 99 of 100."""

    epochs: int
    cpu_seconds: float
    commit_seconds: float
    commit_seconds_p99: float


def measure(rounds: int, seconds: float, directory: Path) -> dict[str, Any]:
    """Run each case `rounds` times for `seconds`; returns what `flows.json` holds."""
    console = Console(highlight=False)
    flights = directory / "input"
    flight_data.prepare(flights)
    samples: dict[str, dict[str, list[FlowSample]]] = {}
    with ExitStack() as stack:
        clusters = [
            stack.enter_context(saturated_run.cluster(directory / f"cluster-{n}")) for n in (1, 2)
        ]
        for number in range(1, rounds + 1):
            for case, queries in CASES.items():
                exchanges = (JOBS, LINKS) if number % 2 else (LINKS, JOBS)
                place = directory / f"run-{number}-{case.replace(' ', '-')}"
                ways = [_way(exchange, queries) for exchange in exchanges]
                runs = saturated_run.run_together(
                    ways, place, flights, clusters, seconds, "bench flows"
                )
                for way, sample in zip(ways, map(_sample, runs), strict=True):
                    samples.setdefault(case, {}).setdefault(way.name, []).append(sample)
                    console.print(
                        f"{case} over {way.name}: {1e3 * sample.commit_seconds:.0f} ms to commit "
                        f"(p99 {1e3 * sample.commit_seconds_p99:.0f}), "
                        f"{1e3 * sample.cpu_seconds:.0f} ms of CPU, {sample.epochs} epochs"
                    )
    command = f"rekindle bench flows --rounds {rounds} --seconds {seconds:g}"
    return _judge(samples, command, directory)


def _way(exchange: str, queries: tuple[str, ...] | None) -> Way:
    runtime = (("exchange", exchange), ("epoch_seconds", EPOCH_SECONDS))
    return Way(
        exchange,
        "always",
        "always",
        CHECKPOINT_SECONDS,
        rows_per_second=ROWS_PER_SECOND,
        queries=queries,
        runtime=runtime,
    )


def _sample(run: SaturatedRun[float]) -> FlowSample:
    begin, end = run.readings
    cut_at = {cut["epoch"]: cut["cut_at"] for cut in run.cuts}
    took = [
        event["at"] - cut_at[event["epoch"]]
        for event in run.events
        if event["kind"] == "commit" and event["epoch"] in cut_at
    ]
    epochs = len(run.cuts) - 1
    return FlowSample(epochs, (end - begin) / epochs, median(took), quantiles(took, n=100)[98])


def _judge(
    samples: Mapping[str, Mapping[str, Sequence[FlowSample]]], command: str, directory: Path
) -> dict[str, Any]:
    bars = []
    for case, found in samples.items():
        pairs = list(zip(found[LINKS], found[JOBS], strict=True))
        times = [links.commit_seconds / jobs.commit_seconds for links, jobs in pairs]
        cpu = [links.cpu_seconds / jobs.cpu_seconds for links, jobs in pairs]
        for what, ratios, most in (
            ("cut to commit", times, TIME_RATIO_MAX),
            ("CPU of an epoch", cpu, CPU_RATIO_MAX),
        ):
            text = f"{case}: {what} over links"
            bars.append(of_median(_bar(text, ratios, most, command), len(pairs)))
    figures = {
        "samples": {
            case: {name: [asdict(one) for one in runs] for name, runs in found.items()}
            for case, found in samples.items()
        }
    }
    return bar_results.write(directory / "flows.json", figures, bars)


def _bar(what: str, ratios: Sequence[float], most: float, command: str) -> Bar:
    text = f"{what} at most {most:g} × that as jobs"
    return Bar(text, f"{median(ratios):.2f} ×", median(ratios) <= most, command)
