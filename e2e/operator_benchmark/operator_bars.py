"""What was measured of the operator beside what was promised. Pure: figures in, rows out.

Two bars are about the operator's own share of a time: what it has waited for a CPU is printed and
taken off.
"""

from collections.abc import Sequence
from statistics import median
from typing import Any

from rekindle_bench.bar_results import Bar

MEMORY_MEGABYTES_MAX = 512
CORES_MAX = 0.2
REPORT_SECONDS_MAX = 2.0
EXPIRY_SECONDS_MAX = 3.0
ALL_PLANS_SECONDS_MAX = 30.0


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """How many, the middle, the 99th percentile (nearest rank) and the most; NaN of none."""
    ordered = sorted(seconds)
    if not ordered:
        return {"count": 0, "median": float("nan"), "p99": float("nan"), "max": float("nan")}
    rank = -(-99 * len(ordered) // 100) - 1
    return {
        "count": len(ordered),
        "median": median(ordered),
        "p99": ordered[rank],
        "max": ordered[-1],
    }


def operator_bars(figures: dict[str, Any], size: str, command: str) -> list[Bar]:
    """One row for each promise; what is missing (NaN) is not met."""
    memory, peak = figures["resident_megabytes"], figures["resident_megabytes_max"]
    cores, report = figures["cores_at_rest"], figures["report_to_plan_seconds"]
    expiry, last = figures["expiry_seen_to_recovery_seconds"], figures["all_plans_seconds"]
    expiry_waited = figures["recovery_waited_seconds"]
    last_waited = figures["all_plans_waited_seconds"]
    planned, lost = figures["applications_planned"], figures["applications_hit"]
    return [
        Bar(
            f"{size}: at most {MEMORY_MEGABYTES_MAX} MiB",
            f"{memory:.0f} MiB at rest, {peak:.0f} MiB at most",
            peak <= MEMORY_MEGABYTES_MAX,
            command,
        ),
        Bar(
            f"at rest: at most {CORES_MAX:.0%} of a core",
            f"{cores:.1%} with {figures['reports_per_second']:.0f} reports/s",
            cores <= CORES_MAX,
            command,
        ),
        Bar(
            f"from a driver's report to the plan: within {REPORT_SECONDS_MAX:g} s",
            f"median {report['median']:.2f} s, worst of {report['count']} {report['max']:.2f} s",
            report["max"] <= REPORT_SECONDS_MAX,
            command,
        ),
        Bar(
            f"from an expired lease to the Recovery with its plan: within {EXPIRY_SECONDS_MAX:g} s",
            f"{_share(expiry, expiry_waited)}; {figures['expiry_to_recovery_seconds']:.2f} s with "
            "the pause between two looks at leases",
            expiry - expiry_waited <= EXPIRY_SECONDS_MAX,
            command,
        ),
        Bar(
            f"{figures['nodes_lost']:,} nodes lost at once: all plans within "
            f"{ALL_PLANS_SECONDS_MAX:g} s",
            f"{planned:,} of {lost:,} applications, the last after {_share(last, last_waited)}",
            planned == lost and last - last_waited <= ALL_PLANS_SECONDS_MAX,
            command,
        ),
    ]


def _share(seconds: float, waited: float) -> str:
    """A time, and what of it the operator has waited for a CPU."""
    return f"{seconds:.2f} s, {waited:.2f} s of it waiting for a CPU"


def last_line(bars: Sequence[Bar]) -> str:
    """All rows in one line, for whoever reads no more."""
    met = sum(bar.met for bar in bars)
    value = "; ".join(bar.value for bar in bars)
    return f"bar all {len(bars)} value {value} met {met} of {len(bars)}"
