"""Reads a trial from a file that somebody may have changed, and refuses what could not be run.

    names, ranges of numbers ─► `trials`
    settings                 ─► as `rekindle run` reads them, and none that the trial has itself
    faults                   ─► of known kinds, on nodes that there are
    steps                    ─► built as a pipeline, and asked in SQL of a few rows

`chaos_command` calls it.
"""

import tempfile
from pathlib import Path

import msgspec

from rekindle.model import settings
from rekindle.model.errors import InputError
from rekindle.model.settings import Policy, Settings
from rekindle.verification.batch_check import BatchEngine
from rekindle_chaos import (
    link_faults,
    step_schemas,
    trial_generator,
    trial_inputs,
    trial_pipeline,
    trial_sql,
    trials,
)
from rekindle_chaos.trial_topics import SERVERS
from rekindle_chaos.trials import ChaosTrial, Fault, ScaleStep, TrialSource
from rekindle_spark.pipeline import program

ROWS = 10
OWN_SETTINGS = ("nodes_expected", "rows_per_second")
REMEDY = "mend it, or give a file that `rekindle chaos` has written"


def read(path: Path) -> ChaosTrial:
    """The trial of a file; raises InputError where it could not be run."""
    trial = trials.load(path)
    where = f"trial {path}"
    try:
        policy = _settings(trial, where).policy
        if trial.has_links:
            link_faults.check_possible()
        for fault in trial.faults:
            _check_fault(fault, trial, policy)
        with tempfile.TemporaryDirectory(prefix="rekindle-trial-") as folder:
            _check_steps(trial, Path(folder))
    except (LookupError, TypeError, ValueError, ArithmeticError, OSError) as error:
        raise InputError(where=where, what=f"cannot be run ({error})", remedy=REMEDY) from error
    return trial


def _settings(trial: ChaosTrial, where: str) -> Settings:
    doubled = [name for name in OWN_SETTINGS if name in trial.runtime]
    if doubled:
        raise ValueError(f"runtime says {', '.join(doubled)}, which the trial itself does")
    sections = {"version": 1, "policy": trial.policy, "runtime": trial.runtime}
    return settings.from_record(sections, where)


def _check_fault(fault: Fault, trial: ChaosTrial, policy: Policy) -> None:
    known = trial_generator.known(processes=trial.processes, links=True, kafka=bool(trial.topics))
    if fault.kind not in known:
        raise ValueError(f"no fault {fault.kind!r:.60}; known are {', '.join(known)}")
    whats = trial_generator.WHAT.get(fault.kind, ("",))
    if fault.what not in whats:
        words = ", ".join(dict.fromkeys(whats)) or "nothing"
        raise ValueError(f"{fault.kind} of {fault.what!r:.60}; known is {words}")
    if any(node >= trial.nodes for node in fault.nodes):
        raise ValueError(f"fault on node {max(fault.nodes)}, of nodes 0 to {trial.nodes - 1}")
    if known[fault.kind][0] and not fault.nodes:
        raise ValueError(f"{fault.kind} of no node")
    if fault.kind in ("cut-link", "flip-byte") and len(set(fault.nodes)) != 2:
        raise ValueError(f"{fault.kind} of {len(set(fault.nodes))} nodes, not of two")
    if fault.at > trial.seconds:
        raise ValueError(f"{fault.kind} at {fault.at:g} s, after the {trial.seconds:g} s of input")
    loses = (fault.kind, fault.what) in trial_generator.LOSES_CHECKPOINT
    if loses and policy.ordering != "always":
        raise ValueError(f"{fault.kind} without `ordering: always`, where it is refused")


def _check_steps(trial: ChaosTrial, folder: Path) -> None:
    few = tuple(
        msgspec.structs.replace(step, rows=ROWS) if isinstance(step, TrialSource) else step
        for step in trial.steps
    )
    columns = step_schemas.of_all(few)
    for step in few:
        if isinstance(step, ScaleStep) and step.into in columns[step.input].columns:
            raise ValueError(f"step {step.name} adds the column {step.into}, which is there")
        if (
            isinstance(step, ScaleStep)
            and step.letters
            and columns[step.input].unique_by != frozenset()
        ):
            raise ValueError(f"step {step.name} has dead letters, and event times not of one row")
    small = msgspec.structs.replace(trial, steps=few)
    trial_inputs.write(small, folder / "input")
    (folder / SERVERS).write_text("nobody-is-asked:9092")
    program.build(trial_pipeline.build(small, folder))
    with BatchEngine() as engine:
        try:
            trial_sql.create(engine, small, folder / "input")
        except InputError as error:
            raise InputError(where=error.where, what=error.what, remedy=REMEDY) from error
