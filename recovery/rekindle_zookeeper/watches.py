"""Watches that stay: kazoo's fire once, and are gone with the connection.

    armed ──a change──► fired: callbacks are called ──the next read──► armed

A read arms the watch in its own request. So what it has read is as it was when the watch was armed,
and a change that comes later fires: nothing is missed, and a record that changes many times before
anybody looks costs one event and one request. After a connect all of them are armed, and called.
Callbacks run on the threads of the client, which wait for them, so they only note that there is
something to read. `zookeeper_connection` keeps them, `chunked_records` reads.

Why: docs/decisions/0030-a-read-arms-the-watch.md.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from kazoo.client import KazooClient
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.states import Callback, EventType, WatchedEvent

Callbacks = tuple[Callable[[], None], ...]

ARMED_AT_ONCE = 50
ANSWER_SECONDS_MAX, LOOK_SECONDS = 60.0, 1.0


@dataclass(frozen=True, slots=True)
class _Fired:
    """What kazoo calls. It keeps watches in sets, so equal ones count once. One `is_brief`, as what
    it calls only notes something."""

    is_brief: ClassVar[bool] = True
    path: str
    call: Callable[[str], None]

    def __call__(self, event: WatchedEvent) -> None:
        if event.type != EventType.NONE:  # else the connection is gone, and the next one tells
            self.call(self.path)


@dataclass(slots=True, eq=False)
class Watches:
    """On records, whether they are there or not, and on their children. Any thread may call."""

    _callbacks: dict[str, Callbacks] = field(default_factory=dict)

    def add(self, path: str, callback: Callable[[], None]) -> None:
        """Have one more called for a path."""
        self._callbacks[path] = (*self._callbacks.get(path, ()), callback)

    def remove(self, path: str) -> None:
        """Have none called any more."""
        self._callbacks.pop(path, None)

    def of(self, path: str) -> Callable[[WatchedEvent], None] | None:
        """What a read of the path is to arm; None where nobody watches."""
        return _Fired(path, self._call) if path in self._callbacks else None

    def arm(self, client: KazooClient, path: str) -> None:
        """Arm soon, without reading. Arming twice does no harm."""
        dispatch(client, lambda: self._arm(client, [path]))

    def begin_again(self, client: KazooClient) -> None:
        """After a connect: arm all, and call all, as anything may have changed."""
        dispatch(client, partial(self._begin_again, client))

    def _begin_again(self, client: KazooClient) -> None:
        paths = list(self._callbacks)
        for first in range(0, len(paths), ARMED_AT_ONCE):
            some = paths[first : first + ARMED_AT_ONCE]
            if not self._arm(client, some):
                return
            for path in some:
                self._call(path)

    def _arm(self, client: KazooClient, paths: list[str]) -> bool:
        """Whether the connection has answered; if it has ended, the next one begins again.

        Waits, on the client's thread for callbacks. The one of its connection takes requests off a
        pipe that holds some hundreds, and whoever asks for more waits for it. If it ended
        meanwhile, that would be for ever, and with it whoever ends the client: so only some may be
        on their way. And without a connection none, for what waits behind would wait as long.
        """
        if not client.connected:
            return False
        watched = [path for path in paths if path in self._callbacks]
        asked = [answer for path in watched for answer in self._ask(client, path)]
        return all(_is_answered(client, answer) for answer in asked)

    def _ask(self, client: KazooClient, path: str) -> list[IAsyncResult]:
        fired = self.of(path)
        return [
            client.exists_async(path, watch=fired),
            client.get_children_async(path, watch=fired),
        ]

    def _call(self, path: str) -> None:
        for callback in self._callbacks.get(path, ()):
            callback()


def _is_answered(client: KazooClient, answer: IAsyncResult) -> bool:
    """Waits while there is a connection: what is asked just after its end waits for the next."""
    end = time.monotonic() + ANSWER_SECONDS_MAX
    while not answer.wait(LOOK_SECONDS):
        if not client.connected or time.monotonic() > end:
            return False
    return True


def dispatch(client: KazooClient, callback: Callable[[], object]) -> None:
    """Call it on the client's thread for callbacks."""
    client.handler.dispatch_callback(Callback("watch", callback, ()))
