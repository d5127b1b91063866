"""The shared part of commands for the coordination store: options, names, people's orders.

Commands call it. Names of applications and queries that there are not are refused with near ones;
orders are changed only as they were read.
"""

import logging
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from rekindle import protocol
from rekindle.coordination.query_explanation import near
from rekindle.model.errors import InputError, RunError
from rekindle.protocol import Orders, PriorityOverride, TopologyReport, store_paths
from rekindle.protocol.store_paths import Place
from rekindle_zookeeper import (
    Conflict,
    Connection,
    Encryption,
    StoreUnreachable,
    connect,
    speaks_tls,
)

ATTEMPTS_MAX = 10
# Where ZooKeeper listens without a port, and how long to look for why nothing answers there.
ZOOKEEPER_PORT, ANSWER_SECONDS = 2181, 1.0
DURATION = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)([smhd])")
UNIT_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

Hosts = Annotated[
    str,
    typer.Option(
        "--zookeeper",
        envvar="REKINDLE_ZOOKEEPER",
        metavar="HOSTS",
        help="HOST:PORT of each server of the store, commas between.",
    ),
]
SecretFile = Annotated[
    Path | None,
    typer.Option(help="File with the store's secret.", show_default="none: the store is open"),
]
CaFile = Annotated[
    Path | None,
    typer.Option(
        envvar="REKINDLE_CA_FILE",
        help="File with the authorities of the servers' certificates, in PEM: speak TLS.",
        show_default="none: plain text",
    ),
]
Application = Annotated[str, typer.Argument(metavar="NAMESPACE/APP", help="The application.")]


@contextmanager
def opened(
    hosts: str,
    secret_file: Path | None,
    ca_file: Path | None = None,
    session_seconds: float = 10.0,
) -> Iterator[Connection]:
    """A connection that is closed in the end.

    Raises InputError where none of the servers has ever answered, as for a name that is wrong or a
    certificate that cannot be trusted.
    """
    _hush()
    encryption = Encryption.of(ca_file)
    connection = connect(
        hosts, secret_file=secret_file, encryption=encryption, session_seconds=session_seconds
    )
    try:
        yield connection
    except StoreUnreachable as error:
        if connection.session is not None:
            raise
        what, remedy = _why(hosts, encryption)
        raise InputError(
            where=f"ZooKeeper servers {hosts[:200]!r}", what=what, remedy=remedy
        ) from error
    finally:
        connection.close()


def _why(hosts: str, encryption: Encryption | None) -> tuple[str, str]:
    """What keeps the first of some servers from being reached, as far as the system knows, and what
    to do."""
    name_them = "name HOST:PORT of each server with --zookeeper, and see that they run"
    if encryption is not None and encryption.trouble is not None:
        return f"cannot be trusted: {encryption.trouble.what}", encryption.trouble.remedy
    host, _, port = hosts.partition(",")[0].rpartition(":")
    host, port = (host, port) if host else (port, str(ZOOKEEPER_PORT))
    address = (host.strip("[]"), int(port))
    try:
        socket.create_connection(address, ANSWER_SECONDS).close()
    except OSError as error:
        return (
            f"cannot be reached ({error.strerror or str(error) or type(error).__name__})",
            name_them,
        )
    if encryption is None and speaks_tls(address, ANSWER_SECONDS):
        return "speak TLS", "give the file with their authority by --ca-file"
    return (
        "cannot be reached (something answers there, and it does not speak as ZooKeeper does)",
        name_them,
    )


def _hush() -> None:
    """That a connection comes and goes is said by who notices; only a bug is worth a library's
    own words."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.ERROR)
    logger = logging.getLogger("rekindle_zookeeper")
    logger.addHandler(handler)
    logger.propagate = False


def applications(connection: Connection) -> list[Place]:
    """All that are in the store, by name."""
    return [
        Place(namespace, application)
        for namespace in connection.children(store_paths.APPLICATIONS)
        for application in connection.children(f"{store_paths.APPLICATIONS}/{namespace}")
    ]


def find(connection: Connection, name: str) -> Place:
    """The application of that name; InputError when it is not in the store."""
    place = store_paths.place(name)
    if connection.children(place.path()):
        return place
    known = [str(place) for place in applications(connection)]
    raise InputError(
        where=f"application {name!r:.60}",
        what="is not in the coordination store",
        remedy=f"name one of: {near(name, known)}" if known else "start its driver and sidecar",
    )


def find_query(connection: Connection, place: Place, query: str) -> None:
    """See that an application has a query; InputError when not."""
    path = place.path(store_paths.TOPOLOGY)
    found = connection.get(path)
    if found is None:
        raise InputError(
            where=f"application {place}",
            what="has not told its queries yet",
            remedy="wait until its driver has started",
        )
    report = protocol.decode(found[0], TopologyReport, path)
    known = [item.name for item in report.topology.queries]
    if query not in known:
        raise InputError(
            where=f"query {query!r:.60}",
            what=f"is no query of {place}",
            remedy=f"name one of: {near(query, known)}",
        )


def change_orders(
    connection: Connection, place: Place, change: Callable[[Orders], Orders], now: float
) -> Orders:
    """Change what people have said about an application, as one step; returns it as it was.

    Priorities whose time is over at `now` are left out on the way.
    """
    path = place.path(store_paths.ORDERS)
    for _ in range(ATTEMPTS_MAX):
        found = connection.get(path)
        before = Orders() if found is None else protocol.decode(found[0], Orders, path)
        priorities = {
            query: override
            for query, override in before.priorities.items()
            if override.until is None or now < override.until
        }
        changed = change(msgspec.structs.replace(before, priorities=priorities))
        try:
            version = None if found is None else found[1]
            connection.transact({path: version}, {path: protocol.encode(changed)})
        except Conflict:
            continue
        return before
    raise RunError(
        where=f"orders of {place}",
        what="are changed by somebody else all the time",
        remedy="see who else gives orders, and try again",
    )


def with_priority(orders: Orders, query: str, override: PriorityOverride | None) -> Orders:
    """The orders with another priority for a query, or with its own again."""
    kept = {name: held for name, held in orders.priorities.items() if name != query}
    if override is not None:
        kept[query] = override
    return msgspec.structs.replace(orders, priorities=kept)


def seconds(duration: str, where: str) -> float:
    """A duration, 90s, 30m, 2h or 1d, in seconds; InputError for anything else."""
    match = DURATION.fullmatch(duration)
    if match is None or not float(match[1]):
        raise InputError(
            where=where, what=f"is {duration!r:.60}", remedy="write it as 90s, 30m, 2h or 1d"
        )
    return float(match[1]) * UNIT_SECONDS[match[2]]
