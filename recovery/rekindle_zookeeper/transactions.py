"""The steps of a ZooKeeper transaction: each demands that a record is as it looked before.

`chunked_records` and `zookeeper_connection` put them together; a transaction does all of its
steps or none.
"""

from collections.abc import Callable, Sequence

from kazoo.client import TransactionRequest
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL

Step = Callable[[TransactionRequest], None]


def require(path: str, version: int | None) -> Step:
    """The record is at that version, None: not there."""

    def step(transaction: TransactionRequest) -> None:
        if version is not None:
            transaction.check(path, version)
        else:  # there is no check for absence
            transaction.create(path)
            transaction.delete(path)

    return step


def require_some(path: str) -> Step:
    """The record is there, at whatever version."""
    return lambda transaction: transaction.check(path, -1)


def write(
    path: str,
    data: bytes,
    found: ZnodeStat | None,
    owner: int,
    acl: Sequence[ACL] | None = None,
) -> Step:
    """Make the record, or change the one that was found; `owner` is the session that it goes with,
    0 when it stays. A record cannot change its owner: then it is made anew. `acl` is for one that
    is made, None for the client's own."""

    def step(transaction: TransactionRequest) -> None:
        if found is not None and found.ephemeralOwner == owner:
            transaction.set_data(path, data, found.version)
            return
        if found is not None:
            transaction.delete(path, found.version)
        transaction.create(path, data, acl=acl, ephemeral=owner != 0)

    return step


def version_after(found: ZnodeStat | None, owner: int) -> int:
    """The version of the record once `write` has been done."""
    if found is None or found.ephemeralOwner != owner:
        return 0
    version: int = found.version
    return version + 1


def delete(path: str, version: int = -1) -> Step:
    """Remove the record, at that version or whatever it is."""
    return lambda transaction: transaction.delete(path, version)
