"""Plans provisioning: from demand and present state to actions.

    read the notes ► settle every slot ► end what nobody wants ► fill ► note first, then actions

All incidents are decided together, in the order in which they are given, because providers have
limits over all of them: the most urgent first. It may be called as often as you like: with the same
standing it decides the same, and once everything is done it decides nothing. Called by the
operator's shell, which reads the standing before and carries the actions out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal

import msgspec

from rekindle.model.errors import InputError
from rekindle_operator.api.custom_resources import camel_case, clipped
from rekindle_operator.api.recovery_resource import NodeRequest
from rekindle_operator.cluster.json_access import Body, mapping, text
from rekindle_operator.provisioning import node_slots, request_ledger
from rekindle_operator.provisioning.cluster_state import ClusterState
from rekindle_operator.provisioning.node_demand import NodeDemand, NodeIncident, node_requests
from rekindle_operator.provisioning.providers import provider_base
from rekindle_operator.provisioning.providers.node_claims import NODE_CLAIM
from rekindle_operator.provisioning.providers.provisioning_requests import (
    POD_TEMPLATE,
    PROVISIONING_REQUEST,
)
from rekindle_operator.provisioning.provisioning_actions import (
    Action,
    Create,
    Mark,
    Replace,
    SetReplicas,
    delete,
)
from rekindle_operator.provisioning.request_ledger import (
    COMING,
    CONFIG_MAP,
    LIVE,
    Ask,
    Note,
    Slot,
    Stage,
)

# Slots that have ended and left nothing behind are kept for people, not more than so many.
CLEARED_KEPT_MAX = 50


# Slots that nobody wants any more, and nodes that are given back.
#
# A request is not wanted when the core asks for it no more, or for less, or when the incident is
# over. What is on its way is withdrawn, unless a node of it is already in use. Nodes that have
# come stay as long as the incident lasts; after it they are given back as they become idle, where
# giving back is ours to do.


def end(note: Note, scene: provider_base.ProviderInput, now: float) -> Note:
    """The note with unwanted slots withdrawn and idle nodes returned."""
    if scene.demand.held and not scene.demand.over:
        return note
    surplus = _surplus(note, scene)
    slots = []
    for slot in note.slots:
        if slot.stage in COMING and slot.number in surplus:
            slot = _ended(slot, "withdrawn", scene, now)
        elif slot.stage == "arrived" and scene.demand.over and _gives_back(slot, scene):
            slot = _ended(slot, "returned", scene, slot.ended_at or now)
        slots.append(slot)
    return msgspec.structs.replace(note, slots=tuple(slots))


def wind_up(note: Note, scene: provider_base.ProviderInput, tally: provider_base.Tally) -> Note:
    """The note with what is planned for slots that have ended, and without the oldest that are
    cleared."""
    slots = [_wound_up(slot, scene, tally) for slot in note.slots]
    ended = [slot.number for slot in slots if slot.cleared and slot.stage not in LIVE]
    dropped = set(ended[:-CLEARED_KEPT_MAX])
    kept = tuple(slot for slot in slots if slot.number not in dropped)
    return msgspec.structs.replace(note, slots=kept)


def is_finished(note: Note, scene: provider_base.ProviderInput) -> bool:
    """Whether the incident is over and nothing of ours is left of it."""
    return scene.demand.over and all(slot.cleared for slot in note.slots)


def _surplus(note: Note, scene: provider_base.ProviderInput) -> set[int]:
    """Numbers of the slots on their way that are more than is wanted, the newest first."""
    wanted = node_requests(scene.demand)
    found: set[int] = set()
    for identity in {slot.request for slot in note.slots}:
        count = wanted[identity].count if identity in wanted else 0
        more = note.nodes(LIVE, identity) - count
        for slot in reversed(note.slots):
            if slot.request == identity and slot.stage in COMING and slot.nodes <= more:
                found.add(slot.number)
                more -= slot.nodes
    return found


def _ended(slot: Slot, stage: Stage, scene: provider_base.ProviderInput, at: float) -> Slot:
    if slot.stage != "planned" and not node_slots.provider_of(slot, scene).is_harmless(slot, scene):
        return slot
    return msgspec.structs.replace(slot, stage=stage, ended_at=at)


def _wound_up(slot: Slot, scene: provider_base.ProviderInput, tally: provider_base.Tally) -> Slot:
    source = node_slots.provider_of(slot, scene)
    if slot.stage in COMING or (slot.stage == "arrived" and source.gives_back):
        return slot
    slot = source.wind_up(slot, scene, tally)
    left = source.is_left(slot, scene)
    return slot if slot.cleared == (not left) else msgspec.structs.replace(slot, cleared=not left)


def _gives_back(slot: Slot, scene: provider_base.ProviderInput) -> bool:
    return node_slots.provider_of(slot, scene).gives_back


Outcome = Literal["Pending", "Arrived", "Failed", "Withdrawn"]

_OUTCOMES: Mapping[Stage, Outcome] = {
    "planned": "Pending",
    "made": "Pending",
    "arrived": "Arrived",
    "failed": "Failed",
    "withdrawn": "Withdrawn",
    "returned": "Arrived",
}
DOMAIN_LENGTH_MAX = 63
MESSAGE_LENGTH_MAX = 500
UNKNOWN = Ask(reason="")


# What a Recovery says of its requests for nodes: one row per slot.
#
# Only tells what the note has; how many rows an object holds is for `recovery_resource`.


def rows(
    note: Note, scene: provider_base.ProviderInput, messages: Mapping[int, str]
) -> tuple[NodeRequest, ...] | None:
    """A row per slot, the oldest first; None where no provider makes requests and none was made."""
    if not note.slots and not scene.demand.limits.makers:
        return None
    return tuple(_row(slot, note, scene, messages.get(slot.number, "")) for slot in note.slots)


def _row(slot: Slot, note: Note, scene: provider_base.ProviderInput, said: str) -> NodeRequest:
    ask = note.asks.get(slot.request, UNKNOWN)
    outside = (clipped(domain, DOMAIN_LENGTH_MAX) for domain in ask.outside_domains)
    return NodeRequest(
        name=scene.name(slot),
        provider=slot.entry,
        count=slot.nodes,
        outcome=_OUTCOMES[slot.stage],
        requested_at=_moment(slot.requested_at),
        outside_domains=tuple(outside),
        reason=camel_case(ask.reason) or None,
        message=clipped(_message(slot, said), MESSAGE_LENGTH_MAX) or None,
        ended_at=None if slot.ended_at is None else _moment(slot.ended_at),
    )


def _message(slot: Slot, said: str) -> str:
    """What is to be said of a slot beside its outcome."""
    if slot.stage == "arrived" and slot.arrived:
        return f"Nodes: {', '.join(slot.arrived)}."
    if slot.stage == "returned":
        return "Given back after the incident." if slot.cleared else "Being given back."
    return slot.message or said


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(round(seconds, 3), UTC)


@dataclass(frozen=True, slots=True)
class ProvisioningDecision:
    """`actions` in order, those of an incident together, its note first.

    `requests` (incident -> rows of its Recovery) is None where no provider makes requests.
    `waiting` (incident -> sentence) says what cannot be requested now. `due` is the next moment at
    which time alone changes something; None when none does. `troubles` are of incidents whose note
    cannot be read: nothing is done for them.
    """

    actions: tuple[Action, ...]
    requests: Mapping[NodeIncident, tuple[NodeRequest, ...] | None]
    waiting: Mapping[NodeIncident, str]
    due: float | None
    troubles: Mapping[NodeIncident, InputError]


@dataclass(slots=True)
class _Case:
    """An incident on its way through a decision; `before` is the ConfigMap that was read."""

    scene: provider_base.ProviderInput
    note: Note
    before: Body | None
    kept: Note
    messages: Mapping[int, str] = field(default_factory=dict)
    waiting: str = ""


def decide(
    wanted: Sequence[NodeDemand], standing: ClusterState, *, home: str, now: float
) -> ProvisioningDecision:
    """What to do for incidents, the most urgent first. Of two demands of one incident the first
    counts.

    `home` is the operator's namespace, where notes are; `now` in seconds since 1970.
    """
    known, troubles = request_ledger.read_all(standing, home)
    scopes: dict[str, NodeDemand] = {}
    for demand in wanted:
        scopes.setdefault(request_ledger.scope(demand.incident), demand)
    cases = {
        scope: _open(scope, demand, standing, known)
        for scope, demand in scopes.items()
        if scope not in troubles
    }
    latest = {scope: note for scope, (note, _) in known.items()}
    tally = provider_base.Tally()
    tally.count(latest)
    for scope, case in cases.items():
        settled = node_slots.settle(case.note, case.scene, tally, now)
        case.note = end(settled.note, case.scene, now)
        case.messages = settled.messages
        latest[scope] = case.note
    tally.count(latest)
    for case in cases.values():
        filled = node_slots.fill(case.note, case.scene, tally, now)
        case.note = wind_up(filled.note, case.scene, tally)
        case.waiting = _refusal(case) or filled.text
    by_incident = {case.scene.demand.incident: case for case in cases.values()}
    return ProvisioningDecision(
        actions=tuple(action for case in cases.values() for action in _actions(case, home)),
        requests={
            incident: rows(case.note, case.scene, case.messages)
            for incident, case in by_incident.items()
        },
        waiting={incident: case.waiting for incident, case in by_incident.items() if case.waiting},
        due=min((at for case in cases.values() for at in _moments(case) if at > now), default=None),
        troubles={scopes[scope].incident: troubles[scope] for scope in scopes if scope in troubles},
    )


def _open(
    scope: str, demand: NodeDemand, standing: ClusterState, known: Mapping[str, tuple[Note, Body]]
) -> _Case:
    note, before = known.get(scope, (None, None))
    if note is None:
        note = request_ledger.new(demand.incident, demand.class_name)
    return _Case(provider_base.ProviderInput(demand, standing, scope), note, before, note)


def _refusal(case: _Case) -> str:
    """What keeps the note from being written, and so everything else from being done."""
    said = case.scene.standing.refused.get(request_ledger.note_name(case.scene.demand.incident), "")
    return f"The note of the incident cannot be written: {said}" if said else ""


def _actions(case: _Case, home: str) -> Iterator[Action]:
    """The note, if it has changed, and then what it says."""
    scene, note = case.scene, case.note
    if is_finished(note, scene):
        if case.before is not None:
            found = delete(scene.scope, CONFIG_MAP, case.before, "Nothing is left of the incident.")
            version = text(case.before, "metadata", "resourceVersion")
            yield replace(found, resource_version=version)
        return
    if note != case.kept:
        manifest = request_ledger.manifest(note, home, case.before)
        if case.before is None:
            said = "What is going to be requested is written down."
            yield Create(scene.scope, CONFIG_MAP, manifest, "", said, alone=True)
        else:
            yield Replace(scene.scope, CONFIG_MAP, manifest)
    held = scene.demand.held and not scene.demand.over
    slots = (slot for slot in note.slots if not (held and slot.stage == "planned"))
    yield from _merged(
        action for slot in slots for action in node_slots.provider_of(slot, scene).act(slot, scene)
    )


def _merged(actions: Iterable[Action]) -> Iterator[Action]:
    """Without repeats: slots that share a MachineDeployment are brought about by one change of its
    replicas, the furthest, and a machine is marked once."""
    scales: dict[tuple[str, str], SetReplicas] = {}
    touched: set[tuple[str, str]] = set()
    for action in actions:
        if isinstance(action, SetReplicas):
            place = action.namespace, action.name
            known = scales.get(place, action)
            scales[place] = max(known, action, key=_replicas)
        elif not isinstance(action, Mark):
            yield action
        elif (place := (action.namespace, action.name)) not in touched:
            touched.add(place)
            yield action
    yield from scales.values()


def _moments(case: _Case) -> Iterator[float]:
    """When time alone changes something: a request takes too long, a back-off ends, a node that is
    gone gives its room back."""
    scene, note = case.scene, case.note
    for slot in note.slots:
        if slot.stage in COMING:
            yield (
                slot.requested_at
                + node_slots.limits_of_entry(slot.entry, scene).request_seconds_max
            )
        elif (at := node_slots.gives_room_at(slot, scene)) is not None:
            yield at
    for entry in note.back_offs:
        yield node_slots.back_off_until(note, entry, scene)


def _replicas(action: SetReplicas) -> int:
    return action.replicas


# Incidents of which something of ours is left in the cluster.
#
# An incident that is over still has nodes to give back, and an operator that was away may never
# have heard of its end. The shell asks here, and makes a demand with `over` for each whose
# Recovery has ended or is gone; for one of which it merely knows nothing now, it makes none.
# Decides nothing.


def remains(standing: ClusterState, home: str) -> dict[NodeIncident, str]:
    """Each incident that has a note or an object, with the name of its class."""
    known, _ = request_ledger.read_all(standing, home)
    found = {note.incident: note.class_name for note, _ in known.values()}
    for body in _objects(standing):
        incident = _incident(body)
        if incident is not None:
            class_name = text(body, "metadata", "annotations", provider_base.CLASS_ANNOTATION)
            found.setdefault(incident, class_name)
    return found


def _objects(standing: ClusterState) -> Iterator[Body]:
    for kind in (NODE_CLAIM, PROVISIONING_REQUEST, POD_TEMPLATE):
        yield from standing.all(kind)


def _incident(body: Body) -> NodeIncident | None:
    """The incident that an object was made for; None for one that does not say so."""
    annotations = mapping(body, "metadata", "annotations")
    namespace, _, application = text(annotations, provider_base.APPLICATION_ANNOTATION).partition(
        "/"
    )
    number = text(body, "metadata", "labels", request_ledger.INCIDENT_LABEL)
    uid = text(annotations, provider_base.UID_ANNOTATION)
    if not (namespace and application and number.isdecimal() and uid):
        return None
    return NodeIncident(
        namespace=namespace,
        application=application,
        number=int(number),
        recovery=text(annotations, provider_base.RECOVERY_ANNOTATION),
        uid=uid,
    )
