"""Makes output count: writes one commit record, then its events.

A commit record says which epochs of which partitions are finished, and which files are their
output; readers go by nothing else. `job_runner` has one written for each job, `output_staging` one
for each checkpoint, of what was held back until then. (What a killed driver still owed, the next
one writes before it has an event log: `driver_main`.)
"""

from collections.abc import Iterable, Mapping
from typing import Any

from rekindle_spark.checkpoint.restore_points import RestorePoints
from rekindle_spark.driver import stopped_branches
from rekindle_spark.driver.driver_context import DriverContext
from rekindle_spark.pipeline.program import Program
from rekindle_spark.store.checkpoint_store import StoreHistory


def publish(application: DriverContext, record: Mapping[str, Any]) -> None:
    """Write a commit record, take it in, and tell of it in the events.

    Raises FencedError when a newer driver has started: then nothing of it counts.
    """
    program, committed = application.program, application.committed
    application.store.commit(record)
    application.sinks.wake(application.store.commits)
    application.events.dead_letters(record["outputs"])
    with application.lock:
        late = application.late.take_in(record)
    application.events.write_each("late-rows", late)
    told, reached = [], record.get("left_out", {})
    for name, (first, last, _) in record["finished"].items():
        number = program.numbers[name]
        _enter(program, committed, number, last, reached)
        parts = program.output_parts(number)
        told += [
            {
                "query": sink.name,
                "query_partition": parts[sink.name],
                "from_epoch": first,
                "epoch": min(last, reached.get(parts[sink.name], last)),
                "plan_epoch": record["plan_epoch"],
            }
            for sink in program.owner[number].sinks
            if reached.get(parts[sink.name], last) >= first
        ]
    application.events.write_each("commit", told)


def read_back(
    program: Program, history: StoreHistory, restore_points: RestorePoints
) -> tuple[dict[tuple[int, int], str], dict[str, int]]:
    """Digests of epochs that will be run again, and how far each query partition has got.

    A repeat of what was run unordered, and became public with a checkpoint, may differ. What the
    store says of a pipeline before an upgrade is left out.
    """
    digests: dict[tuple[int, int], str] = {}
    committed: dict[str, int] = {}
    for name in history.fold.finished.keys() & program.numbers.keys():
        number = program.numbers[name]
        chain = program.owner[number]
        for known, reached in sorted(history.fold.finished[name].items()):
            heirs = stopped_branches.heirs(program, history.branches, known, chain)
            for epoch, digest in reached.digests.items():
                # with branches it gave more than now
                if epoch > restore_points.epoch(number) and not heirs:
                    digests[number, epoch] = digest
            for one in (chain, *heirs):
                part = one.first + number - chain.first
                _enter(program, committed, part, reached.last, reached.parts)
    return digests, committed


def _enter(
    program: Program,
    committed: dict[str, int],
    number: int,
    last: int,
    left_out: Mapping[str, int],
) -> None:
    """Take in that a partition's epochs up to `last` are finished: by query partition whose output
    it writes, `committed` has how far that has got. `left_out` says of which less is finished."""
    for part in program.output_parts(number).values():
        committed[part] = max(committed.get(part, 0), min(last, left_out.get(part, last)))


def marks(application: DriverContext, partitions: Iterable[int]) -> dict[str, Any]:
    """What a commit record of some partitions says of branches: how many the program has made
    chains of, and the last epochs of outputs that partitions have run without."""
    reached: dict[str, int] = {}
    for number in partitions:
        reached |= application.progress.reached(number)
    found = {"branches": application.program.branches, "left_out": reached}
    return {name: value for name, value in found.items() if value}
