"""How the ZooKeeper client waits for its sockets."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tls_servers import tls_files, tls_server

from rekindle_zookeeper import Encryption
from rekindle_zookeeper.sessions import PollingHandler

Pair = tuple[socket.socket, socket.socket]
WAIT_SECONDS_MAX = 30.0


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_a_socket_is_ready_once_there_is_something_to_read(pair: Pair) -> None:
    ours, theirs = pair
    handler = PollingHandler()
    assert handler.select([ours], [], [], 0.01) == ([], [], [])
    theirs.send(b"x")
    assert handler.select([ours, theirs], [], [], 0.01) == ([ours], [], [])
    assert handler.select([], [ours], [], 0.01) == ([], [ours], [])
    assert handler.select([ours], [ours], [], 0.01) == ([ours], [ours], [])


def test_waiting_ends_in_time(pair: Pair) -> None:
    began = time.monotonic()
    assert PollingHandler().select(list(pair), [], [], 0.05) == ([], [], [])
    assert 0.04 <= time.monotonic() - began < WAIT_SECONDS_MAX


def test_a_socket_whose_other_side_has_gone_is_ready_so_that_reading_it_tells(pair: Pair) -> None:
    ours, theirs = pair
    theirs.close()
    assert PollingHandler().select([ours], [], [], 1.0) == ([ours], [], [])
    assert ours.recv(1) == b""


def test_what_tls_has_read_already_is_ready_though_nothing_comes(tmp_path: Path) -> None:
    files, over = tls_files(tmp_path), threading.Event()

    def say_two_in_one(client: socket.socket) -> None:
        client.sendall(b"onetwo")
        over.wait(WAIT_SECONDS_MAX)

    with tls_server(files, say_two_in_one) as address:
        encryption = Encryption.of(files.authority)
        handler = PollingHandler(encryption)
        with handler.create_connection(
            address=address, hostname=address[0], timeout=WAIT_SECONDS_MAX
        ) as ours:
            assert ours.recv(3) == b"one"
            assert handler.select([ours], [], [], 1.0) == ([ours], [], [])
            assert ours.recv(3) == b"two"
            assert handler.select([ours], [], [], 0.01) == ([], [], [])
        over.set()
