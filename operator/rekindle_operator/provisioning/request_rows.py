"""What a Recovery says of its requests for nodes: one row per slot.

Only tells what the note has; how many rows an object holds is for `recovery_status`.
`provisioning_planner` calls it.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

from rekindle_operator.api.conditions import camel_case
from rekindle_operator.api.custom_resources import clipped
from rekindle_operator.api.recovery_status import NodeRequest
from rekindle_operator.provisioning.providers.provider_base import ProviderInput
from rekindle_operator.provisioning.request_ledger import Ask, Note, Slot, Stage

__all__ = ["rows"]

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


def rows(
    note: Note, scene: ProviderInput, messages: Mapping[int, str]
) -> tuple[NodeRequest, ...] | None:
    """A row per slot, the oldest first; None where no provider makes requests and none was made."""
    if not note.slots and not scene.demand.limits.makers:
        return None
    return tuple(_row(slot, note, scene, messages.get(slot.number, "")) for slot in note.slots)


def _row(slot: Slot, note: Note, scene: ProviderInput, said: str) -> NodeRequest:
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
