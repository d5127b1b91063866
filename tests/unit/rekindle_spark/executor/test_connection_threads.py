"""Threads of a host that serve requests: one for each at a time, kept for the next."""

import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from fresh_python import run_code

from rekindle_local import process_sets
from rekindle_spark.executor.host_socket import ConnectionThreads

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


def settled(threads: ConnectionThreads, waiting: int) -> None:
    """Wait until so many threads wait for a connection."""
    assert process_sets.await_condition(
        lambda: threads.waiting == waiting, limit_seconds=SECONDS_MAX
    )


def test_a_thread_serves_one_connection_after_the_other(listener: socket.socket) -> None:
    threads = ConnectionThreads(listener, told(lambda _: True))
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

    threads = ConnectionThreads(listener, told(serve))
    threads.start()
    callers = [ask(listener, b"wait") for _ in range(10)]
    callers.append(ask(listener, b"last"))
    assert len({answer_of(caller) for caller in callers}) == 11
    settled(threads, 12)


def test_a_thread_that_is_used_up_serves_no_other_connection(listener: socket.socket) -> None:
    threads = ConnectionThreads(listener, told(lambda _: False))
    threads.start()
    assert len({answer_of(ask(listener, b"go")) for _ in range(5)}) == 5
    settled(threads, 1)


def test_what_goes_wrong_with_one_connection_is_said_and_no_other_suffers(
    listener: socket.socket, capfd: pytest.CaptureFixture[str]
) -> None:
    failed: list[threading.Thread] = []

    def serve(word: bytes) -> bool:
        if word == b"bad":
            failed.append(threading.current_thread())
            raise ValueError("of this connection")
        return True

    threads = ConnectionThreads(listener, told(serve))
    threads.start()
    assert answer_of(ask(listener, b"bad")) == b""
    settled(threads, 1)
    assert answer_of(ask(listener, b"go"))
    settled(threads, 2)
    (thread,) = failed  # the connection ends before it has printed what went wrong
    thread.join(SECONDS_MAX)
    assert not thread.is_alive()
    assert "ValueError: of this connection" in capfd.readouterr().err


# What a process does whose only thread can accept nothing, or can have no other one take its place.
CLOSED = "listener.close()\nthreads.start()"
ALONE = """
threads.start()
def start(thread):
    raise RuntimeError("can't start new thread")
threading.Thread.start = start
caller = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
caller.connect(place)
"""


@pytest.mark.parametrize(
    ("harm", "said"), [(CLOSED, "Bad file descriptor"), (ALONE, "can't start new thread")]
)
def test_a_process_that_can_serve_none_any_more_ends(tmp_path: Path, harm: str, said: str) -> None:
    code = (
        "import socket, sys, threading\n"
        "from rekindle_spark.executor.host_socket import ConnectionThreads as Threads\n"
        "place = sys.argv[1]\n"
        "listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)\n"
        "listener.bind(place)\n"
        "listener.listen()\n"
        "threads = Threads(listener, lambda connection: True)\n"
        f"{harm}\n"
        "threading.Event().wait()\n"
    )
    ended = run_code(code, str(tmp_path / "s"), timeout=SECONDS_MAX)
    assert ended.returncode == 1
    assert said in ended.stderr
