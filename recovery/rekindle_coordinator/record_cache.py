"""One application's records: read again only when they may have changed, decoded once.

A record that cannot be read is kept as trouble until it has been replaced; `reading` raises it.
What is decided from a reading is the desk's. Used by one thread; watches only say what is stale.
"""

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from rekindle import protocol
from rekindle.coordination import session
from rekindle.coordination.coordination_state import NodeStatus
from rekindle.coordination.session import ApplicationReading, Case
from rekindle.model.errors import RekindleError
from rekindle.protocol import store_paths
from rekindle.protocol.store_paths import Place
from rekindle_zookeeper import Connection, StoreUnreachable

Decoder = Callable[[bytes, str], Any]


def _topology(data: bytes, where: str) -> protocol.TopologyReport:
    report = protocol.decode(data, protocol.TopologyReport, where)
    report.topology.checked()
    return report


def _decoder(kind: type) -> Decoder:
    return lambda data, where: protocol.decode(data, kind, where)


DECODERS: dict[str, Decoder] = {
    store_paths.TOPOLOGY: _topology,
    store_paths.STATISTICS: _decoder(protocol.StatisticsReport),
    store_paths.PROGRESS: _decoder(protocol.ProgressReport),
    store_paths.CHECKPOINT: _decoder(protocol.CheckpointReport),
    store_paths.HEARTBEAT: _decoder(protocol.Heartbeat),
    store_paths.ORDERS: _decoder(protocol.Orders),
    store_paths.COORDINATION: session.from_record,
}
NAMES = tuple(DECODERS)


@dataclass(frozen=True, slots=True)
class _Found:
    """A record as it was read last: `digest` tells one of the same version, made anew, apart."""

    version: int
    digest: int
    value: Any


@dataclass(slots=True)
class RecordCache:
    """What the store holds of one application, as far as it was read. `heartbeat` is the newest
    ever seen."""

    connection: Connection
    place: Place
    heartbeat: protocol.Heartbeat | None = None
    _stale: set[str] = field(default_factory=lambda: set(NAMES))
    _found: dict[str, _Found] = field(default_factory=dict)
    _troubles: dict[str, RekindleError] = field(default_factory=dict)
    # reads whose answers nobody has taken yet
    _sent: dict[str, Any] = field(default_factory=dict)

    def mark(self, names: Iterable[str]) -> None:
        """Records that may have changed: a read that was sent before that does not count."""
        for name in names:
            self._stale.add(name)
            self._sent.pop(name, None)

    def send_reads(self, *leave: str) -> None:
        """Send reads of records that may have changed, but not of `leave`, without waiting for
        answers. In the order of `refresh`: a case is never older than the report beside it."""
        wanted = self._stale.difference(leave, self._sent)
        for name in (name for name in NAMES if name in wanted):
            self._sent[name] = self.connection.send_read(self.place.path(name))

    def refresh(self, *leave: str) -> bool:
        """Read what may have changed, but not `leave`; whether there is news.

        Raises StoreUnreachable. What was not read by then, or is not sound, stays marked.
        """
        self._stale.difference_update(leave)
        news = False
        for name in [name for name in NAMES if name in self._stale]:
            news |= self._read(name)
            if name not in self._troubles:
                self._stale.discard(name)
        return news

    def reading(self, nodes_gone: frozenset[str], driver_gone: bool) -> ApplicationReading | None:
        """All of it as one value; None for an application without a driver's topology so far.

        Raises the trouble with a record.
        """
        for trouble in self._troubles.values():
            raise trouble
        if store_paths.TOPOLOGY not in self._found:
            return None
        return ApplicationReading(
            topology=self._value(store_paths.TOPOLOGY),
            progress=self._value(store_paths.PROGRESS),
            statistics=self._value(store_paths.STATISTICS),
            checkpoint=self._value(store_paths.CHECKPOINT),
            heartbeat=self._value(store_paths.HEARTBEAT),
            orders=self._value(store_paths.ORDERS) or protocol.Orders(),
            nodes_gone=nodes_gone,
            driver_gone=driver_gone,
        )

    @property
    def generation(self) -> int:
        """Of the newest driver that has reported its topology, 0 without one."""
        report = self._value(store_paths.TOPOLOGY)
        return 0 if report is None else int(report.generation)

    @property
    def is_silent(self) -> bool:
        """Whether the newest driver has no heartbeat."""
        heartbeat = self._value(store_paths.HEARTBEAT)
        return heartbeat is None or heartbeat.generation != self.generation

    @property
    def urgency(self) -> int:
        """Who comes first when another one has stopped leading: 2 when a plan is due, or the driver
        reports other nodes than the coordinator knew; 1 in any other incident; else 0."""
        case, progress = self._value(store_paths.COORDINATION), self._value(store_paths.PROGRESS)
        if case is None or case.kept is None:
            return 0
        known = {
            node: view.incarnation
            for node, view in case.kept.nodes.items()
            if view.status is not NodeStatus.LOST
        }
        seen = {} if progress is None else progress.nodes
        if case.kept.due is not None or known != {n: s.incarnation for n, s in seen.items()}:
            return 2
        return int(case.kept.incident is not None)

    @property
    def case(self) -> Case:
        """The coordinator's case as it was read last; an empty one where there is none, or whoever
        decides has taken it."""
        return self._value(store_paths.COORDINATION) or Case()

    def take_case(self) -> tuple[Case, int | None]:
        """The coordinator's case, and its version for a transaction. It is not kept here: whoever
        decides has a newer one from now on."""
        found = self._found.pop(store_paths.COORDINATION, None)
        if found is not None:
            return found.value, found.version
        # a record that was lost must not give its numbers a second time
        newest = max(self.directives() | self._numbers(store_paths.ACKS), default=0)
        return Case(sequence=newest, base=newest), None

    def directives(self) -> frozenset[int]:
        """Numbers of the directives in the store. Asks it."""
        return self._numbers(store_paths.DIRECTIVES)

    def _numbers(self, folder: str) -> frozenset[int]:
        return frozenset(store_paths.numbers(self.connection.children(self.place.path(folder))))

    def _value(self, name: str) -> Any:
        found = self._found.get(name)
        return None if found is None else found.value

    def _read(self, name: str) -> bool:
        """Read one record; whether it is another one than before, or no longer sound."""
        try:
            found = self._newest(name)
        except StoreUnreachable:
            raise
        except RekindleError as trouble:
            before = self._troubles.get(name)
            self._found.pop(name, None)
            self._troubles[name] = trouble
            return before is None or str(before) != str(trouble)
        known = self._found.get(name)
        if found is None:
            self._found.pop(name, None)
        else:
            self._found[name] = found
        return self._troubles.pop(name, None) is not None or found is not known

    def _newest(self, name: str) -> _Found | None:
        """What stands there now, decoded unless it has been before."""
        path = self.place.path(name)
        read = self.connection.get(path, self._sent.pop(name, None))
        if read is None:
            return None
        data, version = read
        known, digest = self._found.get(name), zlib.crc32(data)
        if known is not None and (known.version, known.digest) == (version, digest):
            return known
        found = _Found(version, digest, DECODERS[name](data, path))
        if name == store_paths.HEARTBEAT:
            self.heartbeat = found.value
        return found
