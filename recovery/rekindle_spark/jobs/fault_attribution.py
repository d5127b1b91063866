"""Finds out whose fault the death of a process is: an executor's, or a function's.

A host that dies while a function runs says nothing against its executor and node. Its partitions
go on where they are, from their restore points, and nothing is planned or asked for. The partition
that it worked on runs apart from all others until it has passed the epoch, or has ended a process
again: then it stops like one whose function raises. Where functions ran in both lanes of a host,
and it was not ended because one took too long, both are suspected. Decides by `suspects`; every
decision is an event. Called by `job_runner` and `control_loop`.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from rekindle.model.errors import StepError
from rekindle.model.reasons import Reason
from rekindle.model.switch_mode import ON
from rekindle_spark.driver.driver_context import DriverContext
from rekindle_spark.jobs import job_results
from rekindle_spark.jobs.suspect_partitions import SuspectedEpoch
from rekindle_spark.user_code import watchdog
from rekindle_spark.user_code.watchdog import Noted


def note_deaths(application: DriverContext, reports: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Suspect the partitions on which hosts have died; returns their chains by executor."""
    blamed: dict[str, int] = {}
    program, suspects = application.program, application.progress.suspects
    for death in job_results.deaths(reports):
        known = [one for one in death.noted if 0 <= one.partition < len(program.partition_names)]
        if not known:
            continue
        blamed[death.executor] = program.owner[known[0].partition].index
        with application.lock:
            if not suspects.is_news(death.executor, death.process):
                continue
            suspects.blamed[death.executor] = blamed[death.executor]
            for noted in known:
                text = _described(application, death.exit_code, noted)
                suspects.suspect(program, noted.partition, SuspectedEpoch(noted.epoch, text))
            application.progress.hold_back([noted.partition for noted in known])
        for noted in known:
            text = _described(application, death.exit_code, noted)
            _report(application, noted.partition, noted.step, noted.epoch, text, death.executor)
    return blamed


def note_passed(application: DriverContext, ran: Mapping[int, Mapping[str, Any]]) -> None:
    """Partitions have finished epochs: some of them may be suspected no more."""
    suspects, program = application.progress.suspects, application.program
    for number, outcome in ran.items():
        if number not in suspects.apart or not outcome["epochs"]:
            continue
        deaths, last = bool(outcome.get("deaths")), outcome["epochs"][-1][0]
        with application.lock:
            is_cleared = suspects.passed(program, number, last, deaths=deaths)
            is_apart = number in suspects.apart
        if is_cleared:
            how = "apart, with others" if is_apart else "in its host again"
            name = program.partition_names[number]
            application.events.write(
                "function-cleared",
                partition=name,
                epoch=last,
                apart=is_apart,
                reason=str(Reason.FUNCTION_PASSED),
                text=f"{name} has passed epoch {last}: it runs {how}.",
            )


def hold_back(
    application: DriverContext, died: Mapping[int, tuple[StepError, int]]
) -> dict[int, StepError]:
    """Partitions have died beside their host: those that did not run alone will, from now on.
    Returns those that have died before, which are to be stopped."""
    again: dict[int, StepError] = {}
    program, progress = application.program, application.progress
    for number, (fault, epoch) in died.items():
        if number in progress.suspects.alone:
            again[number] = fault
            continue
        text = f"{fault.where}: {fault.what}"  # the remedy is for a step that stops
        with application.lock:
            if number not in progress.suspects.apart:
                progress.suspects.hurried.add(number)
            progress.suspects.suspect(program, number, SuspectedEpoch(epoch, text))
            progress.hold_back([number])
        step = fault.where.removeprefix("step ")
        _report(application, number, step, epoch, text, progress.placed.get(number, ""))
    return again


def restart(application: DriverContext, executor: str) -> Collection[int] | None:
    """Have the partitions of a dead host go on where they are, from their restore points. Returns
    what has survived and goes back with them.

    None, and nothing has changed, where the host did not die by the fault of a function, or where
    what its partitions need is not kept. Sources have lost nothing: what they made lies with Spark.
    """
    progress = application.progress
    is_blamed = progress.suspects.blamed.pop(executor, None) is not None
    if not is_blamed or application.buffering != ON or executor not in application.executors:
        return None
    stateless = application.program.sources - application.program.uncertain
    with application.lock:
        application.losses += 1
        placed, finished = dict(progress.placed), dict(progress.finished)
        undone = progress.undone_by([executor])
        emptied = progress.forget_state([executor])
        for number, where in placed.items():
            if number not in progress.placed:
                progress.place(number, where, progress.plan_epochs[number])
            if number in stateless:
                progress.finished[number] = finished[number]
    application.remove(emptied)
    application.events.write(
        "host-restarted",
        executor=executor,
        node=application.executors[executor],
        epoch=application.newest,
        partitions=application.names(placed.keys() - progress.live),
        reason=str(Reason.FUNCTION_SUSPECTED),
    )
    return undone


def _described(application: DriverContext, exit_code: int, noted: Noted) -> str:
    name = application.program.partition_names[noted.partition]
    how = watchdog.described(exit_code, noted)
    return f"step {noted.step}: {how}, at epoch {noted.epoch} of {name}"


def _report(
    application: DriverContext, number: int, step: str, epoch: int, text: str, executor: str
) -> None:
    application.events.write(
        "function-suspected",
        step=step,
        partition=application.program.partition_names[number],
        epoch=epoch,
        executor=executor,
        node=application.executors.get(executor, ""),
        reason=str(Reason.FUNCTION_SUSPECTED),
        text=f"{text}; it runs apart from all others until it has passed that epoch",
    )
