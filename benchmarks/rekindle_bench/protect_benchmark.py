"""`rekindle bench protect`: the demo's failure in Structured Streaming, protected and not.

    seed ─► with protection    ┐ the same queries, rate, nodes, victims and returns
         ─► without protection ┘

The CPU that protection costs is that of the sidecar, and what the driver's Python and its calls to
the JVM take more with protection than without, from the warm-up to the failure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from rekindle.model import run_events
from rekindle.model.errors import RunError
from rekindle_bench import bar_results, outage_figures, thread_cpu
from rekindle_bench.bar_results import Bar, of_median
from rekindle_local import process_sets
from rekindle_local.demo.driver_process import DriverProcess
from rekindle_local.local_control_plane import LocalControlPlane
from rekindle_local.local_nodes import LocalNodes
from rekindle_peers import peer_run
from rekindle_peers.peer_scenario import PeerTrial
from rekindle_peers.peer_table import PROTECTED

UNPROTECTED = "structured-streaming"
RATIO_MAX = 0.5
COST_PERCENT_MAX = 1.0
# Run time of tasks says what queries cost as long as a node is no more slots than it can run.
SLOTS = 1


@dataclass(frozen=True, slots=True)
class ProtectedRun:
    """One run: `cpu_shares` are the cores that it used before the failure, by what for."""

    system: str
    seed: int
    weighted_unavailable_seconds: float
    exactly_once: Mapping[str, int]
    quota_enforced: bool
    cpu_shares: Mapping[str, float]


def measure(trials: Sequence[PeerTrial], command: str, directory: Path) -> dict[str, Any]:
    """Run each trial with protection and without, in another order each time; returns what
    `protect.json` holds. Raises RunError where lag grows before any failure."""
    runs: list[ProtectedRun] = []
    found: dict[str, Any] = {}
    for turn, trial in enumerate(trials):
        for system in in_turn(turn):
            Console(highlight=False).rule(f"{system}, seed {trial.seed}")
            runs.append(_run(system, replace(trial, slots=SLOTS), directory))
        found = bar_results.save(
            directory / "protect.json",
            {**_asked(trials[0]), "runs": [_record(run) for run in runs]},
            bars(runs, command),
        )
    bar_results.show(found)
    return found


def in_turn(turn: int) -> tuple[str, str]:
    """Who runs first alternates."""
    return (UNPROTECTED, PROTECTED) if turn % 2 == 0 else (PROTECTED, UNPROTECTED)


def bars(runs: Sequence[ProtectedRun], command: str) -> list[Bar]:
    """What the runs come to; each seed has one with protection and one without."""
    of = {(run.system, run.seed): run for run in runs}
    pairs = [
        (of[PROTECTED, seed], of[UNPROTECTED, seed]) for system, seed in of if system == PROTECTED
    ]
    ratio = median(
        ours.weighted_unavailable_seconds / max(theirs.weighted_unavailable_seconds, 1.0)
        for ours, theirs in pairs
    )
    cost = median(cost_percent(ours.cpu_shares, theirs.cpu_shares) for ours, theirs in pairs)
    wrong = sum(
        run.exactly_once[name] for run in runs for name in ("missing", "duplicated", "wrong")
    )
    rows = [
        Bar(
            f"weighted unavailability with protection over without at most {RATIO_MAX}",
            f"{ratio:.2f}",
            ratio <= RATIO_MAX,
            command,
        ),
        Bar(
            f"CPU of protection at most {COST_PERCENT_MAX:g} % of the application's",
            f"{cost:.1f} %",
            cost <= COST_PERCENT_MAX,
            command,
        ),
    ]
    enforced = all(run.quota_enforced for run in runs)
    judged = [of_median(replace(row, met=row.met and enforced), len(pairs)) for row in rows]
    return [*judged, Bar("output exact", f"{wrong} rows missing or wrong", not wrong, command)]


def cost_percent(ours: Mapping[str, float], theirs: Mapping[str, float]) -> float:
    """CPU of protection, in percent of all that the protected application uses."""
    more = sum(ours[what] - theirs[what] for what in ("python", "calls"))
    return 100.0 * (ours["sidecar"] + more) / ours["all"]


def cpu_seconds(
    driver: DriverProcess, nodes: LocalNodes, control: LocalControlPlane | None
) -> dict[str, float]:
    """So far: of all, of the driver's `python`, of its JVM's threads that answer `calls` from
    there, and of the sidecar."""
    kinds = thread_cpu.cpu_by_kind(driver.processes)
    sidecar = 0.0 if control is None else process_sets.cpu_seconds(control.sidecar.processes())
    return {
        "python": kinds.get(("driver", thread_cpu.PYTHON), 0.0),
        "calls": kinds.get(("driver", "calls from Python"), 0.0),
        "sidecar": sidecar,
        "all": sidecar
        + sum(kinds.values())
        + nodes.all_cpu_seconds()
        + nodes.leading_cpu_seconds(),
    }


def _run(system: str, trial: PeerTrial, parent: Path) -> ProtectedRun:
    directory = parent / f"{system}-{trial.seed}"
    directory.mkdir()
    outcome = peer_run.perform(system, trial, directory, trial.display().show, cpu_seconds)
    if outcome.report is None:
        raise RunError(
            where=f"{system}, seed {trial.seed}",
            what=f"lag grows at {trial.rows_per_second:,.0f} rows a second before any failure",
            remedy="give a lower --rows-per-second, or a higher --trigger-seconds",
        )
    events = run_events.parse((directory / "events.jsonl").read_text())
    figures = outage_figures.figures(events, outage_figures.alone(trial.priorities))
    run = ProtectedRun(
        system=system,
        seed=trial.seed,
        weighted_unavailable_seconds=figures["weighted_unavailable_seconds"],
        exactly_once=outcome.report["exactly_once"],
        quota_enforced=outcome.quota_enforced,
        cpu_shares=outcome.cpu_shares,
    )
    Console(highlight=False).print(
        f"{system}, seed {trial.seed}: weighted unavailability "
        f"{run.weighted_unavailable_seconds:.1f} s"
    )
    return run


def _asked(trial: PeerTrial) -> dict[str, Any]:
    return {
        "nodes": trial.nodes,
        "killed": len(trial.victims[0]),
        "queries": len(trial.names),
        "rows_per_second": trial.rows_per_second,
        "trigger_seconds": trial.trigger_seconds,
        "cpu_quota": trial.cpu_quota,
        "slots": SLOTS,
    }


def _record(run: ProtectedRun) -> dict[str, Any]:
    return {
        "system": run.system,
        "seed": run.seed,
        "weighted_unavailable_seconds": run.weighted_unavailable_seconds,
        "exactly_once": dict(run.exactly_once),
        "quota_enforced": run.quota_enforced,
        "cpu_shares": dict(run.cpu_shares),
    }
