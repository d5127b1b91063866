"""Fixtures of the coordinators' tests: a real ZooKeeper, coordinators and drivers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from coordinator_views import Coordinate, Drive
from store_driver import StoreDriver

from rekindle.protocol import store_paths
from rekindle.protocol.store_paths import Place
from rekindle_local.local_zookeeper import LocalZookeeper
from rekindle_testing.coordinator_process import CoordinatorProcess
from rekindle_zookeeper import Connection, connect

SESSION_SECONDS = 4.0


@pytest.fixture
def store_records(zookeeper: LocalZookeeper) -> Iterator[Connection]:
    """A connection; no application is left in the store by the test before."""
    zookeeper.proceed(1)
    if not zookeeper.processes(1):
        zookeeper.start_server(1)
    connection = connect(zookeeper.connect_string)
    clear(connection, store_paths.APPLICATIONS)
    yield connection
    connection.close()


@pytest.fixture
def coordinate(
    zookeeper: LocalZookeeper,
    store_records: Connection,  # noqa: ARG001
    tmp_path: Path,
) -> Iterator[Coordinate]:
    """Starts coordinators, and ends them."""
    started: list[CoordinatorProcess] = []

    def start(name: str = "a", **options: Any) -> CoordinatorProcess:
        hosts = options.pop("hosts", zookeeper.connect_string)
        process = CoordinatorProcess(
            tmp_path, name, hosts, session_seconds=SESSION_SECONDS, **options
        )
        started.append(process)
        process.start()
        return process

    yield start
    for process in started:
        process.proceed()
        process.end()


@pytest.fixture
def drive(
    zookeeper: LocalZookeeper,
    store_records: Connection,  # noqa: ARG001
) -> Iterator[Drive]:
    """Starts drivers; ends them, and raises what they found wrong."""
    drivers: list[StoreDriver] = []

    def start(name: str = "flights", **options: Any) -> StoreDriver:
        hosts = options.pop("hosts", zookeeper.connect_string)
        drivers.append(StoreDriver(hosts, Place("test", name), **options))
        return drivers[-1]

    yield start
    for driver in drivers:
        with driver:
            pass


def clear(connection: Connection, path: str) -> None:
    for name in connection.children(path):
        clear(connection, f"{path}/{name}")
        connection.remove(f"{path}/{name}")
