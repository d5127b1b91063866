"""Output of epochs that were run unordered: held back until a global checkpoint makes it count.

A repeat of such an epoch may give something else, so nobody may see its output before the states
behind it are safe. The checkpoint's record carries what becomes public with it: one record makes
both true. The commit record that follows only says it again where readers of output look; a driver
that was killed in between writes it at its next start. `running` stages, `checkpointing` publishes.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rekindle_spark.application import Application, Staged
from rekindle_spark.store import History

__all__ = ["publish", "publish_all", "publishable", "stage", "unpublished"]


def stage(
    staged: dict[int, Staged],
    partition: int,
    names: Mapping[str, str],
    epochs: Sequence[Sequence[Any]],
) -> None:
    """Hold back what a partition has given in some epochs; `names` (output -> its partition)."""
    for epoch, _, digest, sinks in epochs:
        held = staged.setdefault(epoch, Staged())
        held.digests[partition] = digest
        for output, (rows, file, sum_of_rows) in sinks.items():
            held.outputs.append([names[output], epoch, rows, file, sum_of_rows])


def publishable(application: Application, epoch: int) -> dict[str, Any] | None:
    """What becomes public with the checkpoint of an epoch, as a commit record; None if nothing."""
    ready = {number: held for number, held in application.staged.items() if number <= epoch}
    if not ready:
        return None
    digests: dict[int, dict[int, str]] = {}
    for number, held in sorted(ready.items()):
        for partition, digest in held.digests.items():
            digests.setdefault(partition, {})[number] = digest
    names = application.program.partition_names
    return {
        "at": time.time(),
        "plan_epoch": application.plan_epoch,
        "checkpoint": epoch,
        "finished": {
            names[partition]: [min(found), max(found), list(found.values())]
            for partition, found in sorted(digests.items())
        },
        "outputs": [
            output
            for _, held in sorted(ready.items())
            for output in held.outputs
            if output[1] > application.committed.get(output[0], 0)
        ],
    }


def publish(application: Application, epoch: int, published: Mapping[str, Any]) -> None:
    """Say in the commit log, and in the events, what has become public."""
    application.store.commit(published)
    application.events.dead_letters(published["outputs"])
    program = application.program
    with application.lock:
        for number in [number for number in application.staged if number <= epoch]:
            del application.staged[number]
    for name, (first, last, _) in published["finished"].items():
        number = program.numbers[name]
        chain = program.owner[number]
        for output in chain.outputs:
            application.committed[f"{output}/{number - chain.first}"] = last
        for sink in chain.sinks:
            query_partition = f"{sink.name}/{number - chain.first}"
            application.events.write(
                "commit",
                query=sink.name,
                query_partition=query_partition,
                from_epoch=first,
                epoch=last,
                plan_epoch=published["plan_epoch"],
            )


def publish_all(application: Application, final: int) -> None:
    """Nothing comes after the final epoch, so what it gave needs no checkpoint to count."""
    published = publishable(application, final)
    if published is not None:
        publish(application, final, published)


def unpublished(history: History) -> dict[str, Any] | None:
    """What the newest checkpoint made public and no commit record says yet."""
    if history.checkpoint is None or history.checkpoint.get("published") is None:
        return None
    said = {record.get("checkpoint") for record in history.commits}
    published: dict[str, Any] = history.checkpoint["published"]
    return None if published["checkpoint"] in said else published
