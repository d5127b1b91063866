"""The progress of each slot of a note.

    planned, seen in the cluster         made
    made, not seen any more              failed: given up by the provider, or deleted by somebody
    made, its nodes have come            arrived
    too long without a node, or refused  failed

A failure makes its entry back off: for the whole incident, doubled with each wave of requests that
fails. A wave is what was requested before the last failure was known; an arrival ends the row.
Objects of ours that are in no note are taken in, so that a lost note loses none.
`provisioning_planner` calls it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from rekindle_operator.api.custom_resources import clipped
from rekindle_operator.cluster.json_access import ObjectKind
from rekindle_operator.provisioning import slot_provider
from rekindle_operator.provisioning.providers.node_claims import NODE_CLAIM
from rekindle_operator.provisioning.providers.provider_base import (
    ProviderInput,
    Seen,
    Tally,
    adopted,
)
from rekindle_operator.provisioning.providers.provisioning_requests import (
    POD_TEMPLATE,
    PROVISIONING_REQUEST,
)
from rekindle_operator.provisioning.request_ledger import COMING, BackOff, Note, Slot, Stage

MESSAGE_LENGTH_MAX = 400
GONE = "It is gone: the provider has given it up, or somebody has deleted it."
# Which objects a slot may be known by when its note is lost, with the kind of provider and how far
# the slot has come at least; of two objects the first one tells.
_ADOPTED: tuple[tuple[ObjectKind, str, Stage], ...] = (
    (NODE_CLAIM, "Karpenter", "made"),
    (PROVISIONING_REQUEST, "ProvisioningRequest", "made"),
    (POD_TEMPLATE, "ProvisioningRequest", "planned"),
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
            seen = slot_provider.source(slot, scene).look(slot, scene, tally)
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
    limits = slot_provider.limits(entry, scene)
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
    seconds = slot_provider.limits(slot.entry, scene).request_seconds_max
    if now - slot.requested_at > seconds and _is_harmless(slot, scene):
        return _failed(slot, f"It has brought no node for {seconds} s. {seen.message}", now)
    return slot


def _refusal(slot: Slot, scene: ProviderInput) -> str:
    """The API server's words, if it refuses what the slot needs."""
    names = [scene.name(slot), *([slot.up.name] if slot.up is not None else [])]
    return next(filter(None, map(scene.standing.refused.get, names)), "")


def _is_harmless(slot: Slot, scene: ProviderInput) -> bool:
    return slot.stage == "planned" or slot_provider.source(slot, scene).is_harmless(slot, scene)


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
