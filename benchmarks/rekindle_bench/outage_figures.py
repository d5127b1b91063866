"""The figures of one run in a failure, from its events alone, by the same definitions for everyone.

    events + priorities ──► who was unavailable for how long, put out first when, lagged most
                       └──► the priority-weighted mean lag over time, for a picture

Unavailability is the report's (docs/report.md). Times are seconds since the first failure. Pure;
`recovery_benchmark` calls it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rekindle.model import run_events
from rekindle.model.run_events import Event
from rekindle.report import THETA, Inputs, availability, lag, weighted
from rekindle.report.availability import Availability

BEFORE_SECONDS, SAMPLE_SECONDS = 20.0, 0.5

Points = list[tuple[float, float]]


def alone(priorities: Mapping[str, float]) -> Inputs:
    """What is to be known of a run that left nothing but events: queries of one partition each."""
    return Inputs(
        files=(),
        offsets={},
        rows_per_second=0.0,
        keys={},
        closures={f"{name}/0": (f"{name}/0",) for name in priorities},
        priorities=dict(priorities),
    )


def figures(events: Sequence[Event], inputs: Inputs) -> dict[str, Any]:
    """What `recovery.json` says of a run: of all, of each failure, of each query.

    Raises InputError for events without a finish, or with too few cuts before the failure.
    """
    measured = availability.measure(events, inputs, THETA)
    end = availability.end_of_run(events)
    queries = {
        name: _query(events, inputs, name, measured[name], end) for name in inputs.priorities
    }
    first = [query["first_output_seconds"] for query in queries.values()]
    found = [seconds for seconds in first if seconds is not None]
    return {
        "weighted_unavailable_seconds": weighted(
            inputs, {name: query.unavailable_seconds for name, query in measured.items()}
        ),
        "first_output_seconds": min(found, default=None),
        "all_output_seconds": max(found) if len(found) == len(first) else None,
        "peak_lag_seconds": max(query["peak_lag_seconds"] for query in queries.values()),
        "never_back": sorted(name for name, query in measured.items() if _is_never_back(query)),
        "failures": _failures(events, inputs, measured, end),
        "queries": queries,
    }


def before_failure(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Events before the failure as `freshness.Commits` takes them, by the failure's clock."""
    return [
        {"kind": event.kind, "at": event.t, "epoch": event.epoch, "query": event.query or ""}
        | {"cut_at": event.extra.get("cut_at", event.t), "rows": 0}
        for event in run_events.of_kind(events, "cut", "commit")
        if event.t <= 0
    ]


def curve(events: Sequence[Event], inputs: Inputs) -> Points:
    """Points (seconds, lag): the mean over the queries weighted by priority, from shortly before
    the failure to the end; 0 where nothing is owed any more."""
    end = availability.end_of_run(events)
    total = sum(inputs.priorities.values())
    count = int((BEFORE_SECONDS + end) / SAMPLE_SECONDS) + 1
    sums = [0.0] * count
    for name, priority in inputs.priorities.items():
        for tooth in availability.teeth_of(events, inputs, name):
            first = max(0, _sample(tooth.start))
            for index in range(first, min(count, _sample(tooth.end))):
                at = index * SAMPLE_SECONDS - BEFORE_SECONDS
                sums[index] += priority / total * (at - tooth.reference)
    return [(index * SAMPLE_SECONDS - BEFORE_SECONDS, value) for index, value in enumerate(sums)]


def _sample(t: float) -> int:
    """The first sample at or after a moment."""
    return -int(-(t + BEFORE_SECONDS) // SAMPLE_SECONDS)


def _query(
    events: Sequence[Event], inputs: Inputs, name: str, measured: Availability, end: float
) -> dict[str, Any]:
    teeth = availability.teeth_of(events, inputs, name)
    return {
        "priority": inputs.priorities[name],
        "unavailable_seconds": measured.unavailable_seconds,
        "normal_worst_lag_seconds": measured.normal_worst_lag_seconds,
        "first_output_seconds": _first_output(events, inputs, name, end),
        "peak_lag_seconds": lag.worst(teeth, 0.0, end),
    }


def _first_output(events: Sequence[Event], inputs: Inputs, name: str, end: float) -> float | None:
    """When all partitions of a query had put out something new; None: not until the end."""
    commits = [
        lag.Commit(event.t, event.query_partition, event.epoch)
        for event in run_events.of_kind(events, "commit")
        if event.query == name and event.query_partition is not None and event.epoch is not None
    ]
    steps = lag.progress(commits, inputs.partitions(name))
    return next((t for t, _ in steps if 0.0 < t <= end), None)


def _failures(
    events: Sequence[Event], inputs: Inputs, measured: Mapping[str, Availability], end: float
) -> list[dict[str, Any]]:
    """Each failure with what was unavailable from there to the next."""
    kills = run_events.of_kind(events, "kill")
    moments = sorted({event.t for event in kills})
    return [
        {
            "at": t,
            "nodes": [event.node for event in kills if event.t == t],
            "weighted_unavailable_seconds": weighted(
                inputs, {name: query.between(t, until) for name, query in measured.items()}
            ),
        }
        for t, until in zip(moments, [*moments[1:], end], strict=True)
    ]


def _is_never_back(query: Availability) -> bool:
    return bool(query.unavailable) and query.back_at is None
