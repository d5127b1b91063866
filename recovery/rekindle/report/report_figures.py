"""All figures of `report.json` from events, input record, problems and answers.

Opens no file and reads no clock: the solver's clock is an argument. The demo calls `compute` to
write the report, `verification` to check it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rekindle.coordination import node_load
from rekindle.model import run_events
from rekindle.model.errors import InputError
from rekindle.model.run_events import Event
from rekindle.report import availability, machine_limits, report_plans
from rekindle.report.availability import Availability
from rekindle.report.input_record import Inputs, RunFacts

VERSION = 1

Record = Mapping[str, Any]


def compute(
    events: Sequence[Event],
    facts: RunFacts,
    input_record: Record,
    problems: Mapping[int, Record],
    answers: Mapping[int, Record],
    exactly_once: Mapping[str, int],
    clock: Callable[[], float],
) -> dict[str, Any]:
    """Compute the report of a run as it is written to `report.json` (DESIGN 9).

    `problems` and `answers` are the records of the plans by number, `exactly_once` what
    `verification.exactly_once` counted. Raises InputError for records from which a figure
    cannot be computed.
    """
    inputs = Inputs.from_record(input_record)
    measured = availability.measure(events, inputs, facts.theta)
    victims = sorted({str(event.node) for event in run_events.of_kind(events, "kill")})
    return {
        "version": VERSION,
        **asdict(facts),
        "killed": len(victims),
        "victims": victims,
        "returns": returns(events),
        "end": availability.end_of_run(events),
        "epoch_seconds": _epoch_seconds(events, inputs),
        "queries": {
            name: _query(inputs.priorities[name], query) for name, query in measured.items()
        },
        "weighted_unavailable_seconds": weighted(
            inputs, {name: query.unavailable_seconds for name, query in measured.items()}
        ),
        "weighted_unavailable_seconds_bound": _bound(events, facts, inputs, measured, clock),
        "first_plan_epochs": report_plans.first_plan_epochs(events),
        "first_plan_seconds": report_plans.first_plan_seconds(events),
        "plans": report_plans.plans(events, inputs, problems, answers),
        "exactly_once": dict(exactly_once),
        "throughput_rows_per_second": throughput(events, inputs),
        "machine_limit": machine_limits.measure(events),
        **_late_rows(events),
    }


def _late_rows(events: Sequence[Event]) -> dict[str, Any]:
    """Rows that came too late by step, in the whole run; nothing of runs that did not count."""
    told = [event.extra["late_rows"] for event in events if "late_rows" in event.extra]
    return {"late_rows": told[-1]} if told else {}


def returns(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Give each return of a node after the failure, in order."""
    return [
        {"node": event.node, "at": event.t}
        for event in run_events.of_kind(events, "returned")
        if event.t >= 0
    ]


def weighted(inputs: Inputs, seconds: Mapping[str, float]) -> float:
    """Give the sum of priority * seconds of each query over the sum of priorities."""
    total = sum(inputs.priorities.values())
    return sum(inputs.priorities[name] * value for name, value in seconds.items()) / total


def throughput(events: Sequence[Event], inputs: Inputs) -> float | None:
    """Give rows read per second between the opening of the first epoch and the last cut.

    The first epoch is taken to be as long as the median one.
    """
    spacing = _epoch_seconds(events, inputs)
    times = [event.t for event in run_events.of_kind(events, "cut")]
    if spacing is None or not times:
        return None
    seconds = max(times) - min(times) + spacing
    return sum(inputs.offsets.values()) / seconds if seconds > 0 else None


def _epoch_seconds(events: Sequence[Event], inputs: Inputs) -> float | None:
    lengths = [availability.epoch_seconds(events, query) for query in inputs.priorities]
    return max(lengths, default=None)


def _query(priority: float, measured: Availability) -> dict[str, Any]:
    return {
        "priority": priority,
        "survived": measured.survived,
        "normal_worst_lag_seconds": measured.normal_worst_lag_seconds,
        "unavailable": [list(interval) for interval in measured.unavailable],
        "unavailable_seconds": measured.unavailable_seconds,
        "lost_at": measured.lost_at,
        "back_at": measured.back_at,
        "epochs_lost": measured.epochs_lost,
    }


def _bound(
    events: Sequence[Event],
    facts: RunFacts,
    inputs: Inputs,
    measured: Mapping[str, Availability],
    clock: Callable[[], float],
) -> float | None:
    statistics = run_events.last(events, "statistics", until=0.0)
    if statistics is None:
        return None
    costs, overhead_percent = statistics.extra["costs"], statistics.extra.get("overhead_percent", 0)
    _check_costs(inputs, costs, overhead_percent)
    kills = run_events.of_kind(events, "kill")
    # Nodes that are lost later are reckoned as if what ran there went on: a bound all the same.
    killed = frozenset(str(event.node) for event in kills if event.t <= 0)
    back = availability.back_times(
        inputs,
        costs,
        availability.running_partitions(inputs, statistics.extra["placement"], killed),
        _capacity_steps(
            events,
            facts.nodes,
            node_load.room(facts.node_capacity_percent, overhead_percent),
        ),
        report_plans.exact_choice(facts.seed, clock),
    )
    onsets = {name: query.onset for name, query in measured.items()}
    return availability.weighted_seconds(inputs, back, onsets, availability.end_of_run(events))


def _capacity_steps(
    events: Sequence[Event], nodes: int, node_percent: float
) -> list[tuple[float, float]]:
    """The capacity from each moment on: less with each kill, more with each node's first return.
    Each of so many nodes holds so much of partitions."""
    first: dict[str, float] = {}
    for entry in returns(events):
        first.setdefault(entry["node"], entry["at"])
    changes = [(max(0.0, event.t), -1) for event in run_events.of_kind(events, "kill")]
    changes += [(t, 1) for t in first.values()]
    alive, steps = nodes, {0.0: nodes}
    for t, change in sorted(changes):
        alive += change
        steps[t] = alive
    return [(t, count * node_percent) for t, count in steps.items()]


def _check_costs(inputs: Inputs, costs: Mapping[str, float], overhead_percent: Any) -> None:
    if not isinstance(overhead_percent, int | float) or not overhead_percent >= 0:
        raise InputError(
            where="events.jsonl: statistics: overhead_percent",
            what=f"is {overhead_percent!r}, not a number from 0",
            remedy="restore the file from the run, or run the demo again",
        )
    for query in inputs.priorities:
        unknown = sorted(inputs.closure(query) - set(costs))
        if unknown:
            raise InputError(
                where="events.jsonl: statistics: costs",
                what=f"does not name {unknown[0]}, which {query} needs",
                remedy="restore the file from the run, or run the demo again",
            )
