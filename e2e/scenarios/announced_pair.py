"""The loss of eight nodes of ten, announced two minutes before and unannounced: their ratio.

    announced     ─► cluster ─► notice ─► two minutes ─► loss ─► report ┐ ratio,
    unannounced   ─► cluster ────────────────────────────► loss ─► report ┘ bar

Each is a run of `scenario_runner` with every row checked. Outages count from the notice on, or from
the loss.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rekindle.model.errors import RunError
from scenarios import loss_scenarios, scenario_runner
from scenarios.loss_scenarios import Scenario

NAME: Final = "eight-announced"
VERSION: Final = 1  # of figures.json
ANNOUNCED, UNANNOUNCED = "announced", "unannounced"
RATIO = "weighted unavailability announced over unannounced"
RATIO_MAX = 0.2
WAYS: Final[Mapping[str, Scenario]] = {
    ANNOUNCED: Scenario(loss_scenarios.eight_announced),
    UNANNOUNCED: Scenario(loss_scenarios.eight_of_ten),
}


def perform(directory: Path) -> str:
    """Run both, in a folder each; what to say of them. Writes figures.json. Raises `RunError` when
    something that a run asserts is not true."""
    reports = {}
    for way, scenario in WAYS.items():
        folder = directory / way
        folder.mkdir()
        reports[way] = scenario_runner.perform(scenario, folder)
    found = figures(reports)
    content = json.dumps({"version": VERSION, "figures": found}, indent=1) + "\n"
    (directory / "figures.json").write_text(content, encoding="utf-8")
    return verdict(found)


def figures(reports: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The ratio with its bar, both of its parts, and the rates at which they ran: each run finds
    its own by the load of the machine."""
    seconds = {way: one["weighted_unavailable_seconds"] for way, one in reports.items()}
    rates = {way: one.get("throughput_rows_per_second") for way, one in reports.items()}
    if not seconds[UNANNOUNCED]:
        raise RunError(
            where="the scenario",
            what="unannounced no query was unavailable, so there is no ratio",
            remedy="see both report.json; the machine may have too much room for this load",
        )
    ratio = seconds[ANNOUNCED] / seconds[UNANNOUNCED]
    told: list[tuple[str, float, str, float | None]] = [(RATIO, round(ratio, 3), "", RATIO_MAX)]
    told += [
        (f"weighted unavailability {way}", round(it, 1), "s", None) for way, it in seconds.items()
    ]
    told += [
        (f"rate {way}", round(it), "rows/s", None) for way, it in rates.items() if it is not None
    ]
    return {name: {"value": value, "unit": unit, "bar": bar} for name, value, unit, bar in told}


def verdict(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The ratio, whether it is within its bar, and what it is made of."""
    ratio = found[RATIO]["value"]
    met = "met" if ratio <= RATIO_MAX else "missed"
    parts = [
        f"{name} {one['value']:g} {one['unit']}" for name, one in found.items() if name != RATIO
    ]
    return f"{RATIO}: {ratio:.3f}, bar {RATIO_MAX:g}, {met}; {', '.join(parts)}"
