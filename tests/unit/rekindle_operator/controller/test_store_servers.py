"""Which servers of the store count as serving, and who would take over."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from store_in_memory import SharedStore
from tls_servers import tls_files, tls_server

from rekindle_operator.controller.coordination_risks import (
    ServerFigures,
    ZookeeperProbe,
    figures_of,
    serves,
)
from rekindle_operator.controller.operator_metrics import OperatorMetrics
from rekindle_zookeeper import Encryption

WAIT_SECONDS_MAX = 30.0
ANSWERS = [
    (b"Zookeeper version: 3.9\nMode: follower\n", True),
    (b"srvr is not executed because it is not in the whitelist.\n", True),
    (b"This ZooKeeper instance is not currently serving requests\n", False),
]

DIRS = b"datadir_size: 67108880\nlogdir_size: 67108880\n"
MNTR = (
    b"zk_version\t3.9.5-abc, built on 2026-01-01\nzk_server_state\tleader\n"
    b"zk_outstanding_requests\t7\nzk_approximate_data_size\t4096\nzk_avg_latency\t0.25\n"
)
REFUSED = b"mntr is not executed because it is not in the whitelist.\n"


@contextmanager
def answering(*answers: bytes) -> Iterator[str]:
    """A server that says these to whoever asks, one after the other."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer_each() -> None:
            for answer in answers:
                asked, _ = server.accept()
                with asked:
                    asked.recv(100)
                    asked.sendall(answer)

        thread = threading.Thread(target=answer_each)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(("answer", "up"), ANSWERS)
def test_a_server_serves_unless_it_says_that_it_does_not(answer: bytes, up: bool) -> None:
    with answering(answer) as server:
        assert serves(server) is up


def test_a_server_is_asked_by_tls(tmp_path: Path) -> None:
    files = tls_files(tmp_path)

    def answer(client: socket.socket) -> None:
        client.recv(100)
        client.sendall(b"Mode: follower\n")

    with tls_server(files, answer) as (host, port):
        assert serves(f"{host}:{port}", Encryption.of(files.authority))
        assert not serves(f"{host}:{port}", Encryption.of(tls_files(tmp_path / "other").authority))
        figures = figures_of(f"{host}:{port}", Encryption.of(files.authority))
    certificate = x509.load_pem_x509_certificate(files.authority.read_bytes())
    assert figures.certificate_ends == certificate.not_valid_after_utc.timestamp()


def test_a_server_that_nobody_listens_for_does_not_serve() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert not serves(f"127.0.0.1:{port}")
    assert not serves(f"[::1]:{port}")


def test_operators_are_counted_by_their_records_in_the_store() -> None:
    shared = SharedStore()
    with answering(b"Mode: standalone\n", DIRS, MNTR) as server:
        first = ZookeeperProbe(shared.connect(), server, "operator-a")  # type: ignore[arg-type]
        first.sound()
    assert (first.coordination.servers_up, first.coordination.coordinators) == (1, 1)
    second = ZookeeperProbe(shared.connect(), server, "operator/b")  # type: ignore[arg-type]
    second.sound()
    assert (second.coordination.servers_up, second.coordination.coordinators) == (0, 2)


def test_it_goes_on_to_ask_after_a_round_that_has_failed() -> None:
    rounds, gone_on, told = [1, 2], threading.Event(), list[str]()

    def figures(_: object) -> None:
        if len(rounds) > 1:
            rounds.pop()
            raise ValueError("a figure that nobody has thought of")
        gone_on.set()

    with socket.create_server(("127.0.0.1", 0)) as free:
        server = f"127.0.0.1:{free.getsockname()[1]}"
    probe = ZookeeperProbe(
        SharedStore().connect(),  # type: ignore[arg-type]
        server,
        "operator-a",
        pause_seconds=0.01,
        figures=figures,
        report=told.append,
    )
    probe.start()
    assert gone_on.wait(WAIT_SECONDS_MAX)
    probe.stop()
    assert told == ["ValueError: a figure that nobody has thought of"]


@pytest.mark.parametrize(
    ("answers", "figures"),
    [
        ((DIRS, MNTR), ServerFigures(67_108_880, 4_096, 7)),
        ((b"datadir_size: 10\nlogdir_size: 3\n", REFUSED), ServerFigures(13, None, None)),
        ((REFUSED, REFUSED), ServerFigures(None, None, None)),
    ],
)
def test_a_server_says_what_lies_on_its_disk(
    answers: tuple[bytes, ...], figures: ServerFigures
) -> None:
    with answering(*answers) as server:
        assert figures_of(server) == figures


def test_figures_of_servers_are_metrics_as_long_as_they_serve() -> None:
    metrics = OperatorMetrics()
    name = "rekindle_operator_store_server_disk_bytes"
    metrics.sounded({"a:2181": ServerFigures(5, None, 0), "b:2181": ServerFigures(6, 7, 8)})
    assert metrics.registry.get_sample_value(name, {"server": "a:2181"}) == 5.0
    ends = "rekindle_operator_store_server_certificate_ends_timestamp_seconds"
    assert metrics.registry.get_sample_value(ends, {"server": "a:2181"}) is None
    metrics.sounded({"b:2181": ServerFigures(9, 7, 8, 1e9)})
    assert metrics.registry.get_sample_value(ends, {"server": "b:2181"}) == 1e9
    assert metrics.registry.get_sample_value(name, {"server": "a:2181"}) is None
    assert metrics.registry.get_sample_value(name, {"server": "b:2181"}) == 9.0
