"""Explains why a query is not back yet, and how it would come back: facts and sentences.

Computed with the core from the records that the coordinator decides on: what the query's missing
partitions cost, what is free, who comes first, what the next plan would be, and how many more nodes
would do. `rekindle explain` shows it.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from rekindle.coordination import application_status, node_load
from rekindle.coordination.application_status import (
    ApplicationStatus,
    ApplicationView,
    Phase,
    PlanPreview,
    QueryProgress,
    named,
)
from rekindle.coordination.coordination_state import CoordinationState, NodeStatus, with_status
from rekindle.coordination.directives import NodeRequestOrder
from rekindle.model.errors import InputError
from rekindle.model.sentences import counted, percent
from rekindle.planning import wait_explanation
from rekindle.planning.wait_explanation import Lesser, Wait

# a look at a hypothetical plan need not be the best one
BUDGET_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class MissingPartition:
    """A partition that does not run; CPU in percent of one core. `resident` is the node that still
    has its state."""

    partition: str
    steady_percent: float
    catching_up_percent: float
    state_bytes: int
    resident: str | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """`free` (node -> CPU percent, under the cap) of the nodes that are up; `first` are the more
    important queries that are not back either; `next_plan` the query partitions that a plan made
    now would bring back; `more_nodes` with how many more nodes this query would be among them, 0
    when it is, None when it is not known."""

    application: str
    query: QueryProgress
    sentences: tuple[str, ...]
    missing: tuple[MissingPartition, ...] = ()
    free: Mapping[str, float] | None = None
    first: tuple[str, ...] = ()
    next_plan: tuple[str, ...] = ()
    requests: Mapping[str, NodeRequestOrder] | None = None
    more_nodes: int | None = None


def explain(
    view: ApplicationView, name: str, now: float, *, clock: Callable[[], float]
) -> Explanation:
    """Of one query; InputError for one that there is not."""
    found = application_status.of(view, now, clock=clock)
    query = _query(found, name)
    if query.phase is not Phase.WAITING:
        sentences = (_phase(query), *_goal(query), *_notices(found, query))
        return Explanation(found.application, query, sentences)
    state = application_status.case_of(view, now, clock=clock).state
    assert state is not None
    quick = replace(state.policy, solver="best-density", solver_budget_seconds=BUDGET_SECONDS)
    state = replace(state, policy=quick)
    costs = node_load.steady(state)
    missing = missing_partitions(state, query, costs, node_load.catching_up(state, costs, now))
    first = tuple(
        other.name
        for other in sorted(found.queries, key=lambda other: (-other.priority, other.name))
        if other.priority > query.priority and other.phase is not Phase.LIVE
    )
    step = application_status.next_step(state, now, clock=clock)
    explanation = Explanation(
        application=found.application,
        query=query,
        sentences=(),
        missing=missing,
        free={node: max(0.0, cpu) for node, cpu in node_load.free(state, costs).items()},
        first=first,
        next_plan=() if step is None or step.plan is None else step.plan.query_partitions,
        requests=dict(view.case.requests),
        more_nodes=application_status.more_nodes(state, _waiting(state, query), now, clock=clock),
    )
    sentences = (
        *_sentences(explanation, found, state, step),
        _remedy(explanation, state, now, clock),
        *_goal(query),
        *_notices(found, query, step),
    )
    return replace(explanation, sentences=sentences)


def missing_partitions(
    state: CoordinationState,
    query: QueryProgress,
    steady: Mapping[str, float],
    behind: Mapping[str, float],
) -> tuple[MissingPartition, ...]:
    """The partitions that a query waits for, in the order of the pipeline; `steady` and `behind`
    (partition -> CPU percent) are what each costs when it runs, and while it catches up."""
    needed = frozenset().union(*(state.closures[name] for name in _waiting(state, query)))
    return tuple(
        MissingPartition(
            partition=name,
            steady_percent=steady[name],
            catching_up_percent=behind[name],
            state_bytes=state.state_bytes.get(name, 0),
            resident=state.resident.get(name),
        )
        for name in state.partitions
        if name in needed and name not in state.placement
    )


def near(name: str, known: list[str]) -> str:
    """The names to offer instead of one that there is not."""
    close = difflib.get_close_matches(name, known, n=5, cutoff=0.5)
    return named(tuple(close or sorted(known)))


def _notices(
    found: ApplicationStatus, query: QueryProgress, step: PlanPreview | None = None
) -> Iterator[str]:
    """What is wrong, but for what is said of the next plan anyway, and for other queries' ends."""
    for notice in found.notices:
        is_of_others = notice.query not in (None, query.name)
        if not is_of_others and (step is None or notice.reason is not step.reason):
            yield f"{notice.text} ({notice.reason})"


def _query(found: ApplicationStatus, name: str) -> QueryProgress:
    for query in found.queries:
        if query.name == name:
            return query
    raise InputError(
        where=f"query {name!r:.60}",
        what=f"is no query of {found.application}",
        remedy=f"name one of: {near(name, [query.name for query in found.queries])}",
    )


def _phase(query: QueryProgress) -> str:
    wanted = counted(query.partitions, "query partition is", "query partitions are")
    of_all = f"{query.live} of {wanted} live"
    if query.phase is Phase.LIVE:
        return f"{query.name} is live: nothing is missing."
    if query.phase is Phase.FINISHED:
        return f"{query.name} has ended: the run is over."
    if query.phase is Phase.STOPPED:
        return f"{query.name} goes on when a driver starts with the function mended: {of_all}."
    return f"{query.name} is placed and catches up: {of_all}."


def _goal(query: QueryProgress) -> Iterator[str]:
    """For how long it has been further behind than its goal, if it has one."""
    goal, seconds = query.lag_goal_seconds, query.beyond_goal_seconds
    if goal is not None and seconds is not None:
        yield f"Its lag has been above its goal of {goal:g} s for {seconds:.1f} s in all."


def _waiting(state: CoordinationState, query: QueryProgress) -> frozenset[str]:
    names = (f"{query.name}/{index}" for index in range(query.partitions))
    return frozenset(name for name in names if not state.closures[name] <= state.placement.keys())


def _sentences(
    explanation: Explanation,
    found: ApplicationStatus,
    state: CoordinationState,
    step: PlanPreview | None,
) -> Iterator[str]:
    query, missing = explanation.query, explanation.missing
    names = tuple(item.partition for item in missing)
    which = f"{counted(len(names), 'partition')} not running that it needs"
    yield f"{query.name} waits, with {which}: {named(names)}."
    steady = sum(item.steady_percent for item in missing)
    behind = sum(item.catching_up_percent for item in missing)
    yield f"They cost {percent(steady)} CPU, {percent(behind)} while they catch up."
    yield _room(explanation, state)
    if (why := _why(explanation, found)) is not None:
        yield why
    if explanation.first:
        yield f"More important and waiting too: {named(explanation.first)}."
    catching_up = [item.name for item in found.queries if item.phase is Phase.CATCHING_UP]
    if catching_up:
        yield f"Still catching up: {named(tuple(catching_up))}."
    verb = _verb(state)
    if explanation.next_plan:
        yield f"A plan made now would {verb} {named(explanation.next_plan)}."
    elif step is not None:
        yield f"A plan made now would {verb} nothing: {step.text} ({step.reason})"


def _verb(state: CoordinationState) -> str:
    """What a plan does to queries that wait: at a fresh start nothing is lost."""
    return "start" if state.incident is None else "bring back"


def _why(explanation: Explanation, found: ApplicationStatus) -> str | None:
    """Why it waits while something less important runs; None where nothing less important does, or
    the next plan has it."""
    query, missing, free = explanation.query, explanation.missing, explanation.free or {}
    running = (Phase.LIVE, Phase.CATCHING_UP)
    lesser = [
        other
        for other in found.queries
        if other.priority < query.priority and other.phase in running
    ]
    if not lesser or not free or explanation.more_nodes == 0:
        return None
    least = min(lesser, key=lambda other: (other.priority, other.name))
    wait = Wait(
        query=query.name,
        priority=query.priority,
        needed=sum(item.catching_up_percent for item in missing),
        largest=max((item.catching_up_percent for item in missing), default=0.0),
        free=sum(free.values()),
        free_on_one=max(free.values()),
    )
    return wait_explanation.sentence(wait, Lesser(least.name, least.priority, ran_before=True))


def _room(explanation: Explanation, state: CoordinationState) -> str:
    free = explanation.free or {}
    if not free:
        return "No node is up."
    each = tuple(f"{percent(cpu)} on {node}" for node, cpu in free.items() if cpu >= 1)
    lost = with_status(state, NodeStatus.LOST)
    away = f" Lost: {named(lost)}." if lost else ""
    return f"Free under the cap: {named(each) if each else 'nothing'}.{away}"


def _remedy(
    explanation: Explanation, state: CoordinationState, now: float, clock: Callable[[], float]
) -> str:
    name, more = explanation.query.name, explanation.more_nodes
    if more == 0:
        return f"{name} is in the next plan."
    wanted = _waiting(state, explanation.query)
    settled = application_status.settled(state, now)
    if state.catching_up and application_status.is_next(settled, wanted, now, clock=clock):
        return f"{name} fits as soon as those that catch up have caught up."
    if more is None:
        return f"It is not known how many more nodes would {_verb(state)} it."
    capacity = max(view.capacity_percent for view in state.nodes.values())
    nodes = f"{counted(more, 'more node')} of {percent(capacity)} CPU"
    return f"With {nodes} {name} would be in the next plan."
