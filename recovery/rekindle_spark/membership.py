"""Which executors there are: arrivals, losses, silence.

    expected ──hello──► up ──gone from Spark, or silent too long──► lost ──new hello──► up

A node is an executor's host name. Losses that come close together are reported as one. A silent
executor is dropped from Spark's scheduler: a stopped process would hold its tasks for ever. After
a pause of this very process silence counts anew: it is us who have not listened.
"""

import time
from dataclasses import dataclass, field

from rekindle_spark.application import Application
from rekindle_spark.exchange import ExecutorSeen

__all__ = ["Loss", "Membership"]

SETTLE_SECONDS = 0.4
POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Loss:
    """Executors by node that were lost together, and what gave them away."""

    executors: dict[str, str]
    silent: frozenset[str]


@dataclass(slots=True)
class Membership:
    """Compares what Spark sees with what it saw before."""

    application: Application
    known: dict[str, str] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)
    pending: dict[str, str] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    settled_at: float = 0.0
    looked_at: float = 0.0
    listening_since: float = 0.0
    fresh: list[str] = field(default_factory=list)

    def observe(self) -> list[Loss]:
        """Losses since the last call, once no more have followed for a moment."""
        now = time.monotonic()
        if now - self.looked_at < POLL_SECONDS:
            return []
        seen = [e for e in self.application.exchange.executors() if e.executor not in self.dropped]
        if time.monotonic() - self.looked_at > self.application.settings.policy.silent_seconds / 2:
            self.listening_since = time.monotonic()
        self.looked_at = now
        self._note_silent(seen, time.monotonic() - self.listening_since)
        present = {e.executor: e.node for e in seen if e.executor not in self.dropped}
        gone = {executor: node for executor, node in self.known.items() if executor not in present}
        if gone:
            self.pending |= gone
            self.settled_at = now + SETTLE_SECONDS
        self._note_arrivals(present)
        self.known = present
        if not self.pending or now < self.settled_at:
            return []
        loss = Loss(dict(self.pending), frozenset(self.silent & set(self.pending)))
        self.pending.clear()
        return [loss]

    def arrived(self) -> list[tuple[str, str]]:
        """Executor and node of each arrival since the last call.

        One whose node still counts with an older executor waits until that one's loss is told:
        the other way round the node would be taken for lost with its new executor up.
        """
        older = {**self.application.executors, **self.pending}
        held = {node for executor, node in older.items() if executor not in self.fresh}
        found = [(e, self.known[e]) for e in self.fresh if self.known[e] not in held]
        self.fresh = [executor for executor in self.fresh if self.known[executor] in held]
        return found

    def _note_silent(self, seen: list[ExecutorSeen], listening_seconds: float) -> None:
        limit = self.application.settings.policy.silent_seconds
        for executor in seen:
            if min(executor.silent_seconds, listening_seconds) > limit:
                self.application.exchange.drop(executor.executor, "silent")
                self.dropped.add(executor.executor)
                self.silent.add(executor.executor)

    def _note_arrivals(self, present: dict[str, str]) -> None:
        self.fresh = [executor for executor in self.fresh if executor in present]
        self.fresh += [executor for executor in present if executor not in self.known]
