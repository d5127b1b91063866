"""Records that wait in the sidecar: reports for the store, directives for the driver.

Several sidecars may write at once: one that stood still goes on, a driver was started twice. A
record gives way only to a newer one, and every write is made on the condition that what it was
compared with is still there. Pure; `store_sync` and `sidecar_session` call it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from rekindle import protocol
from rekindle.protocol import store_paths
from rekindle_sidecar.json_log import tell
from rekindle_zookeeper import Connection


class Precedence(StrEnum):
    """Of our record over the one in the store."""

    WRITE = "write"
    KEEP = "keep"
    FENCED = "fenced"  # and its driver has to end
    FOREIGN = "foreign"  # of another checkpoint store, and our driver has to end


@dataclass(frozen=True, slots=True, order=True)
class Stamp:
    """What every report has; the higher one is newer. `store` is of a topology: generations of
    different checkpoint stores say nothing about each other."""

    generation: int
    sequence: int
    store: str = field(default="", compare=False)


def are_foreign(one: str, other: str) -> bool:
    """Whether two checkpoint stores are known not to be the same."""
    return bool(one and other and one != other)


def stamp_of(data: bytes) -> Stamp | None:
    """The stamp of a report in the store; None for what is no report."""
    try:
        return msgspec.json.decode(data, type=Stamp)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


@dataclass(frozen=True, slots=True)
class PresentRecords:
    """What stands in the store of an application, as far as it decides whether a driver is taken;
    None for what is not there."""

    heartbeat: protocol.Heartbeat | None
    topology: Stamp | None


def compare(standing: Stamp | None, ours: Stamp) -> Precedence:
    """Of a report over the one that stands."""
    if standing is not None and are_foreign(standing.store, ours.store):
        return Precedence.FOREIGN
    if standing is None or standing < ours:
        return Precedence.WRITE
    return Precedence.FENCED if standing.generation > ours.generation else Precedence.KEEP


def compare_heartbeats(
    standing: protocol.Heartbeat | None, ours: protocol.Heartbeat, arriving: bool
) -> Precedence:
    """Of a heartbeat over the one that stands.

    Of two of one generation the driver has chosen the sidecar where it is `arriving`: there the
    handshake is news. Otherwise the one that stands is left alone, or both would take turns.
    """
    if standing is None:
        return Precedence.WRITE
    if are_foreign(standing.store, ours.store):
        return Precedence.FOREIGN
    if standing.generation > ours.generation:
        return Precedence.FENCED
    if standing.generation == ours.generation and (standing == ours or not arriving):
        return Precedence.KEEP
    return Precedence.WRITE


# Reports and acknowledgements that the store has not taken yet.
#
# Of each kind only the newest report is held, for it says all that the earlier ones said; of each
# directive the first acknowledgement, for a repeated directive is refused. So an outage of any
# length takes no more room, and what is written after it is how things are then.

ACKS_MAX = 1_000
# In the order in which they are written: no coordinator meets a report without its topology.
KINDS = {
    protocol.TopologyReport: store_paths.TOPOLOGY,
    protocol.StatisticsReport: store_paths.STATISTICS,
    protocol.ProgressReport: store_paths.PROGRESS,
    protocol.CheckpointReport: store_paths.CHECKPOINT,
}


@dataclass(frozen=True, slots=True)
class HeldReport:
    """A report for the record `name`, as it will stand there."""

    name: str
    stamp: Stamp
    data: bytes


class HeldReports:
    """What one driver has said."""

    def __init__(self) -> None:
        self._reports: dict[str, HeldReport] = {}
        self._newest: dict[str, Stamp] = {}
        self._acks: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._reports) + len(self._acks)

    @property
    def acks(self) -> Mapping[int, bytes]:
        """Acknowledgements by the number of their directive."""
        return self._acks

    def begin_again(self) -> None:
        """The driver is about to say everything again: what the store has is compared there."""
        self._newest = {name: report.stamp for name, report in self._reports.items()}

    def take(self, report: HeldReport) -> bool:
        """Hold a report; whether it is newer than all of its kind before."""
        newest = self._newest.get(report.name)
        if newest is not None and report.stamp <= newest:
            return False
        self._newest[report.name] = report.stamp
        self._reports[report.name] = report
        return True

    def acknowledge(self, sequence: int, data: bytes) -> bool:
        """Hold an acknowledgement; whether it is the first of its directive."""
        if sequence in self._acks:
            return False
        self._acks[sequence] = data
        if len(self._acks) > ACKS_MAX:
            del self._acks[min(self._acks)]
        return True

    def holds(self, name: str) -> bool:
        """Whether a report for the record `name` is held."""
        return name in self._reports

    def next(self, topology: Stamp | None) -> HeldReport | None:
        """The report to write now, the store's topology being `topology`: any other than a topology
        waits until that of its generation is there."""
        for name in KINDS.values():
            report = self._reports.get(name)
            if report is None:
                continue
            readable = topology is not None and topology.generation == report.stamp.generation
            if name == store_paths.TOPOLOGY or readable:
                return report
        return None

    def settled(self, report: HeldReport) -> None:
        """The store has it, or a newer one; one that has come since stays held."""
        if self._reports.get(report.name) == report:
            del self._reports[report.name]

    def acknowledged(self, sequence: int) -> None:
        """The store has the acknowledgement."""
        self._acks.pop(sequence, None)


# Directives that a driver may still want, as the store has them.
#
# They are handed on byte for byte: one of a kind that only a newer driver knows reaches it, and
# one that a driver does not know it refuses itself. Only numbers and generation are looked at.


class Envelope(msgspec.Struct, frozen=True):
    """What is looked at of a directive, and the whole of it."""

    sequence: int
    generation: int
    after: int = 0
    data: msgspec.Raw = msgspec.Raw()


# by name; None for what is no directive
Inbox = Mapping[str, Envelope | None]


def fetch_directives(
    connection: Connection, place: store_paths.Place, known: Inbox
) -> dict[str, Envelope | None]:
    """What is in the store now; what is known is not read again. Asks the store."""
    inbox: dict[str, Envelope | None] = {}
    for name in connection.children(place.path(store_paths.DIRECTIVES)):
        if name == store_paths.GUARD:
            continue
        if name in known:
            inbox[name] = known[name]
            continue
        found = connection.get(place.path(store_paths.DIRECTIVES, name))
        if found is not None:
            inbox[name] = read_directive(name, found[0])
    return inbox


def read_directive(name: str, data: bytes) -> Envelope | None:
    """The directive `name`; None, and a line in the log, for what is none."""
    try:
        envelope = msgspec.json.decode(data, type=Envelope)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        tell("directive-unreadable", name=name, text=str(error)[:200])
        return None
    if store_paths.numbered(envelope.sequence) != name:
        tell("directive-unreadable", name=name, text=f"it says that it is {envelope.sequence}")
        return None
    return msgspec.structs.replace(envelope, data=msgspec.Raw(data))


def choose_directives(
    envelopes: Iterable[Envelope | None], after: int, generation: int
) -> list[Envelope]:
    """All directives to a generation behind number `after`, in order; as many as fit into one
    message, the first at any rate. One whose predecessor is missing is kept back: the driver could
    only ask again at once."""
    wanted = [
        envelope
        for envelope in envelopes
        if envelope is not None and envelope.generation == generation and envelope.sequence > after
    ]
    chosen: list[Envelope] = []
    room = protocol.MESSAGE_BYTES_MAX * 9 // 10  # the rest is for what is around them
    for envelope in sorted(wanted, key=lambda envelope: envelope.sequence):
        room -= len(bytes(envelope.data))
        if envelope.after > after or (room < 0 and chosen):
            break
        chosen.append(envelope)
        after = envelope.sequence
    return chosen
