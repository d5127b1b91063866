"""The state machine: one event in, the new state and instructions out.

    starting ──all expected nodes up: plan──► running ──nodes lost──► incident
       (a resumed start is an incident)          ▲                       │ plan, again as nodes
                                                 │                       ▼ come and queries catch up
                                                 └──all caught up, then a checkpoint──┘

Only `Tick` plans, or moves what runs: other events say when the next plan is due, so that whatever
is reported between two ticks goes into one plan. Gives each event its meaning; nodes are
`node_membership`'s.
"""

from collections.abc import Callable
from dataclasses import replace

from rekindle.coordination import (
    announced_losses,
    buffering_mode,
    next_plan,
    node_load,
    node_membership,
    rebalancing,
)
from rekindle.coordination import coordination_events as happened
from rekindle.coordination.coordination_events import PlacementReported
from rekindle.coordination.coordination_state import (
    CoordinationState,
    Due,
    NodeStatus,
    active,
    announced,
    inactive,
    lag_goals,
    only_behind,
    prioritised,
    with_status,
)
from rekindle.coordination.instructions import Instruction, PublishPlan, RecordEvent
from rekindle.model import topology as graph
from rekindle.model.incidents import Incident, IncidentKind
from rekindle.model.reasons import Reason
from rekindle.model.sentences import counted
from rekindle.model.settings import BLOCKING, Policy
from rekindle.model.switch_mode import OFF

# kinds of incident that the blocking strategy plans in at once
WAITS_FOR_NO_NODES = frozenset({IncidentKind.INDEPENDENT, IncidentKind.ANNOUNCED})


# What the driver says is active becomes what the coordinator knows.
#
# A published plan counts as carried out at once, so that the next one builds on it. Once the
# driver has carried out all that was published, what it reports is the truth: a partition that it
# could not place waits again, and plans that it made by itself, cut off from the store, are taken
# over as they run.


def adopt(state: CoordinationState, event: PlacementReported, now: float) -> CoordinationState:
    """The state with the driver's placement, unless a newer plan is on its way to it."""
    if state.unacknowledged is not None:
        return state
    if event.moving != state.moving:
        state = replace(state, moving=event.moving)
    state = _with_buffering(state, event.buffering)
    if _is_known(state, event):
        return state
    placement, resident = _sound(state, event)
    undone = state.placement.keys() - placement.keys()
    started, incident = active(state), state.incident
    if incident is not None and event.plan_epoch > state.plan_epoch:
        # its first plan, the one that rolls survivors back, has been the driver's own
        incident = replace(incident, plans=max(1, incident.plans))
    state = replace(
        state,
        placement=placement,
        resident=resident,
        stopped=event.stopped,
        plan_epoch=max(state.plan_epoch, event.plan_epoch),
        starting=state.starting and not placement,
        incident=incident,
    )
    behind = {query for query in active(state) if not state.closures[query] <= event.live}
    state = only_behind(state, (state.catching_up & active(state)) | (behind - started))
    due = state.due
    if undone and inactive(state) and not state.starting:
        due = due or Due(now, Reason.PLAN_UNDONE)
    return replace(state, due=due)


def _with_buffering(state: CoordinationState, mode: str) -> CoordinationState:
    """The state once the driver says whether it retains outputs. One that was alone and has closed
    the incident by itself does not, and has dropped what it had retained."""
    if mode == state.buffering:
        return state
    incident = state.incident
    if mode == OFF and incident is not None:
        incident = replace(incident, retained=False)
    return replace(state, buffering=mode, incident=incident)


def _is_known(state: CoordinationState, event: PlacementReported) -> bool:
    """Whether the report says what is known already, as most do."""
    return (
        event.plan_epoch <= state.plan_epoch
        and event.placement == state.placement
        and event.resident == state.resident
        and event.stopped == state.stopped
    )


def _sound(
    state: CoordinationState, event: PlacementReported
) -> tuple[dict[str, str], dict[str, str]]:
    """Placement and residents on living nodes, of partitions that there are, closed upstream."""
    living = set(with_status(state, NodeStatus.UP, NodeStatus.SUSPECTED))
    known = set(state.partitions)
    kept = {
        name: node for name, node in event.placement.items() if node in living and name in known
    }
    running = graph.runnable(state.topology, kept)
    stopped = {**event.resident, **kept}
    return (
        {name: node for name, node in kept.items() if name in running},
        {
            name: node
            for name, node in stopped.items()
            if name not in running and node in living and name in known
        },
    )


# Moments in a state after the clock has been set back.
#
# A coordinator may be started again where the clock is behind, or its own clock may be corrected.
# A planning that is due would then wait for hours. So all moments move back with the clock; a
# clock that is set forward only makes waiting shorter. Where no event has come yet, the newest
# moment that has passed says how late it was.


def rebased(state: CoordinationState, now: float) -> CoordinationState:
    """The state with no moment later than `now`, differences between them as they were."""
    newest = _newest_moment(state) if state.seen_at is None else state.seen_at
    if newest is None or now >= newest:
        return state
    back = newest - now
    incident, checkpoint = state.incident, state.last_checkpoint_at
    uneven, surveyed = state.uneven_since, state.surveyed_at
    return replace(
        state,
        nodes={
            name: replace(
                view,
                lost_at=None if view.lost_at is None else view.lost_at - back,
                notice=None
                if view.notice is None
                else replace(view.notice, until=view.notice.until - back),
            )
            for name, view in state.nodes.items()
        },
        incident=None
        if incident is None
        else replace(
            incident,
            began_at=incident.began_at - back,
            newest_loss_at=incident.newest_loss_at - back,
            behind_since=incident.behind_since - back,
        ),
        losses=tuple(replace(loss, at=loss.at - back) for loss in state.losses),
        last_checkpoint_at=None if checkpoint is None else checkpoint - back,
        uneven_since=None if uneven is None else uneven - back,
        surveyed_at=None if surveyed is None else surveyed - back,
        due=None if state.due is None else replace(state.due, at=state.due.at - back),
    )


def _newest_moment(state: CoordinationState) -> float | None:
    """The newest moment of a state at which something had happened; None without any."""
    incident, views = state.incident, state.nodes.values()
    moments = [
        state.last_checkpoint_at,
        *(view.lost_at for view in views),
        *(loss.at for loss in state.losses),
        *(() if incident is None else (incident.began_at, incident.newest_loss_at)),
    ]
    return max((at for at in moments if at is not None), default=None)


Result = tuple[CoordinationState, tuple[Instruction, ...]]


def advance(
    state: CoordinationState, event: happened.Event, now: float, *, clock: Callable[[], float]
) -> Result:
    """The state after `event` at `now` (seconds), and the instructions that follow, in order.

    `clock` (seconds) is for the solver's time budget only. The first event of a state fresh from
    `initial` starts it as well.
    """
    before = rebased(state, now)
    if isinstance(event, happened.Started):
        after, told = _start(before, event, now)
        return replace(after, seen_at=now), told
    first: tuple[Instruction, ...] = ()
    started = before
    if before.start is not None:
        started, first = _start(before, before.start, now)
    after, told = _handle(started, event, now, clock)
    if after is state:
        return state, told
    return replace(after, seen_at=now), (
        *first,
        *told,
        *buffering_mode.announce_changes(started, after),
    )


def _handle(
    state: CoordinationState, event: happened.Running, now: float, clock: Callable[[], float]
) -> Result:
    match event:
        case happened.NodeSuspected(node):
            return node_membership.suspect(state, node)
        case happened.NodePaced(node, slow):
            return node_membership.pace(state, node, slow=slow)
        case happened.NodesLocated(domains):
            return node_membership.locate(state, domains), ()
        case happened.NodesNamed(cluster_nodes):
            return node_membership.name(state, cluster_nodes), ()
        case happened.LossesAnnounced(notices):
            return announced_losses.announce(state, notices, now)
        case happened.NodesLost(nodes):
            return node_membership.lose(state, nodes, now)
        case happened.NodeBack():
            return node_membership.back(state, event, now)
        case happened.DriverLost():
            return node_membership.lose_driver(state, now)
        case happened.StatisticsReported():
            return _measure(state, event, now), ()
        case happened.CheckpointCompleted(epoch):
            return _complete_checkpoint(state, epoch, now)
        case happened.PlacementReported():
            return adopt(state, event, now), ()
        case happened.QueryCaughtUp(query_partition):
            return _catch_up(state, query_partition, now), ()
        case happened.PlanAcknowledged(plan_epoch):
            known = plan_epoch == state.unacknowledged
            return (replace(state, unacknowledged=None) if known else state), ()
        case happened.PolicyChanged(policy):
            return _change_policy(state, policy, now)
        case happened.StoreReachable() | happened.StoreLost():
            return _note_store(state, isinstance(event, happened.StoreReachable))
        case happened.Tick():
            state, told = announced_losses.open_incident(state, now)
            state, more = _tick(state, event, now, clock)
            return state, (*told, *more)


def _tick(
    state: CoordinationState, tick: happened.Tick, now: float, clock: Callable[[], float]
) -> Result:
    if state.incident is not None and not tick.may_recover:
        return state, ()  # this very tick may have opened it
    if state.due is not None or not tick.may_move:
        return _plan_when_due(state, now, clock)
    if announced(state):
        return announced_losses.clear_out(state, now, clock)
    return rebalancing.balance(state, now, knows_domains=tick.knows_domains)


def _start(state: CoordinationState, start: happened.Started, now: float) -> Result:
    """A fresh start waits for its nodes; a resumed one is a complete failure to recover from."""
    state = replace(state, start=None, nodes_expected=start.nodes_expected)
    if not start.resumed:
        text = f"A fresh start waits for {counted(start.nodes_expected, 'node')}."
        record = RecordEvent("started", Reason.WAITING_FOR_NODES, text)
        return state, (*buffering_mode.announce(state, Reason.STARTED), record)
    unfinished = state.incident or Incident(
        number=state.incidents + 1,
        kind=IncidentKind.COMPLETE,
        began_at=now,
        newest_loss_at=now,
        behind_since=now if start.checkpoint_at is None else start.checkpoint_at,
        nodes_wanted=start.nodes_expected,
    )
    state = replace(state, starting=False)
    state, told = node_membership.enter_incident(
        state, replace(unfinished, kind=IncidentKind.COMPLETE)
    )
    return state, (*buffering_mode.announce(state, Reason.RESUMED), *told)


def _plan_when_due(state: CoordinationState, now: float, clock: Callable[[], float]) -> Result:
    if state.due is None or now < state.due.at:
        return state, ()
    reason = Reason.STARTED if state.starting else state.due.reason
    state = replace(state, due=None)
    if not inactive(state):
        return replace(state, starting=False), ()
    # a requested node may have its executor only once the announced one is gone
    up, wanted = len(with_status(state, NodeStatus.UP)), next_plan.nodes_wanted(state)
    if up < wanted and _waits_for_nodes(state):
        text = f"{up} of {counted(wanted, 'node is', 'nodes are')} up."
        details = {"nodes_up": up, "nodes_wanted": wanted}
        return state, (RecordEvent("waiting", Reason.WAITING_FOR_NODES, text, details),)
    draft = next_plan.draft(state, reason, now, clock)
    if draft is None:
        return state, (_no_room(state),)
    after = _published(state, draft)
    if next_plan.is_incremental(state, reason) and inactive(after) and node_load.at_rest(after):
        after = replace(after, due=Due(now, reason))  # what nobody uses is offered next
    return after, (PublishPlan(draft.plan),)


def _waits_for_nodes(state: CoordinationState) -> bool:
    """Whether the next plan is made only when all nodes are up."""
    if state.incident is None:
        return state.starting
    blocking = state.policy.strategy == BLOCKING
    return blocking and state.incident.kind not in WAITS_FOR_NO_NODES


def _published(state: CoordinationState, draft: next_plan.Draft) -> CoordinationState:
    """A published plan counts as carried out: a loss that undoes it is another event."""
    plan, incident = draft.plan, state.incident
    resident = {name: node for name, node in state.resident.items() if name not in plan.placement}
    return replace(
        state,
        placement={**state.placement, **plan.placement},
        resident=resident,
        charges={**state.charges, **draft.charges},
        catching_up=state.catching_up | set(plan.query_partitions),
        plan_epoch=plan.plan_epoch,
        unacknowledged=plan.plan_epoch,
        starting=False,
        incident=None if incident is None else replace(incident, plans=incident.plans + 1),
    )


def _no_room(state: CoordinationState) -> RecordEvent:
    waiting = inactive(state)
    which = counted(len(waiting), "query partition waits", "query partitions wait")
    none = "it does not fit" if len(waiting) == 1 else "none of them fits"
    text = f"{which}: {none} on what is free."
    return RecordEvent("plan-empty", Reason.NO_CAPACITY, text, {"query_partitions": waiting})


def _catch_up(state: CoordinationState, query_partition: str, now: float) -> CoordinationState:
    """A query needs its steady share only: what that frees goes to those that wait."""
    if query_partition not in state.catching_up:
        return state
    closure = state.closures[query_partition]
    charges = {name: cost for name, cost in state.charges.items() if name not in closure}
    left = state.catching_up - {query_partition}
    state = replace(state, charges=charges, catching_up=left)
    return replace(state, due=state.due or Due(now, Reason.QUERY_CAUGHT_UP))


def _measure(
    state: CoordinationState, event: happened.StatisticsReported, now: float
) -> CoordinationState:
    """Take in costs, except of what catches up: that is no steady cost."""
    costs = {
        name: cost
        for name, cost in event.costs.items()
        if name in state.partitions and (name not in state.charges or name not in state.costs)
    }
    before = state
    state = replace(
        state,
        costs={**before.costs, **costs},
        state_bytes={**before.state_bytes, **event.state_bytes},
        overhead_percent=event.overhead_percent,
    )
    # the first costs of a coordinator that was started anew are no change
    changed = bool(before.costs) and (state.costs, state.overhead_percent) != (
        before.costs,
        before.overhead_percent,
    )
    if not changed or state.catching_up or state.starting or not inactive(state):
        return state
    return replace(state, due=state.due or Due(now, Reason.STATISTICS_CHANGED))


def _complete_checkpoint(state: CoordinationState, epoch: int, now: float) -> Result:
    """Losses before it no longer count; an incident is over when nothing waits or catches up, one
    without losses when no node is announced to go any more.

    A coordinator that comes back may read of a loss and of a checkpoint after it in one report,
    since the driver has planned alone. Such an incident stays open until the next checkpoint, so
    that a Recovery tells it. Only the same moment counts: clocks of coordinators differ.
    """
    state = replace(state, last_checkpoint=epoch, last_checkpoint_at=now, losses=())
    incident = state.incident
    if incident is None or incident.began_at == now or state.catching_up or inactive(state):
        return state, ()
    if incident.is_announced and announced(state):
        return state, ()
    seconds = now - incident.began_at
    details = {"incident": incident.number, "seconds": seconds, "plans": incident.plans}
    plans = counted(incident.plans, "plan")
    text = f"Incident {incident.number} is over after {seconds:.1f} s and {plans}."
    closed = RecordEvent("incident-closed", Reason.RECOVERED, text, details)
    state, told = announced_losses.go_on(replace(state, incident=None), incident, now)
    return state, (closed, *told)


def _change_policy(state: CoordinationState, policy: Policy, now: float) -> Result:
    priorities = prioritised(state.topology, policy)
    goals = lag_goals(state.topology, policy)
    due = state.due or Due(now, Reason.POLICY_CHANGED)
    record = RecordEvent("policy-changed", Reason.POLICY_CHANGED, "The policy has changed.")
    state = replace(state, policy=policy, priorities=priorities, lag_goals=goals, due=due)
    return state, (record,)


def _note_store(state: CoordinationState, reachable: bool) -> Result:
    """The driver that holds the coordinator goes on planning either way, and says so."""
    if reachable == state.store_reachable:
        return state, ()
    reason = Reason.STORE_REACHABLE if reachable else Reason.STORE_UNREACHABLE
    what = "answers again" if reachable else "does not answer: planning goes on here"
    record = RecordEvent(reason.value, reason, f"The coordination store {what}.")
    return replace(state, store_reachable=reachable), (record,)
