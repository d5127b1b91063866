"""Rows of bars: what was promised, what was measured, with which command, by which code, on what.

Called by every benchmark.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from rekindle_local.demo import demo_evidence

VERSION = 1
# Of when the benchmark began: another may be made while it runs.
COMMIT = demo_evidence.commit()
# Runs differ by a third and more: with fewer a median says little.
RUNS_MIN = 3


@dataclass(frozen=True, slots=True)
class Bar:
    """One promise: `value` in words, `met` whether it is kept."""

    bar: str
    value: str
    met: bool
    command: str


def of_median(bar: Bar, runs: int) -> Bar:
    """A bar whose value is the median of so many runs: met only where these are enough."""
    if runs >= RUNS_MIN:
        return bar
    return replace(bar, value=f"{bar.value}, with {runs} of {RUNS_MIN} runs", met=False)


def write(path: Path, figures: dict[str, Any], bars: Sequence[Bar]) -> dict[str, Any]:
    """Write figures and bars as JSON, print the bars; returns what was written."""
    content = save(path, figures, bars)
    show(content)
    return content


def save(path: Path, figures: dict[str, Any], bars: Sequence[Bar]) -> dict[str, Any]:
    """Write figures and bars as JSON, in the place of what is there; returns what was written."""
    content = {
        "version": VERSION,
        "commit": COMMIT,
        "machine": demo_evidence.machine(),
        **figures,
        "bars": [asdict(bar) for bar in bars],
    }
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(json.dumps(content, indent=1) + "\n")
    beside.replace(path)
    return content


def show(content: Mapping[str, Any]) -> None:
    """Print the bars of what was written."""
    table = Table("bar", "value", "met")
    for row in content["bars"]:
        table.add_row(row["bar"], row["value"], "yes" if row["met"] else "NO")
    if content["bars"]:
        Console(highlight=False).print(table)
