"""Metrics of what drivers report: lag, checkpoints, epochs, a store that is away, refusals."""

from dataclasses import replace

import msgspec
import pytest
from application_world import Desk
from prometheus_client import CollectorRegistry

from rekindle.coordination.session import ApplicationReading
from rekindle.protocol import CheckpointReport, SourceSeen
from rekindle.protocol.store_paths import Place
from rekindle_coordinator import coordinator_health
from rekindle_coordinator.coordinator_health import DriverFigures

PLACE = Place("team", "flights")
WHOSE = {"namespace": "team", "application": "flights"}
NOW = 2_000.0


def figures(*readings: ApplicationReading) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(
        DriverFigures(lambda: [(PLACE, reading) for reading in readings], lambda: NOW)
    )
    return registry


def reading(**fields: object) -> ApplicationReading:
    desk = Desk()
    desk.report(at=NOW - 1.0, **fields)
    return desk.reading


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"rekindle_coordinator_{name}", {**WHOSE, **labels})


def test_lags_are_as_reported_while_the_driver_reports() -> None:
    registry = figures(reading(lags={"busiest": 2.5, "ranking": 400.0}))
    assert value(registry, "query_lag_seconds", query="busiest") == 2.5
    assert value(registry, "query_lag_seconds", query="ranking") == 400.0


def test_a_lag_grows_once_nobody_reports_it() -> None:
    registry = figures(reading(lags={"busiest": 2.5}))
    known = reading(lags={"busiest": 2.5})
    assert known.progress is not None
    silent = replace(known, progress=msgspec.structs.replace(known.progress, at=NOW - 90))
    assert value(figures(silent), "query_lag_seconds", query="busiest") == 92.5
    assert value(registry, "query_lag_seconds", query="busiest") == 2.5


def test_the_time_beyond_goals_is_counted_by_query_and_weighted_by_priority() -> None:
    registry = figures(
        reading(
            lags={"busiest": 2.5, "ranking": 400.0},
            lag_goals={"busiest": 10.0, "ranking": 60.0},
            beyond_goal_seconds={"busiest": 13.0, "ranking": 340.0},
        )
    )
    assert value(registry, "query_lag_goal_seconds", query="ranking") == 60.0
    assert value(registry, "query_beyond_goal_seconds_total", query="busiest") == 13.0
    assert value(registry, "query_beyond_goal_seconds_total", query="ranking") == 340.0
    assert value(registry, "weighted_beyond_goal_seconds") == (4 * 13.0 + 9 * 340.0) / 13


def test_queries_without_a_goal_have_no_time_beyond_it() -> None:
    registry = figures(reading(lag_goals={"busiest": 10.0}, beyond_goal_seconds={"busiest": 2.0}))
    assert value(registry, "query_beyond_goal_seconds_total", query="ranking") is None
    assert value(registry, "weighted_beyond_goal_seconds") == 2.0
    none = figures(reading(lag_goals={}))
    assert value(none, "weighted_beyond_goal_seconds") is None


def test_what_has_stopped_or_ended_has_no_lag() -> None:
    stopped = figures(reading(lags={"busiest": 9.0, "ranking": 1.0}, stopped={"busiest/0": "bad"}))
    assert value(stopped, "query_lag_seconds", query="busiest") is None
    assert value(stopped, "query_lag_seconds", query="ranking") == 1.0
    assert (
        value(figures(reading(lags={"busiest": 9.0}, finished=True)), "query_lag_seconds") is None
    )


def test_of_many_queries_those_that_lag_most_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_health, "QUERIES_MAX", 1)
    registry = figures(reading(lags={"busiest": 2.5, "ranking": 400.0}))
    assert value(registry, "query_lag_seconds", query="busiest") is None
    assert value(registry, "query_lag_seconds", query="ranking") == 400.0


def test_a_checkpoint_grows_old_and_one_of_an_older_driver_counts_until_there_is_another() -> None:
    known = reading()
    assert value(figures(known), "checkpoint_age_seconds") is None
    resumed = replace(
        known, topology=msgspec.structs.replace(known.topology, checkpoint_at=NOW - 500)
    )
    assert value(figures(resumed), "checkpoint_age_seconds") == 500.0
    report = CheckpointReport(generation=1, sequence=3, epoch=7, at=NOW - 12)
    assert value(figures(replace(resumed, checkpoint=report)), "checkpoint_age_seconds") == 12.0
    older = CheckpointReport(generation=7, sequence=3, epoch=7, at=NOW - 12)
    assert value(figures(replace(resumed, checkpoint=older)), "checkpoint_age_seconds") == 500.0


def test_sources_that_are_no_replays_have_their_lag_and_say_when_they_are_away() -> None:
    sources = {
        "orders": SourceSeen(lag_seconds=4.0),
        "clicks": SourceSeen(lag_seconds=9.0, away="cut off"),
    }
    known = reading(sources=sources)
    registry = figures(known)
    assert value(registry, "source_lag_seconds", source="orders") == 4.0
    assert value(registry, "source_away", source="orders") == 0.0
    assert value(registry, "source_lag_seconds", source="clicks") == 9.0
    assert value(registry, "source_away", source="clicks") == 1.0
    assert known.progress is not None
    silent = replace(known, progress=msgspec.structs.replace(known.progress, at=NOW - 90))
    assert value(figures(silent), "source_lag_seconds", source="orders") == 94.0


def test_epochs_stores_and_refusals_are_shown_as_reported() -> None:
    registry = figures(
        reading(epoch_seconds=3.5, store_away_at=NOW - 70, refused={"StatisticsReport": "no"})
    )
    assert value(registry, "epoch_seconds") == 3.5
    assert value(registry, "checkpoint_store_away_seconds") == 70.0
    assert value(registry, "reports_refused") == 1.0
    well = figures(reading())
    assert value(well, "epoch_seconds") is None
    assert value(well, "checkpoint_store_away_seconds") == 0.0
    assert value(well, "reports_refused") == 0.0
