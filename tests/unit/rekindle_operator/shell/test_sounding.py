"""Which servers of the store count as serving, and who would take over."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from store_in_memory import SharedStore

from rekindle_operator.shell.sounding import Soundings, serves

ANSWERS = [
    (b"Zookeeper version: 3.9\nMode: follower\n", True),
    (b"srvr is not executed because it is not in the whitelist.\n", True),
    (b"This ZooKeeper instance is not currently serving requests\n", False),
]


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """A server that says this to whoever asks, once."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer_once() -> None:
            asked, _ = server.accept()
            with asked:
                asked.recv(100)
                asked.sendall(answer)

        thread = threading.Thread(target=answer_once)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(("answer", "up"), ANSWERS)
def test_a_server_serves_unless_it_says_that_it_does_not(answer: bytes, up: bool) -> None:
    with answering(answer) as server:
        assert serves(server) is up


def test_a_server_that_nobody_listens_for_does_not_serve() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert not serves(f"127.0.0.1:{port}")
    assert not serves(f"[::1]:{port}")


def test_operators_are_counted_by_their_records_in_the_store() -> None:
    shared = SharedStore()
    with answering(b"Mode: standalone\n") as server:
        first = Soundings(shared.connect(), server, "operator-a")  # type: ignore[arg-type]
        first.sound()
    assert (first.coordination.servers_up, first.coordination.coordinators) == (1, 1)
    second = Soundings(shared.connect(), server, "operator/b")  # type: ignore[arg-type]
    second.sound()
    assert (second.coordination.servers_up, second.coordination.coordinators) == (0, 2)
