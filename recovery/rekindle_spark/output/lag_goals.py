"""For how long the output of queries has been further behind its input than their goals.

    commit records: lag_goals {at, seconds, goals} ──► totals by query

The lag of a query grows with time and falls where a commit record makes output count. So the time
beyond its goal is exact when it is counted just before each of these, and when a goal changes. Each
record has the totals that have changed. A driver that starts goes on with those of the `fold`,
from the moment of its newest record on, so that the time without a driver counts as well.
Called by `output_commit` around each commit, by `report_builder` and `control_loop`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rekindle_spark.store.commit_summary import BeyondGoals

if TYPE_CHECKING:
    from rekindle_spark.driver.driver_context import DriverContext


@dataclass(slots=True)
class LagGoals:
    """By query the `goals` that hold and the `seconds` beyond them up to `counted_at`; `recorded`
    has the totals of the commit records."""

    goals: Mapping[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    counted_at: float = 0.0
    recorded: BeyondGoals = field(default_factory=BeyondGoals)

    @staticmethod
    def of(found: BeyondGoals, queries: frozenset[str], now: float) -> "LagGoals":
        """The totals of `queries` in the commit log. The clock of a driver before may have been
        ahead."""
        goals = {query: goal for query, goal in found.goals.items() if query in queries}
        seconds = {query: value for query, value in found.seconds.items() if query in queries}
        return LagGoals(goals, seconds, min(found.at, now), found)

    def count(self, reflected: Mapping[str, float], now: float) -> None:
        """Add the time up to `now`; `reflected` is as `reflected_by_query` gives it."""
        for query, goal in self.goals.items():
            since = max(self.counted_at, reflected[query] + goal)
            self.seconds[query] = self.seconds.get(query, 0.0) + max(0.0, now - since)
        self.counted_at = max(self.counted_at, now)

    def change(
        self, goals: Mapping[str, float], reflected: Mapping[str, float], now: float
    ) -> None:
        """Take other goals from now on; those of queries that are not there are left out."""
        self.count(reflected, now)
        self.goals = {query: goal for query, goal in goals.items() if query in reflected}
        for query in self.goals:
            self.seconds.setdefault(query, 0.0)

    @property
    def beyond(self) -> dict[str, float]:
        """The seconds of queries that have a goal."""
        return {query: self.seconds[query] for query in self.goals}

    def fields(self) -> dict[str, Any]:
        """The fields of the next commit record; none where no query has had a goal."""
        known = self.recorded
        if not self.goals and not known.goals:
            return {}
        changed = {
            query: seconds
            for query, seconds in self.seconds.items()
            if seconds != known.seconds.get(query)
        }
        said: dict[str, Any] = {"at": self.counted_at, "seconds": changed}
        if self.goals != known.goals:
            said["goals"] = dict(self.goals)
        self.recorded = known.with_record(said)
        return {"lag_goals": said}


def reflected_by_query(application: "DriverContext") -> dict[str, float]:
    """Per query a moment, in seconds since 1970: all of its input that had arrived by then is in
    its output."""
    found: dict[str, float] = {}
    with application.lock:
        oldest = min(application.cuts)
        for chain in application.program.chains:
            for sink in chain.sinks:
                done = min(
                    application.committed.get(f"{sink.name}/{index}", 0)
                    for index in range(len(chain.partitions))
                )
                cut = application.cuts.get(done, application.cuts[oldest])
                found[sink.name] = cut.arrived_at(application.program.sources_of(chain))
    return found


def count(application: "DriverContext", now: float) -> None:
    """Add the time up to `now`, where a query has a goal."""
    with application.lock:
        if application.lag_goals.goals:
            application.lag_goals.count(reflected_by_query(application), now)


def change(application: "DriverContext", goals: Mapping[str, float], now: float) -> None:
    """Take other goals from now on."""
    with application.lock:
        application.lag_goals.change(goals, reflected_by_query(application), now)
