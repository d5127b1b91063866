"""Asks each server of the coordination store whether it serves, and counts the operators.

    once a session ──► each server by itself, `srvr` ──► servers that serve
                   ──► our record among the operators', as long as our session lasts ──► operators

On a thread of its own, for a server that is away keeps whoever asks waiting. The deciding thread
takes the newest answer. `coordination_risks` says what it means.
"""

import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from rekindle.model.errors import RekindleError
from rekindle.protocol import store_paths
from rekindle_operator.controller.coordination_risks import Coordination
from rekindle_zookeeper import Connection, Encryption, open_socket

ANSWER_SECONDS_MAX = 2.0
ANSWER_BYTES_MAX = 65_536
DEFAULT_PORT = 2181
QUESTION = b"srvr"
# What lies in the folders of snapshots and of logs, which may be one; and all other figures.
DISK, FIGURES = b"dirs", b"mntr"
_FIGURE = re.compile(rb"^(\w+)(?:: |\t)(\d+)(?:\.\d+)?$", re.MULTILINE)
# A server without a quorum says this, and so does one that has just begun.
NOT_SERVING = b"not currently serving"


@dataclass(frozen=True, slots=True)
class ServerFigures:
    """What a server says of itself: bytes on its disk and of all records, and requests that wait
    for it; and when the certificate that it presents ends, in seconds since 1970. None where it
    does not answer the question, and without TLS."""

    disk_bytes: int | None
    data_bytes: int | None
    requests_waiting: int | None
    certificate_ends: float | None = None


def _say_nothing(_: Mapping[str, ServerFigures]) -> None:
    """For who does not want to know."""


@dataclass(slots=True)
class ZookeeperProbe:
    """`hosts` are the servers of the store, as `connect` takes them; `identity` is this process.
    It rests for `pause_seconds` after each round: as long as a session lasts that says nothing, for
    until then a dead operator counts anyway. `figures` is called with those of all servers that
    serve; servers are asked by TLS with `encryption`."""

    connection: Connection
    hosts: str
    identity: str
    pause_seconds: float = 10.0
    encryption: Encryption | None = None
    figures: Callable[[Mapping[str, ServerFigures]], None] = _say_nothing
    servers_up: int | None = None
    operators: int | None = None
    _session: int | None = None
    _ending: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Ask until `stop` is called."""
        threading.Thread(target=self._run, name="zookeeper-probe", daemon=True).start()

    def stop(self) -> None:
        """End after the present round."""
        self._ending.set()

    @property
    def coordination(self) -> Coordination:
        """How things were when they were looked at last."""
        reachable = self.connection.reachable
        operators = self.operators if reachable else None
        return Coordination(reachable, len(self._servers), self.servers_up, operators)

    def sound(self) -> None:
        """Ask once."""
        up = [server for server in self._servers if serves(server, self.encryption)]
        self.servers_up = len(up)
        self.figures({server: figures_of(server, self.encryption) for server in up})
        try:
            self.operators = self._count()
        except RekindleError:
            self.operators = None

    @property
    def _servers(self) -> list[str]:
        return self.hosts.split(",")

    def _run(self) -> None:
        while not self._ending.is_set():
            self.sound()
            self._ending.wait(self.pause_seconds)

    def _count(self) -> int | None:
        """Operators that are there, and coordinators that somebody has started beside them."""
        session = self.connection.session
        if session is None:
            return None
        ours = f"{store_paths.OPERATORS}/{self.identity.replace('/', '-')}"
        if session != self._session:
            # the record goes with its session
            self.connection.put(ours, self.identity.encode(), ephemeral=True)
            self._session = session
        operators = self.connection.children(store_paths.OPERATORS)
        return max(len(operators), len(self.connection.children(store_paths.ELECTION)))


def serves(server: str, encryption: Encryption | None = None) -> bool:
    """Whether a server (HOST[:PORT]) answers, and does not say that it cannot serve.

    Where the question is not allowed the answer says so, and is one all the same.
    """
    try:
        with _opened(server, encryption) as asked:
            return NOT_SERVING not in _answer(asked, QUESTION)
    except OSError:
        return False


def figures_of(server: str, encryption: Encryption | None = None) -> ServerFigures:
    """What a server (HOST[:PORT]) says of itself; nothing where it may not be asked."""
    found: dict[str, int] = {}
    ends: float | None = None
    for question in (DISK, FIGURES):
        try:
            with _opened(server, encryption) as asked:
                ends = _certificate_ends(asked)
                answer = _answer(asked, question)
        except OSError:
            continue
        found |= {name.decode(): int(value) for name, value in _FIGURE.findall(answer)}
    # one folder for both has one size, which is told twice
    sizes = {found[name] for name in ("datadir_size", "logdir_size") if name in found}
    return ServerFigures(
        disk_bytes=sum(sizes) if sizes else None,
        data_bytes=found.get("zk_approximate_data_size"),
        requests_waiting=found.get("zk_outstanding_requests"),
        certificate_ends=ends,
    )


def _opened(server: str, encryption: Encryption | None) -> socket.socket:
    """A connection to a server. Raises OSError."""
    host, _, port = server.rpartition(":") if _has_port(server) else (server, "", "")
    address = (host.strip("[]"), int(port or DEFAULT_PORT))
    return open_socket(address, encryption, ANSWER_SECONDS_MAX)


def _answer(asked: socket.socket, question: bytes) -> bytes:
    """The answer to a four-letter word. Raises OSError where there is none."""
    asked.sendall(question)
    return b"".join(_received(asked))


def _certificate_ends(asked: socket.socket) -> float | None:
    certificate = asked.getpeercert() if isinstance(asked, ssl.SSLSocket) else None
    return ssl.cert_time_to_seconds(str(certificate["notAfter"])) if certificate else None


def _received(asked: socket.socket) -> Iterable[bytes]:
    left = ANSWER_BYTES_MAX
    while left > 0 and (data := asked.recv(left)):
        left -= len(data)
        yield data


def _has_port(server: str) -> bool:
    return ":" in server.rpartition("]")[2]
