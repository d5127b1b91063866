"""The simulation's model of the coordination store, behind the interface of a real connection.

For tests of what stands on a connection: the same promises and the same errors, at once and in one
thread. Who was first leads.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rekindle_simulation import simulated_store
from rekindle_zookeeper import Conflict, StoreUnreachable
from rekindle_zookeeper.chunked_records import RecordStat


@dataclass(eq=False)
class SharedStore:
    """What several connections have in common; `reads` counts the reads of each record. `written`
    has when each was written, by the clock `now`."""

    store: simulated_store.SimulatedStore = field(default_factory=simulated_store.SimulatedStore)
    reads: dict[str, int] = field(default_factory=dict)
    candidates: list["ElectionInMemory"] = field(default_factory=list)
    now: float = 0.0
    written: dict[str, float] = field(default_factory=dict)

    def connect(self) -> "ConnectionInMemory":
        connection = ConnectionInMemory(self)
        self.store.watchers.append(connection.notice)
        return connection


@dataclass(frozen=True)
class SentRead:
    """The answer to a read, which nobody has taken yet."""

    found: tuple[bytes, int] | None


@dataclass(eq=False)
class ElectionInMemory:
    shared: SharedStore
    connection: "ConnectionInMemory"
    on_change: Callable[[], None]

    @property
    def leads(self) -> bool:
        return self.connection.reachable and self.shared.candidates[0] is self

    @property
    def term(self) -> int | None:
        return self.connection.session

    def close(self) -> None:
        self.shared.candidates.remove(self)
        for candidate in self.shared.candidates:
            candidate.on_change()


@dataclass(eq=False)
class ConnectionInMemory:
    """`answer_lost`: the next transaction is carried out, and nobody is told. `fired` are watches
    of which nothing is heard again until somebody has read. While it is `silent` no read is sent
    ahead."""

    shared: SharedStore
    reachable: bool = True
    session: int | None = 1
    answer_lost: bool = False
    silent: bool = False
    watches: dict[str, Callable[[], None]] = field(default_factory=dict)
    callbacks: list[Callable[[], None]] = field(default_factory=list)
    fired: set[str] = field(default_factory=set)

    def on_change(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def mend(self) -> None:
        """Be connected again."""
        self.reachable = True
        self.fired.clear()
        for callback in (*self.watches.values(), *self.callbacks):
            callback()

    def notice(self, path: str) -> None:
        """A record has changed: tell who watches it or a folder that it lies in."""
        for watched, callback in list(self.watches.items()):
            if not self.reachable or watched in self.fired:
                continue
            if path == watched or path.startswith(f"{watched}/"):
                self.fired.add(watched)
                callback()

    def send_read(self, path: str) -> SentRead | None:
        """As it is now: the answer is not taken before something else may have changed it. A record
        that is not there has no watch yet."""
        if not self.reachable or self.silent:
            return None
        self.shared.reads[path] = self.shared.reads.get(path, 0) + 1
        found = self.shared.store.get(path)
        if found is not None:
            self.fired.discard(path)
        return SentRead(found)

    def get(self, path: str, sent: SentRead | None = None) -> tuple[bytes, int] | None:
        self._answer()
        if sent is not None and sent.found is not None:
            return sent.found
        self.fired.discard(path)
        if sent is None:
            self.shared.reads[path] = self.shared.reads.get(path, 0) + 1
        return self.shared.store.get(path)

    def children(self, path: str) -> list[str]:
        self._answer()
        self.fired.discard(path)
        return sorted({name.partition("/")[0] for name in self.shared.store.children(path)})

    def stats(self, paths: Sequence[str]) -> dict[str, RecordStat]:
        self._answer()
        return {path: self._stat(path) for path in paths if self._is_there(path)}

    def put(self, path: str, data: bytes, *, ephemeral: bool = False) -> None:
        del ephemeral
        self.transact({}, {path: data})

    def transact(
        self, expected: Mapping[str, int | None], writes: Mapping[str, bytes]
    ) -> dict[str, int]:
        self._answer()
        try:
            self.shared.store.transact(expected, writes, None)
        except simulated_store.SimulatedConflict as error:
            raise Conflict(*error.args) from error
        self.shared.written |= dict.fromkeys(writes, self.shared.now)
        if self.answer_lost:
            self.answer_lost = False
            raise unreachable()
        return {path: self.shared.store.records[path][1] for path in writes}

    def remove(self, path: str, version: int | None = None) -> None:
        self._answer()
        found = self.shared.store.get(path)
        if version is not None and (found is None or found[1] != version):
            raise Conflict(path)
        self.shared.store.remove(path)

    def remove_together(
        self, removed: Mapping[str, int], expected: Mapping[str, int | None]
    ) -> None:
        self._answer()
        for path, version in {**expected, **removed}.items():
            if (self._stat(path).version if self._is_there(path) else None) != version:
                raise Conflict(path)
        for path in removed:
            below = {f"{path}/{name}" for name in self.shared.store.children(path)}
            if below - removed.keys():
                raise Conflict(path)
        for path in removed:
            self.shared.store.remove(path)

    def _is_there(self, path: str) -> bool:
        """A folder is there while there is a record in it."""
        return self.shared.store.get(path) is not None or bool(self.shared.store.children(path))

    def _stat(self, path: str) -> RecordStat:
        found = self.shared.store.get(path)
        return RecordStat(0 if found is None else found[1], self.shared.written.get(path, 0.0))

    def sweep(self, folder: str, seen: Mapping[str, int]) -> dict[str, int]:
        """No record is split here."""
        del folder, seen
        self._answer()
        return {}

    def unwatch(self, path: str) -> None:
        self.watches.pop(path, None)
        self.fired.discard(path)

    def watch(self, path: str, callback: Callable[[], None]) -> None:
        self.watches[path] = callback

    def elect(self, path: str, identity: str, on_change: Callable[[], None]) -> ElectionInMemory:
        del path, identity
        election = ElectionInMemory(self.shared, self, on_change)
        self.shared.candidates.append(election)
        return election

    def close(self) -> None:
        self.reachable = False

    def _answer(self) -> None:
        if not self.reachable:
            raise unreachable()


def unreachable() -> StoreUnreachable:
    return StoreUnreachable(where="store", what="no answer", remedy="wait")
