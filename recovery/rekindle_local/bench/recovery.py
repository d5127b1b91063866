"""Recovery strategies on the same failure: weighted unavailability as a ratio, seed by seed.

The rate of rows is calibrated to the same load in every run, from the rate of the one before.
Bars count only where the nodes' CPU quota is enforced.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from rekindle.errors import RunError
from rekindle_local.bench import results
from rekindle_local.bench.results import Bar
from rekindle_local.demo import performance
from rekindle_local.demo.scenario import Options

__all__ = ["measure"]

RATIO_MAX = 0.35
BOUND_RATIO_MAX = 1.15
FIRST_PLAN_EPOCHS_MAX = 2
FIRST_PLAN_SECONDS_MAX = 2.0


def measure(
    strategies: Sequence[str], seeds: Sequence[int], nodes: int, kill: int, directory: Path
) -> dict[str, Any]:
    """Run every strategy with every seed; returns what `recovery.json` holds."""
    console = Console(highlight=False)
    options = Options(nodes=nodes, kill=kill)
    reports: dict[str, dict[int, dict[str, Any]]] = {strategy: {} for strategy in strategies}
    failed: list[str] = []
    for seed in seeds:
        for strategy in strategies:
            console.rule(f"{strategy}, seed {seed}")
            wanted = replace(options, strategy=strategy, seed=seed)
            place = directory / f"{strategy}-{seed}"
            place.mkdir()
            try:
                report = performance.perform(wanted, place)
            except RunError as error:
                console.print(str(error))
                failed.append(f"{strategy}, seed {seed}: {error}")
                continue
            performance.summarise(report, place)
            reports[strategy][seed] = report
            options = replace(options, first_rows_per_second=performance.rate(place))
    command = f"rekindle bench recovery --strategies {','.join(strategies)}"
    command += f" --seeds {seeds[0]}..{seeds[-1]}"
    figures = _figures(reports, failed)
    return results.write(directory / "recovery.json", figures, _bars(reports, figures, command))


def _figures(reports: dict[str, dict[int, dict[str, Any]]], failed: list[str]) -> dict[str, Any]:
    per_seed = [
        {
            "strategy": strategy,
            "seed": seed,
            "weighted_unavailable_seconds": report["weighted_unavailable_seconds"],
            "bound": report["weighted_unavailable_seconds_bound"],
            "first_plan_epochs": report["first_plan_epochs"],
            "first_plan_seconds": report["first_plan_seconds"],
            "survivors_epochs_lost": _survivors_lost(report),
            "exactly_once": report["exactly_once"],
            "quota_enforced": report["quota_enforced"],
        }
        for strategy, by_seed in reports.items()
        for seed, report in by_seed.items()
    ]
    ratios = {}
    if {"incremental", "blocking"} <= reports.keys():
        pairs = [
            report["weighted_unavailable_seconds"]
            / reports["blocking"][seed]["weighted_unavailable_seconds"]
            for seed, report in reports["incremental"].items()
            if seed in reports["blocking"]
        ]
        if pairs:
            ratios["incremental/blocking"] = median(pairs)
    bound = [
        report["weighted_unavailable_seconds"] / report["weighted_unavailable_seconds_bound"]
        for report in reports.get("incremental", {}).values()
        if report["weighted_unavailable_seconds_bound"]
    ]
    if bound:
        ratios["incremental/bound"] = median(bound)
    return {"ratios": ratios, "runs": per_seed, "failed": failed}


def _bars(
    reports: dict[str, dict[int, dict[str, Any]]], figures: dict[str, Any], command: str
) -> list[Bar]:
    runs = figures["runs"]
    enforced = bool(runs) and all(run["quota_enforced"] for run in runs)
    bars = []
    for name, limit in (
        ("incremental/blocking", RATIO_MAX),
        ("incremental/bound", BOUND_RATIO_MAX),
    ):
        ratio = figures["ratios"].get(name)
        if ratio is not None:
            bar = f"weighted unavailability, {name}: at most {limit}"
            bars.append(Bar(bar, f"{ratio:.2f}", enforced and ratio <= limit, command))
    incremental = list(reports.get("incremental", {}).values())
    if incremental:
        worst = max(report["first_plan_epochs"] for report in incremental)
        bars.append(
            Bar("first plan within 2 epochs", str(worst), worst <= FIRST_PLAN_EPOCHS_MAX, command)
        )
        bars.append(_first_plan([report["first_plan_seconds"] for report in incremental], command))
        lost = max(_survivors_lost(report) for report in incremental)
        bars.append(Bar("survivors lose no epoch", str(lost), lost == 0, command))
    wrong = sum(
        run["exactly_once"][kind] for run in runs for kind in ("missing", "duplicated", "wrong")
    )
    met = wrong == 0 and not figures["failed"] and bool(runs)
    bars.append(Bar("every run exact", f"{wrong} bad rows in {len(runs)} runs", met, command))
    return bars


def _first_plan(found: list[float | None], command: str) -> Bar:
    """From the victims' connections being reset to the first plan that the driver took; never
    counts as for ever."""
    seconds = [math.inf if item is None else item for item in found]
    middle = median(seconds)
    shown = f"{middle:.2f} (worst {max(seconds):.2f})"
    bar = f"first plan acknowledged within {FIRST_PLAN_SECONDS_MAX:g} s, median"
    return Bar(bar, shown, middle <= FIRST_PLAN_SECONDS_MAX, command)


def _survivors_lost(report: dict[str, Any]) -> int:
    return sum(query["epochs_lost"] for query in report["queries"].values() if query["survived"])
