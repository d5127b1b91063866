"""Runs in a failure as records of `recovery.json`: of Rekindle, and of peers at rates they take.

    peer at the rate ─sustained─► one record
                     ─not─► no failure; then at half of the rate, at half of that ... until it does;
                     halves above what its slowest query has worked off are left out
    a later seed     ─► begins at what the peer has sustained before

Each run gets a directory of its own. `recovery` calls it.
"""

import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console

from rekindle import events as run_events
from rekindle.errors import InputError, RunError
from rekindle.events import Event
from rekindle.report import Inputs
from rekindle_bench import outages, results
from rekindle_bench.outages import Points
from rekindle_local.demo import performance
from rekindle_local.demo.scenario import Options
from rekindle_peers import lateness
from rekindle_peers import performance as peers
from rekindle_peers.freshness import Commits
from rekindle_peers.performance import Outcome
from rekindle_peers.scenario import Trial

__all__ = ["HALVINGS_MAX", "Run", "halvings_to", "peer", "rekindle", "restored"]

Perform = Callable[[str, Trial, Path, peers.Show], Outcome]

# Structured Streaming sustains a 32nd of Rekindle's rate; two halves more for slower days.
HALVINGS_MAX = 7
WINDOW_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Run:
    """A record, the curve of the run's lag, which one without a failure has none of, and its nodes
    that were killed."""

    record: dict[str, Any]
    curve: Points
    victims: tuple[str, ...] = ()


def rekindle(wanted: Options, parent: Path) -> Run:
    """Run the demo; raises RunError as the demo does."""
    directory = _new_directory(parent, wanted.strategy, wanted.seed, 1.0)
    report = performance.perform(wanted, directory)
    performance.summarise(report, directory)
    events = _events(directory)
    inputs = Inputs.from_record(json.loads((directory / "input.json").read_text()))
    growths = _growths(events, inputs)
    record = {
        **_named(wanted.strategy, wanted.seed, performance.rate(directory), 1.0),
        "sustained": not growths or lateness.sustained(growths),
        "lag_growth": _mean(growths),
        "load_percent": _load(events),
        **outages.figures(events, inputs),
        "bound": report["weighted_unavailable_seconds_bound"],
        "first_plan_epochs": report["first_plan_epochs"],
        "first_plan_seconds": report["first_plan_seconds"],
        "survivors_epochs_lost": _survivors_lost(report),
        "exactly_once": report["exactly_once"],
        "quota_enforced": report["quota_enforced"],
    }
    return Run(record, outages.curve(events, inputs), tuple(report["victims"]))


def peer(
    name: str, trial: Trial, parent: Path, perform: Perform = peers.perform, halvings: int = 0
) -> Iterator[Run]:
    """Run a peer at a rate, first halved so many times, and then at lower ones until it sustains
    one. A rate at which it fails by itself is none that it sustains; raises RunError where it fails
    at the lowest, too."""
    while halvings <= HALVINGS_MAX:
        share = 0.5**halvings
        at_this = replace(trial, rows_per_second=share * trial.rows_per_second)
        directory = _new_directory(parent, name, trial.seed, share)
        halvings += 1
        try:
            outcome = perform(name, at_this, directory, trial.display().show)
        except RunError as error:
            if halvings > HALVINGS_MAX:
                raise
            Console(highlight=False).print(str(error))
            yield _broken_run(name, at_this, share, error)
            continue
        run = _peer_run(name, at_this, share, directory, outcome)
        Console(highlight=False).print(told(run.record))
        yield run
        if outcome.sustained:
            return
        if outcome.kept_up_rows_per_second > 0:
            fitting = halvings_to(trial.rows_per_second, outcome.kept_up_rows_per_second)
            halvings = max(halvings, min(fitting, HALVINGS_MAX))


def halvings_to(rate: float, limit: float) -> int:
    """How often a rate has to be halved so that it is at most so high."""
    return max(0, math.ceil(math.log2(rate / limit)))


def restored(parent: Path, record: dict[str, Any]) -> Run | None:
    """A run of a report's directory, by its record in `recovery.json`; None where its own directory
    is gone, if it had a failure. Raises InputError where its files are damaged."""
    if record["weighted_unavailable_seconds"] is None:
        return Run(record, [])
    directory = parent / _name(record["system"], record["seed"], record["share_of_rate"])
    if not directory.exists():
        return None
    victims = tuple(record["failures"][0]["nodes"])
    try:
        inputs = Inputs.from_record(json.loads((directory / "input.json").read_text()))
        return Run(record, outages.curve(_events(directory), inputs), victims)
    except (InputError, OSError, LookupError, TypeError, ValueError) as error:
        raise InputError(
            where=str(directory),
            what=f"has lost what it is drawn from ({getattr(error, 'what', error)})",
            remedy="remove this directory, so that the run is run again",
        ) from error


def told(record: Mapping[str, Any]) -> str:
    """A run in a line."""
    rate = f"{record['rate']:,.0f} rows a second"
    if not record["sustained"]:
        growth = record["lag_growth"]
        grew = "" if growth is None else f", lag grew by {growth:.2f} s per second"
        rate += f" are too many{grew}"
    seconds = record["weighted_unavailable_seconds"]
    outage = "" if seconds is None else f"; weighted unavailability {seconds:.1f} s"
    return f"{record['system']}, seed {record['seed']}: {rate}{outage}"


def _new_directory(parent: Path, system: str, seed: int, share: float) -> Path:
    """For a run; what an interrupted one has left there goes."""
    directory = parent / _name(system, seed, share)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    return directory


def _name(system: str, seed: int, share: float) -> str:
    return f"{system}-{seed}" if share == 1 else f"{system}-{seed}-{1 / share:.0f}th"


def _peer_run(name: str, trial: Trial, share: float, directory: Path, outcome: Outcome) -> Run:
    record = {
        **_named(name, trial.seed, trial.rows_per_second, share),
        "sustained": outcome.sustained,
        "lag_growth": _mean(outcome.growths),
        "weighted_unavailable_seconds": None,
        "exactly_once": None if outcome.report is None else outcome.report["exactly_once"],
        "quota_enforced": outcome.quota_enforced,
    }
    if not outcome.sustained:
        return Run(record, [])
    inputs = outages.alone(trial.priorities)
    events = _events(directory)
    return Run({**record, **outages.figures(events, inputs)}, outages.curve(events, inputs))


def _broken_run(name: str, trial: Trial, share: float, error: RunError) -> Run:
    record = {
        **_named(name, trial.seed, trial.rows_per_second, share),
        "sustained": False,
        "lag_growth": None,
        "weighted_unavailable_seconds": None,
        "exactly_once": None,
        "quota_enforced": None,
        "error": str(error),
    }
    return Run(record, [])


def _named(system: str, seed: int, rate: float, share: float) -> dict[str, Any]:
    return {
        "system": system,
        "strategy": system,
        "seed": seed,
        "commit": results.COMMIT,
        "rate": rate,
        "share_of_rate": share,
    }


def _events(directory: Path) -> Sequence[Event]:
    return run_events.parse((directory / "events.jsonl").read_text())


def _growths(events: Sequence[Event], inputs: Inputs) -> dict[str, float]:
    """How lags grew before the failure since the warm-up, a minute at most."""
    warm = run_events.last(events, "warm")
    commits = Commits(tuple(inputs.priorities))
    for event in outages.before_failure(events):
        commits.add(event)
    begin = -WINDOW_SECONDS if warm is None else max(-WINDOW_SECONDS, warm.t)
    return lateness.growths(commits.of, begin, 0.0)


def _load(events: Sequence[Event]) -> float | None:
    """What partitions cost of what plans may use, as last measured before the failure."""
    measured = run_events.last(events, "statistics", until=0.0)
    return None if measured is None else measured.extra["load_percent"]


def _mean(growths: Mapping[str, float]) -> float | None:
    return fmean(growths.values()) if growths else None


def _survivors_lost(report: Mapping[str, Any]) -> int:
    return sum(query["epochs_lost"] for query in report["queries"].values() if query["survived"])
