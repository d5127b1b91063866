"""What commits say while a run goes on: whether lag grows, how late is normal, who is back.

    growth      seconds of lag per second, a line through the lags at the commits of a query
    sustained   no query's lag grows by more than 0.2, nor that of all together by more than 0.05
    level       nor has it fallen: what waited since the start is worked off, so that the lag before
                a failure is the normal one
    waits       it would be neither in a system at its limit, either, whose backlog stays as it is:
                lag is longer than commits are apart
    limits      of each query the lag above which it is unavailable (docs/report.md)

The report's figures come from `rekindle.report` afterwards; these decide when to go on. Pure.
`peer_scenario` and the benchmark of recoveries call it.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median

from rekindle.report import THETA, lag
from rekindle_peers.freshness import ReflectedRows

# Fewer commits make no line.
COMMITS_MIN = 4
# Lags of batches vary by a fifth from one to the next: four of them make a line whose slope is
# uncertain by 0.1, and the mean of 18 queries' by 0.02.
GROWTH_MAX, MEAN_GROWTH_MAX = 0.2, 0.05
# Whose backlog takes longer than ten times its lag does not get rid of it.
MEAN_FALL_MIN = 0.1
# What input may wait before a batch takes it, or the time of a batch: what checkpoints take.
WAIT_SECONDS_MAX = 5.0

Commits = Mapping[str, Sequence[ReflectedRows]]


def settled_since(commits: Commits, now: float, seconds: float) -> float | None:
    """The begin of the time by which a run is judged at `now`: at least so many seconds ago, and
    so long ago that each query has enough commits since; None where one has not."""
    if any(len(found) < COMMITS_MIN for found in commits.values()) or not commits:
        return None
    return min(now - seconds, *(found[-COMMITS_MIN].at for found in commits.values()))


def since(found: Sequence[ReflectedRows], begin: float) -> Sequence[ReflectedRows]:
    """A query's commits since a moment, the last two at least; before an only one, which has all
    rows from the begin, its begin stands for the other."""
    if len(found) == 1:
        (only,) = found
        return [ReflectedRows(only.cut_at, only.cut_at, 0), only]
    first = min(begin, *(one.at for one in found[-2:])) if found else begin
    return [one for one in found if one.at >= first]


def growths(commits: Commits, begin: float, end: float) -> dict[str, float]:
    """By query, how much its lag grew per second in a stretch of time; those with too few commits
    in it are left out."""
    lags = {
        name: [(one.at, one.at - one.cut_at) for one in found if begin <= one.at <= end]
        for name, found in commits.items()
    }
    return {name: _slope(points) for name, points in lags.items() if len(points) >= COMMITS_MIN}


def sustained(found: Mapping[str, float]) -> bool:
    """Whether lags that grow so are bounded; of queries that all are told of."""
    return max(found.values()) <= GROWTH_MAX and fmean(found.values()) <= MEAN_GROWTH_MAX


def fall(found: Mapping[str, float]) -> bool:
    """Whether lags that grow so get less, and that before long."""
    return fmean(found.values()) < -MEAN_FALL_MIN


def waits(commits: Commits, begin: float, end: float) -> int:
    """Of how many queries input waits in a stretch of time: a batch has what has come in since the
    one before was begun, so lag when it is committed is as long as commits are apart."""
    found = 0
    for all_of_it in commits.values():
        pairs = [pair for pair in pairwise(all_of_it) if begin <= pair[1].at <= end]
        apart = median([after.at - before.at for before, after in pairs] or [0.0])
        lag = median([after.at - after.cut_at for _, after in pairs] or [0.0])
        found += lag - apart > max(apart, WAIT_SECONDS_MAX)
    return found


def level(commits: Commits, begin: float, end: float) -> bool:
    """Whether by the second half of a stretch of time no query was late in the first.

    A backlog of the start that lies in it would be the normal worst lag, beside which no outage is
    one: an engine that had worked off 100 s of it came back from a failure with 0 s of outage.
    """
    middle = (begin + end) / 2
    return late(commits, limits(commits, middle, end), begin, middle) == 0


def limits(commits: Commits, begin: float, end: float) -> dict[str, float]:
    """The lag above which each query is unavailable, by the time before the failure at `end`."""
    found = {}
    for name, all_of_it in commits.items():
        known = [one for one in all_of_it if one.at <= end]
        normal = worst(known, begin, end)
        cuts = [one.cut_at for one in known if begin <= one.cut_at] or [known[-1].cut_at]
        if len(cuts) < 2:
            cuts = [one.cut_at for one in known]
        epoch = median([after - before for before, after in pairwise(cuts)] or [0.0])
        found[name] = lag.threshold_seconds(normal, epoch, THETA)
    return found


def late(commits: Commits, limits_seconds: Mapping[str, float], begin: float, end: float) -> int:
    """How many queries were above their limit at some moment of a stretch of time."""
    return sum(
        worst(commits.get(name, ()), begin, end) > limit for name, limit in limits_seconds.items()
    )


def worst(commits: Sequence[ReflectedRows], begin: float, end: float) -> float:
    """The largest lag of a query in a stretch of time: it grows until a commit lets it drop."""
    known = [one for one in commits if one.at <= end]
    if not known:
        return end - begin
    ends = [*(one.at for one in known[1:]), end]
    return max(
        after - before.cut_at for before, after in zip(known, ends, strict=True) if after >= begin
    )


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """Of the straight line that is closest to the points."""
    x, y = (fmean(values) for values in zip(*points, strict=True))
    spread = sum((at - x) ** 2 for at, _ in points)
    return sum((at - x) * (lag - y) for at, lag in points) / spread if spread else 0.0
