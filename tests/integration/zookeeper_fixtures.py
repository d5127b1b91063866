"""A real ZooKeeper server for the tests of connections to it, and what several of them need."""

from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient

import rekindle_zookeeper
from rekindle.protocol import store_paths
from rekindle_local.local_zookeeper import LocalZookeeper
from rekindle_zookeeper import Connection

WAIT_SECONDS_MAX = 120
PLACE = store_paths.Place("default", "application")

Connect = Callable[..., Connection]


@pytest.fixture
def connect(zookeeper: LocalZookeeper) -> Iterator[Connect]:
    """Makes connections, on an empty tree; closes them and empties it at the end."""
    empty(zookeeper)
    made: list[Connection] = []

    def make(**options: object) -> Connection:
        made.append(rekindle_zookeeper.connect(zookeeper.connect_string, **options))
        return made[-1]

    yield make
    for connection in made:
        connection.close()
    empty(zookeeper)


def empty(zookeeper: LocalZookeeper) -> None:
    """Remove all records, whatever was done to the server, which serves afterwards."""
    zookeeper.proceed(1)
    if not zookeeper.processes(1):
        zookeeper.start_server(1)
    with_every_right = KazooClient(
        zookeeper.connect_string, auth_data=[("digest", "rekindle:open")]
    )
    with_every_right.start(timeout=WAIT_SECONDS_MAX)
    with_every_right.delete("/rekindle", recursive=True)
    with_every_right.stop()
    with_every_right.close()


def directive(number: int) -> str:
    return PLACE.path(store_paths.DIRECTIVES, store_paths.numbered(number))


def expire(connection: Connection, zookeeper: LocalZookeeper) -> None:
    """End a connection's session: another client takes it over and closes it."""
    other = KazooClient(zookeeper.connect_string, client_id=connection._sessions.client.client_id)
    other.start(timeout=WAIT_SECONDS_MAX)
    other.stop()
    other.close()
