"""Drivers' reports as metrics: lag, age of checkpoints, time of epochs.

Worked out when somebody asks, on the thread that answers: a thousand applications with fifty
queries each would hold up the thread that decides. Both replicas of an operator have them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from rekindle.coordination.session import ApplicationReading
from rekindle.protocol import ProgressReport
from rekindle.protocol.store_paths import Place

PREFIX = "rekindle_coordinator"
# Of an application those that lag most, and as many of its sources.
QUERIES_MAX = 50
# A driver reports every 5 s; behind that its lag grows while nobody reports it.
CURRENT_SECONDS = 15.0
_WHOSE = ("namespace", "application")


@dataclass(slots=True, eq=False)
class DriverFigures(Collector):
    """`readings` are of all applications with a driver's report; `now` in seconds since 1970."""

    readings: Callable[[], Iterable[tuple[Place, ApplicationReading]]]
    now: Callable[[], float]

    def describe(self) -> list[GaugeMetricFamily]:
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
        ]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """All families, as things are now."""
        families = self.describe()
        lag, checkpoint, epoch, away, refused, source_lag, source_away = families
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
            _add_sources(source_lag, source_away, whose, reading, now)
        yield from families


def _add_sources(
    lag: GaugeMetricFamily,
    away: GaugeMetricFamily,
    whose: Sequence[str],
    reading: ApplicationReading,
    now: float,
) -> None:
    """The sources that lag most, of those that are no replays."""
    progress = reading.progress
    assert progress is not None, "who asks has looked"
    more = _unreported_seconds(progress, now)
    known = sorted(progress.sources.items(), key=lambda item: (-item[1].lag_seconds, item[0]))
    for source, seen in known[:QUERIES_MAX]:
        lag.add_metric([*whose, source], seen.lag_seconds + more)
        away.add_metric([*whose, source], float(bool(seen.away)))


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
