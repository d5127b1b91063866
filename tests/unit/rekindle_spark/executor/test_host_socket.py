"""The socket of a host: for its own JVM alone, and there for as long as that runs."""

import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rekindle_spark.executor import host_socket

PATIENCE_SECONDS = 30.0
# Stands in for a host: answers every request with its process id, and serves this very process.
HOST = """
import os, struct, sys
from pathlib import Path
from rekindle_spark.executor import host_socket

def answer(connection):
    with connection, connection.makefile("rb") as reader:
        (size,) = struct.unpack(">i", reader.read(4))
        reader.read(size + 8)
        said = b'{"status": "ok"}'
        connection.sendall(struct.pack(">i", len(said)) + said + struct.pack(">i", 0))
    return True

host_socket.serve(Path(sys.argv[1]), int(sys.argv[2]), answer)
"""
ASK = "import sys; sys.path[:0] = sys.argv[2:]; import test_host_socket as t; t.print_asked()"


@pytest.fixture(name="path")
def _path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as short:  # pytest's own folders are nearly too long
        yield Path(short, "rekindle-abcdefghij", "s")


@pytest.fixture(name="serving")
def _serving(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", HOST, str(path), str(os.getpid())]
    with subprocess.Popen(command, env=environment()) as process:
        await_socket(path)
        yield process
        process.kill()


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def await_socket(path: Path) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not path.exists():
        assert time.monotonic() < until, f"nobody listens at {path}"
        time.sleep(0.01)


def asked(path: Path, blocks: bytes = b"") -> dict[str, Any]:
    header = json.dumps({"executor": "7"}).encode()
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(PATIENCE_SECONDS)
        caller.connect(str(path))
        caller.sendall(struct.pack(">i", len(header)) + header)
        caller.sendall(struct.pack(">q", len(blocks)) + blocks)
        (size,) = struct.unpack(">i", caller.recv(4))
        found: dict[str, Any] = json.loads(caller.recv(size))
        return found


def print_asked() -> None:
    """What another process is told."""
    print(json.dumps(asked(Path(sys.argv[1]), bytes(3_000_000))))


@pytest.mark.usefixtures("serving")
def test_a_host_answers_its_own_process_and_refuses_any_other(path: Path) -> None:
    assert asked(path) == {"status": "ok"}
    command = [sys.executable, "-c", ASK, str(path), str(Path(__file__).parent)]
    other = subprocess.run(command, env=environment(), capture_output=True, check=True)
    told = json.loads(other.stdout)
    assert (told["status"], told["executor"]) == ("refused", "7")
    assert f"the host of process {os.getpid()}" in told["text"]
    assert asked(path) == {"status": "ok"}


@pytest.mark.usefixtures("serving")
def test_a_socket_that_was_cleaned_away_is_made_again(path: Path) -> None:
    path.unlink()
    path.parent.rmdir()
    await_socket(path)
    assert asked(path) == {"status": "ok"}
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_host_takes_no_socket_of_another_one(
    path: Path, serving: subprocess.Popen[bytes]
) -> None:
    command = [sys.executable, "-c", HOST, str(path), str(os.getpid())]
    second = subprocess.run(command, env=environment(), capture_output=True, check=False)
    assert second.returncode != 0
    assert asked(path) == {"status": "ok"}
    assert serving.poll() is None


def test_a_host_whose_process_is_gone_leaves_no_folder(path: Path) -> None:
    path.parent.mkdir()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    host_socket.serve(path, ended.pid, lambda _: True)
    assert not path.parent.exists()


def test_a_caller_that_the_kernel_does_not_know_here_is_nobody() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert host_socket.is_from(one, os.getpid())
        assert not host_socket.is_from(one, os.getpid() + 1)
