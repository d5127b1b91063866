"""What a scenario has measured beside its report: figures with their bars.

Takes records and the report, gives values; pure. `scenario_runner` writes them to figures.json.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

SILENT_TO_PLAN = "silent node to first plan running"
DRIVER_TO_QUERY = "driver's node lost to first query back, without the start of its pod"
MEMORY = "memory of the machine with the whole testbed on it"
BARS = {SILENT_TO_PLAN: (30.0, "s"), DRIVER_TO_QUERY: (60.0, "s"), MEMORY: (16.0, "GiB")}

Record = Mapping[str, Any]


def figures(
    records: Sequence[Record], report: Mapping[str, Any], failure_at: float
) -> dict[str, dict[str, Any]]:
    """Each figure by its name: value, unit, bar; where the driver was lost that of its queries."""
    starts = [one["seconds"] for one in records if one["kind"] == "driver-pod-started"]
    running = [one["at"] for one in records if one["kind"] == "ack" and one["at"] > failure_at]
    planned_at = min(running, default=math.inf) - failure_at
    timed = (
        _driver(starts, planned_at, report) if starts else _silent(records, planned_at, failure_at)
    )
    used = [(MEMORY, one["used_bytes"] / 2**30) for one in records if one["kind"] == "memory"]
    return {
        name: {"value": round(value, 1), "unit": BARS[name][1], "bar": BARS[name][0]}
        for name, value in (*timed, *used)
    }


def _silent(
    records: Sequence[Record], planned_at: float, failure_at: float
) -> Iterator[tuple[str, float]]:
    """From the last change of the lease that was longest unchanged when its node was lost."""
    renewals = [one["at"] for one in records if one["kind"] == "last-renewal"]
    if renewals and math.isfinite(planned_at):
        yield SILENT_TO_PLAN, planned_at + failure_at - min(renewals)


def _driver(
    starts: Sequence[float], planned_at: float, report: Mapping[str, Any]
) -> Iterator[tuple[str, float]]:
    """To the first moment after the first plan at which a query is available again, if only for a
    while."""
    outages = [outage for one in report["queries"].values() for outage in one["unavailable"]]
    back = [until for _, until in outages if planned_at <= until < report["end"]]
    if back:
        yield DRIVER_TO_QUERY, min(back) - starts[-1]
