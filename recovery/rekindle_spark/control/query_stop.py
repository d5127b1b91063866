"""Stops partitions whose functions raise, so that the other queries go on.

Where a stateless step raises, its branch alone is left out of its partition (`stopped_branches`).
What cannot run without them stops as well. Their input is kept as for anything that is behind, so a
driver with a mended function goes on from there. `control_loop` stops, the epoch loop ends with the
error once the others have finished.
"""

from collections.abc import Iterator, Mapping

from rekindle.model.errors import StepError
from rekindle.model.settings import ALWAYS
from rekindle_spark.driver import stopped_branches
from rekindle_spark.driver.driver_context import DriverContext
from rekindle_spark.driver.partition_table import LeftOut, PartitionTable
from rekindle_spark.driver.stopped_branches import Branch
from rekindle_spark.pipeline.chains import branch_name
from rekindle_spark.pipeline.program import Program


def stop(application: DriverContext, faults: Mapping[int, StepError]) -> None:
    """Stop partitions, as far as they run, with all that is downstream of them.

    Raises the error where no query is left to go on, and under `adaptive` buffering, where nothing
    has been kept for those who stop. Jobs on their way are given up where the partitions may be in
    them.
    """
    program, progress = application.program, application.progress
    keeps = application.settings.policy.buffering == ALWAYS
    with application.lock:
        faults = {n: fault for n, fault in faults.items() if _is_news(progress, n, fault)}
        busy = progress.live | application.claimed
        before = {name for _, name, _ in stopped_queries(progress)}
        known = set(progress.stopped)
        without = {n for n, fault in faults.items() if keeps and _leave_out(application, n, fault)}
        progress.stop({n: fault for n, fault in faults.items() if n not in without})
        fresh = (progress.stopped.keys() - known) | without
        application.losses += not busy.isdisjoint(fresh)
        found = {name: (query, cause) for query, name, cause in stopped_queries(progress)}
        stopped = {query for query, _ in found.values()}
    for query_partition, (query, cause) in sorted(found.items()):
        if query_partition in before:
            continue
        application.events.write(
            "query-stopped",
            query=query,
            query_partition=query_partition,
            epoch=application.newest,
            text=str(cause),
        )
    if fresh and not (keeps and len(stopped) < len(program.topology.queries)):
        raise next(iter(faults.values()))


def check(application: DriverContext) -> None:
    """Raise the error for which partitions were stopped first, if any were."""
    for cause in application.progress.stopped.values():
        raise cause
    for branches_out in application.progress.left_out.values():
        raise next(iter(branches_out.values())).cause


def query_partitions(
    program: Program, stopped: Mapping[int, StepError]
) -> Iterator[tuple[str, str, StepError]]:
    """Query, query partition and error of each sink partition among those that have stopped."""
    for number, cause in sorted(stopped.items()):
        parts = program.output_parts(number)
        for sink in program.owner[number].sinks:
            yield sink.name, parts[sink.name], cause


def stopped_queries(progress: PartitionTable) -> Iterator[tuple[str, str, StepError]]:
    """The same of all that is stopped now, as partition or as branch."""
    yield from query_partitions(progress.program, progress.stopped)
    for number, left_out in sorted(progress.left_out.items()):
        chain, parts = progress.program.owner[number], progress.program.output_parts(number)
        for step, one in left_out.items():
            gone = chain.following([step])
            for sink in chain.sinks if number not in progress.stopped else ():
                if sink.name in gone:
                    yield sink.name, parts[sink.name], one.cause


def _is_news(progress: PartitionTable, number: int, fault: StepError) -> bool:
    """Whether a partition runs, and with the step at fault: jobs that have ended before may tell of
    one that is left out by now."""
    if number not in progress.placed:
        return False
    chain, step = progress.program.owner[number], fault.where.removeprefix("step ")
    return not any(
        one.epoch <= progress.finished[number] + 1 and step in chain.following([first])
        for first, one in progress.left_out.get(number, {}).items()
    )


def _leave_out(application: DriverContext, number: int, fault: StepError) -> bool:
    """Have a partition run on without the branch whose step raises; whether it can.

    The record comes before any job runs so, and jobs on their way that do not are given up.
    """
    program, progress = application.program, application.progress
    chain, epoch = program.owner[number], progress.finished[number] + 1
    step = fault.where.removeprefix("step ")
    # what is run unordered may be something else in a repeat
    if chain.keyed and application.settings.policy.ordering != ALWAYS:
        return False
    first = stopped_branches.head(program, chain, step, progress.gone(number))
    if first is None:
        return False
    name = program.partition_names[number]
    branch = Branch(chain.name, first, name, epoch, str(fault))
    application.store.log_branch(branch.record())
    application.store.make_outputs([branch_name(first)])
    for key in [key for key in application.digests if key[0] == number and key[1] >= epoch]:
        del application.digests[key]
    progress.leave_out(number, first, LeftOut(epoch, fault))
    application.events.write(
        "branch-stopped", step=first, partition=name, epoch=epoch, text=str(fault)
    )
    return True
