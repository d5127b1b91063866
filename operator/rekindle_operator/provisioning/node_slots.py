"""Slots of a note: their providers and limits, their progress, and new ones for open demand.

`provisioning_planner` settles all slots first (`settle`), then fills what is left (`fill`).

A class may be changed while its nodes are on their way: what it names no more gets default limits,
and is still cleared away.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from rekindle.coordination.directives import NodeRequestOrder
from rekindle_operator.api.custom_resources import clipped
from rekindle_operator.api.node_providers import Provider, ProviderLimits
from rekindle_operator.cluster.json_access import ObjectKind
from rekindle_operator.provisioning.node_demand import NodeDemand, node_requests, outside_of
from rekindle_operator.provisioning.providers import provisioning_requests
from rekindle_operator.provisioning.providers.machine_deployments import MachineDeployments
from rekindle_operator.provisioning.providers.node_claims import NODE_CLAIM, NodeClaims
from rekindle_operator.provisioning.providers.provider_base import (
    ProviderInput,
    ProviderKind,
    Seen,
    Tally,
    adopted,
)
from rekindle_operator.provisioning.request_ledger import (
    COMING,
    LIVE,
    Ask,
    BackOff,
    Note,
    Slot,
    Stage,
)


def limits_of_entry(entry: str, scene: ProviderInput) -> ProviderLimits:
    """The limits of an entry."""
    found = _entry(entry, scene)
    return found.limits if found is not None else ProviderLimits()


def provider_of(slot: Slot, scene: ProviderInput) -> ProviderKind:
    """The provider that fulfils a slot."""
    entry = _entry(slot.entry, scene)
    if entry is not None and entry.provider != slot.provider:
        entry = None  # another one goes by that name now
    if slot.provider == "Karpenter":
        return NodeClaims(entry.karpenter if entry else None)
    if slot.provider == "ClusterAPI":
        return MachineDeployments(entry.cluster_api if entry else None)
    assert slot.provider == "ProvisioningRequest", f"no provider makes {slot.provider}"
    return provisioning_requests.ProvisioningRequests(entry.provisioning_request if entry else None)


def _entry(name: str, scene: ProviderInput) -> Provider | None:
    return next((one for one in scene.demand.limits.providers if one.name == name), None)


# The progress of each slot of a note.
#
#     planned, seen in the cluster         made
#     made, not seen any more              failed: given up by the provider, or deleted by somebody
#     made, its nodes have come            arrived
#     too long without a node, or refused  failed
#
# A failure makes its entry back off: for the whole incident, doubled with each wave of requests
# that fails. A wave is what was requested before the last failure was known; an arrival ends the
# row. Objects of ours that are in no note are taken in, so that a lost note loses none.

MESSAGE_LENGTH_MAX = 400
GONE = "It is gone: the provider has given it up, or somebody has deleted it."
# Which objects a slot may be known by when its note is lost, with the kind of provider and how far
# the slot has come at least; of two objects the first one tells.
_ADOPTED: tuple[tuple[ObjectKind, str, Stage], ...] = (
    (NODE_CLAIM, "Karpenter", "made"),
    (provisioning_requests.PROVISIONING_REQUEST, "ProvisioningRequest", "made"),
    (provisioning_requests.POD_TEMPLATE, "ProvisioningRequest", "planned"),
)


@dataclass(frozen=True, slots=True)
class SlotProgress:
    """A note after a look; `messages` (slot's number -> sentence) is what providers say of those on
    their way, which is not worth a write each time."""

    note: Note
    messages: Mapping[int, str] = field(default_factory=dict)


def settle(note: Note, scene: ProviderInput, tally: Tally, now: float) -> SlotProgress:
    """The note with each slot in the stage that the cluster shows."""
    note = _with_orphans(note, scene)
    slots: list[Slot] = []
    messages: dict[int, str] = {}
    back_offs = dict(note.back_offs)
    for slot in note.slots:
        if slot.stage in COMING:
            seen = provider_of(slot, scene).look(slot, scene, tally)
            slot = _after(slot, seen, scene, now)
            messages[slot.number] = seen.message
            _note_outcome(back_offs, slot, now)
            tally.taken.update(slot.arrived)
        slots.append(slot)
    settled = msgspec.structs.replace(note, slots=tuple(slots), back_offs=back_offs)
    return SlotProgress(settled, messages)


def back_off_until(note: Note, entry: str, scene: ProviderInput) -> float:
    """Until when nothing is requested from an entry; 0 when it does not back off."""
    back_off = note.back_offs.get(entry)
    if back_off is None:
        return 0.0
    limits = limits_of_entry(entry, scene)
    # the exponent is bounded: a float has no room for 2 to the 2000th
    seconds = limits.back_off_seconds * 2.0 ** min(back_off.failures - 1, 20)
    return back_off.failed_at + min(seconds, limits.back_off_seconds_max)


def _after(slot: Slot, seen: Seen, scene: ProviderInput, now: float) -> Slot:
    """The slot in its next stage, or as it is."""
    refusal = _refusal(slot, scene)
    if not seen.there:
        if slot.stage == "made":
            return _failed(slot, seen.failure or GONE, now)
        if refusal or seen.failure:
            return _failed(slot, refusal or seen.failure, now)
    elif slot.made_at is None:
        slot = msgspec.structs.replace(slot, stage="made", made_at=now)
    if seen.failure:
        return _failed(slot, seen.failure, now)
    if seen.arrived is not None:
        return msgspec.structs.replace(slot, stage="arrived", ended_at=now, arrived=seen.arrived)
    seconds = limits_of_entry(slot.entry, scene).request_seconds_max
    if now - slot.requested_at > seconds and _is_harmless(slot, scene):
        return _failed(slot, f"It has brought no node for {seconds} s. {seen.message}", now)
    return slot


def _refusal(slot: Slot, scene: ProviderInput) -> str:
    """The API server's words, if it refuses what the slot needs."""
    names = [scene.name(slot), *([slot.up.name] if slot.up is not None else [])]
    return next(filter(None, map(scene.standing.refused.get, names)), "")


def _is_harmless(slot: Slot, scene: ProviderInput) -> bool:
    return slot.stage == "planned" or provider_of(slot, scene).is_harmless(slot, scene)


def _failed(slot: Slot, why: str, now: float) -> Slot:
    message = clipped(why.strip(), MESSAGE_LENGTH_MAX)
    return msgspec.structs.replace(slot, stage="failed", ended_at=now, message=message)


def _note_outcome(back_offs: dict[str, BackOff], slot: Slot, now: float) -> None:
    """Lengthen or end the back-off of the slot's entry."""
    if slot.stage == "arrived":
        back_offs.pop(slot.entry, None)
    elif slot.stage == "failed":
        before = back_offs.get(slot.entry)
        if before is None or slot.requested_at > before.failed_at:
            failures = 1 if before is None else before.failures + 1
            back_offs[slot.entry] = BackOff(failures=failures, failed_at=now)


def _with_orphans(note: Note, scene: ProviderInput) -> Note:
    """The note with objects of its incident that it does not know."""
    known = {slot.number for slot in note.slots}
    found: dict[int, Slot] = {}
    for slot in _orphans(scene):
        if slot.number not in known:
            found.setdefault(slot.number, slot)
    if not found:
        return note
    return msgspec.structs.replace(
        note,
        slots=(*note.slots, *(found[number] for number in sorted(found))),
        next_number=max(note.next_number, max(found) + 1),
    )


def _orphans(scene: ProviderInput) -> Iterable[Slot]:
    for kind, provider, stage in _ADOPTED:
        for body in scene.standing.of_scope(kind, scene.scope):
            slot = adopted(body, provider, stage)
            if slot is not None:
                yield slot


# Opens slots for demand that is not covered yet, within all limits.
#
# How many: as many nodes as the core asks for, less those that are on their way or have come for
# the same request; not more on their way than the application lacks, than the policy lets at
# once, or than the provider takes. Where: the first provider of the class that takes a slot now.
# One that backs off, is full or has no place outside of the impaired domains leaves it to the
# next. What finds no place waits, and why is said.

# A note is one object, and those are bounded at about a megabyte.
SLOTS_MAX = 3_000
HINDRANCES_MAX = 3
# A node that is lost or gone takes its place in `nodesPerIncidentMax` for so long after it came. An
# arrival ends the back-off, so nothing else bounds a loop in which nodes come and go at once.
GONE_COUNTS_SECONDS = 3_600.0


@dataclass(frozen=True, slots=True)
class Filled:
    """A note with new slots, and a sentence on what waits; empty when nothing does."""

    note: Note
    text: str


@dataclass(slots=True)
class _Draft:
    """A note that is being filled: its slots, how many nodes they have `live` by request, and how
    many of these take the room of an incident, by entry."""

    note: Note
    slots: list[Slot]
    live: Counter[str]
    by_entry: Counter[str]
    asks: dict[str, Ask]
    coming: int
    waiting: int = 0
    why: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, note: Note, scene: ProviderInput, now: float) -> "_Draft":
        live, by_entry = Counter[str](), Counter[str]()
        for slot in note.slots:
            if slot.stage in LIVE:
                live[slot.request] += slot.nodes
                by_entry[slot.entry] += _room_taken(slot, scene, now)
        return cls(note, [*note.slots], live, by_entry, dict(note.asks), note.nodes(COMING))

    @property
    def next_number(self) -> int:
        """Slots that are new have followed those that the note had."""
        return self.note.next_number + len(self.slots) - len(self.note.slots)

    def take(self, slot: Slot, request: NodeRequestOrder, demand: NodeDemand) -> None:
        """Put a slot into the note."""
        before = self.asks.get(slot.request, Ask(reason=str(request.reason)))
        outside = dict.fromkeys((*before.outside_domains, *outside_of(demand)))
        self.asks[slot.request] = msgspec.structs.replace(before, outside_domains=tuple(outside))
        self.slots.append(slot)
        self.live[slot.request] += slot.nodes
        self.by_entry[slot.entry] += slot.nodes
        self.coming += slot.nodes

    def finished(self) -> Filled:
        """The note as it has become."""
        note = msgspec.structs.replace(
            self.note, asks=self.asks, slots=tuple(self.slots), next_number=self.next_number
        )
        if not self.waiting:
            return Filled(note, "")
        reasons = list(dict.fromkeys(self.why))[:HINDRANCES_MAX]
        nodes = f"{self.waiting} more node{'s' if self.waiting > 1 else ''}"
        return Filled(note, f"{nodes} cannot be requested now: {'; '.join(reasons)}.")


def fill(note: Note, scene: ProviderInput, tally: Tally, now: float) -> Filled:
    """The note with a slot for each node, or few nodes, that can be asked for now."""
    demand = scene.demand
    if demand.held or not demand.limits.makers:
        return Filled(note, "")
    draft = _Draft.of(note, scene, now)
    for identity, request in node_requests(demand).items():
        needed = request.count - draft.live[identity]
        while needed > 0:
            slot = _next(draft, identity, needed, scene, tally, now)
            if slot is None:
                draft.waiting += needed
                break
            needed -= slot.nodes
            draft.take(slot, request, demand)
            tally.add(scene.scope, note.class_name, slot)
    return draft.finished()


def _next(
    draft: _Draft, identity: str, needed: int, scene: ProviderInput, tally: Tally, now: float
) -> Slot | None:
    """The next slot for a request, from the first provider that takes one; None when none does."""
    bound, why = min(_room(draft, scene))
    if bound <= 0:
        draft.why.append(why)
        return None
    for entry in scene.demand.limits.makers:
        own, why = min(_entry_room(draft, entry, scene, tally, now))
        if own <= 0:
            draft.why.append(f"{entry.name} {why}")
            continue
        slot = Slot(
            number=draft.next_number,
            request=identity,
            entry=entry.name,
            provider=entry.provider,
            requested_at=now,
            nodes=min(needed, bound, own, entry.limits.nodes_per_request_max),
        )
        found = provider_of(slot, scene).assign(slot, scene, tally)
        if isinstance(found, Slot):
            return found
        draft.why.append(f"{entry.name} {found}")
    return None


def gives_room_at(slot: Slot, scene: ProviderInput) -> float | None:
    """When time alone gives back the room that a slot takes; None while its nodes are there."""
    if slot.stage != "arrived" or _nodes_there(slot, scene) == slot.nodes:
        return None
    return (slot.ended_at or slot.requested_at) + GONE_COUNTS_SECONDS


def _room_taken(slot: Slot, scene: ProviderInput, now: float) -> int:
    """How many nodes of a live slot count: those on their way, those that are there, and for a
    while those that have come and are lost or gone."""
    until = gives_room_at(slot, scene)
    return slot.nodes if until is None or now < until else _nodes_there(slot, scene)


def _nodes_there(slot: Slot, scene: ProviderInput) -> int:
    """How many nodes of a slot that has arrived are there. A suspected one is; of room on nodes
    that stood already, none is known."""
    standing = scene.standing
    return sum(name in standing.nodes and name not in standing.lost for name in slot.arrived)


def _room(draft: _Draft, scene: ProviderInput) -> Iterator[tuple[int, str]]:
    """How many more nodes the incident may have, by each bound."""
    demand, used = scene.demand, sum(draft.by_entry.values())
    limit = demand.limits.nodes_per_incident_max
    yield limit - used, f"the incident has its {limit} nodes (nodesPerIncidentMax)"
    limit = demand.limits.nodes_at_once_max
    yield limit - draft.coming, f"{limit} are on their way (nodesAtOnceMax)"
    if demand.missing is not None:
        yield demand.missing - draft.coming, "as many are on their way as are missing"
    yield SLOTS_MAX - len(draft.slots), "the incident's note is full; raise nodesPerRequestMax"


def _entry_room(
    draft: _Draft, entry: Provider, scene: ProviderInput, tally: Tally, now: float
) -> Iterator[tuple[int, str]]:
    """How many more nodes a provider may be asked for, by each of its bounds."""
    until = back_off_until(draft.note, entry.name, scene)
    if until > now:
        yield 0, f"backs off for {until - now:.0f} s more"
    limits = entry.limits
    used = draft.by_entry[entry.name]
    limit = limits.nodes_per_incident_max
    yield limit - used, f"has its {limit} nodes of the incident (nodesPerIncidentMax)"
    used, limit = tally.coming[draft.note.class_name, entry.name], limits.nodes_at_once_max
    yield limit - used, f"has {limit} nodes on their way (nodesAtOnceMax)"
