"""How partitions that have been restored work off what they have missed: a fluid model.

A partition owes as many seconds of input as it is behind. Once its state is restored it takes part
in what its node has left beside the live partitions there: those that catch up share it by their
cost, so all on one node go at the same speed. A second of backlog costs `ratio` of what a second of
live input does (fewer and larger jobs). While the set of partitions stays the same, speeds do, so
the next moment at which anything changes can be computed.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = ["Backlogs"]

# Seconds of input in a second, however cheap a partition is.
SPEED_MAX = 1_000.0
# seconds that count as nothing owed: sums of times are not exact
LEVEL_SECONDS = 1e-6


@dataclass(slots=True)
class Backlogs:
    """`owed` (partition -> seconds of input) of what catches up, `ready_at` when each is restored;
    `costs` and `capacities` in percent of one core."""

    costs: Mapping[str, float]
    ratio: float
    now: float = 0.0
    owed: dict[str, float] = field(default_factory=dict)
    ready_at: dict[str, float] = field(default_factory=dict)

    def begin(self, partition: str, behind_seconds: float, ready_at: float) -> None:
        """A partition is placed, so far behind, and runs from `ready_at` on."""
        self.owed[partition] = behind_seconds
        self.ready_at[partition] = max(self.now, ready_at)

    def keep(self, placed: Iterable[str]) -> None:
        """Forget all others: their nodes are gone."""
        for partition in self.owed.keys() - set(placed):
            del self.owed[partition], self.ready_at[partition]

    def next_change(self, placement: Mapping[str, str], capacities: Mapping[str, float]) -> float:
        """When something is restored or has caught up, if nothing else happens; infinity: never."""
        speeds = self._speeds(placement, capacities)
        found = [at for at in self.ready_at.values() if at > self.now]
        for partition, seconds in self.owed.items():
            gain = speeds.get(placement[partition], 0.0) - 1.0
            if self.ready_at[partition] <= self.now and gain > 0:
                found.append(self.now + seconds / gain)
        return min(found, default=math.inf)

    def advance(
        self, until: float, placement: Mapping[str, str], capacities: Mapping[str, float]
    ) -> frozenset[str]:
        """Let time pass up to `until`, no further than `next_change`; what has caught up then."""
        speeds = self._speeds(placement, capacities)
        seconds = until - self.now
        for partition in self.owed:
            running = self.ready_at[partition] <= self.now
            speed = speeds.get(placement[partition], 0.0) if running else 0.0
            self.owed[partition] += seconds * (1.0 - speed)
        self.now = until
        level = frozenset(
            partition
            for partition, owed in self.owed.items()
            if owed <= LEVEL_SECONDS and self.ready_at[partition] <= until
        )
        for partition in level:
            del self.owed[partition], self.ready_at[partition]
        return level

    def _speeds(
        self, placement: Mapping[str, str], capacities: Mapping[str, float]
    ) -> dict[str, float]:
        """Per node, seconds of input that those who catch up there take in a second."""
        left, wanted = dict(capacities), dict.fromkeys(capacities, 0.0)
        for partition, node in placement.items():
            if partition not in self.owed:
                left[node] -= self.costs[partition]
            elif self.ready_at[partition] <= self.now:
                wanted[node] += self.costs[partition]
        speeds = {}
        for node, cost in wanted.items():
            needed, free = self.ratio * cost, max(0.0, left[node])
            speeds[node] = min(SPEED_MAX, free / needed) if needed else SPEED_MAX
        return speeds
