"""Reads a trial from a file that somebody may have changed, and refuses what could not be run.

    ranges of numbers, known words ─► `trials`
    settings                       ─► as `rekindle run` reads them
    steps                          ─► built as a pipeline, on a few rows
    faults                         ─► of known kinds, on nodes that there are

`commands.chaos` calls it.
"""

import tempfile
from pathlib import Path

import msgspec

from rekindle import settings
from rekindle.errors import InputError
from rekindle_local.chaos import application, drawing, inputs, trials
from rekindle_local.chaos.trials import Fault, Source, Trial
from rekindle_spark import program

__all__ = ["read"]

ROWS = 10
REMEDY = "mend it, or give a file that `rekindle chaos` has written"


def read(path: Path) -> Trial:
    """The trial of a file; raises InputError where it could not be run."""
    trial = trials.load(path)
    where = f"--trial {path}"
    for fault in trial.faults:
        _check_fault(fault, trial, where)
    sections = {"version": 1, "policy": trial.policy, "runtime": trial.runtime}
    settings.from_record(sections, where)
    _check_steps(trial, where)
    return trial


def _check_fault(fault: Fault, trial: Trial, where: str) -> None:
    known = {**drawing.KINDS, **(drawing.PROCESS_KINDS if trial.processes else {})}
    what = None
    if fault.kind not in known:
        kinds = ", ".join(known)
        what = f"has the fault {fault.kind!r:.60}; known are {kinds}"
    elif any(node >= trial.nodes for node in fault.nodes):
        what = f"has a fault on node {max(fault.nodes)}, of nodes 0 to {trial.nodes - 1}"
    elif known[fault.kind][0] and not fault.nodes:
        what = f"has a {fault.kind} of no node"
    if what is not None:
        raise InputError(where=where, what=what, remedy=REMEDY)


def _check_steps(trial: Trial, where: str) -> None:
    few = tuple(
        msgspec.structs.replace(step, rows=ROWS) if isinstance(step, Source) else step
        for step in trial.steps
    )
    small = msgspec.structs.replace(trial, steps=few)
    with tempfile.TemporaryDirectory(prefix="rekindle-trial-") as folder:
        try:
            inputs.write(small, Path(folder) / "input")
            program.build(application.build(small, Path(folder)))
        except InputError:
            raise
        except (LookupError, TypeError, ValueError) as error:
            what = f"has steps that do not fit together ({type(error).__name__}: {error})"
            raise InputError(where=where, what=what, remedy=REMEDY) from error
