"""Records as a whole, whatever their size: read, and written on conditions.

    transact   look ──► compare ──► pieces ──► one transaction ──► the pieces of what it replaced
                ▲                                  │
                └── something has changed since ───┘

Nothing counts before the transaction, and it demands that all is as it looked. What we have written
ourselves is replaced without a look, unless that fails. The version of a record is the number of
its changes; one that is removed and made again begins anew. `zookeeper_connection` calls it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from kazoo import exceptions
from kazoo.client import KazooClient, TransactionRequest
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.states import WatchedEvent, ZnodeStat
from kazoo.security import ACL

from rekindle.model.errors import RunError
from rekindle.protocol import store_paths
from rekindle_zookeeper.sessions import EXPECTED, Conflict, Sessions

# Records that are too large for one message: pieces first, then the head that names them.
#
#     write   pieces ──► one transaction: every piece is there, and the head takes its place
#     read    head ──► pieces; when they have gone meanwhile, the head again
#
# So a head never names a piece that is not there, whoever else writes or removes pieces of the
# same content.

HEAD_BYTES_MAX = 200
# of the data in a transaction; the servers take messages of 1 MiB
TRANSACTION_BYTES_MAX = 800_000
# /rekindle/v1/NAMESPACE/APPLICATION
APPLICATION_DEPTH = 2
# records that need no look before they are replaced; of others, also of those that are gone, none
WHOLE_KNOWN_MAX = 20_000


class RecordStat(NamedTuple):
    """The version of a record, and when it was written, in seconds since 1970 by the servers'
    clocks."""

    version: int
    written_at: float


@dataclass(frozen=True, slots=True)
class WrittenRecord:
    """What stands at the record's own place, and its pieces by path."""

    data: bytes
    pieces: Mapping[str, bytes]


def prepare(writes: Mapping[str, bytes]) -> dict[str, WrittenRecord]:
    """What to write for each record of one transaction, so that all of it fits."""
    whole = sum(map(len, writes.values()))
    prepared = {}
    for path, data in sorted(writes.items(), key=lambda item: (-len(item[1]), item[0])):
        crowded = whole > TRANSACTION_BYTES_MAX and len(data) > HEAD_BYTES_MAX
        if len(data) > store_paths.PIECE_BYTES or crowded:
            prepared[path] = _split(path, data)
            whole -= len(data)
        else:
            prepared[path] = WrittenRecord(data, {})
    return prepared


def folder(path: str) -> str:
    """Where the pieces of a record lie: with those of its application."""
    names = path.removeprefix(f"{store_paths.APPLICATIONS}/").split("/")
    if not path.startswith(f"{store_paths.APPLICATIONS}/") or len(names) <= APPLICATION_DEPTH:
        raise RunError(
            where=f"coordination store: {path}",
            what="is too large, and belongs to no application",
            remedy=f"keep it below {store_paths.PIECE_BYTES} bytes",
        )
    return "/".join((store_paths.APPLICATIONS, *names[:APPLICATION_DEPTH], store_paths.PIECES))


def named(path: str, found: bytes) -> tuple[str, ...]:
    """Paths of the pieces that the record `found` at `path` names; none when it is whole."""
    try:
        names = store_paths.pieces(found) if len(found) <= HEAD_BYTES_MAX else ()
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(
            where=f"coordination store: {path}",
            what="names its pieces in a way that nobody reads",
            remedy="remove it",
        ) from error
    return tuple(f"{folder(path)}/{name}" for name in names)


def _split(path: str, data: bytes) -> WrittenRecord:
    head = store_paths.head(data)
    return WrittenRecord(head, dict(zip(named(path, head), store_paths.split(data), strict=True)))


# The steps of a ZooKeeper transaction: each demands that a record is as it looked before.
#
# A transaction does all of its steps or none.

Step = Callable[[TransactionRequest], None]


def require(path: str, version: int | None) -> Step:
    """The record is at that version, None: not there."""

    def step(transaction: TransactionRequest) -> None:
        if version is not None:
            transaction.check(path, version)
        else:  # there is no check for absence
            transaction.create(path)
            transaction.delete(path)

    return step


def require_some(path: str) -> Step:
    """The record is there, at whatever version."""
    return lambda transaction: transaction.check(path, -1)


def replace(
    path: str,
    data: bytes,
    version: int | None,
    acl: Sequence[ACL] | None,
    *,
    ephemeral: bool = False,
) -> Step:
    """Change the record that is at that version, or make it where None is given. `acl` is for one
    that is made, None for the client's own."""

    def step(transaction: TransactionRequest) -> None:
        if version is None:
            transaction.create(path, data, acl=acl, ephemeral=ephemeral)
        else:
            transaction.set_data(path, data, version)

    return step


def write(
    path: str,
    data: bytes,
    found: ZnodeStat | None,
    owner: int,
    acl: Sequence[ACL] | None = None,
) -> Step:
    """Make the record, or change the one that was found; `owner` is the session that it goes with,
    0 when it stays. A record cannot change its owner: then it is made anew."""
    kept = found if found is not None and found.ephemeralOwner == owner else None
    version = None if kept is None else kept.version
    put = replace(path, data, version, acl, ephemeral=owner != 0)

    def step(transaction: TransactionRequest) -> None:
        if found is not None and kept is None:
            transaction.delete(path, found.version)
        put(transaction)

    return step


def version_after(found: ZnodeStat | None, owner: int) -> int:
    """The version of the record once `write` has been done."""
    if found is None or found.ephemeralOwner != owner:
        return 0
    version: int = found.version
    return version + 1


def delete(path: str, version: int = -1) -> Step:
    """Remove the record, at that version or whatever it is."""
    return lambda transaction: transaction.delete(path, version)


# others may come between our look and our write, but not for ever
ATTEMPTS_MAX = 10
Watch = Callable[[WatchedEvent], None]


class ChunkedRecords:
    """Of the store, over whatever client there is; `watch_of` (path) is what a read of a record or
    of names arms, None where nobody watches."""

    def __init__(
        self, sessions: Sessions, watch_of: Callable[[str], Watch | None] = lambda _: None
    ) -> None:
        self._sessions = sessions
        self._watch_of = watch_of
        self._parents: set[str] = set()
        # records that were written here at a known version, and without pieces, with the versions
        self._whole: dict[str, int] = {}

    def send_read(self, path: str) -> IAsyncResult | None:
        """Send a read whose answer `get` takes later; None without a connection."""
        watch = self._watch_of(path)
        return self._sessions.send(lambda client: client.get_async(path, watch=watch))

    def get(self, path: str, sent: IAsyncResult | None = None) -> tuple[bytes, int] | None:
        """A record and its version, by a read that was `sent` before if that has an answer; None
        when it is not there."""
        for _ in range(ATTEMPTS_MAX):
            watch = self._watch_of(path)
            earlier, sent = sent, None
            try:
                known = self._sessions.answer(earlier, path)
                found, stat = self._get(path, watch) if known is None else known
            except exceptions.NoNodeError:
                if self._is_absent(path, watch):
                    return None
                continue
            try:
                parts = [self._get(piece)[0] for piece in named(path, found)]
            except exceptions.NoNodeError:
                continue  # the record has been replaced, and these went with it
            return (store_paths.join(found, parts, path) if parts else found), stat.version
        raise _restless(path)

    def children(self, path: str) -> list[str]:
        """Names below a path, ascending; none when it is not there."""
        for _ in range(ATTEMPTS_MAX):
            watch = self._watch_of(path)
            ask = partial(_children, path=path, watch=watch)
            try:
                return sorted(self._run(path, ask))
            except exceptions.NoNodeError:
                if self._is_absent(path, watch):
                    return []
        raise _restless(path)

    def stat(self, path: str) -> ZnodeStat | None:
        """What ZooKeeper tells of a record; None when it is not there."""
        return self._run(path, lambda client: client.exists_async(path))

    def stats(self, paths: Sequence[str]) -> dict[str, RecordStat]:
        """Version and time of several records, of those that are there."""
        found = self._stats(paths, store_paths.APPLICATIONS)
        return {
            path: RecordStat(stat.version, stat.mtime / 1_000)
            for path, stat in found.items()
            if stat is not None
        }

    def pieces(self, path: str, found: ZnodeStat | None) -> tuple[str, ...]:
        """The paths of a record's pieces; none when it is whole or not there."""
        if found is None or found.dataLength > HEAD_BYTES_MAX:
            return ()
        try:
            return named(path, self._get(path)[0])
        except exceptions.NoNodeError:
            return ()

    def transact(
        self,
        expected: Mapping[str, int | None],
        writes: Mapping[str, bytes],
        *,
        ephemeral: bool = False,
    ) -> dict[str, int]:
        """Write all; or, unless every record of `expected` is at its version (None: not there),
        nothing, and raise Conflict. Returns the versions of what was written."""
        prepared = prepare(writes)
        names = ", ".join(writes)
        if not ephemeral and (written := self._commit_unseen(expected, prepared, names)):
            return written
        for _ in range(ATTEMPTS_MAX):
            found = self._stats({*expected, *writes}, names)
            _compare(expected, found)
            replaced = {path: self.pieces(path, found[path]) for path in writes}
            owner = self._sessions.owner(names) if ephemeral else 0
            conditions = [
                require(path, version) for path, version in expected.items() if path not in writes
            ]
            writing = self._writing(prepared, found, owner)
            if self._prepare(prepared) and self.commit([*conditions, *writing], names):
                versions = {path: version_after(found[path], owner) for path in writes}
                self._drop(replaced, prepared, versions)
                if not ephemeral:
                    self._note_whole(expected, prepared, versions)
                return versions
            self._parents.clear()
        raise _restless(names)

    def put(self, path: str, data: bytes) -> None:
        """Write a record whatever is there."""
        self.transact({}, {path: data})

    def remove(self, path: str, version: int | None = None) -> None:
        """Remove a record with its pieces, if it is there; with `version` only that one, and
        raise Conflict when it is another."""
        for _ in range(ATTEMPTS_MAX):
            found = self.stat(path)
            if found is None:
                return
            if version is not None:
                _compare({path: version}, {path: found})
            pieces = [piece for piece in self.pieces(path, found) if self.stat(piece)]
            if self.commit([delete(path, found.version), *map(delete, pieces)], path):
                return
        raise _restless(path)

    def remove_together(
        self, removed: Mapping[str, int], expected: Mapping[str, int | None]
    ) -> None:
        """Remove records that are at these versions, folders after what is in them; or, unless
        every record of `expected` is at its version (None: not there) and nothing else lies below
        those that are removed, nothing, and raise Conflict."""
        conditions = [require(path, version) for path, version in expected.items()]
        deepest_first = sorted(removed, key=lambda path: -path.count("/"))
        removing = [delete(path, removed[path]) for path in deepest_first]
        if not self.commit([*conditions, *removing], store_paths.APPLICATIONS):
            raise Conflict(", ".join(expected))

    def commit(self, wanted: Iterable[Step], path: str) -> bool:
        """Do all steps or, when something is not as they demand, none; which of the two."""

        def ask(client: KazooClient) -> Any:
            transaction = client.transaction()
            for step in wanted:
                step(transaction)
            return transaction.commit_async()

        try:
            self._run(path, ask)
        except EXPECTED:
            return False
        return True

    def _commit_unseen(
        self,
        expected: Mapping[str, int | None],
        prepared: Mapping[str, WrittenRecord],
        names: str,
    ) -> dict[str, int] | None:
        """Write without a look before it, which takes as long as the write: possible where each
        record that it replaces was written here last, and every other one is new. Returns the
        versions of the records; None where that is not so, and nothing is written."""
        replaced = {path: self._whole.pop(path, None) for path in prepared.keys() & expected}
        parents = {path.rpartition("/")[0] for path in prepared}
        if (
            not replaced
            or None in replaced.values()
            or any(expected[path] != version for path, version in replaced.items())
            or not parents <= self._parents
            or any(record.pieces for record in prepared.values())
        ):
            return None
        checked = expected.keys() - prepared.keys()
        steps = [require(path, expected[path]) for path in checked]
        for path, record in prepared.items():
            acl = self._sessions.acl(path)
            steps.append(replace(path, record.data, replaced.get(path), acl))
        if not self.commit(steps, names):
            return None
        versions = dict.fromkeys(prepared, 0)
        versions |= {path: at + 1 for path, at in replaced.items() if at is not None}
        self._note_whole(expected, prepared, versions)
        return versions

    def _note_whole(
        self,
        expected: Iterable[str],
        prepared: Mapping[str, WrittenRecord],
        versions: Mapping[str, int],
    ) -> None:
        """Keep the versions of records that the caller gave the version of, if they are without
        pieces: of the newest `WHOLE_KNOWN_MAX`."""
        for path in prepared.keys() & expected:
            if not prepared[path].pieces:
                self._whole[path] = versions[path]
        while len(self._whole) > WHOLE_KNOWN_MAX:
            self._whole.pop(next(iter(self._whole)), None)

    def _prepare(self, prepared: Mapping[str, WrittenRecord]) -> bool:
        """Write parents and pieces; False when something was removed under our hands."""
        paths = [*prepared, *(piece for record in prepared.values() for piece in record.pieces)]
        for parent in sorted({path.rpartition("/")[0] for path in paths} - self._parents):
            self._make(parent)
        try:
            for record in prepared.values():
                for path, data in record.pieces.items():
                    self._put(path, data)
        except exceptions.NoNodeError:
            return False
        return True

    def _make(self, parent: str) -> None:
        """Make a folder and what is above it, as far as it is not there: who may not make the upper
        ones need not, once they are."""
        missing = []
        path = parent
        while path and self.stat(path) is None:
            missing.append(path)
            path = path.rpartition("/")[0]
        for path in reversed(missing):
            self.create(path, b"")
        self._parents.add(parent)

    def create(self, path: str, data: bytes) -> bool:
        """Make a record in a folder that is there; whether it was not there."""
        acl = self._sessions.acl(path)
        try:
            self._run(path, lambda client: client.create_async(path, data, acl=acl))
        except exceptions.NodeExistsError:
            return False
        return True

    def _put(self, path: str, data: bytes) -> None:
        """Write a piece even if it exists: its version shows that it is wanted."""
        if not self.create(path, data):
            self._run(path, lambda client: client.set_async(path, data))

    def _drop(
        self,
        replaced: Mapping[str, tuple[str, ...]],
        prepared: Mapping[str, WrittenRecord],
        versions: Mapping[str, int],
    ) -> None:
        """Remove the pieces of what was replaced, unless that has been replaced meanwhile."""
        for path, pieces in replaced.items():
            gone = [piece for piece in pieces if piece not in prepared[path].pieces]
            if gone:
                newest = require(path, versions[path])
                self.commit([newest, *map(delete, gone)], path)

    def _is_absent(self, path: str, watch: Watch | None) -> bool:
        """Whether a record that was not found is not there yet, now that its watch is armed, which
        no read of what is not there does."""
        if watch is None:
            return True
        return self._run(path, lambda client: client.exists_async(path, watch=watch)) is None

    def _writing(
        self,
        prepared: Mapping[str, WrittenRecord],
        found: Mapping[str, ZnodeStat | None],
        owner: int,
    ) -> Iterator[Step]:
        """Every piece is still there, and every record takes its place."""
        for path, record in prepared.items():
            yield from map(require_some, record.pieces)
            yield write(path, record.data, found[path], owner, self._sessions.acl(path))

    def _stats(self, paths: Iterable[str], where: str) -> dict[str, ZnodeStat | None]:
        """What ZooKeeper tells of several records, in the time that one takes."""
        ordered = sorted(paths)
        asks = [partial(_exists, path=path) for path in ordered]
        return dict(zip(ordered, self._sessions.run_all(asks, where), strict=True))

    def _get(self, path: str, watch: Watch | None = None) -> tuple[bytes, ZnodeStat]:
        found: tuple[bytes, ZnodeStat] = self._run(
            path, lambda client: client.get_async(path, watch=watch)
        )
        return found

    def _run(self, path: str, ask: Callable[[KazooClient], Any]) -> Any:
        return self._sessions.run(ask, path)


def _exists(client: KazooClient, path: str) -> Any:
    return client.exists_async(path)


def _children(client: KazooClient, path: str, watch: Watch | None) -> Any:
    return client.get_children_async(path, watch=watch)


def _compare(expected: Mapping[str, int | None], found: Mapping[str, ZnodeStat | None]) -> None:
    for path, version in expected.items():
        stat = found[path]
        if (None if stat is None else stat.version) != version:
            raise Conflict(path)


def _restless(path: str) -> RunError:
    return RunError(
        where=f"coordination store: {path}",
        what="does not stay as it is for a moment",
        remedy="see who else writes it",
    )
