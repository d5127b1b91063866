"""Risks of the coordination: store, coordinators and webhook, the contact of drivers.

A danger is a reason with a sentence, the worst first. `policy_conditions.at_risk` makes the
condition CoordinationAtRisk of them, for a policy from all of its applications, for a Recovery from
one. It is True when something is wrong, unlike the other conditions: what is told is that the next
failure may find nobody to act, while everything still runs.

    dangers          the risks, from the store, the operators and the drivers at a moment
    DriverContacts   the contact of each driver, kept from decisions by the deciding thread
    ZookeeperProbe   asks the store's servers, on a thread of its own
"""

import re
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rekindle.coordination.application_status import named
from rekindle.coordination.session import Driver
from rekindle.model.errors import RekindleError
from rekindle.model.reasons import Reason
from rekindle.protocol import store_paths
from rekindle.protocol.store_paths import Place
from rekindle_coordinator.coordinator_ports import Look
from rekindle_operator.cluster.work_queue import UpkeepThread
from rekindle_operator.recovery.recovery_inputs import Danger
from rekindle_operator.recovery.recovery_reasons import RecoveryReason, Word
from rekindle_operator.webhook.webhook_configuration import TURNS
from rekindle_zookeeper import Connection, Encryption, open_socket


@dataclass(frozen=True, slots=True)
class Coordination:
    """The store and who decides. `servers` are those that are configured, `servers_up` those that
    serve, None where nobody has asked them one by one. `coordinators` act or would take over, None
    where nobody has counted them. `webhook_away`: nobody gives drivers that start their sidecar.
    `gates_missing`: the API server does not ask the webhook whether a pod waits for its turn.
    """

    store_reachable: bool
    servers: int
    servers_up: int | None = None
    coordinators: int | None = None
    webhook_away: bool = False
    gates_missing: bool = False


@dataclass(frozen=True, slots=True)
class DriverContact:
    """How an application's driver is in touch; `trouble` is why nothing is decided about it."""

    application: str
    driver: Driver
    alone: bool = False
    trouble: str = ""


def dangers(
    coordination: Coordination, contacts: Iterable[DriverContact] = ()
) -> tuple[tuple[Word, str], ...]:
    """Everything that is wrong, the worst first; nothing where all is well."""
    drivers = tuple(contacts)
    return (*_now(coordination), *_of_drivers(drivers), *_next(coordination))


def gate_dangers(coordination: Coordination) -> tuple[Danger, ...]:
    """What is wrong for policies of whole applications alone."""
    if not coordination.gates_missing:
        return ()
    text = (
        f"The MutatingWebhookConfiguration has no {TURNS}: in an incident no pod waits for its "
        "turn. Upgrade or roll back the release of the chart."
    )
    return ((RecoveryReason.GATES_MISSING, text),)


def _now(coordination: Coordination) -> Iterator[tuple[Word, str]]:
    """What keeps anybody from acting now."""
    if not coordination.store_reachable:
        text = "The coordination store does not answer: drivers plan by themselves."
        yield Reason.STORE_UNREACHABLE, text


def _of_drivers(contacts: tuple[DriverContact, ...]) -> Iterator[tuple[Word, str]]:
    for contact in contacts:
        if contact.trouble:
            text = f"Nothing is decided about {contact.application}: {contact.trouble}"
            yield Reason.BAD_RECORD, text
    silent = tuple(item.application for item in contacts if item.driver is Driver.SILENT)
    if silent:
        yield Reason.DRIVER_SILENT, f"No heartbeat of the driver: {named(silent)}."
    alone = tuple(
        item.application for item in contacts if item.alone and item.driver is Driver.THERE
    )
    if alone:
        yield Reason.DRIVER_ALONE, f"The driver plans by itself: {named(alone)}."


def _next(coordination: Coordination) -> Iterator[tuple[Word, str]]:
    """What one more failure would end, or would not survive."""
    if coordination.webhook_away:
        yield (
            RecoveryReason.WEBHOOK_AWAY,
            "No replica of the webhook is available: drivers that start have no sidecar.",
        )
    up, servers = coordination.servers_up, coordination.servers
    if coordination.store_reachable and up is not None and up < servers:
        spare = up - (servers // 2 + 1)
        more = f"{spare} more may go" if spare > 0 else "it ends with one more"
        yield (
            RecoveryReason.STORE_DEGRADED,
            f"{up} of {servers} servers of the store answer: {more}.",
        )
    if servers == 1:
        yield (
            RecoveryReason.STORE_SINGLE,
            "The store has one server: it is gone with that server's node.",
        )
    if coordination.coordinators == 1:
        yield RecoveryReason.NO_STANDBY, "One operator runs: nobody would take over at once."


# The contact of each driver with its coordinator, and the risks that follow from it.
#
# Kept from decisions. Used by the deciding thread alone.


@dataclass(slots=True)
class DriverContacts:
    """`coordination` says how store and operators are; `stopped` (application -> why) are those
    about which nothing can be decided."""

    coordination: Callable[[], Coordination]
    stopped: Mapping[Place, str]
    _contacts: dict[Place, DriverContact] = field(default_factory=dict)
    _unanswered: dict[Place, float] = field(default_factory=dict)

    def decided(self, place: Place, look: Look) -> None:
        """What a decision says of an application's driver."""
        case, progress = look.decision.case, look.reading.progress
        alone = progress is not None and progress.alone
        self._contacts[place] = DriverContact(place.application, case.driver, alone=alone)
        there = case.driver is Driver.THERE and case.state is not None
        if there and case.state is not None and case.state.unacknowledged:
            self._unanswered.setdefault(place, look.at)
        else:
            self._unanswered.pop(place, None)

    def forget(self, place: Place) -> None:
        """An application that is gone: nobody waits for an answer of it any more."""
        self._contacts.pop(place, None)
        self._unanswered.pop(place, None)

    def forget_answers(self) -> None:
        """Another one acts: what is awaited is that one's to say."""
        self._unanswered.clear()

    @property
    def state(self) -> tuple[object, ...]:
        """Another one whenever dangers may be others than before, but for what drivers say."""
        return self.coordination(), tuple(self.stopped.items())

    @property
    def unanswered_since(self) -> float | None:
        """Since when (seconds since 1970) the oldest plan has no answer; None without one."""
        return min(self._unanswered.values(), default=None)

    def dangers(self, places: Iterable[Place]) -> tuple[Danger, ...]:
        """What may make coordination fail for these applications."""
        return dangers(self.coordination(), self._of(places))

    def gate_dangers(self) -> tuple[Danger, ...]:
        """What is wrong for policies of whole applications alone."""
        return gate_dangers(self.coordination())

    def _of(self, places: Iterable[Place]) -> Iterator[DriverContact]:
        for place in places:
            contact, trouble = self._contacts.get(place), self.stopped.get(place, "")
            if trouble:
                yield DriverContact(place.application, Driver.THERE, trouble=trouble)
            elif contact is not None:
                yield contact


# Asks each server of the coordination store whether it serves, and counts the operators.
#
#     once a session ──► each server by itself, `srvr` ──► servers that serve
#                    ──► our record among the operators', as long as our session lasts ──► operators
#
# On a thread of its own, for a server that is away keeps whoever asks waiting. The deciding
# thread takes the newest answer.

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


def _say_nothing(_: object) -> None:
    """For who does not want to know."""


@dataclass(slots=True)
class ZookeeperProbe:
    """`hosts` are the servers of the store, as `connect` takes them; `identity` is this process.
    It rests for `pause_seconds` after each round: as long as a session lasts that says nothing, for
    until then a dead operator counts anyway. `figures` is called with those of all servers that
    serve; servers are asked by TLS with `encryption`. `report` logs what a round raises."""

    connection: Connection
    hosts: str
    identity: str
    pause_seconds: float = 10.0
    encryption: Encryption | None = None
    figures: Callable[[Mapping[str, ServerFigures]], None] = _say_nothing
    report: Callable[[str], object] = _say_nothing
    servers_up: int | None = None
    operators: int | None = None
    _session: int | None = None
    _upkeep: UpkeepThread = field(init=False)

    def __post_init__(self) -> None:
        self._upkeep = UpkeepThread(
            "zookeeper-probe", self.sound, lambda: self.pause_seconds, self.report
        )

    def start(self) -> None:
        """Ask until `stop` is called."""
        self._upkeep.start()

    def stop(self) -> None:
        """End after the present round."""
        self._upkeep.close()

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
