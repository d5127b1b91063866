"""Rows of a Recovery's status: its plans, its queries, and the one reason why queries wait.

`status_builder` and `recovery_phases` call it.

The reason is the first that holds, what a person can do about it before what time will do. It looks
at the state alone and plans nothing, so it costs little and is the same for every caller.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from rekindle.coordination import application_status, next_plan, node_load
from rekindle.coordination.application_status import named
from rekindle.coordination.coordination_state import (
    CoordinationState,
    NodeStatus,
    active,
    with_status,
)
from rekindle.coordination.session import Driver
from rekindle.model.incidents import IncidentKind
from rekindle.model.reasons import Reason
from rekindle.model.sentences import counted
from rekindle.model.settings import BLOCKING
from rekindle.protocol import Directive, PlanOrder
from rekindle_operator.api.custom_resources import camel_case, clipped
from rekindle_operator.api.recovery_resource import STOPPED, PlanMade, QueryRecovery
from rekindle_operator.recovery.recovery_inputs import RecoveryInputs, moment
from rekindle_operator.recovery.recovery_reasons import RecoveryReason, Word

Said = tuple[Word, str]

SETTLING: Final = "Nodes have come: the next plan is made once arrivals have settled."


def wait_reason(scene: RecoveryInputs) -> Said:
    """Why a query that is not placed waits."""
    return held(scene) or approval(scene) or away(scene) or turn(scene) or _plan(scene)


def behind(scene: RecoveryInputs) -> Said:
    """Why a query that is placed is not back."""
    plan = scene.state.unacknowledged
    if plan is None:
        return away(scene) or (RecoveryReason.CATCHING_UP, "It is placed, and catches up.")
    return away(scene) or (Reason.PLAN_AWAITED, f"Plan {plan} is on its way to the driver.")


def held(scene: RecoveryInputs) -> Said | None:
    """Why nothing is done at all, None where something is."""
    if scene.state.holding or scene.cluster.held:
        text = "Every node looks lost, so it may be us: nothing is done until one is heard of."
        return Reason.ALL_NODES_LOST, text
    if scene.terms.paused:
        return Reason.PAUSED, "Paused by policy or class: nothing is planned or requested."
    if scene.view.reading.orders.paused:
        return Reason.PAUSED, "Paused by order: no epochs, no plans."
    return None


def approval(scene: RecoveryInputs) -> Said | None:
    """The approval that is awaited, None where none is."""
    if not scene.terms.approval_needed or scene.terms.approved:
        return None
    text = "Somebody has to approve: nothing is planned until spec.approved is true."
    return RecoveryReason.APPROVAL_AWAITED, text


def away(scene: RecoveryInputs) -> Said | None:
    """What is wrong with the driver, None where it is there."""
    if scene.driver is Driver.GONE:
        return Reason.DRIVER_LOST, "The driver is gone: what was lost waits for the next one."
    if scene.driver is Driver.SILENT:
        return (
            Reason.DRIVER_SILENT,
            "The driver is silent: nothing is planned meanwhile.",
        )
    return None


def turn(scene: RecoveryInputs) -> Said | None:
    """The limit that is reached and the recoveries that fill it, None where it may go on."""
    limit = scene.terms.limit
    if limit is None:
        return None
    number = limit.recoveries_max
    going = "1 recovery" if number == 1 else f"{number} recoveries"
    text = (
        f"Waits for {named(limit.holders)}: {limit.owner} lets {going} go on at once "
        "(concurrentRecoveriesMax)."
    )
    return RecoveryReason.TURN_AWAITED, text


def _plan(scene: RecoveryInputs) -> Said:
    """What the next plan waits for."""
    state = scene.state
    up, wanted = len(with_status(state, NodeStatus.UP)), next_plan.nodes_wanted(state)
    nodes = f"{up} of {counted(wanted, 'node')} {'is' if up == 1 else 'are'} up"
    if not up:
        return Reason.WAITING_FOR_NODES, "No node is up."
    if state.unacknowledged is not None:
        text = f"Plan {state.unacknowledged} is on its way; the next one comes after it."
        return Reason.PLAN_AWAITED, text
    if state.due is not None:
        settling = state.due.reason is Reason.NODE_BACK
        return state.due.reason, SETTLING if settling else "The next plan is being made."
    incident = state.incident
    blocking = state.policy.strategy == BLOCKING
    if (
        up < wanted
        and blocking
        and incident is not None
        and incident.kind not in (IncidentKind.INDEPENDENT, IncidentKind.ANNOUNCED)
    ):
        return Reason.WAITING_FOR_NODES, f"{nodes}, and the strategy is blocking."
    if state.catching_up:
        return Reason.NO_CAPACITY, f"No room yet: {nodes}, and what was placed catches up."
    return Reason.NO_CAPACITY, f"No room: {nodes}."


# The plans of an incident, and the driver's answer to each.
#
# A plan is told from its directive, which the store keeps, so it is told even when whoever made
# it was killed before writing here. Whether the driver has carried it out shows in its answer, in
# its reports, and in the plan on which the next one builds, so it shows later as well.

MILLICORES_PER_PERCENT = 10
MILLICORES_MAX = 2**53 - 1
REASON_LENGTH_MAX = 64
TEXT_LENGTH_MAX = 1_000
REFUSED_LENGTH_MAX = 500
QUERY_LENGTH_MAX = 200
NOT_CARRIED_OUT = "The driver did not carry it out."
DRIVER_ENDED = "The driver that it was made for has ended."


def plans(
    before: tuple[PlanMade, ...], dropped: int, scene: RecoveryInputs, now: float
) -> tuple[PlanMade, ...]:
    """The plans after a look, in order. `dropped` of the oldest have given way, and stay away."""
    rows = {row.number: row for row in before}
    oldest = min(rows, default=0) if dropped else 0
    own = made_alone(before, scene)
    if own is not None:
        rows[own] = _made_alone(own, now)
    for directive in scene.plans:
        order, number = directive.order, directive.plan_epoch
        if not isinstance(order, PlanOrder) or order.incident != scene.incident:
            continue
        if number in rows:
            rows[number] = _renewed(rows[number], directive, order, scene, now)
        elif number > oldest:
            rows[number] = _made(directive, order, scene, now)
    return tuple(_answered(rows[number], scene, now) for number in sorted(rows))


def made_alone(before: Iterable[PlanMade], scene: RecoveryInputs) -> int | None:
    """The number of a plan that the driver has made by itself in this incident, not told so far.

    It is newer than every plan of a coordinator before this decision, and the incident has had a
    plan that is not known otherwise.
    """
    incident, progress = scene.open, scene.progress
    if incident is None or progress is None:
        return None
    told = {row.number for row in before}
    earlier = max((*told, *(item.plan_epoch for item in scene.stored)), default=0)
    number = progress.plan_epoch
    if not earlier < number <= scene.state.plan_epoch:
        return None
    known = {item.plan_epoch for item in scene.plans}
    ours = sum(1 for item in scene.plans if _is_of(item, scene.incident))
    return number if number not in known and (told or incident.plans > ours) else None


def _is_of(directive: Directive, incident: int) -> bool:
    return isinstance(directive.order, PlanOrder) and directive.order.incident == incident


def _made_alone(number: int, now: float) -> PlanMade:
    return PlanMade(
        number=number,
        at=moment(now),
        reason=camel_case(Reason.DRIVER_ALONE),
        text=f"Plan {number}: the driver has made it by itself, as it could ask no coordinator.",
        acknowledged_at=moment(now),
    )


def _made(directive: Directive, order: PlanOrder, scene: RecoveryInputs, now: float) -> PlanMade:
    """The row of a plan that has not been told."""
    state, number = scene.state, directive.plan_epoch
    partitions = [name for name in order.query_partitions if name in state.priorities]
    queries = _queries(state, partitions)
    return PlanMade(
        number=number,
        at=moment(_made_at(number, scene, now)),
        reason=clipped(camel_case(directive.reason), REASON_LENGTH_MAX),
        text=directive.text,
        queries=queries,
        queries_total=len(queries),
        capacity_millicores=_capacity(state, order),
        priority_sum=round(sum(state.priorities[name] for name in partitions), 6),
    )


def _renewed(
    row: PlanMade, directive: Directive, order: PlanOrder, scene: RecoveryInputs, now: float
) -> PlanMade:
    """A dry run makes its plan anew each time, under the same number: the newest is told."""
    told = row.text == clipped(directive.text, TEXT_LENGTH_MAX)
    if told or row.acknowledged_at is not None:
        return row
    return _made(directive, order, scene, now)


def _made_at(number: int, scene: RecoveryInputs, now: float) -> float:
    """When a plan was made: what stirred the state that has it on its way, unless something else
    has since."""
    for case in (scene.view.case, scene.decision.case):
        kept = case.kept
        if kept is not None and kept.unacknowledged == number and kept.seen_at is not None:
            return kept.seen_at
    return now


def _queries(state: CoordinationState, partitions: Iterable[str]) -> tuple[str, ...]:
    """Names of queries, the most important first; one part of a query names it."""
    names = {partition.rpartition("/")[0] for partition in partitions}
    priorities = {query.name: 0.0 for query in state.topology.queries if query.name in names}
    for partition, priority in state.priorities.items():
        name = partition.rpartition("/")[0]
        if name in priorities:
            priorities[name] += priority
    ordered = sorted(priorities, key=lambda name: (-priorities[name], name))
    return tuple(clipped(name, QUERY_LENGTH_MAX) for name in ordered)


def _capacity(state: CoordinationState, order: PlanOrder) -> int:
    """The CPU that was free for a plan (millicores): what is free now, and what it took."""
    free = node_load.free(state, node_load.steady(state))
    for partition, node in order.placement.items():
        if node in free and state.placement.get(partition) == node:
            free[node] += state.charges.get(partition, 0.0)
    percent = sum(max(0.0, cpu) for cpu in free.values())
    return min(MILLICORES_MAX, round(MILLICORES_PER_PERCENT * percent))


def _answered(row: PlanMade, scene: RecoveryInputs, now: float) -> PlanMade:
    """With what the driver did, once that is known; then only its own word can change that."""
    if row.acknowledged_at is not None:
        return row
    if row.refused is not None and not _is_said_done(row.number, scene):
        return row
    if _is_carried_out(row.number, scene):
        return msgspec.structs.replace(row, acknowledged_at=moment(now), refused=None)
    why = _refusal(row.number, scene)
    if why is None:
        return row
    return msgspec.structs.replace(row, refused=clipped(why, REFUSED_LENGTH_MAX))


def _is_said_done(number: int, scene: RecoveryInputs) -> bool:
    directive = _directive(number, scene)
    answer = None if directive is None else scene.answer(directive)
    return answer is not None and answer.outcome == "done"


def _is_carried_out(number: int, scene: RecoveryInputs) -> bool:
    """Whether the driver has said so, its reports show it, or a later plan builds on it."""
    directive, progress = _directive(number, scene), scene.progress
    answer = None if directive is None else scene.answer(directive)
    if answer is not None:
        return answer.outcome == "done"
    # a later driver counts on from the plans that were made for it
    its = directive is None or directive.generation == scene.decision.case.generation
    if its and progress is not None and progress.plan_epoch >= number:
        return True
    return any(
        isinstance(item.order, PlanOrder) and item.plan_epoch > number <= item.order.builds_on
        for item in scene.plans
    )


def _refusal(number: int, scene: RecoveryInputs) -> str | None:
    """Why a plan was not carried out, and never will be; None while it may be."""
    directive, progress = _directive(number, scene), scene.progress
    if directive is not None:
        answer = scene.answer(directive)
        if answer is not None:
            return answer.text or NOT_CARRIED_OUT
        if directive.generation < scene.decision.case.generation:
            return DRIVER_ENDED
        if progress is not None and progress.directive >= directive.sequence:
            return NOT_CARRIED_OUT
    later = any(item.plan_epoch > number for item in scene.plans)
    return NOT_CARRIED_OUT if later else None


def _directive(number: int, scene: RecoveryInputs) -> Directive | None:
    return next((item for item in scene.plans if item.plan_epoch == number), None)


# When each query was lost, planned and back, and why it waits.
#
# A query is *placed* when its whole closure is, and back when nothing of it catches up any more.
# One that has *stopped* because a function raises comes back with a mended function only. Lost
# again before it was back it keeps the moment of the first loss; lost again afterwards its row
# begins anew, for the plans and events tell of the first time. Called by `status_builder` and
# `recovery_phases`.

NAME_LENGTH_MAX = 200
MESSAGE_LENGTH_MAX = 300


@dataclass(frozen=True, slots=True)
class QueryState:
    """How a query is by the core's state: `placed` all of it that may run, `back` and caught up;
    `stopped` is why some of it may not, "" where all may."""

    name: str
    priority: float
    placed: bool
    back: bool
    stopped: str = ""


def standings(state: CoordinationState) -> tuple[QueryState, ...]:
    """Every query, in the order of the topology."""
    placed, stopped = active(state), application_status.stopped_queries(state)
    parallelism = {item.name: item.parallelism for item in state.topology.operators}
    found = []
    for query in state.topology.queries:
        parts = [f"{query.name}/{index}" for index in range(parallelism[query.operator])]
        able = [part for part in parts if part not in state.stopped]
        all_placed = placed.issuperset(able)
        found.append(
            QueryState(
                name=query.name,
                priority=round(sum(state.priorities[part] for part in parts), 6),
                placed=all_placed,
                back=all_placed and state.catching_up.isdisjoint(able),
                stopped="; ".join(stopped.get(query.name, ())),
            )
        )
    return tuple(found)


def queries(
    before: Iterable[QueryRecovery], plans: Iterable[PlanMade], scene: RecoveryInputs, now: float
) -> tuple[QueryRecovery, ...]:
    """A row for each query; those of an incident that has not begun have no times.

    A run that has ended in order brings nothing back: its rows stay as they are.
    """
    rows = {row.name: row for row in before}
    if scene.driver is Driver.FINISHED and rows:
        return tuple(rows.values())
    told, why = tuple(plans), wait_reason(scene)
    closed = scene.begun and scene.open is None and not scene.state.starting
    found = []
    for item in standings(scene.state):
        name = clipped(item.name, NAME_LENGTH_MAX)
        row = rows.get(name, QueryRecovery(name=name, priority=item.priority))
        row = msgspec.structs.replace(row, priority=item.priority, reason=None, message=None)
        # another incident may have begun since: this one ended with all of them back
        is_over = item.back or closed or not scene.begun
        if not is_over:
            found.append(_missing(row, item, told, scene, why, now))
        elif item.stopped:
            found.append(_stopped(row, item.stopped))
        else:
            found.append(_back(row, told, now))
    return tuple(found)


def _stopped(row: QueryRecovery, why: str) -> QueryRecovery:
    """What has stopped was not lost by that; lost before, it does not come back."""
    return msgspec.structs.replace(
        row,
        reason=STOPPED,
        message=clipped(f"It has stopped: {why}", MESSAGE_LENGTH_MAX),
    )


def _back(row: QueryRecovery, plans: tuple[PlanMade, ...], now: float) -> QueryRecovery:
    if row.lost_at is None or row.back_at is not None:
        return row
    planned_at = row.planned_at or _planned_at(row.name, row.lost_at, plans, now)
    return msgspec.structs.replace(row, planned_at=planned_at, back_at=moment(now))


def _missing(
    row: QueryRecovery,
    item: QueryState,
    plans: tuple[PlanMade, ...],
    scene: RecoveryInputs,
    why: Said,
    now: float,
) -> QueryRecovery:
    lost_at, planned_at = row.lost_at, row.planned_at
    if lost_at is None or row.back_at is not None:
        lost_at, planned_at = _lost_at(row, scene, now), None
    word, text = why
    if item.placed:
        word, text = behind(scene)
        planned_at = planned_at or _planned_at(row.name, lost_at, plans, now)
    return msgspec.structs.replace(
        row,
        lost_at=lost_at,
        planned_at=planned_at if item.placed else None,
        back_at=None,
        reason=camel_case(word),
        message=clipped(text, MESSAGE_LENGTH_MAX),
    )


def _lost_at(row: QueryRecovery, scene: RecoveryInputs, now: float) -> datetime:
    """The newest loss of the incident, unless the query was seen back after it."""
    incident = scene.open
    at = moment(now if incident is None else min(now, incident.newest_loss_at))
    return moment(now) if row.back_at is not None and at <= row.back_at else at


def _planned_at(name: str, lost_at: datetime, plans: tuple[PlanMade, ...], now: float) -> datetime:
    """The plan that placed a query: the newest that names it, else the newest, since its loss."""
    since = [plan for plan in plans if plan.at >= lost_at]
    named = [plan for plan in since if name in plan.queries]
    return max((plan.at for plan in named or since), default=moment(now))
