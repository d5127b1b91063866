"""Records of `recovery.json`, and systems whose runs are made up."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rekindle import report
from rekindle.model import run_events
from rekindle.model.errors import RunError
from rekindle_bench import bar_results, outage_figures, system_comparison
from rekindle_bench.recovery_runs import RecoveryRun
from rekindle_local.demo.demo_scenario import DemoOptions
from rekindle_peers.peer_scenario import PeerTrial
from rekindle_testing import run_builders as made_up


def record(system: str, seed: int, seconds: float | None, **more: Any) -> dict[str, Any]:
    exact = {"expected_rows": 10, "missing": 0, "duplicated": 0, "wrong": 0}
    return {
        "system": system,
        "seed": seed,
        "commit": bar_results.COMMIT,
        "rate": 1000.0,
        "share_of_rate": 1.0,
        "sustained": True,
        "weighted_unavailable_seconds": seconds,
        "exactly_once": exact,
        "quota_enforced": True,
        "bound": None,
        "first_plan_epochs": 1,
        "first_plan_seconds": 1.0,
        "survivors_epochs_lost": 0,
        "failures": [{"at": 0.0, "nodes": []}],
        **more,
    }


def counted(*runs: dict[str, Any]) -> list[dict[str, Any]]:
    return system_comparison.counted(runs)


def thrice(*runs: dict[str, Any]) -> list[dict[str, Any]]:
    """The same with each of three seeds."""
    return counted(*({**run, "seed": seed} for seed in (1, 2, 3) for run in runs))


@dataclass
class Ran:
    """Stands in for the systems: each run leaves what it leaves, and is remembered."""

    sustains: float = 1e9
    fails: tuple[str, ...] = ()
    interrupts: str = ""
    asked: list[tuple[str, int, float | None]] = field(default_factory=list)
    quotas: list[float] = field(default_factory=list)

    def rekindle(self, wanted: DemoOptions, parent: Path) -> RecoveryRun:
        self.asked.append((wanted.strategy, wanted.seed, wanted.rows_per_second))
        self.quotas.append(wanted.cpu_quota)
        if wanted.strategy in self.fails:
            raise RunError(where=wanted.strategy, what="broke", remedy="see its log")
        rate = wanted.rows_per_second or 1000.0 * wanted.seed
        return self._left(wanted.strategy, wanted.seed, rate, 1.0, parent)

    def peer(
        self, system: str, trial: PeerTrial, parent: Path, *, halvings: int = 0
    ) -> Iterator[RecoveryRun]:
        while True:
            share = 0.5**halvings
            rate = share * trial.rows_per_second
            self.asked.append((system, trial.seed, rate))
            self.quotas.append(trial.cpu_quota)
            if system == self.interrupts:
                raise KeyboardInterrupt
            if system in self.fails:
                raise RunError(where=system, what="broke", remedy="see its log")
            run = self._left(system, trial.seed, rate, share, parent)
            run.record["sustained"] = rate <= self.sustains
            if not run.record["sustained"]:
                run.record.update(weighted_unavailable_seconds=None, failures=[])
            yield run
            if run.record["sustained"]:
                return
            halvings += 1

    def _left(self, system: str, seed: int, rate: float, share: float, parent: Path) -> RecoveryRun:
        made = made_up.make(made_up.BuiltScenario({"a": 3.0, "b": 1.0}))
        inputs = report.Inputs.from_record(made.input_record)
        place = parent / (f"{system}-{seed}" if share == 1 else f"{system}-{seed}-{1 / share:g}th")
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        (place / "events.jsonl").write_text(run_events.serialize(made.events))
        (place / "input.json").write_text(json.dumps(made.input_record))
        figures = outage_figures.figures(made.events, inputs)
        found = {**record(system, seed, 1.0, rate=rate, share_of_rate=share), **figures}
        victims = tuple(figures["failures"][0]["nodes"])
        return RecoveryRun(found, outage_figures.curve(made.events, inputs), victims)
