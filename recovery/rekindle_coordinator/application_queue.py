"""Which application is looked at next, and when without news.

    news of an application      at once, in the order in which they came
    a moment that has come      the same
    all of them, at a takeover  one by one, whenever nothing of the above waits

So a failure is answered at once even while a thousand others are still being read. Knows names and
moments only; the shell, its one caller, is one thread.
"""

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from rekindle.protocol.store_paths import Place

NEVER = math.inf


@dataclass(slots=True)
class ApplicationQueue:
    """Moments are in seconds since 1970."""

    _first: dict[Place, None] = field(default_factory=dict)
    _later: dict[Place, None] = field(default_factory=dict)
    _moments: dict[Place, float] = field(default_factory=dict)
    _heap: list[tuple[float, Place]] = field(default_factory=list)

    def __len__(self) -> int:
        """How many wait for a turn now."""
        return len(self._first.keys() | self._later.keys())

    def hurry(self, place: Place) -> None:
        """Something has happened to it."""
        self._first[place] = None

    def queue(self, places: Iterable[Place]) -> None:
        """They have to be looked at, some time."""
        self._later.update(dict.fromkeys(places))

    def at(self, place: Place, moment: float) -> None:
        """It has to be looked at, at this moment and at no other."""
        if self._moments.get(place, NEVER) == moment:
            return
        self._moments[place] = moment
        if moment != NEVER:
            heapq.heappush(self._heap, (moment, place))

    def forget(self, place: Place) -> None:
        """It is not there any more."""
        for waiting in (self._first, self._later, self._moments):
            waiting.pop(place, None)

    def next(self, now: float) -> Place | None:
        """Whose turn it is."""
        while self._heap and self._heap[0][0] <= now:
            moment, place = heapq.heappop(self._heap)
            if self._moments.get(place) == moment:
                del self._moments[place]
                self.hurry(place)
        for waiting in (self._first, self._later):
            if waiting:
                place = next(iter(waiting))
                self._first.pop(place, None)
                self._later.pop(place, None)
                return place
        return None

    def wait_seconds(self, now: float, most: float) -> float:
        """How long nothing has to be done, at most `most`."""
        if self._first or self._later:
            return 0.0
        while self._heap and self._moments.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        until = self._heap[0][0] - now if self._heap else most
        return min(most, max(0.0, until))
