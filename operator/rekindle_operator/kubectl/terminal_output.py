"""Tables, sentences and JSON on standard output.

As wide as need be where nobody looks at a terminal. Says what it is given; commands call it.
"""

import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

PLAIN_WIDTH = 10_000
VERSION = 1


def show(*parts: RenderableType) -> None:
    """Print each part."""
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)
    for part in parts:
        console.print(Text(_calm(part)) if isinstance(part, str) else part, soft_wrap=True)


def show_json(fields: Mapping[str, Any]) -> None:
    """Print a record with its version."""
    print(json.dumps({"version": VERSION, **fields}, indent=2))


def record(value: Any) -> dict[str, Any]:
    """A dataclass as a JSON object, its fields in camelCase as in the API's own objects."""
    fields = dataclasses.asdict(value)
    return {_camel_case(name): item for name, item in fields.items()}


def _camel_case(name: str) -> str:
    """`lostNodes` for `lost_nodes`."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def styled(*parts: tuple[str, str]) -> Text:
    """A line of (text, style) parts."""
    return Text.assemble(*((_calm(text), style) for text, style in parts))


def table(columns: Iterable[str], rows: Iterable[Iterable[str | Text]]) -> Table:
    """A table as kubectl prints them."""
    found = Table(*columns, box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for row in rows:
        found.add_row(*(Text(_calm(cell)) if isinstance(cell, str) else cell for cell in row))
    return found


def _calm(text: str) -> str:
    """Without what would move a terminal's cursor: statuses hold words of drivers and providers."""
    return "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in text)
