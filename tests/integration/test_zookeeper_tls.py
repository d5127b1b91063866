"""TLS to a real ZooKeeper: whom it keeps out, what is said then, and certificates that change."""

import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sidecar_process import PLACE, Driver, Sidecar, progress_in
from tls_servers import TlsFiles, make_certificate, tls_files
from waiting import wait_until

import rekindle_zookeeper
from rekindle.model.errors import InputError
from rekindle.protocol import store_paths
from rekindle_local.local_zookeeper import LocalZookeeper
from rekindle_operator.controller.coordination_risks import figures_of, serves
from rekindle_zookeeper import Connection, Encryption, StoreUnreachable

HOST = "127.0.1.1"
# Each server ends a session of the least length after so long.
SESSION_SECONDS = 4.0

Connect = Callable[..., Connection]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return tls_files(tmp_path_factory.mktemp("tls"), make_certificate(HOST))


@pytest.fixture(scope="module")
def zookeeper(
    files: TlsFiles, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalZookeeper]:
    folder = tmp_path_factory.mktemp("zookeeper")
    with LocalZookeeper(directory=folder, certificate=files.server) as started:
        yield started


@pytest.fixture
def connect(zookeeper: LocalZookeeper, files: TlsFiles) -> Iterator[Connect]:
    """Makes connections, by default with the right authority; closes them."""
    made: list[Connection] = []

    def make(authority: Path | None = files.authority, **options: object) -> Connection:
        made.append(
            rekindle_zookeeper.connect(
                zookeeper.connect_string,
                encryption=Encryption.of(authority),
                session_seconds=SESSION_SECONDS,
                **options,
            )
        )
        return made[-1]

    yield make
    for connection in made:
        connection.close()


def plain_port(zookeeper: LocalZookeeper) -> str:
    """The port that the server keeps for questions from its own machine."""
    return f"{HOST}:{zookeeper._members[1].client_port}"


def test_records_large_and_many_are_written_and_read(connect: Connect) -> None:
    connection = connect()
    large = bytes(range(256)) * 3_000
    path = PLACE.path(store_paths.STATISTICS)
    connection.put(path, large)
    assert connection.get(path) == (large, 0)
    for number in range(200):
        connection.put(f"/tls/many/{number}", b"x" * number)
    asks = [
        (lambda client, number=number: client.get_async(f"/tls/many/{number}"))
        for number in range(200)
    ]
    # answers that come together are all taken at once: with one at each ping it would be too late
    answers = connection._sessions.run_all(asks, "/tls/many")
    assert [len(data) for data, _ in answers] == list(range(200))
    seen: list[str] = []
    connection.watch("/tls/many", lambda: seen.append("changed"))
    assert len(connection.children("/tls/many")) == 200  # which arms the watch
    connection.put("/tls/many/another", b"")
    wait_until(lambda: bool(seen))


def test_servers_answer_the_operators_questions(zookeeper: LocalZookeeper, files: TlsFiles) -> None:
    encryption = Encryption.of(files.authority)
    assert serves(zookeeper.connect_string, encryption)
    figures = figures_of(zookeeper.connect_string, encryption)
    assert figures.disk_bytes is not None
    assert figures.disk_bytes > 0
    assert figures.data_bytes is not None
    assert not serves(zookeeper.connect_string)


@pytest.mark.parametrize(
    ("hosts", "starts_in", "what"),
    [
        ((HOST,), timedelta(0), "is of no authority in CA file"),
        ((HOST,), timedelta(days=-100), "holds only certificates that have expired"),
    ],
)
def test_another_authority_connects_nobody(
    connect: Connect, tmp_path: Path, hosts: tuple[str, ...], starts_in: timedelta, what: str
) -> None:
    other = tls_files(tmp_path, make_certificate(*hosts, starts_in=starts_in))
    with pytest.raises((InputError, StoreUnreachable), match=what):
        connect(other.authority, deadline_seconds=1.0).get("/tls")


def test_commands_say_what_is_wrong_and_what_to_do(
    zookeeper: LocalZookeeper, files: TlsFiles, tmp_path: Path
) -> None:
    secure, plain = zookeeper.connect_string, plain_port(zookeeper)
    other = tls_files(tmp_path, make_certificate(HOST))
    for server, file, code, said in (
        (secure, files.authority, 0, ""),
        (plain, None, 0, ""),
        (secure, None, 2, "speak TLS; give the file with their authority by --ca-file"),
        (secure, other.authority, 2, "give the authority that has signed the servers' cert"),
        (secure, tmp_path / "none", 2, "cannot be read (No such file or directory); give a file"),
        (secure, other.server.with_name("key"), 2, "holds no certificate that can be read; give"),
        (plain, files.authority, 2, "ends the TLS handshake; name the port on which the serv"),
    ):
        if file is not None and file.name == "key":
            file.write_text("no PEM")
        option = () if file is None else ("--ca-file", str(file))
        command = [sys.executable, "-m", "rekindle_cli", "status", "--zookeeper", server, *option]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert (ended.returncode, said in ended.stderr) == (code, True), ended.stderr
        assert "Traceback" not in ended.stderr


def test_a_certificate_that_is_renewed_under_a_running_sidecar_is_taken_up(
    connect: Connect, zookeeper: LocalZookeeper, files: TlsFiles, tmp_path: Path
) -> None:
    """With another authority, of which the sidecar learns late: it says so, and then is back."""
    ours = tmp_path / "ca.crt"
    ours.write_bytes(files.authority.read_bytes())
    store = connect()
    sidecar = Sidecar(tmp_path / "sidecar", zookeeper.connect_string, "--ca-file", str(ours))
    sidecar.start()
    try:
        driver = Driver(sidecar)
        driver.begin()
        wait_until(lambda: progress_in(store) is not None)
        old = presented(zookeeper)
        files.write(make_certificate(HOST))
        wait_until(lambda: presented(zookeeper) != old)
        # clients that are connected stay so
        assert driver.report(driver.progress())["store_reachable"]

        zookeeper.kill(1)
        zookeeper.start_server(1)
        wait_until(lambda: not driver.report(driver.progress())["store_reachable"])
        wait_until(lambda: "is of no authority in CA file" in sidecar.log.read_text())
        ours.write_bytes(files.authority.read_bytes())
        wait_until(lambda: driver.report(driver.progress())["store_reachable"])
        wait_until(lambda: store.reachable)
        before = progress_in(store)
        driver.report(driver.progress())
        wait_until(lambda: progress_in(store) != before)
    finally:
        sidecar.end()


def test_a_sidecar_with_authorities_that_cannot_be_used_does_not_start(
    zookeeper: LocalZookeeper, tmp_path: Path
) -> None:
    command = [
        *(sys.executable, "-m", "rekindle_cli", "sidecar", "--ca-file", str(tmp_path / "none")),
        *("--zookeeper", zookeeper.connect_string, "--socket", str(tmp_path / "socket")),
        *("--namespace", PLACE.namespace, "--application", PLACE.application),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"CA file {tmp_path / 'none'}: cannot be read" in ended.stderr
    assert not (tmp_path / "socket").exists()


def presented(zookeeper: LocalZookeeper) -> str:
    """The certificate that the server presents now, of any authority."""
    host, _, port = zookeeper.connect_string.rpartition(":")
    return ssl.get_server_certificate((host, int(port)), timeout=30)
