"""Takes partitions whose functions raise out of what runs, so that the other queries go on.

What cannot run without them stops as well. Their input is kept as for anything that is behind, so a
driver with a mended function goes on from there. `control` stops, the epoch loop ends with the
error once the others have finished.
"""

from collections.abc import Iterator, Mapping

from rekindle.errors import StepError
from rekindle.settings import ALWAYS
from rekindle_spark.application import Application
from rekindle_spark.program import Program

__all__ = ["check", "query_partitions", "stop"]


def stop(application: Application, faults: Mapping[int, StepError]) -> None:
    """Stop partitions, as far as they run, with all that is downstream of them.

    Raises the error where no query is left to go on, and under `adaptive` buffering, where nothing
    has been kept for those who stop. Jobs on their way are given up where the partitions may be in
    them.
    """
    program, progress = application.program, application.progress
    with application.lock:
        faults = {number: fault for number, fault in faults.items() if number in progress.placed}
        busy = progress.live | application.claimed
        fresh = progress.stop(faults)
        application.losses += not busy.isdisjoint(fresh)
        stopped = {query for query, _, _ in query_partitions(program, progress.stopped)}
    for query, query_partition, cause in query_partitions(program, fresh):
        application.events.write(
            "query-stopped",
            query=query,
            query_partition=query_partition,
            epoch=application.newest,
            text=str(cause),
        )
    keeps = application.settings.policy.buffering == ALWAYS
    if fresh and not (keeps and len(stopped) < len(program.topology.queries)):
        raise next(iter(faults.values()))


def check(application: Application) -> None:
    """Raise the error for which partitions were stopped first, if any were."""
    for cause in application.progress.stopped.values():
        raise cause


def query_partitions(
    program: Program, stopped: Mapping[int, StepError]
) -> Iterator[tuple[str, str, StepError]]:
    """Query, query partition and error of each sink partition among those that have stopped."""
    for number, cause in sorted(stopped.items()):
        parts = program.output_parts(number)
        for sink in program.owner[number].sinks:
            yield sink.name, parts[sink.name], cause
