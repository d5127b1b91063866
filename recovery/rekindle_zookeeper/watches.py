"""Watches that stay: kazoo's fire once, and are gone with the connection.

A watch is set again before its callback is called, and one session's requests are answered in
order: what a callback reads is at least as new as what it was called for, and nothing that changes
after that is missed. Callbacks run on the client's thread for them, one after the other, so they
should only note that there is something to read.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kazoo.client import KazooClient
from kazoo.protocol.states import Callback, EventType, WatchedEvent

__all__ = ["Watch", "dispatch"]


@dataclass(frozen=True, slots=True)
class Watch:
    """On a record, whether it is there or not, and on its children, as long as it is wanted."""

    path: str
    callback: Callable[[], None]
    wanted: Callable[["Watch"], bool]

    def arm(self, client: KazooClient) -> None:
        """Set it; returns at once. Setting it twice does no harm."""
        fired = _Fired(self, client)
        client.exists_async(self.path, watch=fired)
        client.get_children_async(self.path, watch=fired)


@dataclass(frozen=True, slots=True)
class _Fired:
    """What kazoo calls. It keeps watches in sets, so equal ones count once."""

    watch: Watch
    client: KazooClient

    def __call__(self, event: WatchedEvent) -> None:
        if event.type != EventType.NONE and self.watch.wanted(
            self.watch
        ):  # else the connection is gone, and the next one arms it
            self.watch.arm(self.client)
            self.watch.callback()


def dispatch(client: KazooClient, callback: Callable[[], None]) -> None:
    """Call it on the client's thread for callbacks."""
    client.handler.dispatch_callback(Callback("watch", callback, ()))
