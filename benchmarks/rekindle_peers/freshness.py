"""What the commits of queries say: how many rows a second, and how late output was.

    commits of a query:  at ──► it reflects `rows` of the run, the newest came in at `cut_at`
    lag at a moment      the moment less `cut_at` of the newest commit by then

So lag grows with the clock until the next commit, as a reader of the output sees it. Events are
those of a driver; Rekindle's epochs hold the rows of all queries, and `rows` of a cut counts that
epoch alone, while Structured Streaming's batches are a query's own and count from the begin.
Pure. `steady`, `runs`, `lateness` and `peer_scenario` call it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SAMPLE_SECONDS = 0.05

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReflectedRows:
    """`rows` of the run are reflected from `at` on; the newest of them came in at `cut_at`."""

    at: float
    cut_at: float
    rows: int


@dataclass(slots=True)
class Commits:
    """The commits of each query, in order, as events come in."""

    queries: Sequence[str]
    of: dict[str, list[ReflectedRows]] = field(default_factory=dict)
    _cuts: dict[tuple[str, int], tuple[float, int]] = field(default_factory=dict)
    _rows: int = 0

    def add(self, event: Event) -> None:
        """Take in one event; kinds that say nothing here change nothing."""
        if event["kind"] == "cut":
            query = event.get("query", "")
            self._rows = self._rows + event["rows"] if not query else event["rows"]
            self._cuts[query, event["epoch"]] = (event["cut_at"], self._rows)
        if event["kind"] == "commit":
            shared, own = ("", event["epoch"]), (event["query"], event["epoch"])
            cut = self._cuts.get(own) or self._cuts.get(shared)
            if cut is not None:
                self.of.setdefault(event["query"], []).append(ReflectedRows(event["at"], *cut))

    def between(self, begin: float, end: float) -> dict[str, list[ReflectedRows]]:
        """Of each query those in a stretch of time."""
        return {
            name: [one for one in self.of.get(name, ()) if begin <= one.at <= end]
            for name in self.queries
        }


def rows_per_second(commits: Mapping[str, Sequence[ReflectedRows]]) -> float:
    """What the slowest query kept up with; 0 where one has fewer than two commits."""

    def rate(found: Sequence[ReflectedRows]) -> float:
        if len(found) < 2 or found[-1].at <= found[0].at:
            return 0.0
        return (found[-1].rows - found[0].rows) / (found[-1].at - found[0].at)

    return min((rate(found) for found in commits.values()), default=0.0)


def fewest_epochs(commits: Mapping[str, Sequence[ReflectedRows]]) -> int:
    """Of how many epochs every query has commits; Rekindle tells one for each partition of it."""
    return min((len({one.cut_at for one in found}) for found in commits.values()), default=0)


def lags(commits: Mapping[str, Sequence[ReflectedRows]], begin: float, end: float) -> list[float]:
    """The lag of every query at every `SAMPLE_SECONDS` of a stretch of time, ascending; infinite
    before the first commit of a query."""
    found: list[float] = []
    moments = [begin + n * SAMPLE_SECONDS for n in range(round((end - begin) / SAMPLE_SECONDS))]
    for one in commits.values():
        position = -1
        for moment in moments:
            while position + 1 < len(one) and one[position + 1].at <= moment:
                position += 1
            found.append(moment - one[position].cut_at if position >= 0 else math.inf)
    return sorted(found)
