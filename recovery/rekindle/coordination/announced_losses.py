"""Nodes that are announced to go: an incident before anything is lost, and moves before it is.

    (stays) ──notice──► announced ──moves, in plan order──► cleared out ──lost──► saved
                            ├──withdrawn──► stays
                            └──lost before that──► what it still runs waits, as after any loss

A notice opens an incident of its own kind: so nodes are requested, outputs are retained where the
policy is adaptive, and people see it. An announced node gets nothing new. What it runs moves to
those that stay, the queries first that bring most for what they need: the planner chooses them as
if the node were lost already, against what the others have free. What has no room, or no time,
is lost with the node. Called by `state_machine` and `node_membership` only.

Why: docs/decisions/0052-a-notice-opens-an-incident.md.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from rekindle import planning
from rekindle.coordination import node_load
from rekindle.coordination.coordination_events import LossNotice
from rekindle.coordination.coordination_state import (
    CoordinationState,
    Due,
    NodeStatus,
    active,
    announced,
    inactive,
    staying,
    with_status,
)
from rekindle.coordination.instructions import (
    Instruction,
    MovePartitions,
    RecordEvent,
    RequestNodes,
)
from rekindle.model.incidents import Incident, IncidentKind
from rekindle.model.plan_problem import PartitionCost, Problem, QueryDemand
from rekindle.model.reasons import Reason
from rekindle.model.sentences import counted
from rekindle.model.switch_mode import ON

# of one order: the next one follows once these have been made
MOVES_MAX = 256
# what an autoscaler removes is too many: pods that are pending make it add a node again
SCALE_DOWN = frozenset({"taint ToBeDeletedByClusterAutoscaler"})
# the planner may take a second, and is asked with each report of a driver
LOOK_SECONDS = 5.0

Result = tuple[CoordinationState, tuple[Instruction, ...]]


def announce(state: CoordinationState, notices: Mapping[str, LossNotice], now: float) -> Result:
    """Take in all notices that hold, with their newest source and deadline."""
    known = announced(state)
    there = with_status(state, NodeStatus.UP, NodeStatus.SUSPECTED)
    fresh = {
        node: replace(notices[node], held=_held_by(state, node))
        for node in there
        if node in notices and node not in known
    }
    named = {
        node: replace(notice, source=notices[node].source, until=notices[node].until)
        for node, notice in known.items()
        if node in notices and differs(notice, notices[node])
    }
    withdrawn = tuple(node for node in known if node not in notices)
    if not (fresh or named or withdrawn):
        return state, ()
    changed = {**fresh, **named, **dict.fromkeys(withdrawn)}
    views = {node: replace(state.nodes[node], notice=item) for node, item in changed.items()}
    told = tuple(_told(node, notice, now) for node, notice in fresh.items())
    state = replace(state, nodes={**state.nodes, **views}, full_at=None)
    if not withdrawn:
        return state, told
    state, ended = _withdraw(state, withdrawn, now)
    return state, (*told, *ended)


def differs(known: LossNotice, said: LossNotice) -> bool:
    """Whether a notice says something else than the one that is known. A deadline that differs by
    less than a second is the same: clocks that are set change it by fractions."""
    return known.source != said.source or abs(known.until - said.until) >= 1.0


def open_incident(state: CoordinationState, now: float) -> Result:
    """Request nodes for those that are announced and for which none were, in an incident of theirs
    or the one that is open. A notice that comes again requests none, nor does a scale-down."""
    if state.starting or state.holding:
        return state, ()
    fresh = {node: item for node, item in announced(state).items() if not item.requested}
    if not fresh:
        return state, ()
    known = frozenset[str]() if state.incident is None else frozenset(state.incident.announced)
    new = [node for node in fresh if node not in known and fresh[node].source not in SCALE_DOWN]
    wanted = nodes_counted(state) - (len(fresh) - len(new))
    if state.incident is None and inactive(state):
        # the record of an incident was lost, and with it how many nodes there were
        wanted = max(wanted, state.nodes_expected)
    views = {
        node: replace(state.nodes[node], notice=replace(notice, requested=True))
        for node, notice in fresh.items()
    }
    before = state.incident
    incident = before or Incident(
        number=state.incidents + 1,
        kind=IncidentKind.ANNOUNCED,
        began_at=now,
        newest_loss_at=now,
        behind_since=now if state.last_checkpoint_at is None else state.last_checkpoint_at,
        nodes_wanted=wanted,
    )
    incident = replace(
        incident,
        nodes_wanted=max(incident.nodes_wanted, wanted),
        announced=tuple(dict.fromkeys((*incident.announced, *fresh))),
    )
    state = replace(
        state,
        nodes={**state.nodes, **views},
        incident=incident,
        incidents=incident.number,
        uneven_since=None,
    )
    told: tuple[Instruction, ...] = ()
    if new:
        told = (RequestNodes(len(new), incident.domains, Reason.LOSS_ANNOUNCED),)
    if before is not None:
        return state, told
    return state, (_opened(incident), *told)


def go_on(state: CoordinationState, over: Incident, now: float) -> Result:
    """A new incident of those that are still announced, once the one that they belonged to is
    over: what was lost is back, so their own loss is the first of another failure. Buffering goes
    on, so what a plan of that incident has had retained still is, unless the driver has switched
    buffering off meanwhile."""
    left = tuple(node for node, notice in announced(state).items() if notice.requested)
    if not left:
        return state, ()
    incident = Incident(
        number=over.number + 1,
        kind=IncidentKind.ANNOUNCED,
        began_at=now,
        newest_loss_at=now,
        behind_since=now,
        nodes_wanted=over.nodes_wanted,
        announced=left,
        retained=(over.retained or over.plans > 0) and state.buffering == ON,
    )
    state = replace(state, incident=incident, incidents=incident.number)
    return state, (_opened(incident),)


def clear_out(state: CoordinationState, now: float, clock: Callable[[], float]) -> Result:
    """The order to move what announced nodes run, as far as others have room; none while anything
    else is under way. Where there was no room it is looked for again some seconds later."""
    calm = state.moving == {} and not state.catching_up and not inactive(state)
    if not calm or state.holding or len(state.costs) < len(state.partitions):
        return state, ()
    full_at = state.full_at
    if full_at is not None and 0.0 <= now - full_at < LOOK_SECONDS:
        return state, ()
    found = moves(state, clock)
    if not found:
        return replace(state, full_at=now), ()
    origins = ", ".join(sorted({state.placement[name] for name in found}))
    targets = ", ".join(sorted(set(found.values())))
    text = (
        f"Move {len(found)} of {counted(len(on_announced(state)), 'partition')} from {origins}, "
        f"announced to go, to {targets}."
    )
    state = replace(state, moving=found, full_at=None)
    return state, (MovePartitions(found, Reason.LOSS_ANNOUNCED, text),)


def moves(state: CoordinationState, clock: Callable[[], float]) -> dict[str, str]:
    """Partition -> node for what announced nodes run and others have room for, the most important
    first: the planner's choice, with the policy's solver and in its time."""
    leaving = frozenset(on_announced(state))
    free = {node: max(0.0, cpu) for node, cpu in node_load.free(state, state.costs).items()}
    if not leaving or not staying(state):
        return {}
    queries = [query for query in sorted(active(state)) if state.closures[query] & leaving]
    needed = sorted(frozenset().union(*(state.closures[query] for query in queries)))
    problem = Problem(
        partitions={
            name: PartitionCost(
                cpu_percent=state.costs[name],
                state_bytes=state.state_bytes.get(name, 0),
                running_on=state.placement.get(name),
            )
            for name in needed
        },
        queries={
            query: QueryDemand(state.priorities[query], tuple(sorted(state.closures[query])))
            for query in queries
        },
        failed=leaving & set(needed),
        nodes=free,
    )
    answer = planning.solve(
        problem,
        solver=state.policy.solver,
        budget_seconds=state.policy.solver_budget_seconds,
        clock=clock,
    )
    node_of = {name: node for node, held in answer.placement.items() for name in held}
    found: dict[str, str] = {}
    for query in sorted(answer.queries, key=lambda name: (-state.priorities[name], name)):
        for name in sorted(state.closures[query] & node_of.keys()):
            found.setdefault(name, node_of[name])
    return dict(list(found.items())[:MOVES_MAX])


def on_announced(state: CoordinationState) -> tuple[str, ...]:
    """Partitions that run on nodes that are announced to go, in order of name."""
    nodes = announced(state)
    return tuple(sorted(name for name, node in state.placement.items() if node in nodes))


def nodes_counted(state: CoordinationState) -> int:
    """Nodes that are there and whose loss is not provided for."""
    provided = sum(notice.requested for notice in announced(state).values())
    return len(with_status(state, NodeStatus.UP, NodeStatus.SUSPECTED)) - provided


def held(state: CoordinationState, nodes: Iterable[str]) -> frozenset[str]:
    """What these nodes ran when they were announced to go; nothing of others."""
    notices = announced(state)
    return frozenset(name for node in nodes if node in notices for name in notices[node].held)


def with_saved(incident: Incident, state: CoordinationState, held: frozenset[str]) -> Incident:
    """The incident once announced nodes are lost that had held these partitions: what of them runs
    elsewhere had moved, and the query partitions that need it have not stopped."""
    moved = held & state.placement.keys()
    if not moved:
        return incident
    saved = {query for query in active(state) if state.closures[query] & moved}
    return replace(
        incident,
        moved=tuple(sorted(moved.union(incident.moved))),
        saved=tuple(sorted(saved.union(incident.saved))),
    )


def _held_by(state: CoordinationState, node: str) -> tuple[str, ...]:
    return tuple(sorted(name for name, where in state.placement.items() if where == node))


def _opened(incident: Incident) -> RecordEvent:
    return RecordEvent(
        kind="incident-opened",
        reason=Reason.LOSS_ANNOUNCED,
        text=f"Incident {incident.number} is announced: {', '.join(incident.announced)} will be "
        "lost.",
        details={
            "incident": incident.number,
            "incident_kind": incident.kind,
            "announced": incident.announced,
        },
    )


def _told(node: str, notice: LossNotice, now: float) -> RecordEvent:
    seconds = max(0.0, notice.until - now)
    return RecordEvent(
        kind="loss-announced",
        reason=Reason.LOSS_ANNOUNCED,
        text=f"Node {node} is announced to go in {seconds:.0f} s ({notice.source}).",
        details={"node": node, "source": notice.source, "until": notice.until},
    )


def _withdraw(state: CoordinationState, nodes: tuple[str, ...], now: float) -> Result:
    """Nodes stay after all: no move that has yet to be made is made, plans may place on them, and
    an incident that was only announced is over with the last notice.

    Which moves those are only a newer report says than there may be, so the order is given in any
    case. What is still to leave other nodes is ordered again.
    """
    verb = "stays" if len(nodes) == 1 else "stay"
    text = f"The notice is withdrawn: {', '.join(nodes)} {verb}."
    told: list[Instruction] = [
        RecordEvent("notice-withdrawn", Reason.NOTICE_WITHDRAWN, text, {"nodes": nodes}),
        MovePartitions({}, Reason.NOTICE_WITHDRAWN, text),
    ]
    if state.moving is not None:
        state = replace(state, moving={})
    if inactive(state) and not state.starting:
        state = replace(state, due=state.due or Due(now, Reason.NOTICE_WITHDRAWN))
    incident = state.incident
    if incident is not None and incident.kind is IncidentKind.ANNOUNCED and not announced(state):
        text = f"Incident {incident.number} is over: nothing was lost."
        details = {"incident": incident.number, "plans": incident.plans}
        told.append(RecordEvent("incident-closed", Reason.NOTICE_WITHDRAWN, text, details))
        state = replace(state, incident=None)
    return state, tuple(told)
