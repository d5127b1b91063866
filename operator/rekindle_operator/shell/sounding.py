"""What only asking tells of coordination: which servers of the store serve, and who else is there.

    once a session ──► each server by itself, `srvr` ──► servers that serve
                   ──► our record among the operators', as long as our session lasts ──► operators

On a thread of its own, for a server that is away keeps whoever asks waiting. The deciding thread
takes the newest answer. `dangers` says what it means.
"""

import socket
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from rekindle.errors import RekindleError
from rekindle.protocol import tree
from rekindle_operator.dangers import Coordination
from rekindle_zookeeper import Connection

__all__ = ["Soundings"]

ANSWER_SECONDS_MAX = 2.0
ANSWER_BYTES_MAX = 4_096
DEFAULT_PORT = 2181
QUESTION = b"srvr"
# A server without a quorum says this, and so does one that has just begun.
NOT_SERVING = b"not currently serving"


@dataclass(slots=True)
class Soundings:
    """`hosts` are the servers of the store, as `connect` takes them; `identity` is this process.
    It rests for `pause_seconds` after each round: as long as a session lasts that says nothing, for
    until then a dead operator counts anyway."""

    connection: Connection
    hosts: str
    identity: str
    pause_seconds: float = 10.0
    servers_up: int | None = None
    operators: int | None = None
    _session: int | None = None
    _ending: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Ask until `stop` is called."""
        threading.Thread(target=self._run, name="soundings", daemon=True).start()

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
        self.servers_up = sum(map(serves, self._servers))
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
        ours = f"{tree.OPERATORS}/{self.identity.replace('/', '-')}"
        if session != self._session:
            # the record goes with its session
            self.connection.put(ours, self.identity.encode(), ephemeral=True)
            self._session = session
        operators = self.connection.children(tree.OPERATORS)
        return max(len(operators), len(self.connection.children(tree.ELECTION)))


def serves(server: str) -> bool:
    """Whether a server (HOST[:PORT]) answers, and does not say that it cannot serve.

    Where the question is not allowed the answer says so, and is one all the same.
    """
    host, _, port = server.rpartition(":") if _has_port(server) else (server, "", "")
    address = (host.strip("[]"), int(port or DEFAULT_PORT))
    try:
        with socket.create_connection(address, timeout=ANSWER_SECONDS_MAX) as asked:
            asked.sendall(QUESTION)
            return NOT_SERVING not in b"".join(_received(asked))
    except OSError:
        return False


def _received(asked: socket.socket) -> Iterable[bytes]:
    left = ANSWER_BYTES_MAX
    while left > 0 and (data := asked.recv(left)):
        left -= len(data)
        yield data


def _has_port(server: str) -> bool:
    return ":" in server.rpartition("]")[2]
