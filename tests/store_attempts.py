"""What somebody might try in the coordination store with another namespace's records."""

from collections.abc import Callable
from functools import partial

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE

from rekindle.protocol import store_paths
from rekindle.protocol.store_paths import Place


def attempts_on(client: KazooClient, place: Place) -> dict[str, Callable[[], object]]:
    """Everything that a stranger might do to the records of a place and to what is above them, by
    what it is. `topology`, `progress`, `coordination` and `orders` have to be there."""
    made: dict[str, Callable[[], object]] = {}
    for name in (
        store_paths.TOPOLOGY,
        store_paths.PROGRESS,
        store_paths.COORDINATION,
        store_paths.ORDERS,
    ):
        path = place.path(name)
        made |= {
            f"read {name}": partial(client.get, path),
            f"write {name}": partial(client.set, path, b"forged"),
            f"remove {name}": partial(client.delete, path, recursive=False),
            f"read the rights of {name}": partial(client.get_acls, path),
            f"give away {name}": partial(client.set_acls, path, OPEN_ACL_UNSAFE),
        }
    for folder in (store_paths.DIRECTIVES, store_paths.ACKS, store_paths.PIECES):
        made |= {
            f"list {folder}": partial(client.get_children, place.path(folder)),
            f"make in {folder}": partial(client.create, place.path(folder, "0000000009"), b""),
            f"remove {folder}": partial(client.delete, place.path(folder)),
        }
    made |= {
        "make a heartbeat": partial(client.create, place.path("heartbeat-2"), b"", ephemeral=True),
        "list the application": partial(client.get_children, place.path()),
        "make an application": partial(client.create, place.path() + "-2", b""),
        "list the namespace": partial(
            client.get_children, f"{store_paths.APPLICATIONS}/{place.namespace}"
        ),
        "list namespaces": partial(client.get_children, store_paths.APPLICATIONS),
        "make a namespace": partial(client.create, f"{store_paths.APPLICATIONS}/team-c", b""),
        "stand for election": partial(
            client.create, f"{store_paths.ELECTION}/n", b"", sequence=True
        ),
        "count as an operator": partial(client.create, f"{store_paths.OPERATORS}/n", b""),
        "make beside all": partial(client.create, "/elsewhere", b""),
        "take the root": partial(client.set_acls, "/", OPEN_ACL_UNSAFE),
        "lift its quota": partial(
            client.set,
            f"/zookeeper/quota{store_paths.APPLICATIONS}/{place.namespace}/zookeeper_limits",
            b"count=-1,bytes=-1",
        ),
        "set a quota": partial(client.create, "/zookeeper/quota/rekindle-2", b""),
    }
    return made


def is_refused(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except NoAuthError:
        return True
    return False
