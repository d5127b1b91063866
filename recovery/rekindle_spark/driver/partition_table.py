"""The driver's table of partitions: their place, their progress, and their retained blocks.

    inactive      not placed; its input since its restore point is retained or in the store
    resident      inactive, but its state is still in a living host
    catching up   placed by a plan, behind the newest epoch
    live          runs in every epoch, or behind it where it matters less (`trailing`)
    stopped       a function of it, or of what is upstream, raises: no plan places it any more

Plain bookkeeping for one driver; it decides nothing and talks to nobody.
"""

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rekindle.model.errors import StepError
from rekindle_spark.checkpoint.restore_points import RestorePoints
from rekindle_spark.jobs.suspect_partitions import Suspects
from rekindle_spark.pipeline.chains import Edge
from rekindle_spark.pipeline.program import Program
from rekindle_spark.user_code.dead_letter_sieve import ENDING, LeftOutRows

# From which time of an epoch on a partition is slow: about what a job costs by itself.
SLOW_SECONDS_MIN = 0.15


@dataclass(slots=True)
class Retained:
    """Which map output holds the frames of a producer partition and epoch.

    `held` is how many bytes of frames each executor has on its disk, files of which a part is
    needed counted whole.
    """

    places: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    contents: dict[int, set[tuple[int, int]]] = field(default_factory=dict)
    executors: dict[int, tuple[str, ...]] = field(default_factory=dict)
    sizes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    held: Counter[str] = field(default_factory=Counter)

    def add(
        self,
        shuffle: int,
        tasks: Sequence[tuple[str, Mapping[int, tuple[int, int]]]],
        sizes: Sequence[int],
    ) -> list[int]:
        """Enter a shuffle: per map index, its executor, {producer: (first, last epoch)} and bytes.

        Returns shuffles that hold nothing any more because newer blocks took their place.
        """
        emptied = []
        content = self.contents.setdefault(shuffle, set())
        self.executors[shuffle] = tuple(executor for executor, _ in tasks)
        self.sizes[shuffle] = tuple(sizes)
        self._hold(shuffle, 1)
        for index, (_, produced) in enumerate(tasks):
            for producer, (first, last) in produced.items():
                for epoch in range(first, last + 1):
                    emptied += self._forget((producer, epoch))
                    self.places[producer, epoch] = (shuffle, index)
                    content.add((producer, epoch))
        return emptied

    def lose(self, executor: str) -> list[int]:
        """Forget what an executor held; returns shuffles that hold nothing any more."""
        lost = [
            key
            for key, (shuffle, index) in self.places.items()
            if self.executors[shuffle][index] == executor
        ]
        emptied = [shuffle for key in lost for shuffle in self._forget(key)]
        for shuffle, executors in self.executors.items():
            sizes = zip(executors, self.sizes[shuffle], strict=True)
            self.sizes[shuffle] = tuple(0 if where == executor else size for where, size in sizes)
        self.held.pop(executor, None)
        return emptied

    def holder(self, producer: int, epoch: int) -> str | None:
        """The executor on whose disk a producer's frames of an epoch are; None: nobody's."""
        place = self.places.get((producer, epoch))
        return None if place is None else self.executors[place[0]][place[1]]

    def trim(self, needless: Callable[[int, int], bool]) -> list[int]:
        """Forget blocks that nobody needs, by producer and epoch; returns shuffles to remove."""
        old = [key for key in self.places if needless(*key)]
        return [shuffle for key in old for shuffle in self._forget(key)]

    def shed(self, limit_bytes: int, sources: Container[int]) -> list[int]:
        """Forget what sources can make again, the oldest first, until no executor holds more than
        the limit or nothing of the kind is left; returns shuffles to remove."""
        emptied: list[int] = []
        for shuffle in sorted(self.contents):
            full = {executor for executor, held in self.held.items() if held > limit_bytes}
            if not full:
                break
            content = self.contents[shuffle]
            helps = not full.isdisjoint(self.executors[shuffle])
            if helps and all(producer in sources for producer, _ in content):
                emptied += [gone for key in list(content) for gone in self._forget(key)]
        return emptied

    def clear(self) -> list[int]:
        """Forget everything; returns the shuffles to remove."""
        return [shuffle for key in list(self.places) for shuffle in self._forget(key)]

    def _forget(self, key: tuple[int, int]) -> list[int]:
        place = self.places.pop(key, None)
        if place is None:
            return []
        content = self.contents[place[0]]
        content.discard(key)
        if content:
            return []
        self._hold(place[0], -1)
        del self.contents[place[0]], self.executors[place[0]], self.sizes[place[0]]
        return [place[0]]

    def _hold(self, shuffle: int, sign: int) -> None:
        for executor, size in zip(self.executors[shuffle], self.sizes[shuffle], strict=True):
            if size:  # one that is lost holds nothing, and is not to be entered again
                self.held[executor] += sign * size


@dataclass(slots=True)
class Readers:
    """Which shuffles jobs on their way read: those are removed when the last of them has ended."""

    jobs: Counter[int] = field(default_factory=Counter)
    awaited: set[int] = field(default_factory=set)

    def begin(self, shuffles: Iterable[int]) -> None:
        """A job that reads them has been submitted."""
        self.jobs.update(shuffles)

    def end(self, shuffles: Iterable[int]) -> list[int]:
        """It has ended; shuffles that can be removed now."""
        self.jobs.subtract(shuffles)
        self.jobs = +self.jobs
        free = sorted(self.awaited - self.jobs.keys())
        self.awaited.difference_update(free)
        return free

    def sift(self, shuffles: Iterable[int]) -> list[int]:
        """Of shuffles that nobody needs those that can be removed at once."""
        unneeded = set(shuffles)
        self.awaited |= unneeded & self.jobs.keys()
        return sorted(unneeded - self.jobs.keys())


@dataclass(frozen=True, slots=True)
class LeftOut:
    """From which epoch on a partition runs without a step and what follows it, and why."""

    epoch: int
    cause: StepError


@dataclass(slots=True)
class PartitionTable:
    """Placement and progress of every partition, by number; epochs are the last finished.
    `left_out` has the first steps of the branches that a partition runs without
    (`stopped_branches`). `trailing` run behind the epochs as far as they are live, and functions of
    `beside` run beside hosts, wherever they run (both: `priority_classes`). `slow` have taken long
    for each epoch of their last job. `choices` are those of each step with dead letters, by
    partition and epoch that is committed and may run again."""

    program: Program
    restore_points: RestorePoints = field(default_factory=RestorePoints)
    placed: dict[int, str] = field(default_factory=dict)
    live: set[int] = field(default_factory=set)
    resident: dict[int, str] = field(default_factory=dict)
    finished: dict[int, int] = field(default_factory=dict)
    plan_epochs: dict[int, int] = field(default_factory=dict)
    stopped: dict[int, StepError] = field(default_factory=dict)
    retained: Retained = field(default_factory=Retained)
    suspects: Suspects = field(default_factory=Suspects)
    trailing: frozenset[int] = frozenset()
    beside: frozenset[int] = frozenset()
    slow: set[int] = field(default_factory=set)
    left_out: dict[int, dict[str, LeftOut]] = field(default_factory=dict)
    choices: dict[tuple[int, int], dict[str, LeftOutRows]] = field(default_factory=dict)

    @property
    def catching_up(self) -> set[int]:
        """Partitions that are placed and not live; what is live is placed."""
        return set() if len(self.live) == len(self.placed) else set(self.placed) - self.live

    @property
    def complete(self) -> bool:
        """Whether every partition is live that has not been stopped."""
        return len(self.live) + len(self.stopped) == len(self.program.partition_names)

    def held(self, executor: str) -> list[int]:
        """The partitions whose state is an executor's to keep."""
        return sorted(
            partition
            for held in (self.placed, self.resident)
            for partition, where in held.items()
            if where == executor
        )

    def took(self, partition: int, seconds: float) -> None:
        """A host has worked so long on each epoch of a partition, in its last job."""
        if seconds >= SLOW_SECONDS_MIN:
            self.slow.add(partition)
        else:
            self.slow.discard(partition)

    def place(self, partition: int, executor: str, plan_epoch: int) -> None:
        """Activate a partition: it goes on from its resident state, or from the restore point.

        An uncertain one with a resident state goes on there, wherever it should go: what was made
        of its output is still there, and it would give something else.
        """
        resident = self.resident.pop(partition, None)
        if resident is not None and partition in self.program.uncertain:
            executor = resident
        if resident != executor:
            self.finished[partition] = self.restore_points.epoch(partition)
        self.placed[partition] = executor
        self.plan_epochs[partition] = plan_epoch

    def move(self, partition: int, executor: str) -> None:
        """A live partition goes on elsewhere. It stays live: the next epoch takes it along from its
        restore point; one without state has nothing to run again."""
        self.placed[partition] = executor
        if self.program.owner[partition].keyed:
            self.finished[partition] = self.restore_points.epoch(partition)

    def roll_back(self, plan_epoch: int) -> list[int]:
        """Everything that is placed goes back to its restore point, as if placed there by this
        plan; what was resident is forgotten. Returns the shuffles that held what was retained."""
        self.live.clear()
        self.resident.clear()
        self.finished = {number: self.restore_points.epoch(number) for number in self.placed}
        self.plan_epochs |= dict.fromkeys(self.placed, plan_epoch)
        return self.retained.clear()

    def undone_by(self, executors: Iterable[str]) -> set[int]:
        """What goes back to its restore point with what these hold: it was made of what uncertain
        steps there gave, and their repeats may give something else."""
        lost = {partition for executor in executors for partition in self.held(executor)}
        active = self.placed.keys() | self.resident.keys()
        return self.program.dependents(lost) & active - lost

    def lose(self, executors: Collection[str]) -> list[int]:
        """Take out lost executors, what they undo and what cannot run without them; returns empty
        shuffles."""
        emptied = [gone for executor in executors for gone in self.retained.lose(executor)]
        return emptied + self.forget_state(executors)

    def forget_state(self, executors: Collection[str]) -> list[int]:
        """The hosts of executors have lost their states, but blocks are still there; returns empty
        shuffles."""
        undone = self.undone_by(executors)
        lost = {partition for executor in executors for partition in self.held(executor)}
        self._forget(lost | undone)
        stale = lost & self.program.uncertain | undone
        emptied = self.retained.trim(
            lambda producer, epoch: (
                producer in stale and epoch > self.restore_points.epoch(producer)
            )
        )
        self.suspend_orphans()
        return emptied

    def _forget(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            for known in (self.placed, self.resident, self.finished):
                known.pop(partition, None)
            self.live.discard(partition)

    def stop(self, faults: Mapping[int, StepError]) -> dict[int, StepError]:
        """Take partitions out for good, with what is downstream of them, and what nobody else
        needs; returns all of these, each with its cause.

        Their states are forgotten: a driver with a mended function goes on from restore points. No
        plan would ever bring back what only they need.
        """
        fresh: dict[int, StepError] = {}
        in_order = self.program.in_order(range(len(self.program.partition_names)))
        for partition in in_order:
            upstream = (u for u in self.program.upstream(partition) if u in self.stopped)
            cause = next((self.stopped[u] for u in upstream), faults.get(partition))
            if cause is None or partition in self.stopped:
                continue
            fresh[partition] = self.stopped[partition] = cause
        for partition in reversed(in_order):
            if partition in self.stopped or self._is_needed(partition):
                continue
            branches = (one.cause for one in self.left_out.get(partition, {}).values())
            readers = (self.stopped[reader] for reader in self.program.downstream(partition))
            fresh[partition] = self.stopped[partition] = next(branches, None) or next(readers)
        self._forget(fresh)
        self.suspects.forget(fresh)
        return fresh

    def _is_needed(self, partition: int) -> bool:
        """Whether somebody may still get something from a partition."""
        gone, chain = self.gone(partition), self.program.owner[partition]
        readers = set(self.program.downstream(partition))
        return any(sink.name not in gone for sink in chain.sinks) or not readers <= (
            self.stopped.keys()
        )

    def leave_out(self, partition: int, step: str, left_out: LeftOut) -> dict[int, StepError]:
        """A partition runs without a branch from an epoch on; what is downstream of the branch
        stops. Returns what has stopped."""
        self.left_out.setdefault(partition, {})[step] = left_out
        gone, chain = self.gone(partition), self.program.owner[partition]
        readers: list[int] = []
        for edge in self.program.edges:
            if edge.producer == chain.index and edge.step in gone:
                readers += self._readers(edge, partition)
        self.suspects.relieve(partition)
        return self.stop(dict.fromkeys(readers, left_out.cause))

    def _readers(self, edge: Edge, partition: int) -> list[int]:
        """The partitions that read what a partition gives to an edge."""
        if not edge.written:
            return list(self.program.chains[edge.consumer].partitions)
        return [relay for relay, parent in self.program.parents.items() if parent == partition]

    def gone(self, partition: int) -> frozenset[str]:
        """The steps and sinks that a partition runs without, or will from an epoch on."""
        if partition not in self.left_out:
            return frozenset()
        return self.program.owner[partition].following(self.left_out[partition])

    def lacks(self, producer: int, epoch: int, reader: int) -> bool:
        """Whether a producer has run an epoch without the branch that a reader reads."""
        branches = self.left_out.get(producer, {}).items()
        out = [step for step, one in branches if one.epoch <= epoch]
        gone, consumer = self.program.owner[producer].following(out), self.program.owner[reader]
        edges = self.program.outputs[self.program.owner[producer].index] if gone else ()
        return any(edge.consumer == consumer.index and edge.step in gone for edge in edges)

    def reached(self, partition: int) -> dict[str, int]:
        """By output how far a partition has got where that is less far than the partition."""
        found: dict[str, int] = {}
        parts, chain = self.program.output_parts(partition), self.program.owner[partition]
        for step, left_out in self.left_out.get(partition, {}).items():
            gone = chain.following([step])
            outputs = [sink.name for sink in chain.sinks if sink.name in gone]
            outputs += [name + ENDING for name in chain.letters if name in gone]
            for part in (parts[output] for output in outputs):
                found[part] = min(found.get(part, left_out.epoch), left_out.epoch - 1)
        return found

    def hold_back(self, partitions: Iterable[int]) -> None:
        """These, and what is downstream of them, run in no epoch until they have caught up; they
        keep their places and states."""
        held = set(partitions)
        for partition in self.program.in_order(range(len(self.program.partition_names))):
            if any(u in held for u in self.program.upstream(partition)):
                held.add(partition)
        self.live -= held

    def suspend_orphans(self) -> None:
        """What has lost something upstream becomes resident; repeated down the levels."""
        for partition in self.program.in_order(range(len(self.program.partition_names))):
            if partition not in self.placed:
                continue
            if any(u not in self.placed for u in self.program.upstream(partition)):
                self.resident[partition] = self.placed.pop(partition)
                self.live.discard(partition)

    def is_kept(self, producer: int, epoch: int, reader: int) -> bool:
        """Whether a producer's frames of an epoch for a reader are retained, or in the store."""
        retained = (producer, epoch) in self.retained.places
        return retained or self.restore_points.has(reader, producer, epoch)

    def checkpointed(self, points: RestorePoints) -> list[int]:
        """A checkpoint has become global; returns shuffles that nobody needs any more.

        What a source has given without a branch is of no use to who reads the branch. Sources run
        epochs again behind their own restore point, for readers that go on from an older one.
        """
        self.restore_points, oldest = points, points.oldest
        for key in [key for key in self.choices if key[1] <= oldest]:
            del self.choices[key]
        for partition, branches in self.left_out.items():
            begin = self._begin(partition)
            if all(one.epoch <= begin + 1 for one in branches.values()):
                self.suspects.passed_for_good(partition)
        return self.retained.trim(
            lambda producer, epoch: (
                epoch <= oldest
                or not any(
                    points.needs(reader, producer, epoch)
                    for reader in self.program.consumers(producer)
                    if not self.lacks(producer, epoch, reader)
                )
            )
        )

    def _begin(self, partition: int) -> int:
        """Behind which epoch a partition may yet run: its restore point; without a state, that of
        any partition that goes on in this driver."""
        points = self.restore_points
        if partition not in self.program.sources:
            return points.epoch(partition)
        behind = (epoch for number, epoch in points.older.items() if number not in self.stopped)
        return min([points.newest, *behind])

    def caught_up(self, partition: int, newest: int, gap: int) -> bool:
        """Whether a partition is so close behind that it may join the next epoch."""
        return newest - self.finished[partition] <= gap
