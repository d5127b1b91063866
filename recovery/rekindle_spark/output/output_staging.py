"""Output that a repeat may give otherwise: held back until a global checkpoint makes it count.

That is all output of epochs that were run unordered, and what uncertain steps give or have led to.
Nobody may see it before the states behind it are safe. The checkpoint's record carries what becomes
public with it: one record makes both true. The commit record that follows only says it again where
readers of output look; a driver that was killed in between writes it at its next start.
`job_runner` stages, `checkpoint_coordinator` publishes.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Any

from rekindle_spark.driver import driver_clock
from rekindle_spark.driver.driver_context import DriverContext, Staged
from rekindle_spark.output import output_commit
from rekindle_spark.store.checkpoint_store import StoreHistory
from rekindle_spark.store.commit_summary import CommitSummary


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


def publishable(
    application: DriverContext, epoch: int, behind: Set[int] = frozenset()
) -> dict[str, Any] | None:
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
        **output_commit.marks(application, digests),
    }


def publish(application: DriverContext, epoch: int, published: Mapping[str, Any]) -> None:
    """Say in the commit log, and in the events, what has become public; hold it no longer."""
    output_commit.publish(application, published)
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
        publish(application, final, published)


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
