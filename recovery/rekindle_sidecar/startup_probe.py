"""Whether a sidecar answers on its socket, as the startup probe of its container asks.

A driver may start once it does: whether the store answers is of no account, for a driver without a
coordinator plans by itself. Made of the standard library alone, since it runs every second while a
pod starts. `sidecar_main` calls it.
"""

import http.client
import socket
from typing import NoReturn

from rekindle.model.errors import RunError

ANSWER_SECONDS_MAX = 4.0
OK = 200


def probe(path: str) -> None:
    """Ask the sidecar at a socket how it is. RunError when it does not answer."""
    connection = _Connection(path)
    try:
        connection.request("GET", "/v1/health")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        _fail(path, f"does not answer ({getattr(error, 'strerror', None) or error})", error)
    finally:
        connection.close()
    if status != OK:
        _fail(path, f"answers with status {status}")


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("sidecar", timeout=ANSWER_SECONDS_MAX)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(ANSWER_SECONDS_MAX)
        self.sock.connect(self._path)


def _fail(path: str, what: str, cause: Exception | None = None) -> NoReturn:
    raise RunError(
        where=f"socket {path}", what=what, remedy="see the log of the sidecar's container"
    ) from cause
