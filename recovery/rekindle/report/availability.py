"""Availability of each query in one run: its lag, its outages and its return.

Takes events and the topology, gives values; pure. Definitions in DESIGN 2 and docs/report.md.
`report_figures` calls `measure`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rekindle.model import run_events
from rekindle.model.errors import InputError
from rekindle.model.run_events import Event
from rekindle.report import lag
from rekindle.report.input_record import Inputs
from rekindle.report.lag import Cuts, Interval, Step, Tooth

WINDOW_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class LagWindow:
    """The time before the failure over which normal lag is measured, and where the run ends."""

    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Availability:
    """One query in one run; times in seconds since the failure.

    `threshold_seconds` is the lag above which it is unavailable, `onset` the moment at which
    a query that committed nothing since the failure crosses it. `beyond_goal_seconds` is for how
    long its lag was above `lag_goal_seconds` since the failure; both are None without a goal.
    """

    normal_worst_lag_seconds: float
    threshold_seconds: float
    onset: float
    unavailable: tuple[Interval, ...]
    survived: bool
    lost_at: float | None
    back_at: float | None
    epochs_lost: int
    lag_goal_seconds: float | None = None
    beyond_goal_seconds: float | None = None

    @property
    def unavailable_seconds(self) -> float:
        """Sum of the intervals."""
        return lag.duration(self.unavailable)

    def between(self, begin: float, end: float) -> float:
        """How many of these seconds lie in a stretch of time."""
        clipped = ((max(low, begin), min(high, end)) for low, high in self.unavailable)
        return lag.duration((low, high) for low, high in clipped if low < high)


def measure(events: Sequence[Event], inputs: Inputs, theta: float) -> Mapping[str, Availability]:
    """Measure every query of the topology over a run; InputError when a record is missing."""
    window = _window(events)
    survivors = surviving_queries(events, inputs)
    return {
        query: _query(events, inputs, query, window, theta, query in survivors)
        for query in sorted(inputs.priorities)
    }


def end_of_run(events: Sequence[Event]) -> float:
    """Give the time of the finish event, else InputError: an unfinished run has no report."""
    finish = run_events.last(events, "finish")
    if finish is None:
        raise _missing("no finish event")
    return finish.t


def epoch_seconds(events: Sequence[Event], query: str | None = None) -> float:
    """Give the median length of an epoch before the failure, within the time that normal lag is
    measured over; of epochs so long that it has none whole, of all before the failure."""
    cuts = cuts_of(events, query)
    spacing = cuts.spacing(_window(events).start, 0.0) or cuts.spacing(-math.inf, 0.0)
    if spacing is None:
        raise _missing("fewer than two cuts before the failure")
    return spacing


def cuts_of(events: Sequence[Event], query: str | None) -> Cuts:
    """Give the cuts of all queries, and those of `query` alone (an engine with own batches).

    `cut_at` says when the newest input of the epoch came in, where a limit held back more.
    """
    return Cuts.of(
        (
            (event.epoch, float(event.extra.get("cut_at", event.t)))
            for event in run_events.of_kind(events, "cut")
            if event.epoch is not None and event.query in (None, query)
        ),
        final=final_epoch(events, query),
    )


def final_epoch(events: Sequence[Event], query: str | None) -> int | None:
    """Give the epoch that ended the input: the finish event names it, or a cut, of `query` alone
    or of all."""
    finish = run_events.last(events, "finish")
    if finish is not None and finish.epoch is not None:
        return finish.epoch
    cuts = run_events.of_kind(events, "cut")
    final = (cut for cut in cuts if cut.extra.get("final") and cut.query in (None, query))
    return next((cut.epoch for cut in final), None)


def teeth_of(events: Sequence[Event], inputs: Inputs, query: str) -> tuple[Tooth, ...]:
    """Give the lag of a query over the whole run."""
    start = events[0].t if events else 0.0
    return lag.sawtooth(
        cuts_of(events, query), _steps(events, inputs, query), start, end_of_run(events)
    )


def surviving_queries(events: Sequence[Event], inputs: Inputs) -> frozenset[str]:
    """Give the queries whose whole closure lay on nodes that were not killed.

    Where partitions lay is what the newest statistics before the failure say; without any,
    nothing is known to have survived.
    """
    statistics = run_events.last(events, "statistics", until=0.0)
    placement = statistics.extra["placement"] if statistics else {}
    killed = {event.node for event in run_events.of_kind(events, "kill")}
    alive = {partition for partition, node in placement.items() if node not in killed}
    return frozenset(query for query in inputs.priorities if inputs.closure(query) <= alive)


def _query(
    events: Sequence[Event],
    inputs: Inputs,
    query: str,
    window: LagWindow,
    theta: float,
    survived: bool,
) -> Availability:
    cuts, steps = cuts_of(events, query), _steps(events, inputs, query)
    teeth = teeth_of(events, inputs, query)
    normal = lag.worst(teeth, window.start, 0.0)
    epoch = epoch_seconds(events, query)
    threshold = lag.threshold_seconds(normal, epoch, theta)
    unavailable = lag.above(teeth, threshold, 0.0, window.end)
    goal = inputs.lag_goals.get(query)
    beyond = None if goal is None else lag.duration(lag.above(teeth, goal, 0.0, window.end))
    return Availability(
        normal_worst_lag_seconds=normal,
        threshold_seconds=threshold,
        onset=_onset(teeth, threshold),
        unavailable=tuple(unavailable),
        survived=survived,
        lost_at=None if survived else 0.0,
        back_at=_back_at(unavailable, window.end, survived),
        epochs_lost=len(lag.late_epochs(cuts, steps, normal + epoch, 0.0, window.end)),
        lag_goal_seconds=goal,
        beyond_goal_seconds=beyond,
    )


def _window(events: Sequence[Event]) -> LagWindow:
    warm = run_events.last(events, "warm")
    start = max(-WINDOW_SECONDS, warm.t if warm else -WINDOW_SECONDS)
    if start >= 0:
        raise _missing("the warm-up was not over at the failure")
    return LagWindow(start, end_of_run(events))


def _steps(events: Sequence[Event], inputs: Inputs, query: str) -> list[Step]:
    commits = (
        lag.Commit(event.t, event.query_partition, event.epoch)
        for event in events
        if event.kind == "commit" and event.query == query
        if event.query_partition is not None and event.epoch is not None
    )
    return lag.progress(commits, inputs.partitions(query))


def _onset(teeth: Sequence[Tooth], threshold: float) -> float:
    at_failure = [tooth for tooth in teeth if tooth.start <= 0.0 < tooth.end]
    return max(0.0, at_failure[0].reference + threshold) if at_failure else 0.0


def _back_at(unavailable: Sequence[Interval], end: float, survived: bool) -> float | None:
    if not unavailable:
        return None if survived else 0.0
    return None if unavailable[-1][1] >= end else unavailable[-1][1]


def _missing(what: str) -> InputError:
    return InputError(
        where="events.jsonl",
        what=what,
        remedy="let the run go on longer, or restore the file from the run",
    )


# The least weighted unavailability that plans alone allow: exact ones, with no restore time.
#
# At the failure, and again at every return, the exact plan for all capacity so far is solved with
# steady costs and summed capacity; what it chooses is back at that moment and stays back. No real
# run can do better by more than luck in ties, so it is the yardstick of `report.json` (DESIGN
# 11). Pure: the solver is handed in.

# Takes a problem record in the format of `rekindle plan`, gives the queries to bring back.
Choose = Callable[[Mapping[str, Any]], Sequence[str]]


def back_times(
    inputs: Inputs,
    costs: Mapping[str, float],
    running: frozenset[str],
    capacity_steps: Sequence[tuple[float, float]],
    choose: Choose,
) -> Mapping[str, float]:
    """Give the moment at which each query is back; queries that never are have none.

    `costs` are percent of one core per partition, `running` the partitions that survived,
    `capacity_steps` pairs (t, CPU percent that all nodes hold of partitions from t on), ascending.
    """
    back = {query: 0.0 for query in inputs.priorities if inputs.closure(query) <= running}
    placed = set(running)
    for t, capacity in capacity_steps:
        waiting = sorted(set(inputs.priorities) - set(back))
        free = capacity - sum(costs.get(partition, 0.0) for partition in placed)
        if not waiting or free < 0:
            continue
        for query in choose(_problem(inputs, costs, placed, waiting, free)):
            placed |= inputs.closure(query)
        back |= {query: t for query in waiting if inputs.closure(query) <= placed}
    return back


def running_partitions(
    inputs: Inputs, placement: Mapping[str, str], killed: frozenset[str]
) -> frozenset[str]:
    """Give the partitions that belong to a query partition whose closure survived whole."""
    alive = {partition for partition, node in placement.items() if node not in killed}
    whole = [closure for closure in inputs.closures.values() if set(closure) <= alive]
    return frozenset(partition for closure in whole for partition in closure)


def weighted_seconds(
    inputs: Inputs, back: Mapping[str, float], onsets: Mapping[str, float], end: float
) -> float:
    """Weigh by priority how long each query is above its lag threshold until it is back.

    `onsets` are the moments at which a query crosses its threshold when it commits nothing
    from the failure on. A query that is never back is unavailable until `end`.
    """
    seconds = {query: max(0.0, back.get(query, end) - onsets[query]) for query in inputs.priorities}
    total = sum(inputs.priorities.values())
    return sum(inputs.priorities[query] * seconds[query] for query in seconds) / total


def _problem(
    inputs: Inputs,
    costs: Mapping[str, float],
    placed: set[str],
    waiting: Sequence[str],
    free_cpu_percent: float,
) -> Mapping[str, Any]:
    needed = {query: sorted(inputs.closure(query) - placed) for query in waiting}
    return {
        "version": 1,
        "partitions": {
            partition: {"cpu_percent": costs.get(partition, 0.0)}
            for partition in sorted({name for names in needed.values() for name in names})
        },
        "queries": {
            query: {"priority": inputs.priorities[query], "partitions": names}
            for query, names in needed.items()
        },
        "capacity_cpu_percent": free_cpu_percent,
    }
