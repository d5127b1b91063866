"""What catching up costs those that run: their time per epoch beside it, and without it.

The demo's failure with the strategy blocking: until the last node is back survivors run alone, then
all that was lost catches up at once beside them.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rekindle.errors import RunError
from rekindle_local.demo import performance
from rekindle_local.demo.scenario import Options

__all__ = ["measure", "slowdown"]

EPOCHS_MIN = 3

Event = Mapping[str, Any]


def measure(rounds: int, directory: Path) -> list[float]:
    """Perform the demo so often; by how many percent epochs of survivors took longer each time."""
    options = Options(strategy="blocking", return_every_seconds=1.0)
    found = []
    for number in range(1, rounds + 1):
        place = directory / f"catch-up-{number}"
        place.mkdir()
        performance.perform(options, place)
        lines = (place / "events.jsonl").read_text().splitlines()
        found.append(slowdown([json.loads(line) for line in lines]))
    return found


def slowdown(events: Sequence[Event]) -> float:
    """Percent by which an epoch takes longer, from its cut to its commit, while others catch up.

    Of each query partition that no failure stopped, medians over epochs after the loss and before
    the plan, and from the plan until all have recovered; of these ratios the median.
    """
    lost = max(event["t"] for event in events if event["kind"] == "confirmed")
    plan = min(e["t"] for e in events if e["kind"] == "plan" and e["t"] > lost)
    back = min(e["t"] for e in events if e["kind"] == "recovered" and e["t"] > plan)
    alone, beside = (_medians(events, *span) for span in ((lost, plan), (plan, back)))
    both = alone.keys() & beside.keys()
    if not both:
        raise RunError(
            where="bench overhead",
            what="no query ran both before its plan and beside catching up",
            remedy="try again on a machine with less to do",
        )
    return 100 * (median(beside[name] / alone[name] for name in both) - 1)


def _medians(events: Sequence[Event], begin: float, end: float) -> dict[str, float]:
    """Seconds per epoch of each query partition, over epochs cut in a stretch of time."""
    cuts = {e["epoch"]: e["cut_at"] for e in events if e["kind"] == "cut"}
    within = {epoch for epoch, cut_at in cuts.items() if begin < cut_at < end}
    taken: dict[str, list[float]] = {}
    for event in events:
        if event["kind"] == "commit" and event["from_epoch"] == event["epoch"] in within:
            taken.setdefault(event["query_partition"], []).append(
                event["t"] - cuts[event["epoch"]]
            )
    return {name: median(took) for name, took in taken.items() if len(took) >= EPOCHS_MIN}
