"""The coordination store on ZooKeeper: a connection that is kept for ever, and records over it.

    zookeeper_connection  `connect`, `check_hosts`, and Connection: all that callers use
    sessions              one kazoo client after the other, and the meaning of its errors
    encryption            TLS to the servers, by authorities that are read again
    chunked_records       records as a whole: read, and written on conditions
    watches               watches that stay: a read arms them, a change fires them
    elections             who leads, as long as the session lasts
    acl                   credentials, by files that are read again
    namespaces            namespaces kept apart: rights, places, quotas
    application_removal   an application's records as a whole: their age, and their removal

It knows paths and bytes; what the records mean is in `rekindle.protocol`. Sidecar and coordinator
call it.

Why: docs/decisions/0022-the-zookeeper-client-is-a-package.md.
"""

from rekindle_zookeeper.acl import Credential, derive, read_secret, to_text
from rekindle_zookeeper.encryption import Encryption, open_socket, speaks_tls
from rekindle_zookeeper.namespaces import NamespaceQuota, Namespaces
from rekindle_zookeeper.sessions import Conflict, StoreUnreachable
from rekindle_zookeeper.zookeeper_connection import Connection, check_hosts, connect

__all__ = [
    "Conflict",
    "Connection",
    "Credential",
    "Encryption",
    "NamespaceQuota",
    "Namespaces",
    "StoreUnreachable",
    "check_hosts",
    "connect",
    "derive",
    "open_socket",
    "read_secret",
    "speaks_tls",
    "to_text",
]
