"""The coordination store on ZooKeeper: a connection that is kept for ever, and records over it.

    connections  `connect`, `check_hosts`, and Connection: all that callers use
    sessions     one kazoo client after the other, and what its errors mean
    polling      how kazoo's client waits for its sockets
    records      records as a whole: read, and written on conditions
    steps        the steps of a transaction
    splitting    records that are too large for one message, in pieces
    leftovers    pieces that a writer which died has left
    watches      watches that stay: a read arms them, a change fires them
    elections    who leads, as long as the session lasts
    access       credentials, by files that are read again
    permissions  what a namespace may do with each record
    namespaces   namespaces kept apart: rights, places, quotas
    failures     StoreUnreachable, Conflict

It knows paths and bytes; what the records mean is in `rekindle.protocol`. Sidecar and coordinator
call it.
"""

from rekindle_zookeeper.access import Credential, derive, read_secret, to_text
from rekindle_zookeeper.connections import Connection, check_hosts, connect
from rekindle_zookeeper.elections import Election
from rekindle_zookeeper.failures import Conflict, StoreUnreachable
from rekindle_zookeeper.namespaces import Namespaces, Quota

__all__ = [
    "Conflict",
    "Connection",
    "Credential",
    "Election",
    "Namespaces",
    "Quota",
    "StoreUnreachable",
    "check_hosts",
    "connect",
    "derive",
    "read_secret",
    "to_text",
]
