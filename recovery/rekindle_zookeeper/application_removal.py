"""An application's records as a whole: a look at all of them, and their removal as they were then.

`rekindle reset` and the coordinator remove the same. All records go in one transaction, folders and
guards with them, so that nobody finds a half of an application.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rekindle.protocol import store_paths
from rekindle.protocol.store_paths import Place
from rekindle_zookeeper.acl import GUARDS
from rekindle_zookeeper.chunked_records import RecordStat
from rekindle_zookeeper.zookeeper_connection import Connection

AT_ONCE_MAX = 500


@dataclass(frozen=True, slots=True)
class FoundApplication:
    """The versions of all records of an application, folders and guards among them, and when the
    newest was written, in seconds since 1970 by the servers' clocks."""

    place: Place
    versions: Mapping[str, int]
    written_at: float

    @property
    def has_driver(self) -> bool:
        """Whether there is a heartbeat."""
        return self.place.path(store_paths.HEARTBEAT) in self.versions


def store_time(connection: Connection) -> float:
    """The servers' time in seconds since 1970: when a record was written that this call writes."""
    connection.put(store_paths.CLOCK, b"")
    found = connection.stats([store_paths.CLOCK]).get(store_paths.CLOCK)
    return 0.0 if found is None else found.written_at


def look_at_application(connection: Connection, place: Place) -> FoundApplication:
    """Find all records of an application. A driver that is there writes every few seconds."""
    paths = {place.path(), *(place.path(*names) for names in GUARDS)}
    for name in connection.children(place.path()):
        lower = connection.children(place.path(name))
        paths |= {place.path(name), *(place.path(name, item) for item in lower)}
    ordered = sorted(paths)
    stats: dict[str, RecordStat] = {}
    for start in range(0, len(ordered), AT_ONCE_MAX):
        stats |= connection.stats(ordered[start : start + AT_ONCE_MAX])
    return FoundApplication(
        place,
        {path: stat.version for path, stat in stats.items()},
        max((stat.written_at for stat in stats.values()), default=0.0),
    )


def remove_application(connection: Connection, found: FoundApplication) -> None:
    """Remove all records of an application. Raises Conflict where it has a driver, or where any
    record is another one than at the look.

    Where there are too many directives and acknowledgements for one transaction, most go before the
    others, on the same conditions.
    """
    numbered = [path for path in sorted(found.versions) if _is_numbered(path)]
    early = numbered[AT_ONCE_MAX:]
    last = {path: found.versions[path] for path in found.versions.keys() - early}
    absent: dict[str, int | None] = {found.place.path(store_paths.HEARTBEAT): None}
    for start in range(0, len(early), AT_ONCE_MAX):
        some = {path: found.versions[path] for path in early[start : start + AT_ONCE_MAX]}
        connection.remove_together(some, last | absent)
    connection.remove_together(last, absent)


def _is_numbered(path: str) -> bool:
    """Whether a path is that of a directive or an acknowledgement."""
    return bool(store_paths.numbers([path.rpartition("/")[2]]))


def held(connection: Connection, place: Place, folder: str) -> list[str]:
    """Names of the records in a folder of an application."""
    return [name for name in connection.children(place.path(folder)) if name != store_paths.GUARD]
