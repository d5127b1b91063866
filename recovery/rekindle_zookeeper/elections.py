"""Leadership among several processes: one has it at a time, and it ends with the session.

    standing ──► leading ──session over, or closed──► standing

While the connection is down nobody can know whether the session goes on, so nobody leads then; it
comes back with the connection unless the session is over. Two may lead for a moment all the same,
when one has stood still: what leaders write has to be conditional.
"""

import threading
import traceback
from collections.abc import Callable

from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.recipe.election import Election as Recipe

from rekindle.model.errors import RunError
from rekindle_zookeeper.sessions import Sessions

PAUSE_SECONDS = 1.0


class Election:
    """One candidate. `on_change` is called, on any thread, when leadership may have changed."""

    def __init__(
        self, sessions: Sessions, path: str, identity: str, on_change: Callable[[], None]
    ) -> None:
        self._sessions = sessions
        self._path = path
        self._identity = identity
        self._on_change = on_change
        self._session: int | None = None
        self._recipe: Recipe | None = None
        self._closed = threading.Event()
        self._news = threading.Event()
        self._thread = threading.Thread(target=self._stand, name="election", daemon=True)

    @property
    def leads(self) -> bool:
        """Whether this process leads now."""
        session = self._session
        ours = session is not None and session == self._sessions.session
        return ours and self._sessions.reachable

    @property
    def term(self) -> int | None:
        """The session: in a new one somebody else may have led meanwhile."""
        return self._sessions.session

    def start(self) -> None:
        """Stand for it, from a thread of its own."""
        self._thread.start()

    def look(self) -> None:
        """Note that the connection has changed."""
        self._news.set()
        self._on_change()

    def close(self) -> None:
        """Give leadership up, and do not stand any more."""
        self._closed.set()
        self._news.set()
        if self._recipe is not None:
            self._recipe.cancel()
        self._thread.join(self._sessions.deadline_seconds)

    def _stand(self) -> None:
        while True:
            self._recipe = self._sessions.client.Election(self._path, self._identity)
            if self._closed.is_set():
                return
            try:
                self._recipe.run(self._lead)
            except (KazooException, KazooTimeoutError, RunError):
                self._closed.wait(PAUSE_SECONDS)
            except Exception:  # a thread that ended would never stand again
                traceback.print_exc()
                self._closed.wait(PAUSE_SECONDS)

    def _lead(self) -> None:
        """Lead until the session is over. It may be so already: the recipe has won with a record
        that went with an earlier session."""
        session = self._owner()
        if session is None or session != self._sessions.session or self._closed.is_set():
            return
        self._session = session
        self._on_change()
        while not self._closed.is_set() and session == self._sessions.session:
            self._news.wait(PAUSE_SECONDS)
            self._news.clear()
        self._session = None
        self._on_change()

    def _owner(self) -> int | None:
        """The session of our record among the candidates'."""
        assert self._recipe is not None
        path = f"{self._path}/{self._recipe.lock.node}"
        found = self._sessions.run(lambda client: client.exists_async(path), path)
        return None if found is None else found.ephemeralOwner
