"""Makes output count: writes one commit record, then its events.

A commit record says which epochs of which partitions are finished, and which files are their
output; readers go by nothing else. `job_runner` has one written for each job,
`checkpoint_coordinator` one for each checkpoint, of what was held back until then. (What a killed
driver still owed, the next one writes before it has an event log: `driver_main`.)

Output that a repeat may give otherwise is held back until a global checkpoint makes it count. That
is all output of epochs that were run unordered, and what uncertain steps give or have led to.
Nobody may see it before the states behind it are safe. The checkpoint's record carries what becomes
public with it: one record makes both true. The commit record that follows only says it again where
readers of output look; a driver that was killed in between writes it at its next start.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from rekindle_spark.checkpoint.restore_points import RestorePoints
from rekindle_spark.driver import driver_clock, stopped_branches
from rekindle_spark.driver.driver_context import DriverContext, Staged
from rekindle_spark.output import lag_goals
from rekindle_spark.pipeline.program import Program
from rekindle_spark.store.checkpoint_store import StoreHistory
from rekindle_spark.store.commit_summary import CommitSummary


def publish(application: DriverContext, record: Mapping[str, Any]) -> None:
    """Write a commit record, take it in, and tell of it in the events.

    Raises FencedError when a newer driver has started: then nothing of it counts.
    """
    program, committed = application.program, application.committed
    with application.lock:
        lag_goals.count(application, driver_clock.now())
        record = {**record, **application.lag_goals.fields()}
    application.store.commit(record)
    application.sinks.wake(application.store.commits)
    application.events.dead_letters(record["outputs"])
    with application.lock:
        late = application.late.take_in(record)
        # a store that is slow or away has held the output back until now
        lag_goals.count(application, driver_clock.now())
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


def is_unordered(application: DriverContext) -> bool:
    """Whether an epoch that was run unordered has yet to count."""
    return any(held.unordered for held in application.staged.values())


def stage(
    staged: dict[int, Staged],
    partition: int,
    parts: Mapping[str, str],
    epochs: Sequence[Sequence[Any]],
    *,
    unordered: bool,
) -> None:
    """Hold back what a partition has given in some epochs, in place of what it gave before;
    `parts` (output -> its part, as the sink's query partition)."""
    for epoch, _, digest, sinks, late, *_ in epochs:
        held = staged.setdefault(epoch, Staged())
        held.unordered = held.unordered or unordered
        held.digests[partition] = digest
        held.outputs[partition] = [
            [parts[output], epoch, rows, file, sum_of_rows]
            for output, (rows, file, sum_of_rows) in sinks.items()
        ]
        held.late[partition] = late


def publishable(application: DriverContext, epoch: int, behind: Set[int]) -> dict[str, Any] | None:
    """What becomes public with the checkpoint of an epoch, as a commit record; None if nothing.

    Of partitions that are `behind` it has no state from which they would go on the same.
    """
    digests: dict[int, dict[int, str]] = {}
    outputs: list[list[Any]] = []
    late: dict[int, dict[int, int]] = {}
    for number, held in sorted(application.staged.items()):
        for partition in sorted(held.digests.keys() - behind) if number <= epoch else ():
            digests.setdefault(partition, {})[number] = held.digests[partition]
            outputs += held.outputs[partition]
            late.setdefault(partition, {})[number] = held.late[partition]
    if not digests:
        return None
    names = application.program.partition_names
    return {
        "at": driver_clock.now(),
        "plan_epoch": application.plan_epoch,
        "checkpoint": epoch,
        "finished": {
            names[partition]: [min(found), max(found), list(found.values())]
            for partition, found in sorted(digests.items())
        },
        "outputs": [one for one in outputs if one[1] > application.committed.get(one[0], 0)],
        "late": application.late.fresh(late),
        **marks(application, digests),
    }


def publish_staged(application: DriverContext, epoch: int, published: Mapping[str, Any]) -> None:
    """Say in the commit log, and in the events, what has become public; hold it no longer."""
    publish(application, published)
    partitions = {application.program.numbers[name] for name in published["finished"]}
    with application.lock:
        _forget(application.staged, epoch, partitions)


def _forget(staged: dict[int, Staged], epoch: int, partitions: Set[int]) -> None:
    for number in [number for number in staged if number <= epoch]:
        for partition in partitions:
            staged[number].digests.pop(partition, None)
            staged[number].outputs.pop(partition, None)
            staged[number].late.pop(partition, None)
        if not staged[number].digests:
            del staged[number]


def publish_all(application: DriverContext, final: int) -> None:
    """Nothing comes after the final epoch, so what it gave needs no checkpoint to count; but for
    what has stopped, which goes on from an earlier state one day, and then for what that is made
    of again, with all that is made of it."""
    program, stopped = application.program, application.progress.stopped.keys()
    again = {one for one in program.uncertain if not stopped.isdisjoint(program.dependents([one]))}
    published = publishable(application, final, stopped | again | program.dependents(again))
    if published is not None:
        publish_staged(application, final, published)


def unpublished(history: StoreHistory) -> dict[str, Any] | None:
    """What the newest checkpoint made public and no commit record says yet."""
    if history.checkpoint is None or history.checkpoint.get("published") is None:
        return None
    published: dict[str, Any] = history.checkpoint["published"]
    return None if published["checkpoint"] <= history.fold.public else published


def without_committed(
    published: Mapping[str, Any], fold: CommitSummary, committed: Mapping[str, int]
) -> dict[str, Any]:
    """What is owed, without files and late rows of epochs that count already: no epoch is named a
    second time. `committed` says how far each query partition has got."""
    named = {
        part: max(committed.get(part, 0), fold.named.get(part, 0))
        for part in committed.keys() | fold.named.keys()
    }
    return {
        **published,
        "outputs": [one for one in published["outputs"] if one[1] > named.get(one[0], 0)],
        "late": [one for one in published.get("late", ()) if one[1] > fold.last(one[0])],
    }
