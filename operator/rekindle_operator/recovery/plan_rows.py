"""The plans of an incident, and the driver's answer to each.

A plan is told from its directive, which the store keeps, so it is told even when whoever made it
was killed before writing here. Whether the driver has carried it out shows in its answer, in its
reports, and in the plan on which the next one builds, so it shows later as well. Called by
`status_builder` only.
"""

from collections.abc import Iterable

import msgspec

from rekindle.coordination import node_load
from rekindle.coordination.coordination_state import CoordinationState
from rekindle.model.reasons import Reason
from rekindle.protocol import Directive, PlanOrder
from rekindle_operator.api.conditions import camel_case
from rekindle_operator.api.custom_resources import clipped
from rekindle_operator.api.recovery_status import PlanMade
from rekindle_operator.recovery.recovery_inputs import RecoveryInputs, moment

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
