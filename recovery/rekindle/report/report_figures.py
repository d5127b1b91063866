"""All figures of `report.json` from events, input record, problems and answers.

Opens no file and reads no clock: the solver's clock is an argument. The demo calls `compute` to
write the report, `verification` to check it.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rekindle import planning
from rekindle.coordination import node_load
from rekindle.model import plan_problem as recovery_problem
from rekindle.model import run_events
from rekindle.model.errors import InputError
from rekindle.model.plan_problem import RUNNING
from rekindle.model.run_events import Event
from rekindle.planning import wait_explanation
from rekindle.planning.wait_explanation import Lesser, Wait
from rekindle.report import availability, machine_limits
from rekindle.report.availability import Availability, Choose
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
        **_beyond_goals(inputs, measured),
        "weighted_unavailable_seconds_bound": _bound(events, facts, inputs, measured, clock),
        "first_plan_epochs": first_plan_epochs(events),
        "first_plan_seconds": first_plan_seconds(events),
        "plans": plans(events, inputs, problems, answers),
        "exactly_once": dict(exactly_once),
        "throughput_rows_per_second": throughput(events, inputs),
        "machine_limit": machine_limits.measure(events),
        **_late_rows(events),
    }


def _beyond_goals(inputs: Inputs, measured: Mapping[str, Availability]) -> dict[str, Any]:
    """The seconds beyond their goals, weighted, of the queries that have one; nothing of runs
    without goals."""
    beyond = {
        name: query.beyond_goal_seconds
        for name, query in measured.items()
        if query.beyond_goal_seconds is not None
    }
    if not beyond:
        return {}
    total = sum(inputs.priorities[name] for name in beyond)
    seconds = sum(inputs.priorities[name] * value for name, value in beyond.items())
    return {"weighted_beyond_goal_seconds": seconds / total}


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
        **_goal(measured),
    }


def _goal(measured: Availability) -> dict[str, Any]:
    if measured.lag_goal_seconds is None:
        return {}
    return {
        "lag_goal_seconds": measured.lag_goal_seconds,
        "beyond_goal_seconds": measured.beyond_goal_seconds,
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
        exact_choice(facts.seed, clock),
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


# The queries that each plan of a run left waiting, and why.
#
# A plan's problem holds the query partitions among which the planner chose, and not those that it
# had put off before. So what waits is followed through the run: where partitions lay before the
# failure, what each kill took, and what each plan placed.

# Not among what the planner chose from: the nodes that are up have no room for it, not even once
# what catches up has caught up.
# The plans of a run as the report lists them, and the exact plan for the bound.

PUT_OFF = "put-off"


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
