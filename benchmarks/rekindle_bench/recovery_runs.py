"""Runs in a failure as records of `recovery.json`: of Rekindle, and of peers at rates they take.

    peer at the rate ─sustained─► one record
                     ─not─► no failure; then at half of the rate, at half of that ... until it does;
                     halves above what its slowest query has worked off are left out
    a later seed     ─► begins at what the peer has sustained before

Each run gets a directory of its own. `recovery_benchmark` calls it.
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

from rekindle.model import run_events
from rekindle.model.errors import InputError, RunError
from rekindle.model.run_events import Event
from rekindle.report import Inputs
from rekindle_bench import bar_results, outage_figures
from rekindle_bench.outage_figures import Points
from rekindle_local.demo import demo_run
from rekindle_local.demo.demo_scenario import DemoOptions
from rekindle_peers import lateness
from rekindle_peers import peer_run as peers
from rekindle_peers.freshness import Commits
from rekindle_peers.peer_run import PeerOutcome
from rekindle_peers.peer_scenario import PeerTrial

Perform = Callable[[str, PeerTrial, Path, peers.Show], PeerOutcome]

# Structured Streaming sustains a 32nd of Rekindle's rate; two halves more for slower days.
HALVINGS_MAX = 7
WINDOW_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class RecoveryRun:
    """A record, the curve of the run's lag, which one without a failure has none of, and its nodes
    that were killed."""

    record: dict[str, Any]
    curve: Points
    victims: tuple[str, ...] = ()


def rekindle(wanted: DemoOptions, parent: Path) -> RecoveryRun:
    """Run the demo; raises RunError as the demo does."""
    directory = _new_directory(parent, wanted.strategy, wanted.seed, 1.0)
    report = demo_run.perform(wanted, directory)
    demo_run.summarise(report, directory)
    events = _events(directory)
    inputs = Inputs.from_record(json.loads((directory / "input.json").read_text()))
    growths = _growths(events, inputs)
    record = {
        **_named(wanted.strategy, wanted.seed, demo_run.rate(directory), 1.0),
        "sustained": not growths or lateness.sustained(growths),
        "lag_growth": _mean(growths),
        "load_percent": _load(events),
        **outage_figures.figures(events, inputs),
        "bound": report["weighted_unavailable_seconds_bound"],
        "first_plan_epochs": report["first_plan_epochs"],
        "first_plan_seconds": report["first_plan_seconds"],
        "survivors_epochs_lost": _survivors_lost(report),
        "exactly_once": report["exactly_once"],
        "quota_enforced": report["quota_enforced"],
    }
    return RecoveryRun(record, outage_figures.curve(events, inputs), tuple(report["victims"]))


def peer(
    name: str, trial: PeerTrial, parent: Path, perform: Perform = peers.perform, halvings: int = 0
) -> Iterator[RecoveryRun]:
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


def restored(parent: Path, record: dict[str, Any]) -> RecoveryRun | None:
    """A run of a report's directory, by its record in `recovery.json`; None where its own directory
    is gone, if it had a failure. Raises InputError where its files are damaged."""
    if record["weighted_unavailable_seconds"] is None:
        return RecoveryRun(record, [])
    directory = parent / _name(record["system"], record["seed"], record["share_of_rate"])
    if not directory.exists():
        return None
    victims = tuple(record["failures"][0]["nodes"])
    try:
        inputs = Inputs.from_record(json.loads((directory / "input.json").read_text()))
        return RecoveryRun(record, outage_figures.curve(_events(directory), inputs), victims)
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


def _peer_run(
    name: str, trial: PeerTrial, share: float, directory: Path, outcome: PeerOutcome
) -> RecoveryRun:
    record = {
        **_named(name, trial.seed, trial.rows_per_second, share),
        "sustained": outcome.sustained,
        "lag_growth": _mean(outcome.growths),
        "weighted_unavailable_seconds": None,
        "exactly_once": None if outcome.report is None else outcome.report["exactly_once"],
        "quota_enforced": outcome.quota_enforced,
    }
    if not outcome.sustained:
        return RecoveryRun(record, [])
    inputs = outage_figures.alone(trial.priorities)
    events = _events(directory)
    return RecoveryRun(
        {**record, **outage_figures.figures(events, inputs)}, outage_figures.curve(events, inputs)
    )


def _broken_run(name: str, trial: PeerTrial, share: float, error: RunError) -> RecoveryRun:
    record = {
        **_named(name, trial.seed, trial.rows_per_second, share),
        "sustained": False,
        "lag_growth": None,
        "weighted_unavailable_seconds": None,
        "exactly_once": None,
        "quota_enforced": None,
        "error": str(error),
    }
    return RecoveryRun(record, [])


def _named(system: str, seed: int, rate: float, share: float) -> dict[str, Any]:
    return {
        "system": system,
        "strategy": system,
        "seed": seed,
        "commit": bar_results.COMMIT,
        "rate": rate,
        "share_of_rate": share,
    }


def _events(directory: Path) -> Sequence[Event]:
    return run_events.parse((directory / "events.jsonl").read_text())


def _growths(events: Sequence[Event], inputs: Inputs) -> dict[str, float]:
    """How lags grew before the failure since the warm-up, a minute at most."""
    warm = run_events.last(events, "warm")
    commits = Commits(tuple(inputs.priorities))
    for event in outage_figures.before_failure(events):
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
