"""Metrics and health of a process, for whoever watches it: HTTP on a port.

    /metrics   Prometheus
    /health    JSON; 503 when the process should be started anew
    /ready     the same; 503 also until everything has been seen

Any other page is not there. Whatever keeps an answer from being 200 is said in it. The coordinator,
the operator and the webhook serve them.
"""

import json
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from rekindle.model.errors import InputError
from rekindle_coordinator.dual_stack_server import listen

REQUEST_SECONDS_MAX = 5.0
# a thread each; Prometheus and the kubelet need one or two
CONNECTIONS_MAX = 32
# Pages that are answered by a field of the summary.
FIELDS = {"/health": "healthy", "/ready": "ready"}


class WatchedProcess(Protocol):
    """What is shown. A summary has `healthy`, `ready` and a `reason`."""

    registry: CollectorRegistry

    def summary(self) -> dict[str, Any]:
        """What /health and /ready say."""


class _Server(ThreadingMixIn, WSGIServer):
    """A connection that says nothing keeps nobody else from an answer, and where there are too many
    the oldest one ends; each family is answered."""

    daemon_threads = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._open: dict[socket.socket, None] = {}
        self._lock = threading.Lock()
        super().__init__(*arguments, **options)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own; there are never many."""
        with self._lock:
            self._open[request] = None
            oldest = next(iter(self._open)) if len(self._open) > CONNECTIONS_MAX else None
            if oldest is not None:
                del self._open[oldest]
        if oldest is not None:
            with suppress(OSError):  # it has ended meanwhile
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """It has been answered, or has ended."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def server_bind(self) -> None:
        """Listen, and ask no name server for a name that nobody needs."""
        self.socket.close()
        self.socket = listen("", self.server_address[1])
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "", self.server_address[1]
        self.setup_environ()


class _Quiet(WSGIRequestHandler):
    timeout = REQUEST_SECONDS_MAX

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing: the log has a form of its own."""


def serve(metrics: WatchedProcess, port: int) -> int:
    """Answer on a port (0: any that is free) until the process ends; returns the port."""
    pages = make_wsgi_app(metrics.registry)

    def answer(environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = environment.get("PATH_INFO")
        if path == "/metrics":
            found: Iterable[bytes] = pages(environment, start)
            return found
        if path not in FIELDS:
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [f"there are /metrics, {' and '.join(FIELDS)}\n".encode()]
        summary = metrics.summary()
        status = "200 OK" if summary[FIELDS[path]] else "503 Service Unavailable"
        start(status, [("Content-Type", "application/json")])
        return [json.dumps(summary).encode()]

    try:
        server = make_server("", port, answer, _Server, _Quiet)
    except OSError as error:
        raise InputError(
            where=f"--port {port}",
            what=f"cannot be listened on ({error.strerror})",
            remedy="choose another port",
        ) from error
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
    return int(server.server_port)
