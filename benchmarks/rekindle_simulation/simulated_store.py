"""A model of the coordination store: records with versions, sessions, transactions.

What ZooKeeper promises and no more: writes happen one after another, a transaction as a whole or
not at all, a session ends some time after its owner was last heard, and its records with it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

SESSION_SECONDS = 10.0
# what is written after a restore has another version than anything before it
RESTORED_VERSIONS = 1_000_000


class SimulatedOutage(Exception):
    """The store does not answer."""


class SimulatedConflict(Exception):
    """A record is not at the version that the transaction was made for."""


class Expired(Exception):
    """The session has ended."""


@dataclass(slots=True)
class SimulatedStore:
    """Records by path. `watchers` are called after each change, with its path."""

    reachable: bool = True
    records: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    owners: dict[str, int] = field(default_factory=dict)
    sessions: dict[int, float] = field(default_factory=dict)
    opened: int = 0
    watchers: list[Callable[[str], None]] = field(default_factory=list)
    restores: int = 0

    def open(self, now: float) -> int:
        """A new session."""
        self._answer()
        self.opened += 1
        self.sessions[self.opened] = now
        return self.opened

    def touch(self, session: int, now: float) -> None:
        """The owner of a session is heard."""
        self._answer()
        if session not in self.sessions:
            raise Expired
        self.sessions[session] = now

    def expire(self, now: float) -> None:
        """End sessions that were not heard for too long; none while nobody could be heard."""
        if not self.reachable:
            self.sessions = dict.fromkeys(self.sessions, now)
            return
        for session, heard in list(self.sessions.items()):
            if now - heard > SESSION_SECONDS:
                del self.sessions[session]
                for path in [path for path, owner in self.owners.items() if owner == session]:
                    self.remove(path)

    def get(self, path: str) -> tuple[bytes, int] | None:
        """A record and its version."""
        self._answer()
        return self.records.get(path)

    def children(self, path: str) -> list[str]:
        """Names below a path, ascending."""
        self._answer()
        prefix = f"{path}/"
        return sorted(found[len(prefix) :] for found in self.records if found.startswith(prefix))

    def transact(
        self, expected: Mapping[str, int | None], writes: Mapping[str, bytes], session: int | None
    ) -> None:
        """Write all if every record of `expected` is at its version (None: not there)."""
        self._answer()
        for path, version in expected.items():
            found = self.records.get(path)
            if (None if found is None else found[1]) != version:
                raise SimulatedConflict(path)
        for path, data in writes.items():
            self.records[path] = (data, self.records.get(path, (b"", 0))[1] + 1)
            if session is not None:
                self.owners[path] = session
        for path in writes:
            self._changed(path)

    def put(self, path: str, data: bytes, session: int | None = None) -> None:
        """Write a record whatever is there."""
        self.transact({}, {path: data}, session)

    def remove(self, path: str) -> None:
        """Remove a record, if it is there."""
        self.owners.pop(path, None)
        if self.records.pop(path, None) is not None:
            self._changed(path)

    def lose(self, paths: Iterable[str]) -> None:
        """Records are gone, whoever owns them."""
        for path in list(paths):
            self.remove(path)

    def copied(self) -> dict[str, bytes]:
        """All lasting records, as a copy of the disks has them."""
        return {path: data for path, (data, _) in self.records.items() if path not in self.owners}

    def restore(self, copy: Mapping[str, bytes]) -> None:
        """Have what a copy has and nothing else; all sessions end."""
        self.restores += 1
        gone = set(self.records) - set(copy)
        self.sessions = {}
        self.owners = {}
        version = self.restores * RESTORED_VERSIONS
        self.records = {path: (data, version) for path, data in copy.items()}
        for path in sorted(gone | set(copy)):
            self._changed(path)

    def _answer(self) -> None:
        if not self.reachable:
            raise SimulatedOutage

    def _changed(self, path: str) -> None:
        for watcher in self.watchers:
            watcher(path)
