"""Time, chance, and the queue of what happens next.

A run is a sequence of actions, each at its moment; actions of one moment run in the order in which
they were asked for. Nothing else moves time.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

TRACE_LENGTH_MAX = 400


@dataclass(slots=True)
class SimulatedWorld:
    """`now` is in seconds; `trace` tells what happened, newest last."""

    random: random.Random
    now: float = 0.0
    queue: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    asked: int = 0
    trace: list[str] = field(default_factory=list)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Let something happen in a while."""
        self.asked += 1
        heapq.heappush(self.queue, (self.now + seconds, self.asked, action))

    def run(self, until: float) -> None:
        """Let everything happen up to a moment."""
        while self.queue and self.queue[0][0] <= until:
            self.now, _, action = heapq.heappop(self.queue)
            action()
        self.now = until

    def between(self, low: float, high: float) -> float:
        """A number by chance."""
        return self.random.uniform(low, high)

    def chance(self, probability: float) -> bool:
        """Whether something happens that happens so often."""
        return self.random.random() < probability

    def tell(self, text: str) -> None:
        """Note what happened."""
        self.trace.append(f"{self.now:8.2f} {text}")
        del self.trace[:-TRACE_LENGTH_MAX]
