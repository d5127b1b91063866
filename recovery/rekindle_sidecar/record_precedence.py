"""Which of two records is newer, and whether one may take the place of the other in the store.

Several sidecars may write at once: one that stood still goes on, a driver was started twice. A
record gives way only to a newer one, and every write is made on the condition that what it was
compared with is still there. Pure; `store_sync` asks.
"""

from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from rekindle.protocol import Heartbeat


class Precedence(StrEnum):
    """Of our record over the one in the store."""

    WRITE = "write"
    KEEP = "keep"
    FENCED = "fenced"  # and its driver has to end
    FOREIGN = "foreign"  # of another checkpoint store, and our driver has to end


@dataclass(frozen=True, slots=True, order=True)
class Stamp:
    """What every report has; the higher one is newer. `store` is of a topology: generations of
    different checkpoint stores say nothing about each other."""

    generation: int
    sequence: int
    store: str = field(default="", compare=False)


def are_foreign(one: str, other: str) -> bool:
    """Whether two checkpoint stores are known not to be the same."""
    return bool(one and other and one != other)


def stamp_of(data: bytes) -> Stamp | None:
    """The stamp of a report in the store; None for what is no report."""
    try:
        return msgspec.json.decode(data, type=Stamp)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def compare(standing: Stamp | None, ours: Stamp) -> Precedence:
    """Of a report over the one that stands."""
    if standing is not None and are_foreign(standing.store, ours.store):
        return Precedence.FOREIGN
    if standing is None or standing < ours:
        return Precedence.WRITE
    return Precedence.FENCED if standing.generation > ours.generation else Precedence.KEEP


def compare_heartbeats(standing: Heartbeat | None, ours: Heartbeat, arriving: bool) -> Precedence:
    """Of a heartbeat over the one that stands.

    Of two of one generation the driver has chosen the sidecar where it is `arriving`: there the
    handshake is news. Otherwise the one that stands is left alone, or both would take turns.
    """
    if standing is None:
        return Precedence.WRITE
    if are_foreign(standing.store, ours.store):
        return Precedence.FOREIGN
    if standing.generation > ours.generation:
        return Precedence.FENCED
    if standing.generation == ours.generation and (standing == ours or not arriving):
        return Precedence.KEEP
    return Precedence.WRITE
