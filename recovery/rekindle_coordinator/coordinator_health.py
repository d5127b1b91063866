"""Metrics and health of a coordinator, for whoever watches it.

Healthy is one whose loop turns. A store that does not answer is no reason to start a coordinator
anew, so it is healthy all the same; the metrics tell. `health_server` shows them on a port.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from rekindle.coordination import application_status
from rekindle.coordination.session import ApplicationReading
from rekindle.protocol import ProgressReport
from rekindle.protocol.store_paths import Place

# Drivers' reports as metrics: lag, age of checkpoints, time of epochs.
#
# Worked out when somebody asks, on the thread that answers: a thousand applications with fifty
# queries each would hold up the thread that decides. Both replicas of an operator have them.

PREFIX = "rekindle_coordinator"
# Of an application those that lag most, and as many of its sources.
QUERIES_MAX = 50
# A driver reports every 5 s; behind that its lag grows while nobody reports it.
CURRENT_SECONDS = 15.0
Family = GaugeMetricFamily | CounterMetricFamily
_WHOSE = ("namespace", "application")


@dataclass(slots=True, eq=False)
class DriverFigures(Collector):
    """`readings` are of all applications with a driver's report; `now` in seconds since 1970."""

    readings: Callable[[], Iterable[tuple[Place, ApplicationReading]]]
    now: Callable[[], float]

    def describe(self) -> list[Family]:
        """The families, empty."""
        return [
            GaugeMetricFamily(
                f"{PREFIX}_query_lag_seconds",
                "How old the newest input is that a query's output reflects",
                labels=(*_WHOSE, "query"),
            ),
            GaugeMetricFamily(
                f"{PREFIX}_checkpoint_age_seconds", "Since the newest checkpoint", labels=_WHOSE
            ),
            GaugeMetricFamily(
                f"{PREFIX}_epoch_seconds", "How long the newest epoch took to run", labels=_WHOSE
            ),
            GaugeMetricFamily(
                f"{PREFIX}_checkpoint_store_away_seconds",
                "Since when a driver does not reach its checkpoint store",
                labels=_WHOSE,
            ),
            GaugeMetricFamily(
                f"{PREFIX}_reports_refused",
                "Kinds of reports that a driver's sidecar refuses",
                labels=_WHOSE,
            ),
            GaugeMetricFamily(
                f"{PREFIX}_source_lag_seconds",
                "Since all that had arrived at a source was in an epoch",
                labels=(*_WHOSE, "source"),
            ),
            GaugeMetricFamily(
                f"{PREFIX}_source_away",
                "Whether a source cannot be reached",
                labels=(*_WHOSE, "source"),
            ),
            GaugeMetricFamily(
                f"{PREFIX}_query_lag_goal_seconds",
                "The lag above which the time of a query is counted",
                labels=(*_WHOSE, "query"),
            ),
            CounterMetricFamily(
                f"{PREFIX}_query_beyond_goal_seconds",
                "For how long a query's lag was above its goal",
                labels=(*_WHOSE, "query"),
            ),
            GaugeMetricFamily(
                f"{PREFIX}_weighted_beyond_goal_seconds",
                "The mean of these of all queries with a goal, weighted by priority",
                labels=_WHOSE,
            ),
        ]

    def collect(self) -> Iterator[Family]:
        """All families, as things are now."""
        families = self.describe()
        lag, checkpoint, epoch, away, refused, *others = families
        sources, goals = others[:2], others[2:]
        now = self.now()
        for place, reading in self.readings():
            progress = reading.progress
            if progress is None or progress.finished:
                continue
            whose = [place.namespace, place.application]
            for query, seconds in _lags(reading, now):
                lag.add_metric([*whose, query], seconds)
            at = _checkpoint_at(reading)
            if at is not None:
                checkpoint.add_metric(whose, max(0.0, now - at))
            if progress.epoch_seconds is not None:
                epoch.add_metric(whose, progress.epoch_seconds)
            since = progress.store_away_at
            away.add_metric(whose, 0.0 if since is None else max(0.0, now - since))
            refused.add_metric(whose, len(progress.refused))
            _add_sources(sources, whose, reading, now)
            _add_goals(goals, whose, reading, now)
        yield from families


def _add_sources(
    families: Sequence[Family],
    whose: Sequence[str],
    reading: ApplicationReading,
    now: float,
) -> None:
    """The sources that lag most, of those that are no replays."""
    lag, away = families
    progress = reading.progress
    assert progress is not None, "who asks has looked"
    more = _unreported_seconds(progress, now)
    known = sorted(progress.sources.items(), key=lambda item: (-item[1].lag_seconds, item[0]))
    for source, seen in known[:QUERIES_MAX]:
        lag.add_metric([*whose, source], seen.lag_seconds + more)
        away.add_metric([*whose, source], float(bool(seen.away)))


def _add_goals(
    families: Sequence[Family],
    whose: Sequence[str],
    reading: ApplicationReading,
    now: float,
) -> None:
    """Goals of the queries that lag most, seconds of those that were beyond theirs longest, and the
    mean of all."""
    goal, beyond, weighted = families
    progress = reading.progress
    assert progress is not None, "who asks has looked"
    goals, found = progress.lag_goals or {}, progress.beyond_goal_seconds
    for query, _ in _lags(reading, now):
        if query in goals:
            goal.add_metric([*whose, query], goals[query])
    for query, seconds in sorted(found.items(), key=lambda item: (-item[1], item[0]))[:QUERIES_MAX]:
        if query in goals:
            # as reported: a counter that falls counts as one that has begun again
            beyond.add_metric([*whose, query], seconds)
    priorities = application_status.priorities_by_query(reading, now)
    mean = application_status.weighted_seconds(found, priorities)
    if mean is not None:
        weighted.add_metric(whose, mean)


def _unreported_seconds(progress: ProgressReport, now: float) -> float:
    """By how much lags have grown since they were reported, where nobody reports any more."""
    unreported = 0.0 if progress.at is None else now - progress.at
    return unreported if unreported > CURRENT_SECONDS else 0.0


def _lags(reading: ApplicationReading, now: float) -> list[tuple[str, float]]:
    """The queries that lag most, but for those that have stopped: another alert is for them."""
    progress = reading.progress
    assert progress is not None, "who asks has looked"
    stopped = {partition.rpartition("/")[0] for partition in progress.stopped}
    more = _unreported_seconds(progress, now)
    found = [(query, lag + more) for query, lag in progress.lags.items() if query not in stopped]
    return sorted(found, key=lambda item: (-item[1], item[0]))[:QUERIES_MAX]


def _checkpoint_at(reading: ApplicationReading) -> float | None:
    """When the newest checkpoint was taken; until this driver has one, that of the one before."""
    report = reading.checkpoint
    generation = reading.topology.generation
    if report is not None and report.generation == generation:
        return report.at
    return reading.topology.checkpoint_at


SILENT_SECONDS_MAX = 60.0


class Metrics:
    """What is counted; `turned_at` (time.monotonic()) is when the loop last turned, `awaited` what
    has to be seen before it does, "" for nothing more; `readings` are of drivers' reports."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.turned_at = time.monotonic()
        self.awaited = ""
        self.readings: Callable[[], Iterable[tuple[Place, ApplicationReading]]] = tuple
        self.drivers = DriverFigures(lambda: self.readings(), time.time)
        self.registry.register(self.drivers)
        self.leads = self._gauge("leads", "1 while this coordinator decides")
        self.reachable = self._gauge("store_reachable", "1 while the store answers")
        self.applications = self._gauge("applications", "Applications in the store")
        self.stopped = self._gauge("applications_stopped", "Those that cannot be decided about")
        self.queries_stopped = self._gauge("queries_stopped", "Those whose function raises")
        self.slow = self._gauge("nodes_slow", "Those that hold the epochs of an application up")
        self.waiting = self._gauge("applications_waiting", "Those that have to be looked at")
        self.decisions = self._counter("decisions", "Looks at an application")
        self.directives = self._counter("directives", "Directives written")
        self.plans = self._counter("plans", "Plans among them")
        self.conflicts = self._counter("conflicts", "Writes that another one was faster with")

    @property
    def turning(self) -> bool:
        """Whether the loop turns."""
        return time.monotonic() - self.turned_at < SILENT_SECONDS_MAX

    @property
    def trouble(self) -> str:
        """Why the process should be started anew; "" while all is well with it."""
        silent = time.monotonic() - self.turned_at
        return "" if self.turning else f"the loop has not turned for {silent:.0f} s"

    def summary(self) -> dict[str, Any]:
        """What /health and /ready say."""
        gauges = ("leads", "store_reachable", "applications", "applications_stopped")
        values = {name: self.registry.get_sample_value(f"{PREFIX}_{name}") for name in gauges}
        trouble = self.trouble
        awaited = f"waits for {self.awaited}" if self.awaited else ""
        return {
            "version": 1,
            "healthy": not trouble,
            "ready": not (trouble or awaited),
            "reason": trouble or awaited,
            **{name: int(value or 0) for name, value in values.items()},
        }

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"{PREFIX}_{name}", text, registry=self.registry)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"{PREFIX}_{name}", text, registry=self.registry)
