"""Epochs and catch-up pieces as jobs: which executor runs which partitions and reads what.

One rule for both: a job takes every partition in it from the epoch behind its last finished one
to a given epoch; a source that goes ahead of its epoch finishes the one before meanwhile. Frames of
epochs that the producer runs in the same job come from the job's own exchange, all others from
retained ones or from durable input. Frames of a source that nobody keeps any more are made again:
the job takes its partition along for these epochs, in which nothing of it counts, on the executor
of the first that reads them, and for the readers in this job alone. So nobody else is held up by
what was missed long ago.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rekindle.model.errors import RunError
from rekindle.model.switch_mode import ON
from rekindle_spark import intervals
from rekindle_spark.driver.partition_table import PartitionTable
from rekindle_spark.executor import host_scheduler
from rekindle_spark.jobs.link_health import Link
from rekindle_spark.output import dead_letters
from rekindle_spark.spark.spark_gateway import Read, Task

Ranges = Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Specification:
    """A job ready to submit. `produced[s]`: per map index of stage s its executor and ranges.

    `intervals` are the epochs that count: of a source more may run, which only makes frames again;
    of one that is not among them, only for readers in this job. `output_order`: see
    `Exchange.submit`. `ordered`: its partitions take their input in the fixed order.
    """

    stages: tuple[tuple[Task, ...], ...]
    produced: tuple[tuple[tuple[str, dict[int, tuple[int, int]]], ...], ...]
    ranges: dict[int, tuple[int, int]]
    output_order: tuple[int, ...] = ()
    ordered: bool = True

    @property
    def partitions(self) -> set[int]:
        """All that run."""
        return {number for tasks in self.produced for _, run in tasks for number in run}

    @property
    def executors(self) -> set[str]:
        """All that run something, or are asked for what they have to say."""
        return {executor for tasks in self.produced for executor, _ in tasks}

    def links(self, retained: Mapping[int, Sequence[str]]) -> set[Link]:
        """Readers and the other executors that they read from; `retained` has those of each
        retained shuffle by map index."""
        own = {
            -1 - stage: [executor for executor, _ in tasks]
            for stage, tasks in enumerate(self.produced)
        }
        return {
            (task.executor, executor)
            for tasks in self.stages
            for task in tasks
            for read in task.reads
            for first, end in zip(read.maps[::2], read.maps[1::2], strict=True)
            for executor in (own.get(read.shuffle) or retained.get(read.shuffle, ()))[first:end]
            if executor != task.executor
        }

    @property
    def reads(self) -> set[int]:
        """The retained shuffles that are read."""
        reads = (read for tasks in self.stages for task in tasks for read in task.reads)
        return {read.shuffle for read in reads if read.shuffle >= 0}


@dataclass(frozen=True, slots=True)
class _Extent:
    """The epochs of each partition that count, and those that run. `readers` are those of sources
    that run for them alone."""

    counts: Ranges
    runs: Ranges
    readers: Mapping[int, list[int]]


def specify(
    progress: PartitionTable,
    work: Ranges,
    nodes: Mapping[str, str],
    common: Mapping[str, Any],
    offsets: Mapping[int, Mapping[str, Any]],
) -> Specification:
    """The job that runs `work`, {partition: (first epoch, last epoch)}.

    `nodes` gives each executor's node, `common` the header fields of every request, `offsets`
    the source offsets of each epoch.
    """
    extent = _extent(progress, work)
    layout = [_by_executor(progress, extent, stage) for stage in _stages(progress, extent.runs)]
    index = {
        partition: (stage, task)
        for stage, tasks in enumerate(layout)
        for task, (_, partitions) in enumerate(tasks)
        for partition in partitions
    }
    frames = _frames(progress, extent.runs, index)
    stages, produced = [], []
    for tasks in layout:
        stages.append(
            tuple(
                Task(
                    nodes[executor],
                    executor,
                    _header(progress, executor, partitions, extent, common, offsets),
                    _reads(partitions, frames),
                )
                for executor, partitions in tasks
            )
        )
        produced.append(
            tuple(
                (executor, {p: extent.runs[p] for p in partitions})
                for executor, partitions in tasks
            )
        )
    ordered = common.get("ordering", ON) == ON
    output_order = _output_order(progress, index)
    return Specification(tuple(stages), tuple(produced), dict(work), output_order, ordered)


def roll_call(
    progress: PartitionTable, nodes: Mapping[str, str], common: Mapping[str, Any]
) -> Specification:
    """A job without work: each host says what it has to say."""
    present = sorted(nodes.items())
    tasks = tuple(
        Task(
            node,
            executor,
            json.dumps(
                {**common, "executor": executor, "held": progress.held(executor), "work": []}
            ).encode(),
            (),
        )
        for executor, node in present
    )
    return Specification((tasks,), (tuple((executor, {}) for executor, _ in present),), {})


def reachable(progress: PartitionTable, partition: int, last: int, work: Ranges) -> int:
    """The last epoch that all producers of a partition have finished, or run in the same job, at
    most `last`."""
    ends = (
        work[producer][1] if producer in work else progress.finished.get(producer, 0)
        for producer in progress.program.upstream(partition)
    )
    return min([last, *ends])


def _extent(progress: PartitionTable, work: Ranges) -> _Extent:
    again = made_again(progress, work)
    readers = {
        source: sorted({number for number in progress.program.consumers(source) if number in work})
        for source in again.keys() - work.keys()
    }
    return _Extent(work, {**work, **again}, readers)


def made_again(progress: PartitionTable, work: Ranges) -> dict[int, tuple[int, int]]:
    """What sources have to run so that `work` gets frames of theirs that nobody keeps.

    Operators with state are not among them: what they give is kept as long as it may be needed.
    """
    runs: dict[int, tuple[int, int]] = {}
    for (partition, *_), (first, last) in _alike(progress, work):
        producers = {producer for _, producer in progress.program.producers(partition)}
        for source in sorted(producers & progress.program.sources):
            for epoch in range(first, last + 1):
                own = runs.get(source) or work.get(source)
                if own is not None and own[0] <= epoch <= own[1]:
                    continue
                if progress.is_kept(source, epoch, partition):
                    continue
                runs[source] = (
                    (epoch, epoch) if own is None else (min(own[0], epoch), max(own[1], epoch))
                )
    return runs


def _alike(
    progress: PartitionTable, work: Ranges
) -> Iterator[tuple[Sequence[int], tuple[int, int]]]:
    """Partitions that read the same epochs of the same producers, and have the same of them in the
    store: what holds for the first holds for the others. Each with their epochs."""
    groups: dict[tuple[int, tuple[int, int], tuple[int, ...]], list[int]] = {}
    inputs = progress.restore_points.inputs
    for partition, span in work.items():
        stored = tuple(one.checkpoint for one in inputs if partition in one.partitions)
        chain = progress.program.owner[partition].index
        groups.setdefault((chain, span, stored), []).append(partition)
    return ((partitions, span) for (_, span, _), partitions in groups.items())


def together(progress: PartitionTable, work: Ranges) -> dict[int, tuple[int, int]]:
    """What of `work` goes into one job.

    Where sources must run again, that is what overlaps the piece of who is furthest behind: for all
    the others they would run the epochs in between as well. Who was to read what is left out goes
    as far as that has run.
    """
    if not made_again(progress, work):
        return dict(work)
    _, furthest_last = min(work.values())
    found: dict[int, tuple[int, int]] = {}
    for partition in progress.program.in_order(work):
        first, last = work[partition]
        if first <= furthest_last:
            last = reachable(progress, partition, last, found)
            if first <= last:
                found[partition] = (first, last)
    return found


def _stages(progress: PartitionTable, work: Ranges) -> list[list[int]]:
    """Partitions by the number of producers in a row whose frames come from this very job.

    Sources have a stage of their own, for what they give may go sooner than what others do.
    """
    keyed = {partition: progress.program.owner[partition].keyed for partition in work}
    least = {True: 0 if all(keyed.values()) else 1, False: 0}
    depth: dict[int, int] = {}
    alike: dict[tuple[int, int], int] = {}
    for partition in progress.program.in_order(work):
        last = work[partition][1]
        key = (progress.program.owner[partition].index, last)
        if key not in alike:
            feeding = (
                depth[producer] + 1
                for producer in progress.program.upstream(partition)
                if producer in work and work[producer][0] <= last
            )
            alike[key] = max(feeding, default=least[keyed[partition]])
        depth[partition] = alike[key]
    stages: list[list[int]] = [[] for _ in range(max(depth.values()) + 1)]
    for partition, stage in depth.items():
        stages[stage].append(partition)
    return stages


def _output_order(
    progress: PartitionTable, index: Mapping[int, tuple[int, int]]
) -> tuple[int, ...]:
    """All partitions, those together that an executor runs in one stage."""
    places, nowhere = {**progress.resident, **progress.placed}, (-1, -1)
    numbers = range(len(progress.program.partition_names))
    return tuple(sorted(numbers, key=lambda n: (places.get(n, ""), index.get(n, nowhere)[0], n)))


def _by_executor(
    progress: PartitionTable, extent: _Extent, partitions: Sequence[int]
) -> list[tuple[str, list[int]]]:
    tasks: dict[str, list[int]] = {}
    for partition in partitions:
        first = extent.readers.get(partition, [partition])[0]
        tasks.setdefault(progress.placed[first], []).append(partition)
    return sorted(tasks.items())


def _header(
    progress: PartitionTable,
    executor: str,
    partitions: Sequence[int],
    extent: _Extent,
    common: Mapping[str, Any],
    offsets: Mapping[int, Mapping[str, Any]],
) -> bytes:
    items = [
        {
            "partition": partition,
            "plan_epoch": progress.plan_epochs[partition],
            "from": extent.runs[partition][0],
            "to": extent.runs[partition][1],
            "counts": list(extent.counts.get(partition, ())),
            "readers": extent.readers.get(partition),
            "finished": progress.finished[partition],
            "restore_point": progress.restore_points.epoch(partition),
            "inputs": progress.restore_points.checkpoints(partition, *extent.runs[partition]),
            **_left_out(progress, partition),
            **_choices(progress, partition, *extent.runs[partition]),
            **progress.suspects.terms(partition, common.get("function_seconds_max", 0.0)),
            **_lane(progress, partition, common),
        }
        for partition in partitions
    ]
    needed = {
        epoch
        for partition in partitions
        if not progress.program.owner[partition].keyed
        for epoch in range(extent.runs[partition][0], extent.runs[partition][1] + 1)
    }
    held = progress.held(executor)
    header = {
        **common,
        "executor": executor,
        "held": held,
        "finished": {str(partition): progress.finished[partition] for partition in held},
        "work": items,
        "offsets": {str(epoch): offsets[epoch] for epoch in sorted(needed)},
    }
    return json.dumps(header).encode()


def _lane(
    progress: PartitionTable, partition: int, common: Mapping[str, Any]
) -> dict[str, int | dict[str, float]]:
    """In which lane of the host a partition runs, where that is not the first, and whether its
    functions run beside the host. No epoch waits for what runs behind it, nor for one that catches
    up and is slow or matters less than what is always apart from it."""
    urgency, is_beside = common.get("urgency"), partition in progress.beside
    waits = is_beside or partition in progress.slow
    is_second = urgency == host_scheduler.BEHIND or (urgency == host_scheduler.CATCH_UP and waits)
    lane = {"lane": host_scheduler.SECOND} if is_second else {}
    if not is_second and not is_beside:
        return {}
    seconds_max = common.get("function_seconds_max", 0.0)
    if is_beside:
        seconds_max = progress.suspects.seconds_beside(partition, seconds_max)
    return {**lane, "beside": {"seconds_max": seconds_max}}


def _left_out(progress: PartitionTable, partition: int) -> dict[str, dict[str, int]]:
    branches = progress.left_out.get(partition, {})
    return {"without": {step: one.epoch for step, one in branches.items()}} if branches else {}


def _choices(progress: PartitionTable, partition: int, first: int, last: int) -> dict[str, Any]:
    """Which rows are to be left out again in epochs that are committed."""
    known = {
        str(epoch): {step: [choice.left, choice.alone] for step, choice in chosen.items()}
        for epoch in range(first, last + 1)
        if (chosen := dead_letters.known(progress, partition, epoch))
    }
    return {"choices": known} if known else {}


def _frames(
    progress: PartitionTable, work: Ranges, index: Mapping[int, tuple[int, int]]
) -> dict[int, dict[int, set[int]]]:
    """For each partition the map indexes with frames for it, by shuffle."""
    found: dict[int, dict[int, set[int]]] = {}
    for partitions, (first, last) in _alike(progress, work):
        maps: dict[int, set[int]] = {}
        for producer in {producer for _, producer in progress.program.producers(partitions[0])}:
            for epoch in range(first, last + 1):
                place = _place(progress, producer, epoch, work, index)
                if place is None and progress.restore_points.has(partitions[0], producer, epoch):
                    continue
                if place is None:
                    raise _unkept(progress, producer, epoch, partitions[0])
                maps.setdefault(place[0], set()).add(place[1])
        found |= dict.fromkeys(partitions, maps)
    return found


def _unkept(progress: PartitionTable, producer: int, epoch: int, reader: int) -> RunError:
    """The books are wrong: what is needed is neither kept nor can it be made again."""
    names = progress.program.partition_names
    return RunError(
        where=f"partition {names[reader]}",
        what=f"needs what {names[producer]} gave in epoch {epoch}, which nobody keeps",
        remedy="start again: all goes on from the newest checkpoint; please report it, with the "
        "event log",
    )


def _reads(
    partitions: Sequence[int], frames: Mapping[int, Mapping[int, set[int]]]
) -> tuple[Read, ...]:
    maps: dict[int, set[int]] = {}
    targets: dict[int, set[int]] = {}
    for partition in partitions:
        for shuffle, indexes in frames[partition].items():
            maps.setdefault(shuffle, set()).update(indexes)
            targets.setdefault(shuffle, set()).add(partition)
    return tuple(
        Read(shuffle, intervals.of(maps[shuffle]), intervals.of(targets[shuffle]))
        for shuffle in sorted(maps)
    )


def _place(
    progress: PartitionTable,
    producer: int,
    epoch: int,
    work: Ranges,
    index: Mapping[int, tuple[int, int]],
) -> tuple[int, int] | None:
    """Shuffle and map index that hold a producer's frames of an epoch; None: no shuffle does."""
    own = work.get(producer)
    if own is not None and own[0] <= epoch <= own[1]:
        stage, task = index[producer]
        return -1 - stage, task
    return progress.retained.places.get((producer, epoch))
