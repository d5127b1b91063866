"""The record that says that the driver is there: made, kept and removed.

It belongs to the sidecar's session, so it goes with it. Everything here asks the store and waits
for it, so `store_sync` calls it on a thread.
"""

from dataclasses import dataclass

from rekindle import protocol
from rekindle.model.errors import InputError
from rekindle.protocol import Heartbeat, store_paths
from rekindle_sidecar import record_precedence
from rekindle_sidecar.record_precedence import Precedence
from rekindle_zookeeper import Connection

__all__ = ["DriverHeartbeat", "HeartbeatOutcome"]


@dataclass(frozen=True, slots=True)
class HeartbeatOutcome:
    """`up`: a heartbeat of this generation stands; `newer`: the generation that does instead;
    `foreign`: the generation of a driver with another checkpoint store that does."""

    up: bool
    newer: int = 0
    foreign: int = 0


class DriverHeartbeat:
    """Of one application, made by this sidecar."""

    def __init__(self, connection: Connection, place: store_paths.Place) -> None:
        self._connection = connection
        self._path = place.path(store_paths.HEARTBEAT)
        self._made: Heartbeat | None = None

    def keep(self, wanted: Heartbeat | None, *, store: str, arriving: bool) -> HeartbeatOutcome:
        """Bring about what is wanted, as far as a newer driver's heartbeat allows. `store` is the
        checkpoint store of the driver here; `arriving`: it has introduced itself since the last
        time."""
        found = self._connection.get(self._path)
        standing = None if found is None else _decoded(found[0], self._path)
        newer = 0 if standing is None else standing.generation
        if wanted is None:
            # a driver that was here and is away takes only its own heartbeat along
            if found is not None and standing is not None and standing == self._made:
                self._connection.remove(self._path, found[1])
                newer = 0
            # before a driver has come nobody knows whether that one counts for it
            if standing is not None and (
                not store or record_precedence.are_foreign(standing.store, store)
            ):
                newer = 0
            return HeartbeatOutcome(up=False, newer=newer)
        decided = record_precedence.compare_heartbeats(standing, wanted, arriving)
        if decided is Precedence.FOREIGN:
            return HeartbeatOutcome(up=False, foreign=newer)
        if decided is Precedence.WRITE:
            self._made = wanted
            expected = {self._path: None if found is None else found[1]}
            self._connection.transact(
                expected, {self._path: protocol.encode(wanted)}, ephemeral=True
            )
        return HeartbeatOutcome(up=decided is not Precedence.FENCED, newer=newer)


def _decoded(data: bytes, path: str) -> Heartbeat | None:
    """None for what nobody can read."""
    try:
        return protocol.decode(data, Heartbeat, path)
    except InputError:
        return None
