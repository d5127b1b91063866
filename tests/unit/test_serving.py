"""Threads of a host that serve requests: one for each at a time, kept for the next."""

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rekindle_spark.serving import Threads

SECONDS_MAX = 60.0


# Their threads wait on them until the process ends, as in a host.
_listeners: list[socket.socket] = []


@pytest.fixture
def listener(tmp_path: Path) -> socket.socket:
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    opened.bind(str(tmp_path / "s"))
    opened.listen(64)
    _listeners.append(opened)
    return opened


def told(serve: Callable[[bytes], bool]) -> Callable[[socket.socket], bool]:
    """A server that answers a word with its thread's number, and does with the word what `serve`
    does before it answers."""

    def answer(connection: socket.socket) -> bool:
        with connection:
            goes_on = serve(connection.recv(8))
            connection.sendall(str(threading.get_native_id()).encode())
        return goes_on

    return answer


def ask(listener: socket.socket, word: bytes) -> socket.socket:
    caller = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    caller.settimeout(SECONDS_MAX)
    caller.connect(listener.getsockname())
    caller.sendall(word)
    return caller


def answer_of(caller: socket.socket) -> bytes:
    with caller:
        return caller.recv(32)


def settled(threads: Threads, waiting: int) -> None:
    """Wait until so many threads wait for a connection."""
    end = time.monotonic() + SECONDS_MAX
    while threads.waiting != waiting:
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_thread_serves_one_connection_after_the_other(listener: socket.socket) -> None:
    threads = Threads(listener, told(lambda _: True))
    threads.start()
    answers = set()
    for _ in range(20):
        answers.add(answer_of(ask(listener, b"go")))
        settled(threads, 2)
    assert len(answers) <= 2


def test_who_waits_for_another_connection_is_not_in_its_way(listener: socket.socket) -> None:
    last = threading.Event()

    def serve(word: bytes) -> bool:
        if word == b"last":
            last.set()
        return last.wait(SECONDS_MAX)

    threads = Threads(listener, told(serve))
    threads.start()
    callers = [ask(listener, b"wait") for _ in range(10)]
    callers.append(ask(listener, b"last"))
    assert len({answer_of(caller) for caller in callers}) == 11
    settled(threads, 12)


def test_a_thread_that_is_worn_out_serves_no_other_connection(listener: socket.socket) -> None:
    threads = Threads(listener, told(lambda _: False))
    threads.start()
    before = b""
    for _ in range(5):
        answer = answer_of(ask(listener, b"go"))
        assert answer
        assert answer != before
        before = answer
    settled(threads, 1)


def test_what_goes_wrong_with_one_connection_is_said_and_ends_no_thread(
    listener: socket.socket, capfd: pytest.CaptureFixture[str]
) -> None:
    def serve(word: bytes) -> bool:
        if word == b"bad":
            raise ValueError("of this connection")
        return True

    threads = Threads(listener, told(serve))
    threads.start()
    assert answer_of(ask(listener, b"bad")) == b""
    settled(threads, 2)
    assert answer_of(ask(listener, b"go"))
    assert "ValueError: of this connection" in capfd.readouterr().err
