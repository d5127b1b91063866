"""A server that speaks as S3 does, with one bucket: started, killed, started again.

It keeps each object as a file, so what a driver has put there can be read as in a store on a disk.
"""

import os
import re
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from killable_server import HOST, KillableServer

LOUD = "NO STORE ON S3 WAS TESTED"
BUCKET = "checkpoints"
KEY, SECRET = "tester", "secret-of-tests"
START_SECONDS_MAX = 30.0
PASSED_BYTES = 1 << 16
REQUEST_LINE = re.compile(rb"[A-Z]+ /\S* HTTP/1\.1")


@dataclass(slots=True, kw_only=True)
class ObjectServer(KillableServer):
    """The program, and a folder for what it keeps."""

    program: Path

    def __post_init__(self) -> None:
        KillableServer.__post_init__(self)
        (self.objects / BUCKET).mkdir(parents=True)
        (self.folder / "attributes").mkdir()

    @property
    def objects(self) -> Path:
        """A folder for each bucket, with a file for each object."""
        return self.folder / "objects"

    def environment(self, port: int | None = None) -> dict[str, str]:
        """What a client needs to know."""
        return {
            "AWS_ENDPOINT_URL": f"http://{HOST}:{port or self.port}",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }

    def start(self, *options: str) -> None:
        """Start it, and wait until it listens.

        Attributes of objects lie in a folder: not every filesystem has room for them in its own.
        """
        kept = options or ("--sidecar", str(self.folder / "attributes"))
        self.launch(
            [
                *(self.program, "--port", f"{HOST}:{self.port}", "--quiet"),
                *("posix", *kept, self.objects),
            ],
            self._listens,
            START_SECONDS_MAX,
            {**os.environ, "ROOT_ACCESS_KEY_ID": KEY, "ROOT_SECRET_ACCESS_KEY": SECRET},
        )

    def _listens(self) -> bool:
        with suppress(OSError), socket.create_connection((HOST, self.port), timeout=1.0):
            return True
        return False


class Way:
    """A way to a server, on which something happens to what is passed on."""

    def __init__(self, port: int) -> None:
        self.to = port
        self.listener = socket.create_server((HOST, 0))
        self.port = int(self.listener.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self.listener.accept()
                server = socket.create_connection((HOST, self.to))
                passing = self.passing()
                for target, sides in (
                    (passing.ask, (caller, server)),
                    (passing.answer, (server, caller)),
                ):
                    threading.Thread(target=target, args=sides, daemon=True).start()

    def passing(self) -> "Passing":
        """What happens on one connection."""
        return Passing()


class Passing:
    """One connection on a way."""

    def ask(self, caller: socket.socket, server: socket.socket) -> None:
        """Pass on what a client sends."""
        with suppress(OSError):
            while data := caller.recv(PASSED_BYTES):
                server.sendall(data)

    def answer(self, server: socket.socket, caller: socket.socket) -> None:
        """Pass on what the server answers."""
        with suppress(OSError), server, caller:
            while data := server.recv(PASSED_BYTES):
                caller.sendall(data)


class LosesFirstAnswer(Way):
    """A way to a server on which the answer to the first request gets lost."""

    lost = 0

    def passing(self) -> Passing:
        return LosingPassing(self)


class LosingPassing(Passing):
    def __init__(self, way: LosesFirstAnswer) -> None:
        self.way = way

    def answer(self, server: socket.socket, caller: socket.socket) -> None:
        with suppress(OSError), server, caller:
            while data := server.recv(PASSED_BYTES):
                if not self.way.lost:
                    self.way.lost += 1
                    caller.shutdown(socket.SHUT_RDWR)  # also what waits for more from it ends
                    return
                caller.sendall(data)


class SlowWay(Way):
    """A way to a server on which each connection carries so many bytes a second each way, None: as
    many as come. While it `holds_states` nothing comes of them; `state_bytes` have come."""

    bytes_per_second: float | None = None
    holds_states = False
    state_bytes = 0

    def passing(self) -> Passing:
        return SlowPassing(self)

    def take_time(self, size: int) -> None:
        """Take as long as so many bytes do."""
        if self.bytes_per_second is not None:
            time.sleep(size / self.bytes_per_second)


class SlowPassing(Passing):
    def __init__(self, way: SlowWay) -> None:
        self.way = way
        self.is_state = False

    def ask(self, caller: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := caller.recv(PASSED_BYTES):
                line = data.partition(b"\r\n")[0]
                if REQUEST_LINE.match(line):
                    self.is_state = line.startswith(b"GET ") and b".state" in line
                self.way.take_time(len(data))
                server.sendall(data)

    def answer(self, server: socket.socket, caller: socket.socket) -> None:
        with suppress(OSError), server, caller:
            while data := server.recv(PASSED_BYTES):
                while self.is_state and self.way.holds_states:
                    time.sleep(0.05)
                self.way.take_time(len(data))
                caller.sendall(data)
                self.way.state_bytes += len(data) if self.is_state else 0


def set_environment(monkeypatch: pytest.MonkeyPatch, values: dict[str, str]) -> None:
    """For this process, and for what it starts."""
    for name, value in values.items():
        monkeypatch.setenv(name, value)
