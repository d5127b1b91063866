"""Instructions for the driver as numbered directives, and those for the node provider as requests.

Directives are issued once. Whatever became of them, `overdue` looks at what the driver reports
after it has taken the newest: a switch that is not as it should be, an executor that should not be
there, is ordered again. Pure; `session` calls it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rekindle import protocol
from rekindle.coordination import buffering_mode, instructions, next_plan
from rekindle.coordination.coordination_state import CoordinationState, NodeStatus
from rekindle.coordination.instructions import (
    DropExecutors,
    Instruction,
    MovePartitions,
    PublishPlan,
    RequestNodes,
    RestartDriver,
    SetBuffering,
    SetLagGoals,
    SetOrdering,
)
from rekindle.model.incidents import Incident
from rekindle.model.reasons import Reason
from rekindle.protocol.messages import Order

TEXT_LENGTH_MAX = 4_000


@dataclass(frozen=True, slots=True)
class NodeRequestOrder:
    """What the node provider is asked for: `count` "nodes" outside of some failure domains, or the
    application's "driver" again."""

    what: str
    reason: Reason
    count: int = 1
    outside_domains: tuple[str, ...] = ()


def issue(
    instructions: Iterable[Instruction],
    pausing: protocol.PauseOrder | protocol.ResumeOrder | None,
    *,
    after: int,
    base: int,
    generation: int,
    state: CoordinationState,
    progress: protocol.ProgressReport | None,
) -> tuple[protocol.Directive, ...]:
    """Directives to the driver of `generation`, numbered from `after` + 1; those up to `base` were
    for earlier generations. A plan builds on the driver's newest plan by its report `progress`."""
    orders: list[tuple[Order, Reason, str]]
    orders = [found for item in instructions if (found := _order(item, state, progress))]
    if pausing is not None:
        word = Reason.PAUSED if isinstance(pausing, protocol.PauseOrder) else Reason.UNPAUSED
        orders.append((pausing, word, word.meaning))
    return tuple(
        protocol.Directive(
            sequence=sequence,
            after=sequence - 1 if sequence - 1 > base else 0,
            generation=generation,
            plan_epoch=state.plan_epoch,
            reason=str(why),
            text=text,
            order=order,
        )
        for sequence, (order, why, text) in enumerate(orders, start=after + 1)
    )


def pausing(
    wanted: bool, ordered: bool, progress: protocol.ProgressReport | None, newest: int
) -> protocol.PauseOrder | protocol.ResumeOrder | None:
    """The order that brings about what people want, unless it has been given and may yet be
    taken."""
    taken = progress is not None and progress.directive >= newest
    done = progress.paused if progress is not None and taken else ordered
    if done == wanted == ordered:
        return None
    return protocol.PauseOrder() if wanted else protocol.ResumeOrder()


def overdue(
    state: CoordinationState,
    progress: protocol.ProgressReport | None,
    newest: int,
    instructions: Iterable[Instruction] = (),
) -> tuple[SetBuffering | SetOrdering, ...]:
    """Switches that a driver that has taken all directives up to `newest` has still not made,
    apart from `instructions` that it is given only now."""
    if progress is None or progress.directive < newest:
        return ()
    kinds = {type(item) for item in instructions}
    found: list[SetBuffering | SetOrdering] = []
    for switch in buffering_mode.announce(state, Reason.REPEATED):
        mode = progress.buffering if isinstance(switch, SetBuffering) else progress.ordering
        if switch.mode != mode and type(switch) not in kinds:
            found.append(switch)
    return tuple(found)


def other_goals(
    state: CoordinationState, progress: protocol.ProgressReport | None, newest: int
) -> tuple[SetLagGoals, ...]:
    """The goals that hold, for a driver that has taken all directives up to `newest` and counts by
    others. A driver of an older release counts by none."""
    if progress is None or progress.directive < newest or progress.lag_goals is None:
        return ()
    if progress.lag_goals == state.lag_goals:
        return ()
    return (SetLagGoals(state.lag_goals, Reason.POLICY_CHANGED),)


def undropped(
    state: CoordinationState,
    progress: protocol.ProgressReport | None,
    newest: int,
    instructions: Iterable[Instruction],
) -> tuple[DropExecutors, ...]:
    """The order to drop executors that are lost and that the driver still has, apart from those
    that `instructions` name; it goes before them.

    It is due once the driver has taken all directives up to `newest`. With a plan it is due at
    once: the plan places what ran on these executors, and the driver may refuse the drop that is
    on its way, because it has planned alone since.
    """
    fresh = tuple(instructions)
    if progress is None or state.holding:
        return ()
    if progress.directive < newest and not any(isinstance(item, PublishPlan) for item in fresh):
        return ()
    told = {node for item in fresh if isinstance(item, DropExecutors) for node in item.nodes}
    standing = tuple(node for node in sorted(_standing(state, progress)) if node not in told)
    return (DropExecutors(standing, Reason.REPEATED),) if standing else ()


def of_no_loss(
    instructions: Iterable[Instruction], state: CoordinationState
) -> tuple[Instruction, ...]:
    """Those that no loss has led to. What is left out is ordered by `overdue` once it may be."""
    switched = () if state.incident is None else (SetBuffering, SetOrdering)
    return tuple(
        item
        for item in instructions
        if not isinstance(item, (DropExecutors, *switched))
        and not (isinstance(item, MovePartitions) and item.reason is Reason.NOTICE_WITHDRAWN)
    )


def requests(
    instructions: Iterable[Instruction], generation: int, state: CoordinationState
) -> dict[str, NodeRequestOrder]:
    """Requests by an id that stays the same however often the request is made."""
    found: dict[str, NodeRequestOrder] = {}
    missing = next_plan.nodes_missing(state)
    for item in instructions:
        if isinstance(item, RequestNodes) and missing > 0:
            incident = state.incident
            # grows with each loss and each notice, so that no request takes another one's place
            known = 0 if incident is None else _known(incident)
            count = min(item.count, missing)
            request = NodeRequestOrder("nodes", item.reason, count, item.outside_domains)
            found[f"{state.incidents}-nodes-{known}"] = request
        elif isinstance(item, RestartDriver):
            found[f"{state.incidents}-driver-{generation}"] = NodeRequestOrder(
                "driver", item.reason
            )
    return found


def _known(incident: Incident) -> int:
    return len(incident.lost) + incident.repeated + len(incident.announced)


def outstanding(
    asked: Mapping[str, NodeRequestOrder], state: CoordinationState, *, driver_there: bool
) -> dict[str, NodeRequestOrder]:
    """What is still wanted of all that was asked for: an incident may be over before."""
    wanted = {"nodes": next_plan.nodes_missing(state) > 0, "driver": not driver_there}
    # a newer release may have asked for something that this one does not know
    return {name: request for name, request in asked.items() if wanted.get(request.what, False)}


def _order(
    instruction: Instruction, state: CoordinationState, progress: protocol.ProgressReport | None
) -> tuple[Order, Reason, str] | None:
    match instruction:
        case PublishPlan(plan):
            order = protocol.PlanOrder(
                query_partitions=plan.query_partitions,
                placement=dict(plan.placement),
                builds_on=0 if progress is None else progress.plan_epoch,
                incident=plan.incident,
                rollback=plan.rollback,
                drops=_standing(state, progress),
            )
            return order, plan.reason, instructions.describe(plan)[:TEXT_LENGTH_MAX]
        case MovePartitions(placement, why, text):
            return protocol.MoveOrder(placement=dict(placement)), why, text[:TEXT_LENGTH_MAX]
        case SetBuffering(mode, why):
            return protocol.BufferingOrder(mode=mode), why, f"Buffering is {mode}."  # type: ignore[arg-type]
        case SetOrdering(mode, why):
            return protocol.OrderingOrder(mode=mode), why, f"Ordering is {mode}."  # type: ignore[arg-type]
        case SetLagGoals(goals, why):
            text = f"Goals for lags: {_named_goals(goals)}."
            return protocol.LagGoalsOrder(goals=dict(goals)), why, text[:TEXT_LENGTH_MAX]
        case DropExecutors(nodes, why):
            # one that has come back meanwhile has another executor, which is wanted
            views = {node: state.nodes[node] for node in nodes}
            lost = {
                node: view.incarnation or node
                for node, view in views.items()
                if view.status is NodeStatus.LOST
            }
            text = f"Drop what is left of {', '.join(lost)}."[:TEXT_LENGTH_MAX]
            return (protocol.DropOrder(nodes=lost), why, text) if lost else None
    return None


def _named_goals(goals: Mapping[str, float]) -> str:
    return ", ".join(f"{query} {seconds:g} s" for query, seconds in sorted(goals.items())) or "none"


def _standing(state: CoordinationState, progress: protocol.ProgressReport | None) -> dict[str, str]:
    """Executors (node -> incarnation) that are lost, and that the driver still has by its report;
    none while everything looks lost."""
    nodes = {} if progress is None or state.holding else progress.nodes
    return {
        node: seen.incarnation
        for node, seen in nodes.items()
        if _is_lost(state, node, seen.incarnation)
    }


def _is_lost(state: CoordinationState, node: str, incarnation: str) -> bool:
    view = state.nodes.get(node)
    return view is not None and view.status is NodeStatus.LOST and view.incarnation == incarnation
