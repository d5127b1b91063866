"""Turns: one piece of work at a time in a host, the most urgent first. Called by `host`."""

import heapq
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

# Live partitions come before catch-up: docs/decisions/0019-one-piece-of-work-at-a-time.md.
# The job of an epoch, that of the next one's sources, that of live partitions that matter less, and
# what catches up.
URGENT, AHEAD, BEHIND, CATCH_UP = 0, 1, 2, 3

# A tenth of the weight of other threads: whoever waits for what it holds does not wait for ever.
NICENESS = 10


@dataclass(slots=True)
class HostScheduler:
    """Lets one piece of work run at a time, the most urgent first (the least number)."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    waiting: list[tuple[int, int]] = field(default_factory=list)
    tickets: int = 0
    busy: bool = False

    @contextmanager
    def turn(self, urgency: int, waits: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold the only turn. While others have it, `waits` is called each time that one ends."""
        with self.changed:
            self.tickets += 1
            ticket = (urgency, self.tickets)
            heapq.heappush(self.waiting, ticket)
            try:
                while self.busy or self.waiting[0] != ticket:
                    self.changed.wait()
                    waits()
            except BaseException:  # who gives up must not keep the others waiting
                self.waiting.remove(ticket)
                heapq.heapify(self.waiting)
                self.changed.notify_all()
                raise
            heapq.heappop(self.waiting)
            self.busy = True
        try:
            yield
        finally:
            with self.changed:
                self.busy = False
                self.changed.notify_all()


def yields(request: Mapping[str, Any]) -> bool:
    """Whether the jobs of epochs have what they need of the CPU before this request."""
    return bool(request.get("urgency", URGENT) >= BEHIND)


def yield_to_others() -> None:
    """Let this thread have what others leave of the executor's CPU, the JVM's among them: otherwise
    half of that goes to what is behind, and epochs take twice as long. For good: not everybody
    may take it back."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
