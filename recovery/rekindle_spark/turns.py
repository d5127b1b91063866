"""Turns: one piece of work at a time in a host, the most urgent first. Called by `host`."""

import heapq
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["Turns", "yield_to_others"]

# A tenth of the weight of other threads: whoever waits for what it holds does not wait for ever.
NICENESS = 10


@dataclass(slots=True)
class Turns:
    """Lets one piece of work run at a time, the most urgent first (0 before 1)."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    waiting: list[tuple[int, int]] = field(default_factory=list)
    tickets: int = 0
    busy: bool = False

    @contextmanager
    def turn(self, urgency: int) -> Iterator[None]:
        """Hold the only turn."""
        with self.changed:
            self.tickets += 1
            ticket = (urgency, self.tickets)
            heapq.heappush(self.waiting, ticket)
            while self.busy or self.waiting[0] != ticket:
                self.changed.wait()
            heapq.heappop(self.waiting)
            self.busy = True
        try:
            yield
        finally:
            with self.changed:
                self.busy = False
                self.changed.notify_all()


def yield_to_others() -> None:
    """Let this thread have what others leave of the executor's CPU, the JVM's among them: otherwise
    half of that goes to catching up, and live epochs take twice as long. For good: not everybody
    may take it back."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
