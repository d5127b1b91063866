"""Fixtures of the sidecar's tests: a real ZooKeeper, a coordinator's view of it, and sidecars."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sidecar_process import PLACE, Sidecar, empty
from waiting import wait_until

import rekindle_zookeeper
from rekindle_local.local_zookeeper import LocalZookeeper
from rekindle_zookeeper import Connection

Start = Callable[..., Sidecar]


@pytest.fixture
def store(zookeeper: LocalZookeeper) -> Iterator[Connection]:
    """The store as a coordinator sees it, empty; the server serves, whatever a test did to it."""
    zookeeper.proceed(1)
    if not zookeeper.processes(1):
        zookeeper.start_server(1)
    connection = rekindle_zookeeper.connect(zookeeper.connect_string)
    wait_until(lambda: connection.reachable)
    empty(connection, PLACE.path())
    yield connection
    connection.close()


@pytest.fixture
def start(store: Connection, zookeeper: LocalZookeeper, tmp_path: Path) -> Iterator[Start]:  # noqa: ARG001
    """Starts sidecars; ends them."""
    made: list[Sidecar] = []

    def make(*options: str, ready: bool = True) -> Sidecar:
        sidecar = Sidecar(tmp_path / str(len(made)), zookeeper.connect_string, *options)
        made.append(sidecar)
        sidecar.start()
        if ready:
            wait_until(lambda: bool(sidecar.events("store-reachable")))
        return sidecar

    yield make
    for sidecar in made:
        sidecar.end(signal.SIGKILL)


@pytest.fixture(scope="module")
def shared(
    zookeeper: LocalZookeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sidecar]:
    """The sidecar of another application, for requests that change nothing."""
    directory = tmp_path_factory.mktemp("shared")
    place = PLACE._replace(application="shared")
    sidecar = Sidecar(directory, zookeeper.connect_string, place=place)
    sidecar.start()
    yield sidecar
    sidecar.end(signal.SIGKILL)
