"""A server that speaks as S3 does, with one bucket: started, killed, started again.

It keeps each object as a file, so what a driver has put there can be read as in a store on a disk.
"""

import os
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from killable_server import HOST, KillableServer

LOUD = "NO STORE ON S3 WAS TESTED"
BUCKET = "checkpoints"
KEY, SECRET = "tester", "secret-of-tests"
START_SECONDS_MAX = 30.0


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


class LosesFirstAnswer:
    """A way to a server on which the answer to the first request gets lost."""

    def __init__(self, port: int) -> None:
        self.to = port
        self.lost = 0
        self.listener = socket.create_server((HOST, 0))
        self.port = int(self.listener.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self.listener.accept()
                server = socket.create_connection((HOST, self.to))
                threading.Thread(target=self._pass, args=(caller, server), daemon=True).start()
                threading.Thread(target=self._answer, args=(server, caller), daemon=True).start()

    def _pass(self, caller: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := caller.recv(1 << 16):
                server.sendall(data)

    def _answer(self, server: socket.socket, caller: socket.socket) -> None:
        with suppress(OSError), server, caller:
            while data := server.recv(1 << 16):
                if not self.lost:
                    self.lost += 1
                    caller.shutdown(socket.SHUT_RDWR)  # also what waits for more from it ends
                    return
                caller.sendall(data)


def set_environment(monkeypatch: pytest.MonkeyPatch, values: dict[str, str]) -> None:
    """For this process, and for what it starts."""
    for name, value in values.items():
        monkeypatch.setenv(name, value)
