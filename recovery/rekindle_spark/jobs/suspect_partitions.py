"""Which partitions are suspected to end the process that they run in, and how they run meanwhile.

    trusted ──a host died on it──► suspected: apart, in jobs of its own ──passes──► trusted
                                     ▲       │                         │
              died apart, in an epoch│       │ dies again              │ passes without the records
                                     │       ▼                         ▼ that ended its process
                                     │    stopped          confined: apart, in the epochs
                                     └──────────────────────────────────┘

A host has died on a partition when it had noted that it worked on it. The other partitions of the
same source run the same functions: they run apart too, in the epochs, until the suspected one has
passed, and for good where it has not. Operators with state do not: to hand a state over in each
epoch costs more than one more host would. `fault_attribution` fills it and writes the events.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rekindle_spark.pipeline.program import Program
from rekindle_spark.user_code import watchdog

DEATHS_KNOWN_MAX = 1_000


@dataclass(frozen=True, slots=True)
class SuspectedEpoch:
    """The epoch that a partition has to pass, and in a sentence why it is suspected."""

    epoch: int
    text: str


@dataclass(slots=True)
class Suspects:
    """Suspicions by partition, and who runs apart.

    `alone` run in jobs of their own, and `apart` are all that run in a process of their own.
    `guilty` have ended such a process, `slow` have taken longer in it than an epoch may and passed
    all the same. `hurried` have ended a process in which they had less time than alone. `cleared`
    have passed a suspicion, `relieved` run without the step that was at fault. `blamed` are
    executors whose host has died by the fault of a function and has yet to get its states back,
    each with the function's chain. `known` are the deaths that were reported, the newest ones.
    """

    alone: dict[int, SuspectedEpoch] = field(default_factory=dict)
    apart: set[int] = field(default_factory=set)
    guilty: set[int] = field(default_factory=set)
    slow: set[int] = field(default_factory=set)
    cleared: set[int] = field(default_factory=set)
    relieved: set[int] = field(default_factory=set)
    hurried: set[int] = field(default_factory=set)
    blamed: dict[str, int] = field(default_factory=dict)
    known: dict[tuple[str, int], None] = field(default_factory=dict)

    def is_news(self, executor: str, process: int) -> bool:
        """Whether nobody has reported the death of this process before; all its tasks do."""
        if (executor, process) in self.known:
            return False
        self.known[executor, process] = None
        if len(self.known) > DEATHS_KNOWN_MAX:
            del self.known[next(iter(self.known))]
        return True

    def suspect(self, program: Program, partition: int, suspicion: SuspectedEpoch) -> None:
        """A process has died on a partition."""
        if partition in self.apart:
            self.guilty.add(partition)
        self.alone[partition] = suspicion
        self.apart.add(partition)
        chain = program.owner[partition]
        if not chain.keyed:
            self.apart.update(chain.partitions)

    def passed(self, program: Program, partition: int, epoch: int, *, deaths: bool) -> bool:
        """A partition has run up to an epoch, perhaps without the records on which processes died;
        whether it is suspected no more.

        A partition that is cleared a second time runs apart for good: it may end its process at any
        time.
        """
        if deaths:
            self.guilty.add(partition)
        suspicion = self.alone.get(partition)
        if suspicion is None or epoch < suspicion.epoch:
            return False
        del self.alone[partition]
        if partition in self.cleared:
            self.guilty.add(partition)
        if partition in self.guilty | self.hurried and not deaths:
            self.slow.add(partition)
        self.hurried.discard(partition)
        self.cleared.add(partition)
        alike = set(program.owner[partition].partitions)
        if not alike & (self.guilty | self.alone.keys()):
            self.apart -= alike
        elif program.owner[partition].keyed and partition not in self.guilty:
            self.apart.discard(partition)
        return True

    def terms(self, partition: int, seconds_max: float) -> dict[str, Any]:
        """How a partition runs apart, as a request says it; nothing where it does not.

        A call for which other partitions wait gets a part of the time. A partition that needs more
        shows that when it runs alone.
        """
        if partition not in self.apart:
            return {}
        searches = partition in self.alone
        is_short = not searches and partition not in self.slow
        seconds = watchdog.part_seconds(seconds_max) if is_short else seconds_max
        return {"apart": {"searches": searches, "seconds_max": seconds}}

    def seconds_beside(self, partition: int, seconds_max: float) -> float:
        """How long a call may take beside a host, where more important queries may wait for what
        it holds up: a part of the time, unless the partition has shown that it needs more."""
        return seconds_max if partition in self.slow else watchdog.part_seconds(seconds_max)

    def relieve(self, partition: int) -> None:
        """A partition runs without the step at fault from an epoch on: it is suspected no more.

        It stays apart, for it may have to run earlier epochs again, and so do others of the same
        source, which still have the step.
        """
        if self.alone.pop(partition, None) is not None:
            self.guilty.add(partition)
            self.relieved.add(partition)

    def passed_for_good(self, partition: int) -> None:
        """A partition will not run an epoch with the step at fault again."""
        if partition in self.relieved:
            self.relieved.remove(partition)
            self.apart.discard(partition)

    def forget(self, partitions: Iterable[int]) -> None:
        """These partitions have stopped: suspected ones count as guilty, which keeps others of the
        same source apart."""
        for partition in partitions:
            if self.alone.pop(partition, None) is not None:
                self.guilty.add(partition)
