"""The status of an application: driver, queries, incident, plan, and problems in words.

    view      what the store holds of it
    standing  what that means now, with reasons from the one list

The core takes in the same records as the coordinator does, without planning, so this is what a
coordinator sees, also while none runs. `rekindle status` shows it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from rekindle import protocol
from rekindle.coordination import rebalancing, session
from rekindle.coordination.coordination_events import Tick
from rekindle.coordination.coordination_state import (
    CoordinationState,
    Due,
    NodeStatus,
    NodeView,
    announced,
    inactive,
    slow,
    with_status,
)
from rekindle.coordination.instructions import Plan, PublishPlan, RecordEvent, describe
from rekindle.coordination.session import ApplicationReading, Case, Driver
from rekindle.coordination.state_machine import advance
from rekindle.model.incidents import Incident
from rekindle.model.reasons import Reason
from rekindle.model.sentences import counted
from rekindle.model.topology import Query

# Computes the plan that would be made now, and the number of nodes that would change it.
#
# Asks the same core on an assumed state and carries out nothing. It says why something
# waits; `query_explanation` uses it too.

NODES_MAX = 256


@dataclass(frozen=True, slots=True)
class PlanPreview:
    """The next plan, or why there is none."""

    plan: Plan | None
    reason: Reason
    text: str


def next_step(
    state: CoordinationState, now: float, *, clock: Callable[[], float]
) -> PlanPreview | None:
    """What planning at `now` would come to; None when nothing waits. The solver's budget is the
    policy's."""
    if not inactive(state):
        return None
    reason = Reason.NODE_BACK if state.due is None else state.due.reason
    assumed = replace(state, due=Due(now, reason), unacknowledged=None)
    found = None
    for instruction in advance(assumed, Tick(), now, clock=clock)[1]:
        if isinstance(instruction, PublishPlan):
            plan = instruction.plan
            return PlanPreview(plan, plan.reason, describe(plan))
        if isinstance(instruction, RecordEvent):
            found = PlanPreview(None, instruction.reason, instruction.text)
    return found


def settled(state: CoordinationState, now: float) -> CoordinationState:
    """The state once all that catches up has caught up, and what waits had no more backlog: one
    plan then has all that several would bring back, one after the other."""
    incident = None if state.incident is None else replace(state.incident, behind_since=now)
    return replace(state, catching_up=frozenset(), charges={}, incident=incident)


def is_next(
    state: CoordinationState, wanted: frozenset[str], now: float, *, clock: Callable[[], float]
) -> bool:
    """Whether a plan made at `now` holds all query partitions `wanted`."""
    step = next_step(state, now, clock=clock)
    return step is not None and step.plan is not None and wanted <= set(step.plan.query_partitions)


def more_nodes(
    state: CoordinationState, wanted: frozenset[str], now: float, *, clock: Callable[[], float]
) -> int | None:
    """The least number of nodes, each as large as the largest known and empty, with which the next
    plan holds the query partitions `wanted`; None when up to 256 do not help."""
    capacity = max((view.capacity_percent for view in state.nodes.values()), default=0.0)
    if not capacity:
        return None

    def helps(count: int) -> bool:
        added = {f"+{index}": NodeView(NodeStatus.UP, capacity) for index in range(count)}
        assumed = replace(state, nodes={**state.nodes, **added})
        return is_next(assumed, wanted, now, clock=clock)

    enough = 0
    while not helps(enough):
        if enough >= NODES_MAX:
            return None
        enough = max(1, 2 * enough)
    short = enough // 2 if enough > 1 else enough - 1
    while enough - short > 1:
        middle = (enough + short) // 2
        short, enough = (short, middle) if helps(middle) else (middle, enough)
    return enough


SHOWN_MAX = 8


class Phase(StrEnum):
    """Of a query: all of it runs, all of it is placed, some of it is neither, some of it has been
    stopped by a function that raises; the run is over."""

    LIVE = "live"
    CATCHING_UP = "catching up"
    WAITING = "waiting"
    STOPPED = "stopped"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class ApplicationView:
    """`plan` is the newest plan's directive, `answer` the driver's to it; `coordinator` says
    whether one takes part in the election."""

    application: str
    case: Case
    reading: ApplicationReading
    plan: protocol.Directive | None = None
    answer: protocol.Acknowledgement | None = None
    coordinator: bool = True


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that a person should know; `query` where it is of that one alone."""

    reason: Reason
    text: str
    query: str | None = None


@dataclass(frozen=True, slots=True)
class PlanProgress:
    """The newest plan as a sentence; `outcome` is "awaited", "done" or "refused"."""

    plan_epoch: int
    reason: str
    text: str
    outcome: str


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """`live` of its `partitions` run in every epoch. `priority` holds until `until` (None: for
    ever), `own_priority` is the pipeline's and the policy's. The lag of a driver that is silent or
    gone grows from its last report on, and with it `beyond_goal_seconds`: for how long in all the
    lag has been above `lag_goal_seconds`. Both are None for a query without a goal."""

    name: str
    priority: float
    own_priority: float
    until: float | None
    phase: Phase
    live: int
    partitions: int
    lag_seconds: float | None
    lag_goal_seconds: float | None = None
    beyond_goal_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ApplicationStatus:
    """`driver_since` (seconds since 1970) is since when the driver is as it is; where no
    coordinator has seen that, when the driver last told it something new, or None. `late_rows`
    (step -> rows) came too late for a step, ever since the application began; `sources` are as the
    driver last saw them. `weighted_beyond_goal_seconds` is the mean of all queries with a goal,
    weighted by their priorities; None where none has one."""

    application: str
    generation: int = 0
    driver: Driver = Driver.SILENT
    driver_since: float | None = None
    coordinator: bool = True
    paused: bool = False
    nodes: Mapping[str, NodeStatus] = field(default_factory=dict)
    incident: Incident | None = None
    plan: PlanProgress | None = None
    queries: tuple[QueryProgress, ...] = ()
    notices: tuple[Notice, ...] = ()
    late_rows: Mapping[str, int] = field(default_factory=dict)
    sources: Mapping[str, protocol.SourceSeen] = field(default_factory=dict)
    weighted_beyond_goal_seconds: float | None = None


def of(view: ApplicationView, now: float, *, clock: Callable[[], float]) -> ApplicationStatus:
    """The standing of an application; InputError for a policy or topology that means nothing."""
    case = case_of(view, now, clock=clock)
    state, driver = case.state, case.driver
    assert state is not None
    queries, progress = tuple(_queries(view, state, driver, now)), _progress(view)
    return ApplicationStatus(
        application=view.application,
        generation=view.reading.topology.generation,
        driver=driver,
        driver_since=_since(view, driver),
        coordinator=view.coordinator,
        paused=view.reading.orders.paused,
        nodes={node: seen.status for node, seen in sorted(state.nodes.items())},
        incident=None if driver is Driver.FINISHED else state.incident,
        plan=plan_standing(view),
        queries=queries,
        notices=tuple(_notices(view, case, queries, now, clock)),
        late_rows={} if progress is None else dict(sorted(progress.late_rows.items())),
        sources={} if progress is None else dict(sorted(progress.sources.items())),
        weighted_beyond_goal_seconds=_weighted(queries),
    )


def broken(name: str, trouble: str, *, coordinator: bool) -> ApplicationStatus:
    """The standing of an application with a record that cannot be read."""
    notices = () if coordinator else (_no_coordinator(),)
    return ApplicationStatus(
        application=name,
        coordinator=coordinator,
        notices=(*notices, Notice(Reason.BAD_RECORD, trouble)),
    )


def case_of(view: ApplicationView, now: float, *, clock: Callable[[], float]) -> Case:
    """What a coordinator would have in its hands after it has looked at the view; with a state."""
    return session.decide(view.case, view.reading, now, clock=clock, plan=False).case


def _since(view: ApplicationView, driver: Driver) -> float | None:
    heartbeat, kept = view.reading.heartbeat, view.case.kept
    if driver is Driver.THERE and heartbeat is not None:
        return heartbeat.since
    if view.case.generation != view.reading.topology.generation:
        return None
    if view.case.driver is driver and view.case.driver_at is not None:
        return view.case.driver_at
    return None if kept is None else kept.seen_at


def plan_standing(view: ApplicationView) -> PlanProgress | None:
    """The newest plan, and what became of it; None before the first one."""
    directive, answer = view.plan, view.answer
    if directive is None:
        return None
    progress = _progress(view)
    if progress is not None and progress.plan_epoch > directive.plan_epoch:
        text = f"Plan {progress.plan_epoch} is the driver's own: it could not ask a coordinator."
        return PlanProgress(progress.plan_epoch, Reason.DRIVER_ALONE, text, "done")
    outcome = "awaited"
    if answer is not None and answer.generation == directive.generation:
        outcome = answer.outcome
    elif progress is not None and progress.directive >= directive.sequence:
        outcome = "done"
    return PlanProgress(directive.plan_epoch, directive.reason, directive.text, outcome)


def _progress(view: ApplicationView) -> protocol.ProgressReport | None:
    progress = view.reading.progress
    generation = view.reading.topology.generation
    return progress if progress is not None and progress.generation == generation else None


def _queries(
    view: ApplicationView, state: CoordinationState, driver: Driver, now: float
) -> Iterator[QueryProgress]:
    progress, report = _progress(view), view.reading.topology
    live = frozenset() if progress is None else state.placement.keys() & set(progress.live)
    lags = _lags(progress, driver, now)
    goals = {} if progress is None else progress.lag_goals or {}
    beyond = _beyond(progress, goals, lags, driver, now)
    parallelism = {item.name: item.parallelism for item in report.topology.operators}
    stopped = stopped_queries(state)
    for query in report.topology.queries:
        count = parallelism[query.operator]
        closures = [state.closures[f"{query.name}/{index}"] for index in range(count)]
        needed = frozenset().union(*closures)
        override = _override(view.reading, query.name, now)
        own = _own_priority(report, query)
        phase = Phase.CATCHING_UP if needed <= state.placement.keys() else Phase.WAITING
        phase = Phase.LIVE if needed <= live else phase
        phase = Phase.STOPPED if query.name in stopped else phase
        yield QueryProgress(
            name=query.name,
            priority=own if override is None else override.priority,
            own_priority=own,
            until=None if override is None else override.until,
            phase=Phase.FINISHED if driver is Driver.FINISHED else phase,
            live=sum(closure <= live for closure in closures),
            partitions=count,
            lag_seconds=lags.get(query.name),
            lag_goal_seconds=goals.get(query.name),
            beyond_goal_seconds=beyond.get(query.name),
        )


def priorities_by_query(reading: ApplicationReading, now: float) -> dict[str, float]:
    """The priority of each query that holds now."""
    found = {}
    for query in reading.topology.topology.queries:
        override = _override(reading, query.name, now)
        own = _own_priority(reading.topology, query)
        found[query.name] = own if override is None else override.priority
    return found


def weighted_seconds(seconds: Mapping[str, float], priorities: Mapping[str, float]) -> float | None:
    """Sum of priority times seconds over the sum of priorities, of the queries that have both; None
    where none has. A driver that has just started may know other queries than the last report."""
    known = [query for query in seconds if query in priorities]
    total = sum(priorities[query] for query in known)
    return sum(priorities[query] * seconds[query] for query in known) / total if total else None


def _override(
    reading: ApplicationReading, query: str, now: float
) -> protocol.PriorityOverride | None:
    """The priority that people have ordered, as long as it holds."""
    override = reading.orders.priorities.get(query)
    if override is None or (override.until is not None and now >= override.until):
        return None
    return override


def _own_priority(report: protocol.TopologyReport, query: Query) -> float:
    return report.policy.priorities.get(query.name, query.priority)


def _weighted(queries: Iterable[QueryProgress]) -> float | None:
    counted = [query for query in queries if query.beyond_goal_seconds is not None]
    return weighted_seconds(
        {query.name: query.beyond_goal_seconds or 0.0 for query in counted},
        {query.name: query.priority for query in counted},
    )


def _lags(
    progress: protocol.ProgressReport | None, driver: Driver, now: float
) -> Mapping[str, float]:
    """Seconds by query. What a driver that is not there had committed gets older all the time."""
    if progress is None:
        return {}
    since = _unreported_seconds(progress, driver, now)
    return {query: lag + since for query, lag in progress.lags.items()}


def _beyond(
    progress: protocol.ProgressReport | None,
    goals: Mapping[str, float],
    lags: Mapping[str, float],
    driver: Driver,
    now: float,
) -> Mapping[str, float]:
    """Seconds beyond its goal by query; they grow with the lags that nobody reports any more."""
    if progress is None:
        return {}
    since = _unreported_seconds(progress, driver, now)
    return {
        query: seconds + min(since, max(0.0, lags.get(query, 0.0) - goals[query]))
        for query, seconds in progress.beyond_goal_seconds.items()
        if query in goals
    }


def _unreported_seconds(progress: protocol.ProgressReport, driver: Driver, now: float) -> float:
    """For how long a driver that is not there has reported nothing; 0 for one that is there."""
    if driver not in (Driver.GONE, Driver.SILENT) or progress.at is None:
        return 0.0
    return max(0.0, now - progress.at)


def stopped_queries(state: CoordinationState) -> dict[str, tuple[str, ...]]:
    """Queries that have stopped, each with what its partitions say why."""
    found: dict[str, set[str]] = {}
    for partition, why in sorted(state.stopped.items()):
        found.setdefault(partition.rpartition("/")[0], set()).add(why)
    return {query: tuple(sorted(whys)) for query, whys in found.items()}


def _notices(
    view: ApplicationView,
    case: Case,
    queries: tuple[QueryProgress, ...],
    now: float,
    clock: Callable[[], float],
) -> Iterator[Notice]:
    """What is wrong, what hinders most first; nothing is wrong with a run that has ended."""
    state, driver = case.state, case.driver
    assert state is not None
    if driver is Driver.FINISHED:
        return
    if not view.coordinator:
        yield _no_coordinator()
    yield from _about_driver(view, driver)
    if state.holding:
        yield Notice(Reason.ALL_NODES_LOST, "Every node looks lost: nothing is done until one is.")
    silent = with_status(state, NodeStatus.SUSPECTED)
    if silent:
        yield Notice(Reason.SUSPECTED_FAILURE, f"Silent: {named(silent)}.")
    for query, whys in stopped_queries(state).items():
        for text in whys:
            yield Notice(Reason.QUERY_STOPPED, f"{query} has stopped: {text}", query)
    progress = _progress(view)
    for partition, why in sorted(progress.suspected.items()) if progress else ():
        text = f"{partition} runs apart from all others: {why}."
        yield Notice(Reason.FUNCTION_SUSPECTED, text)
    for source, seen in sorted(progress.sources.items()) if progress else ():
        if seen.away:
            text = f"{source} cannot be reached: {seen.away}. Its queries wait, the others go on."
            yield Notice(Reason.SOURCE_AWAY, text)
    yield from about_announced(state, now)
    yield from _about_slow(state)
    if state.unacknowledged is not None:
        text = f"Plan {state.unacknowledged} is on its way to the driver."
        yield Notice(Reason.PLAN_AWAITED, text)
    elif driver is Driver.THERE and any(query.phase is Phase.WAITING for query in queries):
        yield from _about_waiting(view, state, now, clock)
    yield from _about_requests(view, state)
    calm = not (inactive(state) or state.catching_up or announced(state))
    if state.incident is not None and calm:
        number = state.incident.number
        text = f"All partitions of incident {number} have caught up."
        yield Notice(Reason.CHECKPOINT_AWAITED, text)


def named(names: tuple[str, ...], total: int = 0) -> str:
    """Names in a sentence, not too many of them; of so many in all, where there are more."""
    more = max(len(names), total) - min(len(names), SHOWN_MAX)
    return ", ".join(names[:SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")


def _no_coordinator() -> Notice:
    text = "No coordinator runs: nothing is planned, unless the driver plans by itself."
    return Notice(Reason.NO_COORDINATOR, text)


def _about_driver(view: ApplicationView, driver: Driver) -> Iterator[Notice]:
    progress = _progress(view)
    if driver is Driver.GONE:
        yield Notice(Reason.DRIVER_LOST, "The driver is gone; another one is asked for.")
    elif driver is Driver.SILENT:
        text = "The driver has no heartbeat: what is shown is its last report; lags go on growing."
        yield Notice(Reason.DRIVER_SILENT, text)
    elif progress is None:
        yield Notice(Reason.WAITING_FOR_NODES, "The driver has not reported any node yet.")
    if progress is not None and progress.alone and driver is not Driver.GONE:
        yield Notice(Reason.DRIVER_ALONE, "The driver cannot ask a coordinator: it plans itself.")
    if view.reading.orders.paused:
        done = progress is not None and progress.paused
        text = "Paused by order." if done else "Paused by order; the driver has not obeyed yet."
        yield Notice(Reason.PAUSED, text)
    elif progress is not None and progress.paused:
        yield Notice(Reason.UNPAUSED, "The pause has ended by order; the driver has yet to obey.")


def _about_waiting(
    view: ApplicationView, state: CoordinationState, now: float, clock: Callable[[], float]
) -> Iterator[Notice]:
    """Why what waits does so, where a plan could help it at all."""
    if view.reading.orders.paused or state.holding:
        return
    quick = replace(state.policy, solver="best-density")
    found = next_step(replace(state, policy=quick), now, clock=clock)
    if found is None:
        return
    if found.plan is None:
        yield Notice(found.reason, found.text)
    elif view.coordinator:
        text = f"A plan for {named(found.plan.query_partitions)} is being made."
        yield Notice(found.reason, text)


def _about_slow(state: CoordinationState) -> Iterator[Notice]:
    """What holds epochs up, and whether it can be relieved."""
    slowed = slow(state)
    if not slowed:
        return
    left = [partition for partition, node in state.placement.items() if node in slowed]
    text = f"Slow: {named(tuple(sorted(slowed)))}."
    if left:
        more = "which move" if state.moving or rebalancing.relief(state) else "no room elsewhere"
        text += f" {counted(len(left), 'partition')} there, {more}."
    yield Notice(Reason.SLOW_NODE, text)


def about_announced(state: CoordinationState, now: float) -> Iterator[Notice]:
    """Which nodes are announced to go, until when, what has yet to move; and what was saved by
    notices of nodes that are lost."""
    for node, notice in announced(state).items():
        left = sum(where == node for where in state.placement.values())
        gone = len(set(notice.held) & state.placement.keys()) - left
        seconds = notice.until - now
        when = f"in {seconds:.0f} s" if seconds > 0 else f"{-seconds:.0f} s ago"
        text = f"{node} is announced to go, {when} ({notice.source})."
        if gone > 0:
            text += f" Moved off it: {counted(gone, 'partition')}."
        if left:
            more = "which move" if state.moving else "which wait for room or for the driver"
            text += f" {counted(left, 'partition')} there, {more}."
        yield Notice(Reason.LOSS_ANNOUNCED, text)
    incident = state.incident
    if incident is not None and incident.moved:
        priority = sum(state.priorities.get(name, 0.0) for name in incident.saved)
        text = (
            f"Saved by notice: {counted(len(incident.moved), 'partition')} had moved before the "
            f"loss; {counted(len(incident.saved), 'query partition')} of priority {priority:g} did "
            f"not stop."
        )
        yield Notice(Reason.LOSS_ANNOUNCED, text)


def _about_requests(view: ApplicationView, state: CoordinationState) -> Iterator[Notice]:
    if state.incident is None:
        return
    for request in view.case.requests.values():
        if request.what == "nodes":
            outside = ", ".join(request.outside_domains)
            where = f" outside of {outside}" if outside else ""
            text = f"Requested: {counted(request.count, 'node')}{where}."
            yield Notice(request.reason, text)
