"""Metrics and health of a coordinator, for whoever watches it: HTTP on a port.

    /metrics   Prometheus
    /health    JSON; 503 when the loop does not turn any more
    /ready     the same; 503 also until everything has been seen

Any other page is not there. Whatever keeps an answer from being 200 is said in it. A store that
does not answer is no reason to start a coordinator anew, so it is healthy all the same; the metrics
tell.
"""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, Counter, Gauge, make_wsgi_app

from rekindle.coordination.session import ApplicationReading
from rekindle.model.errors import InputError
from rekindle.protocol.store_paths import Place
from rekindle_coordinator.driver_metrics import DriverFigures
from rekindle_coordinator.dual_stack_server import listen

PREFIX = "rekindle_coordinator"
SILENT_SECONDS_MAX = 60.0
REQUEST_SECONDS_MAX = 5.0
# a thread each; Prometheus and the kubelet need one or two
CONNECTIONS_MAX = 32
# Pages that are answered by a field of the summary.
FIELDS = {"/health": "healthy", "/ready": "ready"}


class Metrics:
    """What is counted; `turned_at` (time.monotonic()) is when the loop last turned, `awaited` what
    has to be seen before it does, "" for nothing more; `readings` are of drivers' reports."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.turned_at = time.monotonic()
        self.awaited = ""
        self.readings: Callable[[], Iterable[tuple[Place, ApplicationReading]]] = tuple
        self.drivers = DriverFigures(lambda: self.readings(), time.time)
        self.registry.register(self.drivers)
        self.leads = self._gauge("leads", "1 while this coordinator decides")
        self.reachable = self._gauge("store_reachable", "1 while the store answers")
        self.applications = self._gauge("applications", "Applications in the store")
        self.stopped = self._gauge("applications_stopped", "Those that cannot be decided about")
        self.queries_stopped = self._gauge("queries_stopped", "Those whose function raises")
        self.slow = self._gauge("nodes_slow", "Those that hold the epochs of an application up")
        self.waiting = self._gauge("applications_waiting", "Those that have to be looked at")
        self.decisions = self._counter("decisions", "Looks at an application")
        self.directives = self._counter("directives", "Directives written")
        self.plans = self._counter("plans", "Plans among them")
        self.conflicts = self._counter("conflicts", "Writes that another one was faster with")

    @property
    def turning(self) -> bool:
        """Whether the loop turns."""
        return time.monotonic() - self.turned_at < SILENT_SECONDS_MAX

    @property
    def trouble(self) -> str:
        """Why the process should be started anew; "" while all is well with it."""
        silent = time.monotonic() - self.turned_at
        return "" if self.turning else f"the loop has not turned for {silent:.0f} s"

    def summary(self) -> dict[str, Any]:
        """What /health and /ready say."""
        gauges = ("leads", "store_reachable", "applications", "applications_stopped")
        values = {name: self.registry.get_sample_value(f"{PREFIX}_{name}") for name in gauges}
        trouble = self.trouble
        awaited = f"waits for {self.awaited}" if self.awaited else ""
        return {
            "version": 1,
            "healthy": not trouble,
            "ready": not (trouble or awaited),
            "reason": trouble or awaited,
            **{name: int(value or 0) for name, value in values.items()},
        }

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"{PREFIX}_{name}", text, registry=self.registry)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"{PREFIX}_{name}", text, registry=self.registry)


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


def serve(metrics: Metrics, port: int) -> int:
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
