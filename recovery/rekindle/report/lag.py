"""The lag of a query over time, as an exact sawtooth, and when it counts as unavailable.

The lag at a moment is that moment minus the cut of the newest epoch that all partitions of the
query have committed: the oldest input not yet reflected came in right after that cut
(DESIGN 2). It rises with slope 1 and drops at commits. Pure arithmetic on times in seconds;
`report` calls it.
"""

import itertools
import statistics
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Interval = tuple[float, float]
# (t, epoch): from t on the query has committed all epochs up to this one.
Step = tuple[float, int]


@dataclass(frozen=True, slots=True)
class Commit:
    """At `t` the output of `query_partition` reflects all epochs up to and with `epoch`."""

    t: float
    query_partition: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Tooth:
    """One tooth of the sawtooth: at x in [start, end) the lag is x - reference."""

    start: float
    end: float
    reference: float


@dataclass(frozen=True, slots=True)
class Cuts:
    """When the input of each epoch was cut: `times[i]` belongs to `epochs[i]`, ascending.

    `final` is the epoch with the last input of the run; None while input goes on.
    """

    epochs: tuple[int, ...]
    times: tuple[float, ...]
    final: int | None = None

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, float]], final: int | None = None) -> "Cuts":
        """Build from (epoch, t); of an epoch cut twice the first cut counts."""
        first: dict[int, float] = {}
        for epoch, t in pairs:
            first[epoch] = min(t, first.get(epoch, t))
        epochs = tuple(sorted(first))
        return cls(epochs, tuple(first[epoch] for epoch in epochs), final)

    def at(self, epoch: int, otherwise: float) -> float:
        """Give the cut of the newest known epoch up to `epoch`, else `otherwise`."""
        position = bisect_right(self.epochs, epoch)
        return self.times[position - 1] if position else otherwise

    def spacing(self, start: float, end: float) -> float | None:
        """Give the median distance between cuts in [start, end]; None below two cuts."""
        times = sorted(t for t in self.times if start <= t <= end)
        gaps = [after - before for before, after in itertools.pairwise(times)]
        return statistics.median(gaps) if gaps else None


def sawtooth(cuts: Cuts, steps: Iterable[Step], start: float, end: float) -> tuple[Tooth, ...]:
    """Give the lag over [start, end] of a query that progressed by `steps` (see `progress`).

    Before the first step the lag counts from `start`. Once the final epoch is committed no
    input is owed, and the sawtooth ends.
    """
    teeth: list[Tooth] = []
    since, reference = start, start
    for t, epoch in steps:
        if t > end:
            break
        if t > since:
            teeth.append(Tooth(since, t, reference))
        since, reference = max(t, start), cuts.at(epoch, start)
        if cuts.final is not None and epoch >= cuts.final:
            return tuple(teeth)
    if end > since:
        teeth.append(Tooth(since, end, reference))
    return tuple(teeth)


def progress(commits: Iterable[Commit], partitions: Sequence[str]) -> list[Step]:
    """Give a step whenever the epoch that all partitions have committed rises."""
    reached: dict[str, int] = {}
    steps: list[Step] = []
    for commit in sorted(commits, key=lambda commit: commit.t):
        name = commit.query_partition
        reached[name] = max(commit.epoch, reached.get(name, commit.epoch))
        if all(partition in reached for partition in partitions):
            lowest = min(reached[partition] for partition in partitions)
            if not steps or lowest > steps[-1][1]:
                steps.append((commit.t, lowest))
    return steps


def worst(teeth: Iterable[Tooth], start: float, end: float) -> float:
    """Give the largest lag in [start, end], 0.0 when nothing is owed there."""
    return max(
        (min(tooth.end, end) - tooth.reference for tooth in _within(teeth, start, end)),
        default=0.0,
    )


def threshold_seconds(normal_worst_seconds: float, epoch_seconds: float, theta: float) -> float:
    """Give the lag above which a query counts as unavailable: well above its worst while nothing
    fails, and by an epoch at least (DESIGN 2)."""
    return max(theta * normal_worst_seconds, normal_worst_seconds + epoch_seconds)


def above(teeth: Iterable[Tooth], threshold: float, start: float, end: float) -> list[Interval]:
    """Give the intervals in [start, end] where the lag is above `threshold`, joined."""
    intervals: list[Interval] = []
    for tooth in _within(teeth, start, end):
        begin = max(tooth.start, start, tooth.reference + threshold)
        finish = min(tooth.end, end)
        if begin >= finish:
            continue
        if intervals and begin <= intervals[-1][1]:
            intervals[-1] = (intervals[-1][0], finish)
        else:
            intervals.append((begin, finish))
    return intervals


def duration(intervals: Iterable[Interval]) -> float:
    """Give the summed length of disjoint intervals."""
    return sum(end - start for start, end in intervals)


def late_epochs(
    cuts: Cuts,
    steps: Sequence[Step],
    allowance_seconds: float,
    failure: float,
    end: float,
) -> list[int]:
    """Give the epochs that a query committed more than `allowance_seconds` after their cut.

    `steps` come from `progress`. Counted are epochs that the query had not committed at
    `failure`, except the first of them, which was in flight; one that is still owed at `end`
    counts once its allowance is over.
    """
    committed = [epoch for t, epoch in steps if t <= failure]
    in_flight = _next(cuts.epochs, committed[-1] if committed else None)
    done = _commit_times(cuts.epochs, steps)
    return [
        epoch
        for epoch, cut in zip(cuts.epochs, cuts.times, strict=True)
        if in_flight is not None
        and epoch > in_flight
        and done.get(epoch, end) > cut + allowance_seconds
    ]


def _next(epochs: Sequence[int], epoch: int | None) -> int | None:
    position = 0 if epoch is None else bisect_right(epochs, epoch)
    return epochs[position] if position < len(epochs) else None


def _commit_times(epochs: Sequence[int], steps: Sequence[Step]) -> Mapping[int, float]:
    times: dict[int, float] = {}
    position = 0
    for t, reached in steps:
        while position < len(epochs) and epochs[position] <= reached:
            times[epochs[position]] = t
            position += 1
    return times


def _within(teeth: Iterable[Tooth], start: float, end: float) -> list[Tooth]:
    return [tooth for tooth in teeth if tooth.start < end and tooth.end > start]
