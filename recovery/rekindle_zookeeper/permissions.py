"""Rights of a namespace on each record below `/rekindle/v1`; the operator may do everything.

    record                            the namespace may
    NAMESPACE                         read
    NAMESPACE/APPLICATION             read, make and remove what is in it
      coordination, orders            read
      directives                      read, and remove what is in it
      directives/NUMBER, any guard    read
      acks, pieces                    read, make and remove what is in it
      everything else                 read, write

To make and to remove a record are rights on its parent. So that an application's folder may be its
namespace's, and the records in it that only the operator writes may not be removed and made again,
these have a record below them, the *guard*: ZooKeeper removes no record that has one, and the
namespace may not remove a guard. Pure; `chunked_records` and `namespaces` apply it.
"""

from kazoo.security import ACL, ANYONE_ID_UNSAFE, Permissions

from rekindle.protocol import store_paths
from rekindle_zookeeper.acl import ALL, rights

# A namespace may remove directives, and so a guard among them, were there not one below that.
GUARDS = (
    (store_paths.COORDINATION, store_paths.GUARD),
    (store_paths.ORDERS, store_paths.GUARD),
    (store_paths.DIRECTIVES, store_paths.GUARD, store_paths.GUARD),
)
READ: int = Permissions.READ
DELETE: int = Permissions.DELETE
MAKE: int = READ | DELETE | Permissions.CREATE
WRITE: int = READ | Permissions.WRITE


def granted(*names: str) -> int:
    """The rights of a namespace on a record: its namespace's name, and what follows in its path."""
    match names[1:]:
        case [] | [_, store_paths.COORDINATION | store_paths.ORDERS, *_]:
            return READ
        case [_] | [_, store_paths.ACKS | store_paths.PIECES]:
            return MAKE
        case [_, store_paths.DIRECTIVES]:
            return READ | DELETE
        case [_, store_paths.DIRECTIVES, *_]:
            return READ
        case _:
            return WRITE


def namespace_of(path: str) -> str:
    """The namespace that a record belongs to; "" for one of none."""
    below = path.removeprefix(f"{store_paths.APPLICATIONS}/")
    return "" if below == path else below.partition("/")[0]


def acl(path: str, operator: str, namespace: str) -> list[ACL]:
    """Who may do what with a record of the store, by the digests of the operator and of the
    record's namespace, "" for none. Everybody may see whether somebody leads."""
    entries = [rights(operator, ALL)]
    if path == store_paths.ELECTION:
        entries.append(ACL(Permissions.READ, ANYONE_ID_UNSAFE))
    if namespace and namespace_of(path):
        names = path.removeprefix(f"{store_paths.APPLICATIONS}/").split("/")
        entries.append(rights(namespace, granted(*names)))
    return entries
