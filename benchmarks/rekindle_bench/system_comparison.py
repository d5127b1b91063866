"""What the runs of several systems come to: ratios as medians over seeds, and bars.

    run       one system, one seed: a record of `recovery.json`
    counted   the run of a system and seed that ratios take: of a peer the one at the highest rate
              that it sustained, of Rekindle the only one
    ratio     incremental's weighted unavailability over another's, of the same seed

Of Flink's two schedulers the one with the lower figure counts, seed by seed. Bars about a recovery
are met only where the nodes' CPU quota is enforced, who counts has sustained its rate, and every
seed is measured; those about medians with three seeds or more. Pure; `recovery_benchmark`,
`contest_resume` and `steady_benchmark` call it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from rekindle_bench.bar_results import RUNS_MIN, Bar, of_median
from rekindle_cli.cli_options import STRATEGIES

RATIO_MAX = 0.35
BOUND_RATIO_MAX = 1.15
FIRST_PLAN_EPOCHS_MAX = 2
FIRST_PLAN_SECONDS_MAX = 2.0
OURS = "incremental"
FLINK = ("flink", "flink-adaptive")
# Each other side of a ratio with the systems that it stands for.
OTHERS: Mapping[str, Sequence[str]] = {
    "blocking": ("blocking",),
    "structured-streaming": ("structured-streaming",),
    "flink": FLINK,
}

Run = Mapping[str, Any]


def counted(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The runs, each with `counted`: whether it is the one of its system and seed that counts."""
    best: dict[tuple[str, int], float] = {}
    for run in runs:
        if run["sustained"]:
            of = run["system"], run["seed"]
            best[of] = max(run["rate"], best.get(of, 0.0))
    return [{**run, "counted": _counts(run, best)} for run in runs]


def ratios(runs: Sequence[Run]) -> dict[str, float | None]:
    """By name "incremental/OTHER" the median over the seeds that both have; None where the other
    was not unavailable at all, and incremental was."""
    found: dict[str, float | None] = {}
    for other in OTHERS:
        pairs = _pairs(runs, other)
        if pairs:
            middle = median(pairs)
            found[f"{OURS}/{other}"] = middle if math.isfinite(middle) else None
    bound = [
        run["weighted_unavailable_seconds"] / run["bound"]
        for run in runs
        if run["system"] == OURS and run.get("bound")
    ]
    if bound:
        found[f"{OURS}/bound"] = median(bound)
    return found


def bars(
    runs: Sequence[Run], found: Mapping[str, float | None], failed: Sequence[Run], command: str
) -> list[Bar]:
    """What was promised of these runs, and whether it is kept."""
    counting = [run for run in runs if run["counted"]]
    ours = [run for run in counting if run["system"] == OURS]
    enforced = bool(counting) and all(run["quota_enforced"] for run in counting)
    lost = [one for one in failed if one["system"] == OURS]
    valid = enforced and not lost and all(run["sustained"] for run in ours)
    names = [other for other in OTHERS if ours and _asked(runs, failed, other)]
    of = max(RUNS_MIN, len({run["seed"] for run in (*ours, *lost)}))
    rows = [
        _peer_bar(name, found.get(f"{OURS}/{name}"), len(_pairs(runs, name)), of, command)
        for name in names
    ]
    bound = found.get(f"{OURS}/bound")
    if bound is not None:
        bar = f"weighted unavailability, {OURS}/bound: at most {BOUND_RATIO_MAX}"
        met = bound <= BOUND_RATIO_MAX and all(run["bound"] for run in ours)
        rows.append(of_median(Bar(bar, f"{bound:.2f}", met, command), len(ours)))
    rows += _plan_bars(ours, command)
    if not valid:
        rows = [replace(row, met=False) for row in rows]
    checked = [run["exactly_once"] for run in runs if run["exactly_once"] is not None]
    wrong = sum(rows_of[kind] for rows_of in checked for kind in ("missing", "duplicated", "wrong"))
    met = wrong == 0 and not failed and bool(checked)
    rows.append(Bar("every run exact", f"{wrong} bad rows in {len(checked)} runs", met, command))
    return rows


def _counts(run: Run, best: Mapping[tuple[str, int], float]) -> bool:
    """`best`: the highest rate that a system has sustained with a seed."""
    if run["system"] in STRATEGIES:
        return True
    return bool(run["sustained"]) and run["rate"] == best[run["system"], run["seed"]]


def _asked(runs: Sequence[Run], failed: Sequence[Run], other: str) -> bool:
    """Whether one of the systems that a name stands for has run, or was to."""
    return any(run["system"] in OTHERS[other] for run in (*runs, *failed))


def _peer_bar(other: str, ratio: float | None, seeds: int, of: int, command: str) -> Bar:
    """Met only where the other has sustained a rate with each `of` our seeds, of which there are
    enough: else it is not measured."""
    shown = "the other was never unavailable" if ratio is None else f"{ratio:.2f}"
    if seeds < of:
        shown = f"{shown}, with {seeds} of {of} seeds" if seeds else "not measured"
    met = ratio is not None and ratio <= RATIO_MAX and seeds == of
    bar = f"weighted unavailability, {OURS}/{other}: at most {RATIO_MAX}"
    return Bar(bar, shown, met, command)


def _pairs(runs: Sequence[Run], other: str) -> list[float]:
    """Ours over the other's, of each seed that both have."""
    sustained = [run for run in runs if run["sustained"]]
    ours, theirs = _by_seed(runs, (OURS,)), _by_seed(sustained, OTHERS[other])
    return [_ratio(ours[seed], theirs[seed]) for seed in ours.keys() & theirs.keys()]


def _by_seed(runs: Sequence[Run], systems: Sequence[str]) -> dict[int, float]:
    """The lowest weighted unavailability of these systems, by seed."""
    found: dict[int, float] = {}
    for run in runs:
        if run["counted"] and run["system"] in systems:
            seconds = run["weighted_unavailable_seconds"]
            found[run["seed"]] = min(seconds, found.get(run["seed"], math.inf))
    return found


def _ratio(ours: float, theirs: float) -> float:
    if theirs == 0.0:
        return math.inf if ours else 1.0
    return ours / theirs


def _plan_bars(incremental: Sequence[Run], command: str) -> list[Bar]:
    if not incremental:
        return []
    epochs = [run["first_plan_epochs"] for run in incremental]
    worst = math.inf if None in epochs else max(epochs)
    lost = max(run["survivors_epochs_lost"] for run in incremental)
    return [
        Bar("first plan within 2 epochs", f"{worst}", worst <= FIRST_PLAN_EPOCHS_MAX, command),
        _first_plan([run["first_plan_seconds"] for run in incremental], command),
        Bar("survivors lose no epoch", str(lost), lost == 0, command),
    ]


def _first_plan(found: Sequence[float | None], command: str) -> Bar:
    """From the victims' connections being reset to the first plan that the driver took; never
    counts as for ever."""
    seconds = [math.inf if item is None else item for item in found]
    middle = median(seconds)
    shown = f"{middle:.2f} (worst {max(seconds):.2f})"
    bar = f"first plan acknowledged within {FIRST_PLAN_SECONDS_MAX:g} s, median"
    met = middle <= FIRST_PLAN_SECONDS_MAX
    return of_median(Bar(bar, shown, met, command), len(found))
