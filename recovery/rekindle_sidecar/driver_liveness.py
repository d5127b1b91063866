"""Decides whether the driver is there, from its requests.

    heard of ──no connection for `PARTED_SECONDS`, or silent for the contact time──► away
        ▲                                                                             │
        └─────────────────────────────its next request───────────────────────────────┘

An open long poll counts as being heard of: its end would be noticed. Pure; moments are seconds of a
clock that is never set.
"""

from dataclasses import dataclass, replace

PARTED_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class DriverLiveness:
    """`heard_at`: the last request; `polls`: long polls that are open; `parted_at`: when the last
    connection was found closed, None while there is one."""

    heard_at: float | None = None
    polls: int = 0
    parted_at: float | None = None


def heard(contact: DriverLiveness, now: float) -> DriverLiveness:
    """After a request: there is a connection, too."""
    return replace(contact, heard_at=now, parted_at=None)


def polling(contact: DriverLiveness, change: int, now: float) -> DriverLiveness:
    """After a long poll has begun (1) or ended (-1)."""
    return replace(contact, polls=contact.polls + change, heard_at=now)


def connected(contact: DriverLiveness, connections: int, now: float) -> DriverLiveness:
    """After the open connections have been counted."""
    if connections:
        return replace(contact, parted_at=None)
    return contact if contact.parted_at is not None else replace(contact, parted_at=now)


def is_there(contact: DriverLiveness, now: float, contact_seconds: float) -> bool:
    """Whether the driver counts as being there."""
    if contact.heard_at is None:
        return False
    if contact.parted_at is not None and now - contact.parted_at > PARTED_SECONDS:
        return False
    return contact.polls > 0 or now - contact.heard_at <= contact_seconds
