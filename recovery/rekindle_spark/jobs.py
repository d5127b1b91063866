"""Epochs and catch-up pieces as jobs: which executor runs which partitions and reads what.

One rule for both: a job takes every partition in it from the epoch behind its last finished one
to a given epoch. Frames of epochs that the producer runs in the same job come from the job's own
exchange, all others from retained ones.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rekindle.coordination.instructions import ON
from rekindle_spark.exchange import Read, Task, ranges
from rekindle_spark.progress import Progress

__all__ = ["Specification", "reachable", "specify"]

Ranges = Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Specification:
    """A job ready to submit. `produced[s]`: per map index of stage s its executor and ranges.

    `ordered`: its partitions take their input in the fixed order.
    """

    stages: tuple[tuple[Task, ...], ...]
    produced: tuple[tuple[tuple[str, dict[int, tuple[int, int]]], ...], ...]
    ranges: dict[int, tuple[int, int]]
    ordered: bool = True


def specify(
    progress: Progress,
    work: Ranges,
    nodes: Mapping[str, str],
    common: Mapping[str, Any],
    offsets: Mapping[int, Mapping[str, Any]],
) -> Specification:
    """The job that runs `work`, {partition: (first epoch, last epoch)}.

    `nodes` gives each executor's node, `common` the header fields of every request, `offsets`
    the source offsets of each epoch.
    """
    layout = [_by_executor(progress, stage) for stage in _stages(progress, work)]
    index = {
        partition: (stage, task)
        for stage, tasks in enumerate(layout)
        for task, (_, partitions) in enumerate(tasks)
        for partition in partitions
    }
    stages, produced = [], []
    for tasks in layout:
        stages.append(
            tuple(
                Task(
                    nodes[executor],
                    executor,
                    _header(progress, executor, partitions, work, common, offsets),
                    _reads(progress, partitions, work, index),
                )
                for executor, partitions in tasks
            )
        )
        produced.append(
            tuple((executor, {p: work[p] for p in partitions}) for executor, partitions in tasks)
        )
    ordered = common.get("ordering", ON) == ON
    return Specification(tuple(stages), tuple(produced), dict(work), ordered)


def reachable(progress: Progress, partition: int, last: int) -> int:
    """The last epoch that all producers of a partition have finished, at most `last`."""
    producers = progress.program.producers(partition)
    return min([last, *(progress.finished.get(producer, 0) for _, producer in producers)])


def _stages(progress: Progress, work: Ranges) -> list[list[int]]:
    """Partitions by the number of producers in a row whose frames come from this very job."""
    depth: dict[int, int] = {}
    for partition in sorted(work):
        feeding = (
            depth[producer] + 1
            for _, producer in progress.program.producers(partition)
            if producer in work and work[producer][0] <= work[partition][1]
        )
        depth[partition] = max(feeding, default=0)
    stages: list[list[int]] = [[] for _ in range(max(depth.values()) + 1)]
    for partition, stage in depth.items():
        stages[stage].append(partition)
    return stages


def _by_executor(progress: Progress, partitions: Sequence[int]) -> list[tuple[str, list[int]]]:
    tasks: dict[str, list[int]] = {}
    for partition in partitions:
        tasks.setdefault(progress.placed[partition], []).append(partition)
    return sorted(tasks.items())


def _header(
    progress: Progress,
    executor: str,
    partitions: Sequence[int],
    work: Ranges,
    common: Mapping[str, Any],
    offsets: Mapping[int, Mapping[str, Any]],
) -> bytes:
    items = [
        {
            "partition": partition,
            "plan_epoch": progress.plan_epochs[partition],
            "from": work[partition][0],
            "to": work[partition][1],
            "finished": progress.finished[partition],
        }
        for partition in partitions
    ]
    needed = {
        epoch
        for partition in partitions
        if not progress.program.owner[partition].keyed
        for epoch in range(work[partition][0], work[partition][1] + 1)
    }
    header = {
        **common,
        "executor": executor,
        "restore_point": progress.restore_point,
        "held": progress.held(executor),
        "work": items,
        "offsets": {str(epoch): offsets[epoch] for epoch in sorted(needed)},
    }
    return json.dumps(header).encode()


def _reads(
    progress: Progress,
    partitions: Sequence[int],
    work: Ranges,
    index: Mapping[int, tuple[int, int]],
) -> tuple[Read, ...]:
    maps: dict[int, set[int]] = {}
    targets: dict[int, set[int]] = {}
    for partition in partitions:
        first, last = work[partition]
        producers = {producer for _, producer in progress.program.producers(partition)}
        for producer in producers:
            for epoch in range(first, last + 1):
                shuffle, number = _place(progress, producer, epoch, work, index)
                maps.setdefault(shuffle, set()).add(number)
                targets.setdefault(shuffle, set()).add(partition)
    return tuple(
        Read(shuffle, ranges(maps[shuffle]), ranges(targets[shuffle])) for shuffle in sorted(maps)
    )


def _place(
    progress: Progress,
    producer: int,
    epoch: int,
    work: Ranges,
    index: Mapping[int, tuple[int, int]],
) -> tuple[int, int]:
    """Shuffle and map index that hold a producer's frames of an epoch."""
    own = work.get(producer)
    if own is not None and own[0] <= epoch <= own[1]:
        stage, task = index[producer]
        return -1 - stage, task
    return progress.retained.places[producer, epoch]
