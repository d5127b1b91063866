"""A real sidecar process, and a driver's side that speaks to it with nothing but http.client."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from waiting import repeated, wait_until

from rekindle import protocol
from rekindle.model.settings import Policy
from rekindle.model.topology import Query, Topology, TopologyOperator
from rekindle.protocol import NodeSeen, ProgressReport, TopologyReport, store_paths
from rekindle_local import process_sets
from rekindle_zookeeper import Connection

SOURCES = str(Path(process_sets.__file__).parents[1])
WAIT_SECONDS_MAX = 120
PLACE = store_paths.Place("default", "application")
# the least that the local servers grant
SESSION_SECONDS = 4.0
ASK_AGAIN_SECONDS = 0.1


class Sidecar:
    """`rekindle sidecar` in a process of its own, whose log is read as what it has to be: JSON."""

    def __init__(
        self, directory: Path, zookeeper: str, *options: str, place: store_paths.Place = PLACE
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.place = place
        self.socket = directory / "sidecar.sock"
        self.log = directory / "sidecar.log"
        self._command = [
            *(sys.executable, "-m", "rekindle_cli", "sidecar"),
            *("--zookeeper", zookeeper, "--socket", str(self.socket)),
            *("--namespace", place.namespace, "--application", place.application),
            *("--session-seconds", str(SESSION_SECONDS), *options),
        ]

    def start(self) -> None:
        """Start it, and wait until it listens."""
        path = os.pathsep.join(filter(None, [SOURCES, os.environ.get("PYTHONPATH")]))
        started = len(self.events("started"))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, stderr=log, env={**os.environ, "PYTHONPATH": path}
            )
        wait_until(lambda: len(self.events("started")) > started or self.process.poll() is not None)
        assert self.process.poll() is None, self.log.read_text()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send it a signal that ends it; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(number)
        return self.process.wait(WAIT_SECONDS_MAX)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Lines of the log with that event; an error at its end is a sentence."""
        lines = self.log.read_text().splitlines(keepends=True) if self.log.exists() else []
        whole = [line for line in lines if line.startswith("{") and line.endswith("\n")]
        return [event for event in map(json.loads, whole) if event["event"] == name]


class UnixConnection(http.client.HTTPConnection):
    """Plain HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=WAIT_SECONDS_MAX)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Driver:
    """The driver of one generation; its connection stays open until `part`."""

    def __init__(self, sidecar: Sidecar, generation: int = 1) -> None:
        self.generation = generation
        self.sequence = 0
        self.connection = UnixConnection(sidecar.socket)
        self._sidecar = sidecar
        self._place = sidecar.place

    @contextmanager
    def in_contact(self) -> Iterator[None]:
        """Directives are asked for all the time, over another connection. Otherwise the driver
        would fall silent where a test takes longer than its contact time."""
        asking = Driver(self._sidecar, self.generation)
        try:
            with repeated(lambda: asking.directives(wait=1.0), ASK_AGAIN_SECONDS):
                yield
        finally:
            asking.part()

    def part(self) -> None:
        """Close the connection; the next request opens another one."""
        self.connection.close()

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and body of an answer."""
        data = body if isinstance(body, bytes | None) else msgspec.json.encode(body)
        self.connection.request(method, path, data)
        answer = self.connection.getresponse()
        content = answer.read()
        return answer.status, json.loads(content)

    def handshake(self, **fields: Any) -> tuple[int, Any]:
        """Introduce itself."""
        hello = {
            "oldest": 1,
            "newest": 1,
            "namespace": self._place.namespace,
            "application": self._place.application,
            "generation": self.generation,
        }
        return self.ask("POST", "/v1/handshake", {**hello, **fields})

    def report(self, report: protocol.Report) -> dict[str, Any]:
        """Send a report, which has to be taken."""
        status, answer = self.ask("POST", "/v1/reports", report)
        assert status == 200, answer
        found: dict[str, Any] = answer
        return found

    def topology(self, operators: int = 1, **fields: Any) -> TopologyReport:
        """Its topology report."""
        names = [f"operator-{number}" for number in range(operators)]
        return TopologyReport(
            generation=self.generation,
            sequence=0,
            program="p",
            topology=Topology(
                tuple(TopologyOperator(name, 1) for name in names), (), (Query("q", names[0], 5),)
            ),
            policy=Policy(),
            nodes_expected=1,
            **fields,
        )

    def progress(self, **fields: Any) -> ProgressReport:
        """Its next progress report."""
        self.sequence += 1
        common = {
            "generation": self.generation,
            "sequence": self.sequence,
            "nodes": {"n1": NodeSeen(incarnation="a", capacity_percent=100.0)},
            "placement": {"operator-0/0": "n1"},
            "live": ("operator-0/0",),
        }
        return ProgressReport(**{**common, **fields})

    def begin(self, store: str = "") -> None:
        """Introduce itself and say what every start says."""
        status, answer = self.handshake(store=store)
        assert status == 200, answer
        self.report(self.topology(store=store))
        self.report(self.progress())

    def directives(self, after: int = 0, wait: float = 0.0) -> tuple[int, Any]:
        """Fetch directives."""
        query = f"after={after}&generation={self.generation}&wait={wait}"
        return self.ask("GET", f"/v1/directives?{query}")

    def await_poll(self) -> None:
        """Wait until the sidecar has a long poll of this driver, which it hears all the time."""
        asking = Driver(self._sidecar, self.generation)
        wait_until(lambda: asking.ask("GET", "/v1/health")[1]["driver_heard_seconds"] == 0.0)
        asking.part()

    def acknowledge(self, sequence: int, outcome: str = "done", **fields: Any) -> tuple[int, Any]:
        """Answer a directive."""
        ack = {
            "sequence": sequence,
            "generation": self.generation,
            "outcome": outcome,
            "epoch": 1,
            "plan_epoch": 1,
        }
        return self.ask("POST", "/v1/acks", {**ack, **fields})


def directive(sequence: int, *, generation: int = 1, after: int = 0, **fields: Any) -> bytes:
    """A directive as a coordinator writes it; `fields` may be what nobody knows."""
    common = {
        "sequence": sequence,
        "after": after,
        "generation": generation,
        "plan_epoch": 1,
        "reason": "paused",
        "text": "Pause.",
        "order": {"kind": "pause"},
    }
    return msgspec.json.encode({**common, **fields})


def generation_shown(store: Connection) -> int | None:
    """The generation in the heartbeat; None without one."""
    found = store.get(PLACE.path(store_paths.HEARTBEAT))
    generation: int | None = None if found is None else json.loads(found[0])["generation"]
    return generation


def topology_in(store: Connection) -> TopologyReport | None:
    """The topology in the store."""
    found = store.get(PLACE.path(store_paths.TOPOLOGY))
    return None if found is None else protocol.decode(found[0], TopologyReport, "topology")


def progress_in(store: Connection) -> ProgressReport | None:
    """The progress in the store."""
    found = store.get(PLACE.path(store_paths.PROGRESS))
    return None if found is None else protocol.decode(found[0], ProgressReport, "progress")


def empty(store: Connection, path: str) -> None:
    """Remove a record and all below it."""
    for name in store.children(path):
        empty(store, f"{path}/{name}")
    store.remove(path)
