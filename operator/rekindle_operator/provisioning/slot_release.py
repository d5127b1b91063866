"""Slots that nobody wants any more, and nodes that are given back.

A request is not wanted when the core asks for it no more, or for less, or when the incident is
over. What is on its way is withdrawn, unless a node of it is already in use. Nodes that have come
stay as long as the incident lasts; after it they are given back as they become idle, where giving
back is ours to do. `provisioning_planner` calls it.
"""

import msgspec

from rekindle_operator.provisioning import slot_provider
from rekindle_operator.provisioning.node_demand import node_requests
from rekindle_operator.provisioning.providers.provider_base import ProviderInput, Tally
from rekindle_operator.provisioning.request_ledger import COMING, LIVE, Note, Slot, Stage

__all__ = ["end", "is_finished", "wind_up"]

# Slots that have ended and left nothing behind are kept for people, not more than so many.
CLEARED_KEPT_MAX = 50


def end(note: Note, scene: ProviderInput, now: float) -> Note:
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


def wind_up(note: Note, scene: ProviderInput, tally: Tally) -> Note:
    """The note with what is planned for slots that have ended, and without the oldest that are
    cleared."""
    slots = [_wound_up(slot, scene, tally) for slot in note.slots]
    ended = [slot.number for slot in slots if slot.cleared and slot.stage not in LIVE]
    dropped = set(ended[:-CLEARED_KEPT_MAX])
    kept = tuple(slot for slot in slots if slot.number not in dropped)
    return msgspec.structs.replace(note, slots=kept)


def is_finished(note: Note, scene: ProviderInput) -> bool:
    """Whether the incident is over and nothing of ours is left of it."""
    return scene.demand.over and all(slot.cleared for slot in note.slots)


def _surplus(note: Note, scene: ProviderInput) -> set[int]:
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


def _ended(slot: Slot, stage: Stage, scene: ProviderInput, at: float) -> Slot:
    if slot.stage != "planned" and not slot_provider.source(slot, scene).is_harmless(slot, scene):
        return slot
    return msgspec.structs.replace(slot, stage=stage, ended_at=at)


def _wound_up(slot: Slot, scene: ProviderInput, tally: Tally) -> Slot:
    source = slot_provider.source(slot, scene)
    if slot.stage in COMING or (slot.stage == "arrived" and source.gives_back):
        return slot
    slot = source.wind_up(slot, scene, tally)
    left = source.is_left(slot, scene)
    return slot if slot.cleared == (not left) else msgspec.structs.replace(slot, cleared=not left)


def _gives_back(slot: Slot, scene: ProviderInput) -> bool:
    return slot_provider.source(slot, scene).gives_back
