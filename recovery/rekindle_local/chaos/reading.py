"""Reads a trial from a file that somebody may have changed, and refuses what could not be run.

    names, ranges of numbers ─► `trials`
    settings                 ─► as `rekindle run` reads them, and none that the trial has itself
    faults                   ─► of known kinds, on nodes that there are
    steps                    ─► built as a pipeline, and asked in SQL of a few rows

`commands.chaos` calls it.
"""

import tempfile
from pathlib import Path

import msgspec

from rekindle import settings
from rekindle.errors import InputError
from rekindle.verification.engine import Engine, literal, quoted
from rekindle_local.chaos import application, drawing, inputs, statements, trials
from rekindle_local.chaos.trials import Fault, Source, Trial
from rekindle_spark import program

__all__ = ["read"]

ROWS = 10
OWN_SETTINGS = ("nodes_expected", "rows_per_second")
REMEDY = "mend it, or give a file that `rekindle chaos` has written"


def read(path: Path) -> Trial:
    """The trial of a file; raises InputError where it could not be run."""
    trial = trials.load(path)
    where = f"trial {path}"
    try:
        _check_settings(trial, where)
        for fault in trial.faults:
            _check_fault(fault, trial)
        with tempfile.TemporaryDirectory(prefix="rekindle-trial-") as folder:
            _check_steps(trial, Path(folder))
    except (LookupError, TypeError, ValueError, ArithmeticError, OSError) as error:
        raise InputError(where=where, what=f"cannot be run ({error})", remedy=REMEDY) from error
    return trial


def _check_settings(trial: Trial, where: str) -> None:
    doubled = [name for name in OWN_SETTINGS if name in trial.runtime]
    if doubled:
        raise ValueError(f"runtime says {', '.join(doubled)}, which the trial itself does")
    sections = {"version": 1, "policy": trial.policy, "runtime": trial.runtime}
    settings.from_record(sections, where)


def _check_fault(fault: Fault, trial: Trial) -> None:
    known = {**drawing.KINDS, **(drawing.PROCESS_KINDS if trial.processes else {})}
    if fault.kind not in known:
        raise ValueError(f"no fault {fault.kind!r:.60}; known are {', '.join(known)}")
    if any(node >= trial.nodes for node in fault.nodes):
        raise ValueError(f"fault on node {max(fault.nodes)}, of nodes 0 to {trial.nodes - 1}")
    if known[fault.kind][0] and not fault.nodes:
        raise ValueError(f"{fault.kind} of no node")
    if fault.kind == "damage-record" and trial.policy.get("ordering") != "always":
        raise ValueError("damage-record without `ordering: always`, where it is refused")


def _check_steps(trial: Trial, folder: Path) -> None:
    few = tuple(
        msgspec.structs.replace(step, rows=ROWS) if isinstance(step, Source) else step
        for step in trial.steps
    )
    small = msgspec.structs.replace(trial, steps=few)
    inputs.write(small, folder / "input")
    program.build(application.build(small, folder))
    with Engine() as engine:
        for source in small.sources:
            path = literal(str(inputs.path(folder / "input", source.name)))
            view = f"CREATE VIEW {quoted(source.name)} AS FROM read_parquet({path})"
            engine.ask(view, f"step {source.name}")
        for name, select in statements.tables(few):
            engine.ask(f"CREATE TABLE {quoted(name)} AS {select}", f"step {name}")
