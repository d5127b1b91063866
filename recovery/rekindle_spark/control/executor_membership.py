"""Which executors there are: arrivals, losses, silence.

    expected ──hello──► up ──gone, cut off, or silent too long──► lost ──new hello──► up
                        │ ▲                                         │                  ▲
                        ▼ └──heard of again                         └──full disk: wait─┘
                      suspected: silent for half as long

A node is an executor's host name. Losses that come close together are reported as one. A silent
executor is dropped from Spark's scheduler: a stopped process would hold its tasks for ever. So is
one whose connection has ended, which Spark on Kubernetes keeps until its pod is gone. After
a pause of this very process silence counts anew: it is us who have not listened. Where nearly all
fall silent together it most often is the driver's own network, so they are suspected and held, and
not dropped, until one of them is heard of or a long time has passed. A coordinator that knows which
nodes are lost may order to drop them meanwhile. Called by `control_loop`, which also has an
executor dropped whose host does not start any more, whose disk is full, or that others cannot
reach: a new one on the machine of one of the latter two has to wait, for it would most often find
the same.
"""

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from rekindle_spark.driver.driver_context import DriverContext
from rekindle_spark.spark.spark_gateway import ExecutorSeen

SETTLE_SECONDS = 0.4
OBSERVE_SECONDS = 0.1
# An executor says every second that it is there; one message may be late.
SUSPECT_SECONDS_MIN = 2.0
HOST_FAILURES_MAX = 3
# So many of all executors do not fail at once without their connections' ending, by far most often.
HELD_SHARE = 0.9
HELD_SECONDS_MIN, HELD_SILENCES = 60.0, 4
# Spark numbers executors as they come: one that is so many behind does not come back.
DROPPED_KNOWN_MAX = 10_000
DISK_SECONDS_MIN = 30.0
DISK_SECONDS_MAX = 600.0


@dataclass(frozen=True, slots=True)
class ExecutorLoss:
    """Executors by node that were lost together, and what gave them away."""

    executors: dict[str, str]
    silent: frozenset[str]


@dataclass(slots=True)
class SuspectedExecutors:
    """Executors that have been silent for so long that they are probably lost."""

    executors: set[str] = field(default_factory=set)

    def changes(
        self, seen: Iterable[ExecutorSeen], limit_seconds: float, listening_seconds: float
    ) -> tuple[list[str], list[str]]:
        """Executors that are suspected since the last call, and those that have been cleared.

        `limit_seconds` is the silence that gets one dropped. Who is not `seen` is gone.
        """
        silent = {executor.executor: executor.silent_seconds for executor in seen}
        after = max(SUSPECT_SECONDS_MIN, limit_seconds / 2)
        cleared = sorted(e for e in self.executors if silent.get(e, after) < after)
        fresh = sorted(
            executor
            for executor, seconds in silent.items()
            if executor not in self.executors and min(seconds, listening_seconds) > after
        )
        self.executors = (self.executors & silent.keys()) - set(cleared) | set(fresh)
        return fresh, cleared


@dataclass(slots=True)
class HostFailures:
    """How often in a row an executor's host was found dead: at first it is started again.

    Deaths while functions of one chain ran count as one: these are more likely at fault.
    """

    in_a_row: dict[str, set[int]] = field(default_factory=dict)

    def count(self, executor: str, chain: int | None = None) -> bool:
        """One more failure, while a function of a chain ran or without one; whether it was one too
        many, so that the executor is of no use."""
        causes = self.in_a_row.setdefault(executor, set())
        causes.add(-1 - len(causes) if chain is None else chain)
        return len(causes) >= HOST_FAILURES_MAX

    def forget(self, executors: Iterable[str]) -> None:
        """Their hosts have answered, or they are gone."""
        for executor in executors:
            self.in_a_row.pop(executor, None)


@dataclass(slots=True)
class Hold:
    """Executors that fell silent together, nearly all there are, since when they are not dropped
    for it; none: nobody is held."""

    executors: frozenset[str] = frozenset()
    since: float = 0.0
    is_heard: bool = False

    def look(self, silent: Collection[str], present: Collection[str], now: float) -> None:
        """Take in who is silent for too long, of all that are there."""
        fallen, there = frozenset(silent), frozenset(present)
        self.is_heard = bool((self.executors & there) - fallen)
        if self.is_heard or len(there) < 2 or len(fallen) <= HELD_SHARE * len(there):
            self.executors = frozenset()
            return
        if not self.executors:
            self.since = now
        self.executors |= fallen

    def spares(self, limit_seconds: float, now: float) -> bool:
        """Whether nobody is to be dropped for silence; `limit_seconds` is the silence that gets one
        dropped. Who is not heard of yet when one is has the same time once more."""
        longest = max(HELD_SECONDS_MIN, HELD_SILENCES * limit_seconds)
        return self.is_heard or (bool(self.executors) and now - self.since <= longest)


@dataclass(slots=True)
class AvoidedMachines:
    """Machines on which there was no room, or that others could not reach: executors there are let
    in later, each time after twice as long.

    Of each for how many seconds and until when; one that has gone well for long is forgotten.
    """

    waits: dict[str, tuple[float, float]] = field(default_factory=dict)

    def note(self, machine: str, now: float) -> float:
        """There was no room once more; seconds for which it is left alone."""
        self.waits = {
            name: (seconds, until)
            for name, (seconds, until) in self.waits.items()
            if now - until <= DISK_SECONDS_MAX
        }
        before, _ = self.waits.get(machine, (0.0, now))
        seconds = min(max(2 * before, DISK_SECONDS_MIN), DISK_SECONDS_MAX)
        self.waits[machine] = (seconds, now + seconds)
        return seconds

    def leaves_alone(self, machine: str, now: float) -> bool:
        """Whether it has yet to wait."""
        return machine in self.waits and now < self.waits[machine][1]


@dataclass(slots=True)
class Membership:
    """Compares what Spark sees with what it saw before. `dropped` are those that do not count even
    if they come back, the newest ones."""

    application: DriverContext
    known: dict[str, str] = field(default_factory=dict)
    dropped: dict[str, None] = field(default_factory=dict)
    pending: dict[str, str] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    settled_at: float = 0.0
    looked_at: float = 0.0
    listening_since: float = 0.0
    fresh: list[str] = field(default_factory=list)
    seen: list[ExecutorSeen] = field(default_factory=list)
    parting: dict[str, ExecutorSeen] = field(default_factory=dict)
    suspicion: SuspectedExecutors = field(default_factory=SuspectedExecutors)
    avoided: AvoidedMachines = field(default_factory=AvoidedMachines)
    hold: Hold = field(default_factory=Hold)

    def observe(self) -> list[ExecutorLoss]:
        """Losses since the last call, once no more have followed for a moment."""
        now = time.monotonic()
        if now - self.looked_at < OBSERVE_SECONDS:
            return []
        seen = [e for e in self.application.exchange.executors() if e.executor not in self.dropped]
        if time.monotonic() - self.looked_at > self.application.settings.policy.silent_seconds / 2:
            self.listening_since = time.monotonic()
        self.looked_at = now
        self._drop_unreachable(seen, now)
        self.seen = [e for e in seen if e.executor not in self.dropped]
        present = {e.executor: e.node for e in self.seen}
        waiting = {*present, *self.fresh}  # who has not joined cannot be lost
        gone = {executor: node for executor, node in self.known.items() if executor not in waiting}
        if gone:
            self.pending |= gone
            self.settled_at = now + SETTLE_SECONDS
        self._note_arrivals(present)
        self.known = present
        self.silent &= self.pending.keys()
        if not self.pending or now < self.settled_at:
            return []
        loss = ExecutorLoss(dict(self.pending), frozenset(self.silent))
        self.pending.clear()
        self.silent.clear()
        return [loss]

    def arrived(self) -> list[tuple[str, str]]:
        """Executor and node of each arrival since the last call.

        One whose node still counts with an older executor waits until that one's loss is told:
        the other way round the node would be taken for lost with its new executor up. One on
        a machine that is avoided waits as well.
        """
        older = {**self.application.executors, **self.pending}
        held = {node for executor, node in older.items() if executor not in self.fresh}
        now = self.looked_at
        held |= {e.node for e in self.seen if self.avoided.leaves_alone(_machine(e), now)}
        found = [(e, self.known[e]) for e in self.fresh if self.known[e] not in held]
        self.fresh = [executor for executor in self.fresh if self.known[executor] in held]
        return found

    def suspicions(self) -> tuple[list[str], list[str]]:
        """Nodes that are suspected since the last call, and those that have been cleared."""
        joined = self.application.executors
        fresh, cleared = self.suspicion.changes(
            [executor for executor in self.seen if executor.executor in joined],
            self.application.settings.policy.silent_seconds,
            self.looked_at - self.listening_since,
        )
        return [joined[executor] for executor in fresh], [joined[executor] for executor in cleared]

    def sightings(self) -> dict[str, ExecutorSeen]:
        """Joined executors as they were at the last look; silence while we listened counts.

        One that was dropped is as it was then, until its loss has been told.
        """
        listening_seconds = self.looked_at - self.listening_since
        joined = self.application.executors
        self.parting = {name: seen for name, seen in self.parting.items() if name in joined}
        return {
            seen.executor: replace(
                seen, silent_seconds=max(0.0, min(seen.silent_seconds, listening_seconds))
            )
            for seen in (*self.parting.values(), *self.seen)
            if seen.executor in joined
        }

    @property
    def heard(self) -> frozenset[str]:
        """Executors that are connected and not suspected."""
        there = {seen.executor for seen in self.seen if seen.connected}
        return frozenset(there - self.suspicion.executors - self.dropped.keys())

    def drop(self, executor: str, reason: str) -> None:
        """Take an executor out of Spark's scheduler; then it is lost like any other."""
        self.application.exchange.drop(executor, reason)
        self.dropped[executor] = None
        if len(self.dropped) > DROPPED_KNOWN_MAX:
            del self.dropped[next(iter(self.dropped))]

    def lose(self, dropped: Mapping[str, str]) -> ExecutorLoss:
        """The loss of executors (executor -> node) that have been dropped, told now and not with
        the next look."""
        self.known = {name: node for name, node in self.known.items() if name not in dropped}
        for executor in dropped:
            self.pending.pop(executor, None)
            self.silent.discard(executor)
        return ExecutorLoss(dict(dropped), frozenset())

    def drop_full(self, executor: str) -> float:
        """Drop one that has no room on its disk; see `drop_and_wait`."""
        return self.drop_and_wait(executor, "its disk is full")

    def drop_and_wait(self, executor: str, reason: str) -> float:
        """Drop one whose machine is at fault; seconds for which none that comes there joins, 0 if
        it has just gone by itself."""
        self.drop(executor, reason)
        for seen in self.seen:
            if seen.executor == executor:
                return self.avoided.note(_machine(seen), time.monotonic())
        return 0.0

    def _drop_unreachable(self, seen: list[ExecutorSeen], now: float) -> None:
        limit = self.application.settings.policy.silent_seconds
        listening_seconds = time.monotonic() - self.listening_since
        connected = {e.executor: e.silent_seconds for e in seen if e.connected}
        silent = {e for e, seconds in connected.items() if min(seconds, listening_seconds) > limit}
        self.hold.look(silent, connected, now)
        if self.hold.is_heard:
            self.listening_since = now
        if self.hold.spares(limit, now):
            silent = set()
        for executor in seen:
            if executor.executor in silent or not executor.connected:
                self.drop(executor.executor, "silent" if executor.connected else "disconnected")
                self.parting[executor.executor] = executor
        self.silent |= silent

    def _note_arrivals(self, present: dict[str, str]) -> None:
        self.fresh = [executor for executor in self.fresh if executor in present]
        self.fresh += [executor for executor in present if executor not in self.known]


def _machine(executor: ExecutorSeen) -> str:
    """What has the disk: pods come and go, their node stays."""
    return executor.cluster_node or executor.node
