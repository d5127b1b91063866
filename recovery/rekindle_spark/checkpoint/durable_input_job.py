"""Has the input of partitions that are behind written to the store, as a part of a checkpoint.

    frames that are retained and not in the store yet ──job──► a file for each partition behind

A job beside epochs and catch-up: a task for each partition reads the frames for it, wherever they
lie, and hands them to its executor's host, which writes them (`state_files`). After that nobody
needs them on the executors' disks. Its stages are turns, in each of which an executor has one task,
or as few as can be where there are very many: all at once took the slots and the CPU of what is
live, and the epoch beside them was three to five times as long.

Why: docs/decisions/0016-durable-input-has-a-job-of-its-own.md.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from rekindle_spark import intervals
from rekindle_spark.checkpoint.restore_points import DurableInput
from rekindle_spark.driver.driver_context import DriverContext
from rekindle_spark.driver.partition_table import PartitionTable
from rekindle_spark.jobs import job_runner
from rekindle_spark.jobs.job_runner import RunningJob
from rekindle_spark.jobs.job_specs import Specification
from rekindle_spark.spark.spark_gateway import Read, Task

# A stage depends on all before it, so what many of them cost the driver grows with their square.
TURNS_MAX = 16


@dataclass(frozen=True, slots=True)
class InputPreservation:
    """A job on its way, and what will be in the store once it has ended well."""

    written: DurableInput
    running: RunningJob


def is_covered(progress: PartitionTable, epoch: int, behind: Iterable[int]) -> bool:
    """Whether all that partitions behind need of the epochs up to a checkpoint's is there.

    What sources made can be made again; of operators with state it must be retained, or in the
    store, as far as they are: from there on they will make it.
    """
    points = progress.restore_points
    for partition in behind:
        for _, producer in progress.program.producers(partition):
            if not progress.program.owner[producer].keyed:
                continue
            reached = progress.finished.get(producer, points.epoch(producer))
            for number in range(points.epoch(partition) + 1, min(reached, epoch) + 1):
                is_kept = progress.is_kept(producer, number, partition)
                if is_kept or progress.lacks(producer, number, partition):
                    continue
                return False
    return True


def unwritten(progress: PartitionTable, epoch: int, behind: Set[int]) -> dict[int, tuple[int, ...]]:
    """The epochs of each producer up to a checkpoint's, as stretches, whose frames are retained and
    that somebody behind would lack without them.

    What an uncertain producer gave that is behind itself is not among them: lost, it would make
    something else of its older state, and both would be there.
    """
    points, uncertain = progress.restore_points, progress.program.uncertain
    found: dict[int, list[int]] = {}
    for producer, number in progress.retained.places:
        if producer in behind and producer in uncertain:
            continue
        readers = (
            reader
            for reader in progress.program.consumers(producer)
            if reader in behind and not progress.lacks(producer, number, reader)
        )
        if number <= epoch and any(points.needs(reader, producer, number) for reader in readers):
            found.setdefault(producer, []).append(number)
    return {producer: intervals.of(numbers) for producer, numbers in sorted(found.items())}


def start(application: DriverContext, epoch: int, behind: Set[int]) -> InputPreservation | None:
    """Submit the job of a checkpoint; None where there is nothing to write."""
    with application.lock:
        progress = application.progress
        wanted = unwritten(progress, epoch, behind)
        items = {partition: _given(progress, partition, wanted) for partition in sorted(behind)}
        items = {partition: frames for partition, frames in items.items() if frames}
        if not items:
            return None
        tasks = _tasks(application, epoch, items)
        executors = len(application.executors)
        job = job_runner.submit(application, lambda: _specification(tasks, items, executors))
    return InputPreservation(DurableInput(epoch, wanted, frozenset(items)), job)


def _given(
    progress: PartitionTable, partition: int, wanted: Mapping[int, tuple[int, ...]]
) -> dict[int, tuple[int, ...]]:
    """Of what is wanted what producers have given a partition."""
    found: dict[int, tuple[int, ...]] = {}
    for _, producer in progress.program.producers(partition):
        epochs = wanted.get(producer, ())
        if producer in progress.left_out:
            numbers = intervals.numbers(epochs)
            epochs = intervals.of(
                [n for n in numbers if not progress.lacks(producer, n, partition)]
            )
        if epochs:
            found[producer] = epochs
    return found


def _specification(tasks: Sequence[Task], items: Iterable[int], executors: int) -> Specification:
    """In each stage equally many tasks on each executor, in the last one perhaps fewer. The
    partitions do not run: no epoch of theirs counts."""
    produced = [
        (task.executor, {partition: (0, 0)}) for task, partition in zip(tasks, items, strict=True)
    ]
    at_once = executors * math.ceil(len(tasks) / (executors * TURNS_MAX))
    turns = [slice(first, first + at_once) for first in range(0, len(tasks), at_once)]
    return Specification(
        tuple(tuple(tasks[turn]) for turn in turns),
        tuple(tuple(produced[turn]) for turn in turns),
        {},
    )


def _tasks(
    application: DriverContext, epoch: int, items: Mapping[int, Mapping[int, tuple[int, ...]]]
) -> list[Task]:
    """A task for each partition, on one executor after the other, in the order of `items`."""
    executors, common = sorted(application.executors), application.next_header()
    tasks = []
    for index, (partition, frames) in enumerate(items.items()):
        executor = executors[index % len(executors)]
        header = {
            **common,
            "urgency": job_runner.CATCH_UP,
            "checkpoint": None,
            "executor": executor,
            "held": application.progress.held(executor),
            "work": [],
            "offsets": {},
            "preserve": [{"partition": partition, "checkpoint": epoch, "frames": frames}],
        }
        reads = _reads(application.progress, partition, frames)
        node = application.executors[executor]
        tasks.append(Task(node, executor, json.dumps(header).encode(), reads))
    return tasks


def _reads(
    progress: PartitionTable, partition: int, frames: Mapping[int, tuple[int, ...]]
) -> tuple[Read, ...]:
    maps: dict[int, set[int]] = {}
    for producer, epochs in frames.items():
        for epoch in intervals.numbers(epochs):
            shuffle, number = progress.retained.places[producer, epoch]
            maps.setdefault(shuffle, set()).add(number)
    target = (partition, partition + 1)
    return tuple(Read(shuffle, intervals.of(maps[shuffle]), target) for shuffle in sorted(maps))
