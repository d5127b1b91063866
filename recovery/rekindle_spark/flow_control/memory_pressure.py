"""Keeps hosts within their memory: smaller epochs and pieces, an event, or the end of the run.

What to do is decided in `memory_budget`; this applies it. Called by `control_loop`.
"""

import time
from collections import Counter
from collections.abc import Mapping

from rekindle.model.errors import RunError
from rekindle_spark.driver.driver_context import DriverContext
from rekindle_spark.flow_control.memory_budget import MemoryReading
from rekindle_spark.jobs.job_runner import Result
from rekindle_spark.pipeline.program import Program

STATES_SHOWN = 3
REMEDY = (
    "give hosts more memory (runtime.host_memory_mib_max, or spark.executor.memoryOverhead), "
    "add nodes and parallelism, or make windows shorter; committed output stays"
)


def heed(application: DriverContext, result: Result) -> None:
    """Enter what a job says of hosts' memory; the next epoch is cut accordingly."""
    budget, progress = application.budget, application.progress
    with application.lock:
        live = {progress.placed[number] for number in progress.live}
        rows = application.cuts[application.newest].rows
        budget.keep(application.executors)
        readings = {e: r for e, r in result.memory.items() if e in application.executors}
        changes = budget.note(readings, live, rows, result.piece_epochs)
        if result.finished:
            budget.finished(readings, rows, result.piece_epochs)
    application.arrivals.rows_per_epoch_max = budget.rows_max
    application.arrivals.rows_proved = budget.rows_proved
    for change in changes:
        application.events.write(
            change.kind,
            executor=change.executor,
            node=application.executors[change.executor],
            used_bytes=change.reading.peak_bytes,
            limit_bytes=change.reading.max_bytes,
            epoch=application.newest,
        )


def refuse(application: DriverContext, result: Result) -> None:
    """Hosts had no memory for a job: it is issued again, or the run ends with RunError."""
    progress = application.progress
    for executor, states in result.over_budget.items():
        if executor not in application.executors:
            continue
        with application.lock:
            catching_up = any(progress.placed.get(n) == executor for n in application.claimed)
            waits = catching_up and not result.piece_epochs
            is_end = application.budget.refused(
                executor, result.piece_epochs, time.monotonic(), waits=waits
            )
        if is_end:
            where = f"executor {executor} on {application.executors[executor]}"
            raise RunError(
                where=where,
                what=_described(application.program, result.memory[executor], states),
                remedy=REMEDY,
            )


def _described(program: Program, reading: MemoryReading, states: Mapping[str, int]) -> str:
    steps: Counter[str] = Counter()
    for number, size in states.items():
        steps[program.owner[int(number)].name] += size
    shown = [f"{step} {_mib(size)} MiB" for step, size in steps.most_common(STATES_SHOWN) if size]
    largest = f"; the largest states: {', '.join(shown)}" if shown else ""
    used, most = _mib(reading.peak_bytes), _mib(reading.max_bytes or 0)
    return f"its host needs {used} MiB of memory and may use {most} MiB{largest}"


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f}"
