"""Applications that are gone: their records go when nobody has written any for long.

    each hour, by whoever leads     applications without a driver and without an object
    of these, in a thread           not written for `days`, as an hour before ──► removed, logged

Two looks, so that a clock that is wrong for a moment removes nothing. Hundreds of records may have
to go, so decisions do not wait for it. A driver that comes back starts as a new one does: its
generations and its checkpoints are in its checkpoint store.
"""

import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, field

from rekindle.model.errors import RekindleError
from rekindle.protocol import store_paths
from rekindle.protocol.store_paths import Place
from rekindle_coordinator.coordinator_log import Log
from rekindle_zookeeper import Conflict, Connection, StoreUnreachable
from rekindle_zookeeper.application_removal import remove_application, written_at

LOOK_SECONDS = 3_600.0
DAY_SECONDS = 86_400.0


@dataclass(slots=True)
class ApplicationRetention:
    """With `days` of 0 nothing is removed."""

    connection: Connection
    log: Log
    days: int
    _due: float = 0.0
    _silent: dict[Place, float] = field(default_factory=dict)
    _thread: threading.Thread | None = None

    def postpone(self) -> None:
        """Look in an hour: there is more urgent work."""
        self._due = time.monotonic() + LOOK_SECONDS
        self._silent = {}

    @property
    def is_due(self) -> bool:
        """Whether somebody should say again who has neither driver nor object."""
        return self.days > 0 and time.monotonic() >= self._due

    def begin(self, places: Collection[Place], now: float) -> None:
        """Look at these applications in a thread, unless it is at work still; `now` is in seconds
        since 1970."""
        self._due = time.monotonic() + LOOK_SECONDS
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=self.look, args=(places, now), name="retention", daemon=True
            )
            self._thread.start()

    def look(self, places: Collection[Place], now: float) -> None:
        """Remove those of the applications that nobody has written for long, now or at the look
        before this one."""
        before, self._silent = self._silent, {}
        for place in places:
            try:
                self._look(place, now, before.get(place))
            except Conflict:  # a driver has come
                continue
            except StoreUnreachable:
                return
            except RekindleError as trouble:
                self.log.write("removal-failed", application=str(place), text=str(trouble))

    def _look(self, place: Place, now: float, before: float | None) -> None:
        if self.connection.get(place.path(store_paths.HEARTBEAT)) is not None:
            return
        written = written_at(self.connection, place)
        days = (now - written) / DAY_SECONDS
        if days < self.days:
            return
        self._silent[place] = written
        if before == written:
            remove_application(self.connection, place)
            text = f"nobody has written its records for {days:.0f} days, so they were removed"
            self.log.write("application-removed", application=str(place), text=text)
