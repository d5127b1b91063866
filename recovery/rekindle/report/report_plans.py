"""The plans of a run as the report lists them, and the exact plan for the bound.

Reads the events and the records of `problems/` and `answers/`; pure. `report_figures` calls it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rekindle import planning
from rekindle.model import plan_problem as recovery_problem
from rekindle.model import run_events
from rekindle.model.errors import InputError
from rekindle.model.run_events import Event
from rekindle.report import skipped_queries
from rekindle.report.availability_bound import Choose
from rekindle.report.input_record import Inputs
from rekindle.report.skipped_queries import Skipped

# Exact plans of the bound: the demo's problems take well under a second.
BUDGET_SECONDS = 20.0

Record = Mapping[str, Any]


def plans(
    events: Sequence[Event],
    inputs: Inputs,
    problems: Mapping[int, Record],
    answers: Mapping[int, Record],
) -> list[dict[str, Any]]:
    """List the plans of a run in order; InputError when a plan's pair of records is missing."""
    made = run_events.of_kind(events, "plan")
    pairs = [
        (_pair(problems, event, "problems"), _pair(answers, event, "answers")) for event in made
    ]
    left = skipped_queries.follow(events, inputs, problems, answers)
    return [
        _plan(event, *pair, left.get(event.extra["n"], Skipped()))
        for event, pair in zip(made, pairs, strict=True)
    ]


def first_plan_epochs(events: Sequence[Event]) -> int | None:
    """Give how many epochs passed from the driver knowing to the first plan running.

    What the driver must know is what the plan answers: the newest confirmed loss or return of
    a node before it. The plan runs from the epoch that its acknowledgement names. None when
    no plan was acknowledged.
    """
    planned = [event for event in run_events.of_kind(events, "plan") if event.t >= 0]
    acks = _acknowledgements(events)
    if not planned or not acks or acks[0].epoch is None:
        return None
    causes = [
        event.t
        for event in run_events.of_kind(events, "confirmed", "returned")
        if 0 <= event.t <= planned[0].t
    ]
    known = max(causes, default=planned[0].t)
    cut = [
        event.epoch
        for event in run_events.of_kind(events, "cut")
        if event.t <= known and event.epoch is not None
    ]
    return max(0, acks[0].epoch - max(cut)) if cut else None


def first_plan_seconds(events: Sequence[Event]) -> float | None:
    """Give the time from the failure to the first plan after it that the driver acknowledged; None
    when it acknowledged none."""
    planned = {event.plan_epoch for event in run_events.of_kind(events, "plan") if event.t >= 0}
    acks = _acknowledgements(events)
    return next((event.t for event in acks if event.plan_epoch in planned), None)


def capacity_percent(problem: Record) -> float:
    """Give the free CPU of a problem record, summed over its nodes, in percent of one core."""
    if (capacity := problem.get("capacity_cpu_percent")) is not None:
        return float(capacity)
    nodes = problem.get("nodes", {})
    return float(sum(node["free_cpu_percent"] for node in nodes.values()))


def exact_choice(seed: int, clock: Callable[[], float]) -> Choose:
    """Give a function that solves a problem record exactly and names the queries chosen."""

    def choose(problem: Record) -> Sequence[str]:
        answer = planning.solve(
            recovery_problem.from_record(problem, "problem of the bound"),
            solver="exact",
            budget_seconds=BUDGET_SECONDS,
            seed=seed,
            clock=clock,
        )
        return tuple(answer.queries)

    return choose


def _plan(event: Event, problem: Record, answer: Record, left: Skipped) -> dict[str, Any]:
    return {
        "at": event.t,
        "capacity_cpu_percent": capacity_percent(problem),
        "queries": sorted(event.extra["queries"]),
        "priority_sum": answer.get("priority_sum"),
        "solver": answer.get("solver"),
        "gap": answer.get("gap"),
        "skipped": [dict(query) for query in left.queries],
        "why": left.sentence,
    }


def _pair(records: Mapping[int, Record], event: Event, folder: str) -> Record:
    number = event.extra["n"]
    if number not in records:
        raise InputError(
            where=f"{folder}/{number}.json",
            what=f"is missing, but events.jsonl tells of plan {number}",
            remedy="restore the file from the run, or run the demo again",
        )
    return records[number]


def _acknowledgements(events: Sequence[Event]) -> list[Event]:
    return [event for event in run_events.of_kind(events, "ack") if event.t >= 0]
