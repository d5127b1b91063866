"""Namespaces kept apart on a real ZooKeeper: what each may do, and what it may not."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError, NotEmptyError
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Permissions
from store_attempts import attempts_on, is_refused
from waiting import wait_until
from zookeeper_fixtures import Connect

from rekindle.model.errors import RunError
from rekindle.protocol import store_paths
from rekindle.protocol.store_paths import NAME_LENGTH_MAX, Place
from rekindle_local.local_zookeeper import LocalZookeeper
from rekindle_zookeeper import (
    Conflict,
    Connection,
    Credential,
    NamespaceQuota,
    Namespaces,
    derive,
    to_text,
)
from rekindle_zookeeper.application_removal import (
    AT_ONCE_MAX,
    look_at_application,
    remove_application,
    store_time,
)

pytest_plugins = ("zookeeper_fixtures",)

# its digest is that of the client which empties the tree; see the fixture
SECRET = "a secret that is long enough"
A, B = Place("team-a", "flights"), Place("team-b", "weather")
RECORDS = {store_paths.COORDINATION: b"{}", store_paths.ORDERS: b"{}"}
LARGE = 3 * store_paths.PIECE_BYTES // 2


def credential(place: Place, generation: int = 1) -> Credential:
    return derive(SECRET, place.namespace, f"uid of {place.namespace}", generation)


def namespaces_of(connection: Connection) -> Namespaces:
    assert connection.namespaces is not None
    return connection.namespaces


@pytest.fixture
def operator(connect: Connect, zookeeper: LocalZookeeper) -> Iterator[Connection]:
    """An operator that has let in both namespaces; afterwards everything is open again."""
    connection = connect(secret=SECRET, isolated=True)
    namespaces = namespaces_of(connection)
    namespaces.lock(root=True)
    for place in (A, B):
        namespaces.admit(place.namespace, credential(place), NamespaceQuota(1_000, 50_000_000))
        namespaces.secure(place, RECORDS, "driver-1")
    yield connection
    with raw(zookeeper, ("digest", f"rekindle:{SECRET}")) as client:
        client.delete("/rekindle", recursive=True)
        client.delete("/zookeeper/quota/rekindle", recursive=True)
        for path in ("/zookeeper/quota", "/zookeeper", "/"):
            client.set_acls(path, OPEN_ACL_UNSAFE)


@contextmanager
def raw(zookeeper: LocalZookeeper, *shown: tuple[str, str]) -> Iterator[KazooClient]:
    """A client of kazoo, with these credentials."""
    client = KazooClient(zookeeper.connect_string, auth_data=list(shown))
    client.start(timeout=60)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def test_a_namespace_reports_and_reads_its_directives(
    operator: Connection, connect: Connect
) -> None:
    sidecar = connect(secret=to_text(credential(A)))
    sidecar.put(A.path(store_paths.TOPOLOGY), b"t" * LARGE)
    sidecar.transact({A.path(store_paths.TOPOLOGY): 0}, {A.path(store_paths.PROGRESS): b"p"})
    sidecar.put(A.path(store_paths.HEARTBEAT), b"h", ephemeral=True)
    sidecar.put(A.path(store_paths.ACKS, store_paths.numbered(1)), b"ack")
    again = connect(secret=to_text(credential(A)))
    again.put(A.path(store_paths.HEARTBEAT), b"another's", ephemeral=True)
    again.remove(A.path(store_paths.ACKS, store_paths.numbered(1)))
    assert operator.get(A.path(store_paths.TOPOLOGY)) == (b"t" * LARGE, 0)
    directive = A.path(store_paths.DIRECTIVES, store_paths.numbered(1))
    operator.transact(
        {A.path(store_paths.COORDINATION): 0},
        {A.path(store_paths.COORDINATION): b"c" * LARGE, directive: b"d"},
    )
    assert sidecar.get(directive) == (b"d", 0)
    assert sidecar.get(A.path(store_paths.COORDINATION)) == (b"c" * LARGE, 1)
    operator.put(A.path(store_paths.PROGRESS), b"by the operator")
    sidecar.remove(directive)
    assert sidecar.sweep(A.path(), {}) == {}


def test_an_application_and_a_namespace_that_are_gone_leave_nothing_behind(
    operator: Connection, connect: Connect, zookeeper: LocalZookeeper
) -> None:
    sidecar = connect(secret=to_text(credential(A)))
    before = time.time()
    sidecar.put(A.path(store_paths.TOPOLOGY), b"t" * LARGE)
    written_at = look_at_application(operator, A).written_at
    assert before - 1 <= written_at <= store_time(operator) <= time.time() + 1
    assert operator.stats(["/rekindle/clock", "/rekindle/none"]).keys() == {"/rekindle/clock"}
    directive = A.path(store_paths.DIRECTIVES, store_paths.numbered(1))
    operator.transact(
        {A.path(store_paths.COORDINATION): 0},
        {A.path(store_paths.COORDINATION): b"c" * LARGE, directive: b"d"},
    )
    sidecar.put(A.path(store_paths.HEARTBEAT), b"h", ephemeral=True)
    with pytest.raises(Conflict):
        remove_application(operator, look_at_application(operator, A))
    assert operator.get(A.path(store_paths.COORDINATION)) == (b"c" * LARGE, 1)
    assert operator.get(directive) == (b"d", 0)
    assert operator.children(A.path(store_paths.COORDINATION)) == [store_paths.GUARD]
    sidecar.remove(A.path(store_paths.HEARTBEAT))
    namespaces_of(operator).remove_namespace(A.namespace)
    assert operator.children(store_paths.APPLICATIONS) == [A.namespace, B.namespace]
    remove_application(operator, look_at_application(operator, A))
    assert operator.children(f"{store_paths.APPLICATIONS}/{A.namespace}") == []
    assert not namespaces_of(operator).secure(A, RECORDS, "", make=False)
    namespaces_of(operator).remove_namespace(A.namespace)
    assert operator.children(store_paths.APPLICATIONS) == [B.namespace]
    with raw(zookeeper, ("digest", f"rekindle:{SECRET}")) as client:
        quotas = client.get_children(f"/zookeeper/quota{store_paths.APPLICATIONS}")
    assert quotas == [B.namespace]
    # one that comes again has a place like any other
    namespaces_of(operator).admit(A.namespace, credential(A), NamespaceQuota(1_000, 50_000_000))
    assert namespaces_of(operator).secure(A, RECORDS, "driver-2")
    sidecar.put(A.path(store_paths.TOPOLOGY), b"again")


def test_more_directives_and_acknowledgements_than_fit_into_one_message_go_as_well(
    operator: Connection, zookeeper: LocalZookeeper
) -> None:
    """A server takes messages of 1 MiB, and closes the connection for a larger one."""
    place = Place("team-a", "f" * NAME_LENGTH_MAX)
    quota = NamespaceQuota(10_000, 50_000_000)
    namespaces_of(operator).admit(place.namespace, credential(place), quota)
    assert namespaces_of(operator).secure(place, RECORDS, "driver-1")
    operator.put(place.path(store_paths.TOPOLOGY), b"t" * LARGE)
    folders = (store_paths.DIRECTIVES, store_paths.ACKS)
    paths = [place.path(name, store_paths.numbered(n)) for name in folders for n in range(2_500)]
    assert sum(map(len, paths)) > 1 << 20
    with raw(zookeeper, ("digest", f"rekindle:{SECRET}")) as client:
        for start in range(0, len(paths), AT_ONCE_MAX):
            transaction = client.transaction()
            for path in paths[start : start + AT_ONCE_MAX]:
                transaction.create(path, b"{}")
            transaction.commit()
    found = look_at_application(operator, place)
    assert found.versions.keys() > set(paths)
    session = operator.session
    operator.put(place.path(store_paths.ORDERS), b'{"paused":true}')
    with pytest.raises(Conflict):
        remove_application(operator, found)
    assert look_at_application(operator, place).versions.keys() == found.versions.keys()
    remove_application(operator, look_at_application(operator, place))
    assert operator.children(f"{store_paths.APPLICATIONS}/{place.namespace}") == [A.application]
    with raw(zookeeper, ("digest", f"rekindle:{SECRET}")) as client:
        assert client.exists(place.path()) is None
    assert operator.session == session


def test_what_happens_between_a_look_and_the_removal_keeps_all_of_the_place(
    operator: Connection, connect: Connect
) -> None:
    """A new driver's rights, orders, records that nobody has seen, and a heartbeat."""
    sidecar = connect(secret=to_text(credential(A)))
    sidecar.put(A.path(store_paths.TOPOLOGY), b"t" * LARGE)
    changes: list[Callable[[], object]] = [
        lambda: namespaces_of(operator).secure(A, RECORDS, "driver-2"),
        lambda: operator.put(A.path(store_paths.ORDERS), b'{"paused":true}'),
        lambda: sidecar.put(A.path(store_paths.ACKS, store_paths.numbered(1)), b"ack"),
        lambda: sidecar.put(A.path(store_paths.PROGRESS), b"p"),
        lambda: sidecar.put(A.path(store_paths.HEARTBEAT), b"h", ephemeral=True),
    ]
    for change in changes:
        found = look_at_application(operator, A)
        change()
        before = look_at_application(operator, A)
        with pytest.raises(Conflict):
            remove_application(operator, found)
        assert look_at_application(operator, A) == before


def test_a_place_that_is_removed_while_it_gets_its_rights_is_not_left_in_halves(
    operator: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespaces = namespaces_of(operator)
    below = Namespaces._below

    def slow(self: Namespaces, place: Place) -> list[str]:
        found = below(self, place)
        remove_application(operator, look_at_application(operator, place))
        return found

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Namespaces, "_below", slow)
        with pytest.raises(Conflict):
            namespaces.secure(A, RECORDS, "driver-2")
    assert operator.children(f"{store_paths.APPLICATIONS}/{A.namespace}") == []
    assert namespaces.secure(A, RECORDS, "driver-2")
    names = [*RECORDS, *store_paths.FOLDERS]
    assert operator.children(A.path()) == sorted(names)


@pytest.mark.parametrize("who", ["another namespace", "nobody", "a wrong secret", "an old one"])
@pytest.mark.usefixtures("operator")
def test_others_are_refused_everything(
    who: str, connect: Connect, zookeeper: LocalZookeeper
) -> None:
    sidecar = connect(secret=to_text(credential(B)))
    for name in (store_paths.TOPOLOGY, store_paths.PROGRESS):
        sidecar.put(B.path(name), b"B's")
    shown = {
        "another namespace": [credential(A).shown],
        "nobody": [],
        "a wrong secret": [("digest", "rekindle:wrong"), ("digest", "namespace/team-b:wrong")],
        "an old one": [credential(B, generation=2).shown],
    }[who]
    with raw(zookeeper, *shown) as client:
        attempts = attempts_on(client, B)
        assert len(attempts) >= 30
        done = [what for what, attempt in attempts.items() if not is_refused(attempt)]
    assert done == []
    assert sidecar.get(B.path(store_paths.PROGRESS)) == (b"B's", 0)


def test_a_namespace_writes_nothing_that_is_the_operators(
    operator: Connection, zookeeper: LocalZookeeper
) -> None:
    operator.put(A.path(store_paths.DIRECTIVES, store_paths.numbered(1)), b"d")
    guards = (
        A.path(name, store_paths.GUARD) for name in (store_paths.COORDINATION, store_paths.ORDERS)
    )
    with raw(zookeeper, credential(A).shown) as client:
        for path in (
            A.path(store_paths.COORDINATION),
            A.path(store_paths.ORDERS),
            A.path(store_paths.DIRECTIVES),
            A.path(store_paths.DIRECTIVES, store_paths.GUARD),
            A.path(store_paths.DIRECTIVES, store_paths.numbered(1)),
        ):
            with pytest.raises(NoAuthError):
                client.set(path, b"forged")
            with pytest.raises(NoAuthError):
                client.create(f"{path}/below", b"")
            with pytest.raises(NoAuthError):
                client.set_acls(path, OPEN_ACL_UNSAFE)
        for path in (
            A.path(store_paths.COORDINATION),
            A.path(store_paths.ORDERS),
            A.path(store_paths.DIRECTIVES),
        ):
            with pytest.raises(NotEmptyError):
                client.delete(path)
        for path in (*guards, A.path(store_paths.DIRECTIVES, store_paths.GUARD, store_paths.GUARD)):
            with pytest.raises(NoAuthError):
                client.delete(path)
        with pytest.raises(NotEmptyError):
            client.delete(A.path(store_paths.DIRECTIVES, store_paths.GUARD))
        with pytest.raises(NoAuthError):
            client.delete(A.path())
        with pytest.raises(NoAuthError):
            client.create(f"{store_paths.APPLICATIONS}/{A.namespace}/another", b"")


def test_records_of_an_open_store_and_of_an_earlier_release_become_their_namespaces(
    connect: Connect, operator: Connection, zookeeper: LocalZookeeper
) -> None:
    place = Place("team-a", "old")
    shared = [ACL(Permissions.ALL, entry.id) for entry in credential(A).acl[:1]]
    records = (store_paths.TOPOLOGY, store_paths.COORDINATION, f"{store_paths.ACKS}/0000000001")
    with raw(zookeeper, ("digest", f"rekindle:{SECRET}")) as client:
        for number, name in enumerate(records):
            acl = OPEN_ACL_UNSAFE if number % 2 else shared
            client.create(place.path(*name.split("/")), name.encode(), makepath=True, acl=acl)
        client.set_acls(place.path(), OPEN_ACL_UNSAFE)
    namespaces = namespaces_of(operator)
    assert namespaces.secure(place, RECORDS, "driver-1")
    assert not namespaces.secure(place, RECORDS, "driver-1")
    sidecar = connect(secret=to_text(credential(A)))
    for name in records:
        assert sidecar.get(place.path(*name.split("/"))) == (name.encode(), 0)
    assert sidecar.get(place.path(store_paths.ORDERS)) == (b"{}", 0)
    sidecar.put(place.path(store_paths.TOPOLOGY), b"new")
    with raw(zookeeper) as client, pytest.raises(NoAuthError):
        client.get(place.path(store_paths.COORDINATION))
    with pytest.raises(RunError, match="may not be read or written"):
        sidecar.put(place.path(store_paths.COORDINATION), b"forged")
    # what a sidecar of the earlier release makes is its namespace's once the next driver has come
    with raw(zookeeper, ("digest", f"rekindle:{SECRET}")) as client:
        client.create(place.path(store_paths.STATISTICS), b"late", acl=shared)
    assert namespaces.secure(place, RECORDS, "driver-2")
    assert sidecar.get(place.path(store_paths.STATISTICS)) == (b"late", 0)


def test_a_rotated_credential_is_taken_from_its_file_in_the_same_session(
    connect: Connect, operator: Connection, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_text(to_text(credential(A)))
    sidecar = connect(secret_file=file)
    sidecar.put(A.path(store_paths.HEARTBEAT), b"h", ephemeral=True)
    session = sidecar.session
    namespaces = namespaces_of(operator)
    namespaces.admit(A.namespace, credential(A, 2), None)
    assert namespaces.secure(A, RECORDS, "driver-1")
    for _ in range(2):
        with pytest.raises(RunError, match="with this secret; give all parts"):
            sidecar.put(A.path(store_paths.HEARTBEAT), b"refused", ephemeral=True)
    file.write_text(to_text(credential(A, 2)))
    with pytest.raises(RunError, match="its file has another one by now; try it again"):
        sidecar.put(A.path(store_paths.HEARTBEAT), b"refused", ephemeral=True)
    sidecar.put(A.path(store_paths.HEARTBEAT), b"new", ephemeral=True)
    sidecar.put(A.path(store_paths.PROGRESS), b"new")
    assert sidecar.session == session
    assert operator.get(A.path(store_paths.HEARTBEAT)) == (b"new", 1)
    file.write_text(to_text(credential(A)))
    old = connect(secret_file=file)
    with pytest.raises(RunError, match="may not be read or written"):
        old.get(A.path(store_paths.PROGRESS))


def test_a_namespace_that_is_gone_has_no_rights_any_more(
    connect: Connect, operator: Connection
) -> None:
    sidecar = connect(secret=to_text(credential(A)))
    sidecar.put(A.path(store_paths.PROGRESS), b"p")
    namespaces = namespaces_of(operator)
    namespaces.dismiss(A.namespace)
    assert namespaces.secure(A, RECORDS, "driver-1")
    for call in (sidecar.get, sidecar.children, partial(sidecar.put, data=b"")):
        with pytest.raises(RunError, match="may not be read or written"):
            call(A.path(store_paths.PROGRESS))
    assert operator.get(A.path(store_paths.PROGRESS)) == (b"p", 0)


@pytest.mark.parametrize("what", ["records", "bytes"])
def test_a_namespace_that_fills_its_quota_hurts_nobody_else(
    what: str, connect: Connect, operator: Connection
) -> None:
    quota = (
        NamespaceQuota(60, 50_000_000) if what == "records" else NamespaceQuota(1_000, 1_000_000)
    )
    namespaces_of(operator).admit(A.namespace, credential(A), quota)
    sidecar, other = (connect(secret=to_text(credential(place))) for place in (A, B))
    session = operator.session
    data = b"" if what == "records" else b"x" * 100_000
    numbers = iter(range(100))
    with pytest.raises(RunError, match="as its quota allows"):
        fill(sidecar, numbers, data)
    with pytest.raises(RunError, match="as its quota allows"):
        operator.put(A.path(store_paths.DIRECTIVES, store_paths.numbered(1)), b"d" * 1_000_000)
    other.put(B.path(store_paths.PROGRESS), b"p")
    operator.put(B.path(store_paths.DIRECTIVES, store_paths.numbered(1)), b"d")
    assert operator.session == session
    assert operator.reachable
    for number in range(100):
        sidecar.remove(A.path(store_paths.ACKS, store_paths.numbered(number)))
    wait_until(lambda: is_written(sidecar, A.path(store_paths.PROGRESS)))


def fill(sidecar: Connection, numbers: Iterator[int], data: bytes) -> None:
    for number in numbers:
        sidecar.put(A.path(store_paths.ACKS, store_paths.numbered(number)), data)


def is_written(connection: Connection, path: str) -> bool:
    try:
        connection.put(path, b"p")
    except (RunError, KazooException):
        return False
    return True
