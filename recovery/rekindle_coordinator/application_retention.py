"""Records of applications that are gone are removed when nobody has written them for long.

    each hour, by whoever leads     applications without a driver and without an object
    of these, in a thread           unchanged for `days` and since the look before, and nothing
                                    is ordered ──► still gone? ──► removed, logged

Both times are the servers' own. Two looks, so that a clock that is wrong for a moment removes
nothing. Hundreds of records may have to go, so decisions do not wait for it. A driver that comes
back starts as a new one does: its generations and its checkpoints are in its checkpoint store.
"""

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from rekindle import protocol
from rekindle.model.errors import RekindleError
from rekindle.protocol import Orders, store_paths
from rekindle.protocol.store_paths import Place
from rekindle_coordinator.coordinator_log import Log
from rekindle_zookeeper import Conflict, Connection, StoreUnreachable, application_removal

LOOK_SECONDS = 3_600.0
DAY_SECONDS = 86_400.0


@dataclass(slots=True)
class ApplicationRetention:
    """With `days` of 0 nothing is removed. `clock` gives seconds for the interval of looks."""

    connection: Connection
    log: Log
    days: int
    clock: Callable[[], float] = time.monotonic
    _due: float = 0.0
    _silent: dict[Place, application_removal.FoundApplication] = field(default_factory=dict)
    _failed: dict[Place, str] = field(default_factory=dict)
    _thread: threading.Thread | None = None

    def postpone(self) -> None:
        """Look in an hour: there is more urgent work."""
        self._due = self.clock() + LOOK_SECONDS
        self._silent = {}

    @property
    def is_due(self) -> bool:
        """Whether `begin` should be called with the applications that are gone."""
        return self.days > 0 and self.clock() >= self._due

    def begin(self, places: Collection[Place], is_gone: Callable[[Place], bool]) -> None:
        """Look at these applications in a thread, unless it still works; `is_gone` is asked again
        before each removal, in that thread."""
        self._due = self.clock() + LOOK_SECONDS
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=self.look, args=(places, is_gone), name="retention", daemon=True
            )
            self._thread.start()

    def look(self, places: Collection[Place], is_gone: Callable[[Place], bool]) -> None:
        """Remove those of the applications that nobody has written for long, and that are as at
        the look before this one."""
        known = set(places)
        silent = {place: found for place, found in self._silent.items() if place in known}
        self._silent = silent  # `postpone` puts another one in its place
        self._failed = {place: text for place, text in self._failed.items() if place in known}
        now: float | None = None
        for place in places:
            try:
                if now is None:
                    now = application_removal.store_time(self.connection)
                self._look(place, now, silent, is_gone)
                self._failed.pop(place, None)
            except Conflict:  # a driver has come, or somebody has ordered something
                silent.pop(place, None)
            except StoreUnreachable:  # what was found before is kept for the next look
                return
            except RekindleError as trouble:
                self._note(place, str(trouble))
            except Exception as error:  # a bug with one application must not keep all others
                self._note(place, f"{type(error).__name__}: {error}")

    def _look(
        self,
        place: Place,
        now: float,
        silent: dict[Place, application_removal.FoundApplication],
        is_gone: Callable[[Place], bool],
    ) -> None:
        found = application_removal.look_at_application(self.connection, place)
        days = (now - found.written_at) / DAY_SECONDS
        kept = not found.versions or found.has_driver or days < self.days
        if kept or self._has_orders(place, now):
            silent.pop(place, None)
            return
        before, silent[place] = silent.get(place), found
        if before == found and is_gone(place):
            application_removal.remove_application(self.connection, found)
            del silent[place]
            text = f"nobody has written its records for {days:.0f} days, so they were removed"
            self.log.write("application-removed", application=str(place), text=text)

    def _has_orders(self, place: Place, now: float) -> bool:
        """Whether people have ordered a pause, or a priority that has not expired. Read after the
        look, whose versions the removal demands: so an order that comes later is kept as well."""
        path = place.path(store_paths.ORDERS)
        found = self.connection.get(path)
        if found is None:
            return False
        orders = protocol.decode(found[0], Orders, path)
        priorities = orders.priorities.values()
        return orders.paused or any(one.until is None or now < one.until for one in priorities)

    def _note(self, place: Place, text: str) -> None:
        """Log once why an application cannot be removed."""
        if self._failed.get(place) != text:
            self._failed[place] = text
            self.log.write("removal-failed", application=str(place), text=text)
