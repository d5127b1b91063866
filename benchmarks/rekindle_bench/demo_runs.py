"""The demo as a newcomer runs it, seed after seed, on a quiet machine or on a busy one.

Every row has to be right, and what the demo says about the machine has to agree with a witness that
knows nothing of the demo (`machine_witness`). Called by `bench_demo`.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from rekindle.model.errors import RekindleError
from rekindle_bench import bar_results, machine_witness
from rekindle_bench.bar_results import Bar
from rekindle_cli.report_html import report_text
from rekindle_local.demo import demo_run
from rekindle_local.demo.demo_scenario import DemoOptions, shown

# A run is to be over so soon on a quiet machine.
SECONDS_MAX = 120.0
# Of the time that is looked at, by how much the demo and the witness may differ.
DIFFERENCE_MAX = 0.25


@dataclass(frozen=True, slots=True)
class DemoRun:
    """One run: its length, output rows that were wrong (None: it failed), and for how many of
    `of_seconds` the machine was the limit, as the demo said and as the witness saw it."""

    seed: int
    seconds: float
    bad_rows: int | None
    of_seconds: float = 0.0
    said_seconds: float = 0.0
    witnessed_seconds: float = 0.0
    other_cores: float = 0.0
    said: str = ""
    failure: str = ""

    @property
    def is_exact(self) -> bool:
        """Whether no row was missing, doubled or wrong."""
        return self.bad_rows == 0

    @property
    def is_true(self) -> bool:
        """Whether the demo and the witness agree."""
        if not self.of_seconds:
            return False
        difference = abs(self.said_seconds - self.witnessed_seconds) / self.of_seconds
        return difference <= DIFFERENCE_MAX


def measure(seeds: Sequence[int], busy_share: float, directory: Path) -> dict[str, Any]:
    """Run the demo with each seed in turn; returns what was written to `demo.json`."""
    found = []
    for seed in seeds:
        Console(highlight=False).rule(f"seed {seed}")
        place = directory / f"seed-{seed}"
        place.mkdir()
        found.append(_seen(seed, busy_share, place))
    command = f"rekindle bench demo --seeds {seeds[0]}..{seeds[-1]} --busy {busy_share:g}"
    figures = {"busy_share": busy_share, "runs": [asdict(seen) for seen in found]}
    return bar_results.write(directory / "demo.json", figures, bars(found, busy_share, command))


def bars(found: Sequence[DemoRun], busy_share: float, command: str) -> list[Bar]:
    """Every run exact, each says truly whether the machine was the limit; on a quiet machine each
    is over in two minutes."""
    exact, true = (sum(getattr(seen, name) for seen in found) for name in ("is_exact", "is_true"))
    count = len(found)
    rows = [
        Bar("every row of every run is right", f"{exact} of {count} runs", exact == count, command),
        Bar(
            "each says truly for how long the machine was the limit",
            f"{true} of {count} runs",
            true == count,
            command,
        ),
    ]
    if not busy_share:
        longest = max((seen.seconds for seen in found), default=0.0)
        value = f"{longest:.0f} s at most"
        rows.append(Bar("two minutes in all", value, longest <= SECONDS_MAX, command))
    return rows


def _seen(seed: int, busy_share: float, place: Path) -> DemoRun:
    testimony, begin = place / "witness.jsonl", time.monotonic()
    try:
        with machine_witness.busy_programs(busy_share), machine_witness.witness(testimony):
            report = demo_run.perform(shown(DemoOptions(seed=seed)), place)
    except RekindleError as error:
        return DemoRun(seed, time.monotonic() - begin, None, failure=str(error))
    seconds = time.monotonic() - begin
    demo_run.summarise(report, place)
    return _compared(seed, seconds, report, place)


def _compared(seed: int, seconds: float, report: Mapping[str, Any], place: Path) -> DemoRun:
    counts, limit = report["exactly_once"], report["machine_limit"] or {}
    bad = counts["missing"] + counts["duplicated"] + counts["wrong"]
    end = _ended_at(place / "run" / "driver-events.jsonl")
    of_seconds = limit.get("of_seconds", 0.0)
    testimony = machine_witness.read(place / "witness.jsonl")
    return DemoRun(
        seed=seed,
        seconds=seconds,
        bad_rows=bad,
        of_seconds=of_seconds,
        said_seconds=limit.get("seconds", 0.0),
        witnessed_seconds=machine_witness.short_seconds(testimony, end - of_seconds, end),
        other_cores=limit.get("other_cores", 0.0),
        said=report_text.machine_limit(report),
    )


def _ended_at(events: Path) -> float:
    """When the driver finished, by wall clock."""
    finished = [
        float(record["at"])
        for record in map(json.loads, events.open())
        if record["kind"] == "finish"
    ]
    return finished[-1]
