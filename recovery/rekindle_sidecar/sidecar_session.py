"""Handles the driver's requests in the sidecar's memory, without HTTP and without the store.

    no handshake ──handshake──► generation G ──handshake of G+1──► generation G+1
                                     │
                  a newer generation in the store: every request of G is fenced
                  another checkpoint store's history there: every request is refused

Before its first handshake a driver may ask whether it would be taken (`admission`). A driver with
another checkpoint store than the one before is a beginning, for generations count within one store.
`http_api` brings requests, `store_sync` brings what the store says and takes what it is to get. All
of them run on the event loop, so nothing here needs a lock.
"""

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, cast

import msgspec

from rekindle import protocol
from rekindle.model.errors import InputError
from rekindle.protocol import store_paths
from rekindle_sidecar import held_records, http_errors
from rekindle_sidecar.http_errors import Cause, RequestRefusal
from rekindle_sidecar.json_log import tell

# Decides whether the driver is there, from its requests.
#
#     heard of ──no connection for `PARTED_SECONDS`, or silent for the contact time──► away
#         ▲                                                                             │
#         └─────────────────────────────its next request───────────────────────────────┘
#
# An open long poll counts as being heard of: its end would be noticed. Pure; moments are seconds
# of a clock that is never set.

PARTED_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class DriverLiveness:
    """`heard_at`: the last request; `polls`: long polls that are open; `parted_at`: when the last
    connection was found closed, None while there is one."""

    heard_at: float | None = None
    polls: int = 0
    parted_at: float | None = None


def heard(contact: DriverLiveness, now: float) -> DriverLiveness:
    """After a request: there is a connection, too."""
    return replace(contact, heard_at=now, parted_at=None)


def polling(contact: DriverLiveness, change: int, now: float) -> DriverLiveness:
    """After a long poll has begun (1) or ended (-1)."""
    return replace(contact, polls=contact.polls + change, heard_at=now)


def connected(contact: DriverLiveness, connections: int, now: float) -> DriverLiveness:
    """After the open connections have been counted."""
    if connections:
        return replace(contact, parted_at=None)
    return contact if contact.parted_at is not None else replace(contact, parted_at=now)


def is_there(contact: DriverLiveness, now: float, contact_seconds: float) -> bool:
    """Whether the driver counts as being there."""
    if contact.heard_at is None:
        return False
    if contact.parted_at is not None and now - contact.parted_at > PARTED_SECONDS:
        return False
    return contact.polls > 0 or now - contact.heard_at <= contact_seconds


# What the sidecar counts, from its start.
#
# `sidecar_session` and `http_api` count, `sidecar_metrics` shows.


@dataclass(slots=True)
class SidecarCounters:
    """`reports` by kind, `repeated` those of them that were no news, `directives` given out,
    `acks` by outcome, `refusals` by cause. `late_rows` by step are the driver's own count, and
    `sources` are as it last saw them."""

    reports: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    directives: int = 0
    acks: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    late_rows: Mapping[str, int] = field(default_factory=dict)
    sources: Mapping[str, protocol.SourceSeen] = field(default_factory=dict)


# a driver tells its topology at once
TOPOLOGY_SECONDS = 5.0
# For so long nobody may lead while one operator hands over to another, which takes a second or two.
# A killed one keeps its place until its session is over, 10 s: so nobody has led for 20 s then. A
# plan that is made alone too soon is adopted, or refused what did not know of it.
LEADERLESS_SECONDS = 10.0

AnyReport = (
    protocol.TopologyReport
    | protocol.ProgressReport
    | protocol.StatisticsReport
    | protocol.CheckpointReport
)


class DriverConnection(Protocol):
    """A connection of the driver, as asyncio's transports are."""

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The socket, under that name."""


async def _nobody_looks() -> held_records.PresentRecords | None:
    return None


class _Kind(msgspec.Struct):
    kind: str


class SidecarSession:
    """`clock` is never set, `wall_clock` is seconds since 1970. `wake` is called when there is
    something to do at the store; `store_reachable` and `heartbeat_up` are told by who does it.
    `look` reads what stands there, None where the store does not answer."""

    def __init__(
        self,
        place: store_paths.Place,
        contact_seconds: float,
        *,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self.place = place
        self.contact_seconds = contact_seconds
        self.figures = SidecarCounters()
        self.held = held_records.HeldReports()
        self.inbox: held_records.Inbox = {}
        self.wake: Callable[[], None] = lambda: None
        self.look: Callable[[], Awaitable[held_records.PresentRecords | None]] = _nobody_looks
        self.news = asyncio.Event()
        self.generation = 0
        self.fenced_by = 0
        self.store = ""
        self.other_store: Callable[[], RequestRefusal] | None = None
        self.heartbeat: protocol.Heartbeat | None = None
        self.arriving = False
        self.store_reachable = False
        self.heartbeat_up = False
        self._leaderless_at: float | None = None
        self.ending = False
        self._clock = clock
        self._wall_clock = wall_clock
        self._introduced_at: float | None = None
        self._contact = DriverLiveness()
        self._lines: set[DriverConnection] = set()

    @property
    def fenced(self) -> bool:
        """Whether the store has a newer driver than the one here."""
        return 0 < self.generation < self.fenced_by

    @property
    def led(self) -> bool:
        """Whether a coordinator leads, or one did until a moment ago."""
        at = self._leaderless_at
        return at is None or self._clock() - at < LEADERLESS_SECONDS

    def note_leader(self, *, there: bool) -> None:
        """Whether the store shows a coordinator that leads."""
        if not there and self._leaderless_at is None:
            self._leaderless_at = self._clock()
        elif there and self._leaderless_at is not None:
            self._leaderless_at = None
            self.ring()

    def handshake(self, data: bytes, line: DriverConnection, peer: int) -> bytes:
        """Take a driver's introduction; the answer. `peer` is the process at the other end, for a
        driver that does not name its own."""
        hello = _decoded(data, protocol.Handshake, "handshake")
        version = _agreed(hello)
        self._check_place("handshake", hello.namespace, hello.application)
        self._take_store(hello)
        self._refuse_older("handshake", hello.generation)
        if hello.generation > self.generation:
            self.held = held_records.HeldReports()
        self.held.begin_again()
        self.generation, self._introduced_at = hello.generation, self._clock()
        self.heartbeat = self._heartbeat(hello, peer)
        self.arriving = True
        self._hear(line)
        self.wake()
        tell(
            "handshake",
            generation=hello.generation,
            version=version,
            host=self.heartbeat.host,
            process_id=self.heartbeat.process_id,
        )
        return protocol.encode(
            protocol.HandshakeAnswer(
                version=version,
                contact_seconds=self.contact_seconds,
                store_reachable=self.store_reachable,
            )
        )

    async def admission(
        self, namespace: str, application: str, generation: int, store: str
    ) -> bytes:
        """Answer whether a driver would be taken that has not begun. It would be of `generation`;
        `store` is empty where no driver has ever started on its checkpoint store."""
        where = "driver"
        self._check_place(where, namespace, application)
        standing = await self.look()
        if standing is not None:
            for record in (standing.heartbeat, standing.topology):
                if record is not None and record.store and record.store != store:
                    is_there = record is standing.heartbeat
                    raise http_errors.other_store(self.place, record.generation, is_there=is_there)
                if record is not None and record.generation > generation:
                    raise http_errors.fenced(where, generation, record.generation)
        return msgspec.json.encode({"store_reachable": standing is not None})

    def report(self, data: bytes, line: DriverConnection) -> bytes:
        """Take a report; the answer."""
        report = _report(data)
        self._admit("report", report.generation, line)
        name = held_records.KINDS[type(report)]
        of_store = report.store if isinstance(report, protocol.TopologyReport) else ""
        stamp = held_records.Stamp(report.generation, report.sequence, of_store)
        self.figures.reports[name] += 1
        if not self.held.take(held_records.HeldReport(name, stamp, protocol.encode(report))):
            self.figures.repeated += 1
        elif isinstance(report, protocol.ProgressReport):
            self.figures.late_rows = report.late_rows
            self.figures.sources = report.sources
        self.wake()
        return msgspec.json.encode(
            {
                "store_reachable": self.store_reachable,
                "contact_seconds": self.contact_seconds,
                "led": self.led,
            }
        )

    def acknowledge(self, data: bytes, line: DriverConnection) -> bytes:
        """Take an acknowledgement; the answer."""
        ack = _decoded(data, protocol.Acknowledgement, "acknowledgement")
        self._admit("acknowledgement", ack.generation, line)
        if self.held.acknowledge(ack.sequence, protocol.encode(ack)):
            self.figures.acks[ack.outcome] += 1
            tell("acknowledged", sequence=ack.sequence, outcome=ack.outcome, text=ack.text[:200])
        self.wake()
        return msgspec.json.encode({"store_reachable": self.store_reachable})

    async def directives(
        self, after: int, generation: int, wait: float, line: DriverConnection
    ) -> bytes:
        """All directives behind number `after`, as soon as there is one, or none after a while."""
        self._admit("directives", generation, line)
        self._contact = polling(self._contact, 1, self._clock())
        try:
            found = await self._next_directives(after, generation, wait)
        finally:
            self._contact = polling(self._contact, -1, self._clock())
        self.figures.directives += len(found)
        for envelope in found:
            tell("directive", sequence=envelope.sequence, generation=generation)
        return msgspec.json.encode(
            {
                "directives": [envelope.data for envelope in found],
                "store_reachable": self.store_reachable,
                "led": self.led,
            }
        )

    def health(self) -> dict[str, Any]:
        """How things are, for people."""
        return {
            "place": str(self.place),
            "generation": self.generation or None,
            "fenced_by": self.fenced_by if self.fenced else None,
            "store_reachable": self.store_reachable,
            "heartbeat_up": self.heartbeat_up,
            "led": self.led,
            "driver_heard_seconds": self.heard_seconds(),
            "held": len(self.held),
            "versions": {"oldest": protocol.VERSION_OLDEST, "newest": protocol.VERSION},
        }

    def heard_seconds(self) -> float | None:
        """How long ago the driver was heard of; None when it never was."""
        heard_at = self._contact.heard_at
        if heard_at is None:
            return None
        return 0.0 if self._contact.polls else round(self._clock() - heard_at, 3)

    def wanted_heartbeat(self) -> protocol.Heartbeat | None:
        """The heartbeat that the store should have; None while the driver is away or fenced."""
        now = self._clock()
        self._lines = {line for line in self._lines if not line.is_closing()}
        self._contact = connected(self._contact, len(self._lines), now)
        there = is_there(self._contact, now, self.contact_seconds)
        fenced = self.generation < self.fenced_by or self.other_store is not None
        return self.heartbeat if there and not fenced else None

    def fence(self, newer: int) -> None:
        """The store has something of a generation: older drivers end, their requests first."""
        if newer <= self.fenced_by:
            return
        self.fenced_by = newer
        if self.fenced:
            self.held = held_records.HeldReports()
            tell("fenced", generation=self.generation, by=newer)
        self.ring()

    def refuse_store(self, generation: int, *, is_there: bool) -> None:
        """The coordination store has the history of another checkpoint store, up to `generation`,
        whose driver `is_there` or not: the one here ends, its requests first."""
        self.other_store = partial(
            http_errors.other_store, self.place, generation, is_there=is_there
        )
        self.held = held_records.HeldReports()
        tell("other-store", generation=self.generation, known=generation)
        self.ring()

    def refill(self, found: held_records.Inbox) -> None:
        """The directives that are in the store now."""
        self.inbox = found
        self.ring()

    def miss_topology(self) -> None:
        """The store has no topology for the reports that are held: unless it may still come, let
        the driver introduce itself again, and with that say everything."""
        at = self._introduced_at
        may_come = at is None or self._clock() - at <= TOPOLOGY_SECONDS
        if not may_come and not self.held.holds(store_paths.TOPOLOGY):
            self._introduced_at = None
            tell("topology-missing", generation=self.generation)

    def end(self) -> None:
        """Answer open long polls: the sidecar ends."""
        self.ending = True
        self.ring()

    def ring(self) -> None:
        """Let open long polls look again."""
        self.news.set()
        self.news = asyncio.Event()

    async def _next_directives(
        self, after: int, generation: int, wait: float
    ) -> list[held_records.Envelope]:
        end, led = self._clock() + wait, self.led
        while True:
            self._refuse_older("directives", generation)
            found = held_records.choose_directives(self.inbox.values(), after, generation)
            left = end - self._clock()
            if found or left <= 0 or self.ending or led != self.led:
                return found
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self.news.wait()

    def _admit(self, where: str, generation: int, line: DriverConnection) -> None:
        """Let only the driver in that the last handshake was of."""
        self._refuse_older(where, generation)
        if self._introduced_at is None or generation != self.generation:
            error = InputError(
                where=where,
                what=f"comes from generation {generation} without a handshake",
                remedy="send a handshake, then the newest report of each kind again",
            )
            raise RequestRefusal(428, Cause.NO_HANDSHAKE, error)
        self._hear(line)

    def _check_place(self, where: str, namespace: str, application: str) -> None:
        if (namespace, application) != (self.place.namespace, self.place.application):
            raise http_errors.malformed(
                InputError(
                    where=where,
                    what=f"is of {namespace}/{application}, not of {self.place}",
                    remedy="give each driver the socket of its own sidecar",
                )
            )

    def _take_store(self, hello: protocol.Handshake) -> None:
        """Begin again where the driver has another checkpoint store than the one before, or one
        whose generations begin anew."""
        self.other_store = None  # whether it is one is to be seen again
        begins = not self.store and hello.generation < self.generation
        if hello.store and (begins or held_records.are_foreign(self.store, hello.store)):
            self.generation = self.fenced_by = 0
            self.held = held_records.HeldReports()
        self.store = hello.store or self.store

    def _refuse_older(self, where: str, generation: int) -> None:
        if self.other_store is not None:
            raise self.other_store()
        newer = max(self.generation, self.fenced_by)
        if generation < newer:
            raise http_errors.fenced(where, generation, newer)

    def _hear(self, line: DriverConnection) -> None:
        self._lines = {known for known in self._lines if not known.is_closing()} | {line}
        self._contact = heard(self._contact, self._clock())
        if not self.heartbeat_up:
            self.wake()

    def _heartbeat(self, hello: protocol.Handshake, peer: int) -> protocol.Heartbeat:
        """The standing one where the same driver introduces itself again."""
        heartbeat = protocol.Heartbeat(
            generation=hello.generation,
            since=self._wall_clock(),
            host=hello.host or socket.gethostname(),
            process_id=hello.process_id or peer,
            store=hello.store,
        )
        known = self.heartbeat
        if known is not None and known == msgspec.structs.replace(heartbeat, since=known.since):
            return known
        return heartbeat


def _agreed(hello: protocol.Handshake) -> int:
    try:
        return protocol.agree(hello.oldest, hello.newest)
    except InputError as error:
        versions = {
            "sidecar": {"oldest": protocol.VERSION_OLDEST, "newest": protocol.VERSION},
            "driver": {"oldest": hello.oldest, "newest": hello.newest},
        }
        raise RequestRefusal(426, Cause.VERSION, error, versions) from error


def _decoded(data: bytes, kind: Any, where: str) -> Any:
    try:
        return protocol.decode(data, kind, where)
    except InputError as error:
        raise http_errors.malformed(error) from error


def _report(data: bytes) -> AnyReport:
    try:
        return cast(AnyReport, protocol.decode(data, cast(Any, AnyReport), "report"))
    except InputError as error:
        raise http_errors.malformed(_unknown_kind(data) or error) from error


def _unknown_kind(data: bytes) -> InputError | None:
    try:
        kind = msgspec.json.decode(data, type=_Kind).kind
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if kind in held_records.KINDS.values():
        return None
    return InputError(
        where="report: kind",
        what=f"{kind[:60]!r} is not known here",
        remedy=f"send one of {', '.join(held_records.KINDS.values())}",
    )
