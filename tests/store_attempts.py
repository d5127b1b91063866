"""What somebody might try in the coordination store with another namespace's records."""

from collections.abc import Callable
from functools import partial

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE

from rekindle.protocol import tree
from rekindle.protocol.tree import Place

__all__ = ["attempts_on", "is_refused"]


def attempts_on(client: KazooClient, place: Place) -> dict[str, Callable[[], object]]:
    """Everything that a stranger might do to the records of a place and to what is above them, by
    what it is. `topology`, `progress`, `coordination` and `orders` have to be there."""
    made: dict[str, Callable[[], object]] = {}
    for name in (tree.TOPOLOGY, tree.PROGRESS, tree.COORDINATION, tree.ORDERS):
        path = place.path(name)
        made |= {
            f"read {name}": partial(client.get, path),
            f"write {name}": partial(client.set, path, b"forged"),
            f"remove {name}": partial(client.delete, path, recursive=False),
            f"read the rights of {name}": partial(client.get_acls, path),
            f"give away {name}": partial(client.set_acls, path, OPEN_ACL_UNSAFE),
        }
    for folder in (tree.DIRECTIVES, tree.ACKS, tree.PIECES):
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
            client.get_children, f"{tree.APPLICATIONS}/{place.namespace}"
        ),
        "list namespaces": partial(client.get_children, tree.APPLICATIONS),
        "make a namespace": partial(client.create, f"{tree.APPLICATIONS}/team-c", b""),
        "stand for election": partial(client.create, f"{tree.ELECTION}/n", b"", sequence=True),
        "count as an operator": partial(client.create, f"{tree.OPERATORS}/n", b""),
        "make beside all": partial(client.create, "/elsewhere", b""),
        "take the root": partial(client.set_acls, "/", OPEN_ACL_UNSAFE),
        "lift its quota": partial(
            client.set,
            f"/zookeeper/quota{tree.APPLICATIONS}/{place.namespace}/zookeeper_limits",
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
