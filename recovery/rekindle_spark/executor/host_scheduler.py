"""Turns: one piece of work at a time in each of a host's two lanes, the most urgent first.

    request ──item──► first lane    what epochs wait for, and what catches up
                └───► second lane   live partitions that run behind the epochs, and those that are
                                    slow while they catch up

So a slow function of a less important query holds up no epoch, but for the interpreter's lock and
for the data library's only thread. A partition runs in one lane at a time: it is in one job at a
time, and changes its lane between two jobs. Each lane has a note for the watchdog of its own.
Called by `host`.

Why: docs/decisions/0053-less-important-queries-run-behind.md.
"""

import heapq
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from mmap import mmap
from typing import Any

from rekindle_spark.user_code import watchdog
from rekindle_spark.user_code.watchdog import Watchdog

# Live partitions come before catch-up: docs/decisions/0019-one-piece-of-work-at-a-time.md.
# The job of an epoch, that of the next one's sources, that of live partitions that matter less, and
# what catches up.
URGENT, AHEAD, BEHIND, CATCH_UP = 0, 1, 2, 3

# As a request names the lane of an item.
FIRST, SECOND = 0, 1
# How long a thread may keep the interpreter's lock that another one waits for, in seconds, once
# there is work in both lanes: the first takes it again after each call of the data library.
SWITCH_SECONDS = 0.0005

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


@dataclass(slots=True)
class Lane:
    """Work of which one piece runs at a time, beside that of the other lane."""

    number: int
    watchdog: Watchdog
    scheduler: HostScheduler = field(default_factory=HostScheduler)

    def turn(self, urgency: int, waits: Callable[[], None]) -> AbstractContextManager[None]:
        """Hold the lane's only turn (`HostScheduler.turn`)."""
        if self.number == SECOND:
            sys.setswitchinterval(SWITCH_SECONDS)
        return self.scheduler.turn(urgency, waits)


def lanes(notes: mmap | None = None) -> tuple[Lane, ...]:
    """The lanes of a host, with their notes in a file that others read, where there is one."""
    memory = bytearray(watchdog.NOTES_BYTES) if notes is None else notes
    return tuple(
        Lane(number, Watchdog(memory, place=number * watchdog.SIZE))
        for number in range(watchdog.LANES)
    )


def yields(request: Mapping[str, Any]) -> bool:
    """Whether the jobs of epochs have what they need of the CPU before this request."""
    return bool(request.get("urgency", URGENT) >= BEHIND)


def yield_to_others() -> None:
    """Let this thread have what others leave of the executor's CPU, the JVM's among them: otherwise
    half of that goes to what is behind, and epochs take twice as long. For good: not everybody
    may take it back."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
