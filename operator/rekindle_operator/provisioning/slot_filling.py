"""Opens slots for demand that is not covered yet, within all limits.

How many: as many nodes as the core asks for, less those that are on their way or have come for the
same request; not more on their way than the application lacks, than the policy lets at once, or
than the provider takes. Where: the first provider of the class that takes a slot now. One that
backs off, is full or has no place outside of the impaired domains leaves it to the next. What finds
no place waits, and why is said. `provisioning_planner` calls it.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from rekindle.coordination.directives import NodeRequestOrder
from rekindle_operator.api.node_providers import Provider
from rekindle_operator.provisioning import slot_provider
from rekindle_operator.provisioning.node_demand import NodeDemand, node_requests, outside_of
from rekindle_operator.provisioning.providers.provider_base import ProviderInput, Tally
from rekindle_operator.provisioning.request_ledger import COMING, LIVE, Ask, Note, Slot
from rekindle_operator.provisioning.slot_progress import back_off_until

# A note is one object, and those are bounded at about a megabyte.
SLOTS_MAX = 3_000
HINDRANCES_MAX = 3


@dataclass(frozen=True, slots=True)
class Filled:
    """A note with new slots, and a sentence on what waits; empty when nothing does."""

    note: Note
    text: str


@dataclass(slots=True)
class _Draft:
    """A note that is being filled: its slots, and how many nodes they have by request and entry."""

    note: Note
    slots: list[Slot]
    live: Counter[str]
    by_entry: Counter[str]
    asks: dict[str, Ask]
    coming: int
    waiting: int = 0
    why: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, note: Note) -> "_Draft":
        live, by_entry = Counter[str](), Counter[str]()
        for slot in note.slots:
            if slot.stage in LIVE:
                live[slot.request] += slot.nodes
                by_entry[slot.entry] += slot.nodes
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
    draft = _Draft.of(note)
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
        found = slot_provider.source(slot, scene).assign(slot, scene, tally)
        if isinstance(found, Slot):
            return found
        draft.why.append(f"{entry.name} {found}")
    return None


def _room(draft: _Draft, scene: ProviderInput) -> Iterator[tuple[int, str]]:
    """How many more nodes the incident may have, by each bound."""
    demand, live = scene.demand, sum(draft.live.values())
    limit = demand.limits.nodes_per_incident_max
    yield limit - live, f"the incident has its {limit} nodes (nodesPerIncidentMax)"
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
