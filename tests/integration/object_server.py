"""A server that speaks as S3 does, with one bucket: started, killed, started again.

It keeps each object as a file, so what a driver has put there can be read as in a store on a disk.
"""

import os
import signal
import socket
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rekindle_local import addresses, processes

LOUD = "NO STORE ON S3 WAS TESTED"
HOST = "127.0.0.1"
BUCKET = "checkpoints"
KEY, SECRET = "tester", "secret-of-tests"
START_SECONDS_MAX = 30.0


@dataclass(slots=True)
class ObjectServer:
    """The program, and a folder for what it keeps."""

    program: Path
    folder: Path
    holder: socket.socket = field(init=False)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.holder = addresses.hold_port(HOST)
        (self.objects / BUCKET).mkdir(parents=True)
        (self.folder / "attributes").mkdir()

    @property
    def objects(self) -> Path:
        """A folder for each bucket, with a file for each object."""
        return self.folder / "objects"

    @property
    def port(self) -> int:
        """The same for every start."""
        return int(self.holder.getsockname()[1])

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
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(self.program, "--port", f"{HOST}:{self.port}", "--quiet"),
                    *("posix", *kept, str(self.objects)),
                ],
                env={**os.environ, "ROOT_ACCESS_KEY_ID": KEY, "ROOT_SECRET_ACCESS_KEY": SECRET},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        assert processes.await_condition(self._listens, limit_seconds=START_SECONDS_MAX)

    def kill(self) -> None:
        """SIGKILL; what it was told is on disk."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def close(self) -> None:
        """End it for good."""
        self.kill()
        self.holder.close()

    def _listens(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()
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
