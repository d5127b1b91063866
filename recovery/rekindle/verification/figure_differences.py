"""Differences between the figures that a report gives and those computed again.

Pure. `report_check` calls `differences` and shows what comes out with `table`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

RELATIVE_TOLERANCE = 1e-6
# Times are kept in microseconds: below that, zero and almost zero are the same.
ABSOLUTE_TOLERANCE = 1e-6
ROWS_SHOWN_MAX = 40
# Figures that reports of earlier releases do not have, by their names.
LATER_FIGURES = frozenset({"machine_limit", "skipped", "why"})


@dataclass(frozen=True, slots=True)
class Difference:
    """At `where` the report or record says `reported`, the check found `computed`."""

    where: str
    reported: str
    computed: str


def differences(reported: Any, computed: Any, where: str = "") -> list[Difference]:
    """Compare two JSON values; numbers are equal within 1e-6 relative.

    Fields that only `reported` has are left alone, a newer release may have added them; so are
    those that it cannot have because its release is older.
    """
    if isinstance(reported, Mapping) and isinstance(computed, Mapping):
        return [
            difference
            for name in computed
            for difference in _field(reported, computed, name, f"{where}.{name}".lstrip("."))
        ]
    if _is_list(reported) and _is_list(computed) and len(reported) == len(computed):
        return [
            difference
            for n, (before, after) in enumerate(zip(reported, computed, strict=True))
            for difference in differences(before, after, f"{where}[{n}]")
        ]
    if _equal(reported, computed):
        return []
    return [Difference(where, _shown(reported), _shown(computed))]


def table(found: Iterable[Difference]) -> str:
    """Lay differences out in three columns, the first 40 of them."""
    rows = [(difference.where, difference.reported, difference.computed) for difference in found]
    shown = [("figure", "reported", "computed"), *rows[:ROWS_SHOWN_MAX]]
    widths = [max(len(row[column]) for row in shown) for column in range(3)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in shown
    ]
    if len(rows) > ROWS_SHOWN_MAX:
        lines.append(f"and {len(rows) - ROWS_SHOWN_MAX} more")
    return "\n".join(lines)


def _field(
    reported: Mapping[str, Any], computed: Mapping[str, Any], name: str, where: str
) -> list[Difference]:
    if name not in reported and name in LATER_FIGURES:
        return []
    if name not in reported:
        return [Difference(where, "missing", _shown(computed[name]))]
    found = differences(reported[name], computed[name], where)
    if name == "queries" and isinstance(reported[name], Mapping):
        surplus = sorted(set(reported[name]) - set(computed[name]))
        found += [Difference(f"{where}.{query}", "a query", "no such query") for query in surplus]
    return found


def _equal(reported: Any, computed: Any) -> bool:
    if _is_number(reported) and _is_number(computed):
        return math.isclose(
            reported, computed, rel_tol=RELATIVE_TOLERANCE, abs_tol=ABSOLUTE_TOLERANCE
        )
    return type(reported) is type(computed) and bool(reported == computed)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.9g}"
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
