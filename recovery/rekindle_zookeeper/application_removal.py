"""An application's records as a whole: when they were written last, and their removal.

`rekindle reset` and the coordinator remove the same, in the same order.
"""

from rekindle.model.errors import RunError
from rekindle.protocol import store_paths
from rekindle.protocol.store_paths import Place
from rekindle_zookeeper.sessions import StoreUnreachable
from rekindle_zookeeper.zookeeper_connection import Connection


def written_at(connection: Connection, place: Place) -> float:
    """When the newest of an application's records was written, in seconds since 1970 by the
    servers' clocks; 0 where there are none. A driver that is there writes every few seconds."""
    names = connection.children(place.path())
    return connection.written_at([place.path(), *(place.path(name) for name in names)])


def remove_application(connection: Connection, place: Place) -> None:
    """Remove all records of an application. Raises Conflict where it has a driver.

    The records go together, unless a driver has come; what only they give a meaning to goes before
    them, so that nothing of it is left if this is interrupted and begun again.
    """
    for folder in (store_paths.DIRECTIVES, store_paths.ACKS):
        for name in held(connection, place, folder):
            connection.remove(place.path(folder, name))
    guarded = (store_paths.COORDINATION, store_paths.ORDERS, store_paths.DIRECTIVES)
    guards = [
        place.path(record, *depth)
        for record in guarded
        for depth in ((store_paths.GUARD, store_paths.GUARD), (store_paths.GUARD,))
    ]
    kept = (*store_paths.FOLDERS, store_paths.HEARTBEAT)
    records = [name for name in connection.children(place.path()) if name not in kept]
    connection.remove_together(
        [*guards, *(place.path(name) for name in records)],
        absent=place.path(store_paths.HEARTBEAT),
    )
    left = connection.sweep(place.path(), {})
    connection.sweep(place.path(), left)
    for path in (*(place.path(folder) for folder in store_paths.FOLDERS), place.path()):
        _remove_empty(connection, path)


def held(connection: Connection, place: Place, folder: str) -> list[str]:
    """Names of the records in a folder of an application."""
    return [name for name in connection.children(place.path(folder)) if name != store_paths.GUARD]


def _remove_empty(connection: Connection, path: str) -> None:
    """A folder; one in which the next driver has made records already stays."""
    try:
        connection.remove(path)
    except StoreUnreachable:
        raise
    except RunError:
        return
