"""The plans of a run as the report lists them, and the exact plan for the bound.

Reads the events and the records of `problems/` and `answers/`; pure. `report_figures` calls it.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rekindle import planning
from rekindle.model import plan_problem as recovery_problem
from rekindle.model import run_events
from rekindle.model.errors import InputError
from rekindle.model.plan_problem import RUNNING
from rekindle.model.run_events import Event
from rekindle.planning import wait_explanation
from rekindle.planning.wait_explanation import Lesser, Wait
from rekindle.report.availability import Choose
from rekindle.report.input_record import Inputs

# The queries that each plan of a run left waiting, and why.
#
# A plan's problem holds the query partitions among which the planner chose, and not those that it
# had put off before. So what waits is followed through the run: where partitions lay before the
# failure, what each kill took, and what each plan placed.

# Not among what the planner chose from: the nodes that are up have no room for it, not even once
# what catches up has caught up.
PUT_OFF = "put-off"

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Skipped:
    """What waits after one plan, the most important first; `sentence` says why the first of them
    waits while something less important runs, None where none does."""

    queries: tuple[Record, ...] = ()
    sentence: str | None = None


@dataclass(slots=True)
class _Cluster:
    """Where partitions lie, as the run goes on."""

    inputs: Inputs
    steady: Mapping[str, float]
    node_of: dict[str, str]
    lost: set[str] = field(default_factory=set)

    def kill(self, node: str) -> None:
        gone = {name for name, where in self.node_of.items() if where == node}
        self.lost |= gone
        for name in gone:
            del self.node_of[name]

    def place(self, placement: Mapping[str, Sequence[str]]) -> None:
        self.node_of |= {name: node for node, held in placement.items() for name in held}

    def runs(self, query: str) -> bool:
        return self.inputs.closure(query) <= self.node_of.keys()


def follow(
    events: Sequence[Event],
    inputs: Inputs,
    problems: Mapping[int, Record],
    answers: Mapping[int, Record],
) -> dict[int, Skipped]:
    """Give what each plan after the failure left waiting, by the plan's number.

    Empty where the run has no `statistics` before the failure: nobody knows what lay where.
    """
    measured = run_events.last(events, "statistics", until=0.0)
    if measured is None:
        return {}
    placement, costs = measured.extra["placement"], measured.extra["costs"]
    cluster = _Cluster(inputs, costs, dict(placement))
    found: dict[int, Skipped] = {}
    for event in run_events.of_kind(events, "kill", "plan"):
        if event.t < 0:
            continue
        if event.kind == "kill":
            cluster.kill(str(event.node))
            continue
        number = event.extra["n"]
        ran = {query for query in inputs.priorities if cluster.runs(query)}
        cluster.place(_placed(event, inputs, problems[number], answers[number]))
        found[number] = _skipped(cluster, ran, problems[number], answers[number])
    return found


def _placed(event: Event, inputs: Inputs, problem: Record, answer: Record) -> Record:
    """What the plan placed; where its problem has no nodes, what its queries need."""
    placement: Record = answer.get("placement") or {}
    if placement or problem.get("nodes"):
        return placement
    needed = (inputs.closures.get(name) or inputs.closure(name) for name in event.extra["queries"])
    return {"": sorted(frozenset().union(*needed))}


def _skipped(cluster: _Cluster, ran: set[str], problem: Record, answer: Record) -> Skipped:
    priorities = cluster.inputs.priorities
    order = sorted(priorities, key=lambda query: (-priorities[query], query))
    waiting_ones = [query for query in order if not cluster.runs(query)]
    waits = {query: _wait(cluster, query, problem, answer) for query in waiting_ones}
    queries = tuple(
        {
            "query": query,
            "priority": priorities[query],
            "reason": _reason(query, cluster.inputs, answer),
            "needed_cpu_percent": waits[query].needed,
            "free_cpu_percent": waits[query].free,
        }
        for query in waiting_ones
    )
    return Skipped(queries, _sentence(cluster, ran, waits))


def _sentence(cluster: _Cluster, ran: set[str], waits: Mapping[str, Wait]) -> str | None:
    """Of the most important query that waits, beside the least important one that runs."""
    priorities = cluster.inputs.priorities
    running = sorted(
        (query for query in priorities if cluster.runs(query)),
        key=lambda query: (priorities[query], query),
    )
    if not waits or not running:
        return None
    wait, least = next(iter(waits.values())), running[0]
    if priorities[least] >= wait.priority:
        return None
    return wait_explanation.sentence(wait, Lesser(least, priorities[least], least in ran))


def _wait(cluster: _Cluster, query: str, problem: Record, answer: Record) -> Wait:
    costs = _costs(cluster, problem)
    missing = [
        costs.get(name, 0.0) for name in cluster.inputs.closure(query) - cluster.node_of.keys()
    ]
    left = _left(problem, answer)
    return Wait(
        query=query,
        priority=cluster.inputs.priorities[query],
        needed=sum(sorted(missing)),
        largest=max(missing, default=0.0),
        free=sum(left.values()),
        free_on_one=max(left.values(), default=0.0) if problem.get("nodes") else None,
    )


def _costs(cluster: _Cluster, problem: Record) -> dict[str, float]:
    """As the plan reckoned; what was put off costs as much more than steadily as the others."""
    reckoned = {name: part["cpu_percent"] for name, part in problem["partitions"].items()}
    steady = cluster.steady
    ratios = [reckoned[name] / steady[name] for name in reckoned if steady.get(name)]
    factor = statistics.median(ratios) if ratios else 1.0
    return {name: factor * cost for name, cost in steady.items()} | reckoned


def _left(problem: Record, answer: Record) -> dict[str, float]:
    """Free CPU after the plan, by node; of all together under one name where it has no nodes."""
    nodes = problem.get("nodes")
    if not nodes:
        free = float(problem.get("capacity_cpu_percent") or 0.0)
        return {"": max(0.0, free - float(answer.get("used_cpu_percent") or 0.0))}
    partitions, placement = problem["partitions"], answer.get("placement") or {}
    return {
        node: max(
            0.0,
            view["free_cpu_percent"]
            - sum(partitions[name]["cpu_percent"] for name in sorted(placement.get(node, ()))),
        )
        for node, view in nodes.items()
    }


def _reason(query: str, inputs: Inputs, answer: Record) -> str:
    """Of its query partitions, the first that the planner had to leave out."""
    skipped = answer.get("skipped") or {}
    for name in (query, *inputs.partitions(query)):
        if skipped.get(name, RUNNING) != RUNNING:
            return str(skipped[name])
    return PUT_OFF


# Exact plans of the bound: the demo's problems take well under a second.
BUDGET_SECONDS = 20.0


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
    left = follow(events, inputs, problems, answers)
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
