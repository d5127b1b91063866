"""A real sidecar with the credential of its namespace: made late, wrong, and made anew."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from sidecar_fixtures import Start
from sidecar_process import PLACE, Driver, progress_in
from waiting import wait_until

import rekindle_zookeeper
from rekindle.protocol import store_paths
from rekindle_local.local_zookeeper import LocalZookeeper
from rekindle_zookeeper import Connection, Credential, Namespaces, derive, to_text

pytest_plugins = ("sidecar_fixtures",)

SECRET = "a secret that is long enough"
RECORDS = {store_paths.COORDINATION: b"{}", store_paths.ORDERS: b"{}"}


def credential(generation: int, namespace: str = PLACE.namespace) -> Credential:
    return derive(SECRET, namespace, f"uid of {namespace}", generation)


def namespaces_of(operator: Connection) -> Namespaces:
    assert operator.namespaces is not None
    return operator.namespaces


@pytest.fixture
def operator(store: Connection, zookeeper: LocalZookeeper) -> Iterator[Connection]:
    """An operator that has let nobody in yet: before and after it the store is empty and open.

    Ask for it before `start`: sidecars that still run would write what is being removed.
    """
    assert store.reachable
    remove_all(zookeeper)
    connection = rekindle_zookeeper.connect(zookeeper.connect_string, secret=SECRET, isolated=True)
    yield connection
    connection.close()
    remove_all(zookeeper)


def remove_all(zookeeper: LocalZookeeper) -> None:
    """Remove all records and their root, which other tests may have left."""
    client = KazooClient(zookeeper.connect_string, auth_data=[("digest", f"rekindle:{SECRET}")])
    client.start(timeout=60)
    if client.exists("/rekindle"):
        client.delete("/rekindle", recursive=True)
    client.stop()
    client.close()


def let_in(operator: Connection, generation: int) -> None:
    namespaces = namespaces_of(operator)
    namespaces.admit(PLACE.namespace, credential(generation), None)
    namespaces.secure(PLACE, RECORDS, "driver-1")


def test_a_sidecar_that_is_there_before_its_records_may_be_made_waits_for_the_operator(
    operator: Connection, start: Start, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_text(to_text(credential(1)))
    namespaces_of(operator).lock(root=False)
    sidecar = start("--secret-file", str(file), ready=False)
    driver = Driver(sidecar)
    driver.handshake()
    wait_until(lambda: bool(sidecar.events("store-fails")))
    let_in(operator, 1)
    wait_until(lambda: operator.get(PLACE.path(store_paths.HEARTBEAT)) is not None)
    assert credential(1).password not in sidecar.log.read_text()


def test_a_credential_that_is_made_anew_under_a_running_driver_is_taken_up(
    operator: Connection, start: Start, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_text(to_text(credential(1)))
    let_in(operator, 1)
    sidecar = start("--secret-file", str(file))
    driver = Driver(sidecar)
    driver.begin()
    with driver.in_contact():
        wait_until(lambda: progress_in(operator) is not None)
        wait_until(lambda: operator.get(PLACE.path(store_paths.HEARTBEAT)) is not None)
        heartbeat = operator.get(PLACE.path(store_paths.HEARTBEAT))

        let_in(operator, 2)
        driver.report(driver.progress())
        wait_until(lambda: bool(sidecar.events("store-fails")))
        wait_until(lambda: not driver.report(driver.progress())["store_reachable"])
        file.write_text(to_text(credential(2)))
        wait_until(lambda: driver.report(driver.progress())["store_reachable"])
        before = progress_in(operator)
        driver.report(driver.progress())
        wait_until(lambda: progress_in(operator) != before)
        # in the same session: the driver was there all along
        assert operator.get(PLACE.path(store_paths.HEARTBEAT)) == heartbeat


def test_the_credential_of_another_namespace_writes_nothing(
    operator: Connection, start: Start, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_text(to_text(credential(1, "another")))
    let_in(operator, 1)
    namespaces_of(operator).admit("another", credential(1, "another"), None)
    sidecar = start("--secret-file", str(file), ready=False)
    driver = Driver(sidecar)
    driver.handshake()
    wait_until(lambda: bool(sidecar.events("store-fails")))
    assert not driver.report(driver.topology())["store_reachable"]
    names = {
        store_paths.COORDINATION,
        store_paths.ORDERS,
        store_paths.DIRECTIVES,
        store_paths.ACKS,
        store_paths.PIECES,
    }
    assert set(operator.children(PLACE.path())) == names
    (said,) = {event["text"] for event in sidecar.events("store-fails")}
    assert "a namespace's credential opens the records of that namespace alone" in said
