"""What catching up costs those that run: their time per epoch beside it, and before the failure.

The demo's failure with the strategy blocking: until the last node is back survivors run alone, then
all that was lost catches up at once beside them. Before the failure they shared the nodes with all
that runs then; alone they have all of the machine, which no plan promises them. So the time before
the failure is what counts, and the time alone stands beside it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rekindle.model.errors import RunError
from rekindle_local.demo import demo_run
from rekindle_local.demo.demo_scenario import DemoOptions

EPOCHS_MIN = 3

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Slowdown:
    """By how many percent an epoch takes longer beside catching up than it did before the failure,
    and than it does alone after it."""

    before: float
    alone: float


def measure(rounds: int, directory: Path) -> list[Slowdown]:
    """Perform the demo so often; how much longer epochs of survivors took each time."""
    options = DemoOptions(
        nodes=10,
        kill=8,
        strategy="blocking",
        first_rows_per_second=30_000.0,
        return_every_seconds=1.0,
    )
    found = []
    for number in range(1, rounds + 1):
        place = directory / f"catch-up-{number}"
        place.mkdir()
        demo_run.perform(options, place)
        lines = (place / "events.jsonl").read_text().splitlines()
        found.append(slowdown([json.loads(line) for line in lines]))
    return found


def slowdown(events: Sequence[Event]) -> Slowdown:
    """Of an epoch, from its cut to its commit.

    Of each query partition that ran all the time, medians over the epochs of three stretches: from
    when all was warm to the failure, from the loss to the plan, and from the plan until all have
    recovered; of their ratios the medians.
    """
    warm = min(event["t"] for event in events if event["kind"] == "warm")
    lost = max(event["t"] for event in events if event["kind"] == "confirmed")
    plan = min(e["t"] for e in events if e["kind"] == "plan" and e["t"] > lost)
    back = min(e["t"] for e in events if e["kind"] == "recovered" and e["t"] > plan)
    stretches = ((warm, 0.0), (lost, plan), (plan, back))
    before, alone, beside = (_medians(events, *stretch) for stretch in stretches)
    survivors = before.keys() & alone.keys() & beside.keys()
    if not survivors:
        raise RunError(
            where="bench overhead",
            what="no query ran before the failure, alone after it, and beside catching up",
            remedy="try again on a machine with less to do",
        )
    against_before, against_alone = (
        100 * (median(beside[name] / usual[name] for name in survivors) - 1)
        for usual in (before, alone)
    )
    return Slowdown(against_before, against_alone)


def _medians(events: Sequence[Event], begin: float, end: float) -> dict[str, float]:
    """Seconds per epoch of each query partition, over epochs cut and committed in a stretch of
    time."""
    cuts = {e["epoch"]: e["cut_at"] for e in events if e["kind"] == "cut"}
    taken: dict[str, list[float]] = {}
    for event in events:
        if event["kind"] != "commit" or event["from_epoch"] != event["epoch"]:
            continue
        if begin < cuts[event["epoch"]] < event["t"] < end:
            seconds = event["t"] - cuts[event["epoch"]]
            taken.setdefault(event["query_partition"], []).append(seconds)
    return {name: median(took) for name, took in taken.items() if len(took) >= EPOCHS_MIN}
