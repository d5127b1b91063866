"""Nodes that come, fall silent, slow down, are cleared, are lost; and the driver's own loss.

    (new) ──back──► up ◄──back── suspected
                    │ ▲              │
                    │ └─────back─────┼─── lost
                    ├───suspected───►│     ▲
                    └─────lost───────┴─────┘

With a node go the partitions placed there, and what is downstream of them stops on its living
node. Makes no plan: it says when the next is due. Called by `state_machine` only.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from rekindle.coordination import announced_losses
from rekindle.coordination.coordination_events import NodeBack
from rekindle.coordination.coordination_state import (
    CoordinationState,
    Due,
    NodeStatus,
    NodeView,
    active,
    inactive,
    only_behind,
    with_status,
)
from rekindle.coordination.instructions import (
    DropExecutors,
    Instruction,
    RecordEvent,
    RequestNodes,
    RestartDriver,
)
from rekindle.model import incidents
from rekindle.model import topology as graph
from rekindle.model.incidents import Incident, IncidentKind, NodeLoss
from rekindle.model.reasons import Reason
from rekindle.model.sentences import counted, percent

LOST_KEPT_MAX = 100

Result = tuple[CoordinationState, tuple[Instruction, ...]]


def back(state: CoordinationState, event: NodeBack, now: float) -> Result:
    """A node is up: its capacity is planned with once arrivals have settled, and where placement is
    by domains, what survives is looked for again before load is evened out."""
    known = state.nodes.get(event.node)
    domain = event.domain if event.domain or known is None else known.domain
    same = known is not None and known.incarnation == event.incarnation
    slow = same and known is not None and known.slow
    view = NodeView(
        status=NodeStatus.UP,
        capacity_percent=event.capacity_percent,
        domain=domain,
        incarnation=event.incarnation,
        slow=slow,
        notice=known.notice if same and known is not None else None,
        cluster_node=known.cluster_node if same and known is not None else None,
    )
    if known == view:
        return state, ()
    nodes = {**state.nodes, event.node: view}
    state, released = _release(replace(state, nodes=nodes, surveyed_at=None, full_at=None))
    due = state.due or Due(now + state.policy.stabilisation_seconds, Reason.NODE_BACK)
    cleared = known is not None and known.status is NodeStatus.SUSPECTED
    record = RecordEvent(
        kind="node-cleared" if cleared else "node-up",
        reason=Reason.SUSPICION_CLEARED if cleared else Reason.NODE_BACK,
        text=f"Node {event.node} is up with {percent(event.capacity_percent)} CPU.",
        details={"node": event.node, "capacity_percent": event.capacity_percent},
    )
    return replace(state, due=due), (record, *released)


def locate(state: CoordinationState, domains: Mapping[str, str]) -> CoordinationState:
    """Where placement is by domains, what survives is looked for again at once."""
    moved = {node: replace(state.nodes[node], domain=name) for node, name in domains.items()}
    return replace(state, nodes={**state.nodes, **moved}, surveyed_at=None)


def name(state: CoordinationState, cluster_nodes: Mapping[str, str]) -> CoordinationState:
    """Kept with the node, so that whoever tells of its loss later knows which machine it was on."""
    named = {
        node: replace(state.nodes[node], cluster_node=called)
        for node, called in cluster_nodes.items()
    }
    return replace(state, nodes={**state.nodes, **named})


def suspect(state: CoordinationState, node: str) -> Result:
    """No new placement on a suspected node; nothing else until it is lost or back."""
    view = state.nodes.get(node)
    if view is None or view.status is not NodeStatus.UP:
        return state, ()
    nodes = {**state.nodes, node: replace(view, status=NodeStatus.SUSPECTED)}
    record = RecordEvent(
        kind="node-suspected",
        reason=incidents.reason(IncidentKind.SUSPECTED),
        text=f"Node {node} is silent: nothing new is placed on it.",
        details={"node": node, "incident_kind": IncidentKind.SUSPECTED},
    )
    return replace(state, nodes=nodes), (record,)


def pace(state: CoordinationState, node: str, *, slow: bool) -> Result:
    """A slow node holds up every query that it has a part of, so all of it should go elsewhere."""
    view = state.nodes.get(node)
    if view is None or view.slow == slow:
        return state, ()
    what = (
        "is slow: nothing new is placed on it while others have room" if slow else "is slow no more"
    )
    record = RecordEvent(
        kind="node-slow" if slow else "node-fast",
        reason=Reason.SLOW_NODE,
        text=f"Node {node} {what}.",
        details={"node": node},
    )
    return replace(state, nodes={**state.nodes, node: replace(view, slow=slow)}), (record,)


def lose(state: CoordinationState, nodes: Iterable[str], now: float) -> Result:
    """Nodes are lost: what ran there waits, and an incident opens or gets worse."""
    lost = tuple(
        node
        for node in dict.fromkeys(nodes)
        if node in state.nodes and state.nodes[node].status is not NodeStatus.LOST
    )
    if not lost:
        return state, ()
    state, told = _mark_lost(state, lost, now)
    if state.starting:
        return state, told
    if not _living(state):
        text = "Every node looks lost: nothing is done until one is back."
        holding = RecordEvent("holding", Reason.ALL_NODES_LOST, text, {"lost": lost})
        return replace(state, holding=True), (*told, holding)
    return state, (*told, *_replacements(state, lost))


def lose_driver(state: CoordinationState, now: float) -> Result:
    """The driver takes all executors and exchanges with it: a complete failure."""
    nodes = _living(state)
    told: tuple[Instruction, ...] = ()
    if nodes:
        state, told = _mark_lost(state, nodes, now)
    return state, (*told, RestartDriver(Reason.DRIVER_LOST))


def enter_incident(state: CoordinationState, incident: Incident) -> Result:
    """Enter a new incident, or the new view of the unfinished one; tell when its kind is new."""
    before = state.incident
    state = replace(state, incident=incident, incidents=incident.number)
    if before is not None and before.kind is incident.kind:
        return state, ()
    lost = counted(len(incident.lost), "node is", "nodes are")
    what = f"{lost} lost" if incident.lost else "nothing runs yet"
    record = RecordEvent(
        kind="incident-opened" if before is None else "incident-changed",
        reason=incidents.reason(incident.kind) if incident.lost else Reason.RESUMED,
        text=f"Incident {incident.number} is {incident.kind}: {what}.",
        details={
            "incident": incident.number,
            "incident_kind": incident.kind,
            "lost": incident.lost,
        },
    )
    return state, (record,)


def _mark_lost(state: CoordinationState, lost: tuple[str, ...], now: float) -> Result:
    """Nodes, placement, incident and next planning after a loss of nodes that were there."""
    before, held = announced_losses.nodes_counted(state), announced_losses.held(state, lost)
    if state.incident is None and inactive(state):
        # who has lost the incident of what waits does not know all nodes that there were
        before = max(before, state.nodes_expected)
    placed = len(state.placement)
    gone = {node: replace(state.nodes[node], status=NodeStatus.LOST, lost_at=now) for node in lost}
    state = _without_lost(replace(state, nodes={**_remembered(state), **gone}))
    stopped = placed - len(state.placement)
    text = f"Lost {', '.join(lost)}: {stopped} of {counted(placed, 'partition')} stop."
    details = {"nodes": lost, "partitions_stopped": stopped}
    if state.starting:
        return state, (RecordEvent("nodes-lost", Reason.WAITING_FOR_NODES, text, details),)
    state = replace(state, losses=state.losses + tuple(NodeLoss(node, now) for node in lost))
    incident = announced_losses.with_saved(_incident(state, lost, before, now), state, held)
    reason = incidents.reason(incident.kind)
    due = Due(now, reason) if _living(state) else None
    state, told = enter_incident(replace(state, due=due), incident)
    return state, (RecordEvent("nodes-lost", reason, text, details), *told)


def _remembered(state: CoordinationState) -> dict[str, NodeView]:
    """All nodes, but of those that are lost and in no open incident only the last hundred: each
    executor that is replaced may be another node, and the record of them is bounded."""
    concerned = set(state.incident.lost if state.incident is not None else ())
    old = [node for node in with_status(state, NodeStatus.LOST) if node not in concerned]
    old.sort(key=lambda node: state.nodes[node].lost_at or 0.0)
    forgotten = set(old[:-LOST_KEPT_MAX])
    return {node: view for node, view in state.nodes.items() if node not in forgotten}


def _without_lost(state: CoordinationState) -> CoordinationState:
    """Take out lost nodes; what cannot run without them stays resident where it lives."""
    living = _living(state)
    kept = {name: node for name, node in state.placement.items() if node in living}
    running = graph.runnable(state.topology, kept)
    resident = {name: node for name, node in state.resident.items() if node in living}
    state = replace(
        state,
        placement={name: node for name, node in kept.items() if name in running},
        resident=resident | {name: node for name, node in kept.items() if name not in running},
    )
    return only_behind(state, state.catching_up & active(state))


def _incident(
    state: CoordinationState, lost: tuple[str, ...], nodes_before: int, now: float
) -> Incident:
    """The incident with a new loss in it."""
    kind = incidents.classify(
        state.losses,
        state.incident,
        nodes_left=len(_living(state)),
        correlated_nodes_min=state.policy.correlated_nodes_min,
        window_seconds=state.policy.correlated_window_seconds,
    )
    behind_since = now if state.last_checkpoint_at is None else state.last_checkpoint_at
    unfinished = state.incident or Incident(
        number=state.incidents + 1,
        kind=kind,
        began_at=now,
        newest_loss_at=now,
        behind_since=behind_since,
        nodes_wanted=nodes_before,
    )
    if unfinished.kind is IncidentKind.ANNOUNCED:
        unfinished = replace(unfinished, behind_since=behind_since)
    everyone = tuple(dict.fromkeys(unfinished.lost + lost))
    names = ((node, state.nodes[node].cluster_node) for node in lost)
    named = {node: called for node, called in names if called is not None}
    return replace(
        unfinished,
        kind=kind,
        newest_loss_at=now,
        nodes_wanted=max(unfinished.nodes_wanted, nodes_before),
        lost=everyone,
        domains=() if kind is IncidentKind.INDEPENDENT else _domains(state, unfinished, everyone),
        cluster_nodes={**unfinished.cluster_nodes, **named},
        repeated=unfinished.repeated + len(set(unfinished.lost) & set(lost)),
    )


def _living(state: CoordinationState) -> tuple[str, ...]:
    return with_status(state, NodeStatus.UP, NodeStatus.SUSPECTED)


def _domains(
    state: CoordinationState, unfinished: Incident, nodes: Iterable[str]
) -> tuple[str, ...]:
    """Domains that have lost several nodes, and most of those that they had, and those known
    before: an earlier driver's nodes are forgotten. None where no domain is left to turn to."""
    lost = set(nodes)
    had = Counter(
        view.domain
        for node, view in state.nodes.items()
        if view.domain is not None and (node in lost or view.status is not NodeStatus.LOST)
    )
    gone = Counter(state.nodes[node].domain for node in lost & state.nodes.keys())
    impaired = {name for name, count in had.items() if gone[name] > max(1, count / 2)}
    found = impaired | set(unfinished.domains)
    return tuple(sorted(found)) if had.keys() - found else ()


def _replacements(state: CoordinationState, lost: tuple[str, ...]) -> tuple[Instruction, ...]:
    """Be rid of the lost executors, and get as many nodes as were lost (paper, section 4.4)."""
    assert state.incident is not None
    reason = incidents.reason(state.incident.kind)
    # for those that were announced, others have been requested when the notice came
    notices = (state.nodes[node].notice for node in lost)
    count = sum(notice is None or not notice.requested for notice in notices)
    drop = DropExecutors(lost, reason)
    return (drop, RequestNodes(count, state.incident.domains, reason)) if count else (drop,)


def _release(state: CoordinationState) -> Result:
    """A node is there after all: stop holding, and do for the others what was held back."""
    if not state.holding:
        return state, ()
    assert state.incident is not None
    gone = set(with_status(state, NodeStatus.LOST))
    lost = tuple(node for node in state.incident.lost if node in gone)
    state = replace(state, holding=False)
    return state, _replacements(state, lost) if lost else ()
