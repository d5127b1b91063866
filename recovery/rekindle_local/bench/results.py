"""Rows of bars: what was promised, what was measured, with which command.

Called by every benchmark.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["Bar", "write"]


@dataclass(frozen=True, slots=True)
class Bar:
    """One promise: `value` in words, `met` whether it is kept."""

    bar: str
    value: str
    met: bool
    command: str


def write(path: Path, figures: dict[str, Any], bars: Sequence[Bar]) -> dict[str, Any]:
    """Write figures and bars as JSON, print the bars; returns what was written."""
    content = {"version": 1, **figures, "bars": [asdict(bar) for bar in bars]}
    path.write_text(json.dumps(content, indent=1) + "\n")
    table = Table("bar", "value", "met")
    for bar in bars:
        table.add_row(bar.bar, bar.value, "yes" if bar.met else "NO")
    if bars:
        Console(highlight=False).print(table)
    return content
