"""When each query was lost, planned and back, and why it waits.

A query is *placed* when its whole closure is, and back when nothing of it catches up any more. One
that has *stopped* because a function raises comes back with a mended function only. Lost
again before it was back it keeps the moment of the first loss; lost again afterwards its row begins
anew, for the plans and events tell of the first time. Called by `status_builder` and
`recovery_phases`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import msgspec

from rekindle.coordination import application_status
from rekindle.coordination.coordination_state import CoordinationState, active
from rekindle.coordination.session import Driver
from rekindle_operator.api.conditions import camel_case
from rekindle_operator.api.custom_resources import clipped
from rekindle_operator.api.recovery_status import STOPPED, PlanMade, QueryRecovery
from rekindle_operator.recovery import wait_reason
from rekindle_operator.recovery.recovery_inputs import RecoveryInputs, moment

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
    told, why = tuple(plans), wait_reason.why(scene)
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
    why: wait_reason.Said,
    now: float,
) -> QueryRecovery:
    lost_at, planned_at = row.lost_at, row.planned_at
    if lost_at is None or row.back_at is not None:
        lost_at, planned_at = _lost_at(row, scene, now), None
    word, text = why
    if item.placed:
        word, text = wait_reason.behind(scene)
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
