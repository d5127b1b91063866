"""The connection to the coordination store: records, watches and leadership over one session.

Every call that reads or writes asks the servers and waits for them, a few times the deadline at
worst: none may be made on an event loop. Calls may come from several threads. Callbacks come on
threads of the connection, which go on when they return: they may only note that there is something
to do, and none may ask the servers.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from kazoo.interfaces import IAsyncResult

from rekindle.model.errors import InputError
from rekindle.protocol import store_paths
from rekindle_zookeeper import chunked_records
from rekindle_zookeeper.acl import Access
from rekindle_zookeeper.chunked_records import ChunkedRecords, RecordStat
from rekindle_zookeeper.elections import Election
from rekindle_zookeeper.encryption import Encryption
from rekindle_zookeeper.namespaces import Namespaces
from rekindle_zookeeper.sessions import Sessions
from rekindle_zookeeper.watches import Watches, dispatch

# Pieces that no record names: a writer died, or gave up, before its head took its place.
#
# Nobody can tell at once whether a piece is a leftover, or its head about to come. So a piece goes
# only when it was without a record twice, minutes apart, and has not been written in between; and
# a head takes its place only when its pieces are there.


def sweep(records: ChunkedRecords, folder: str, seen: Mapping[str, int]) -> dict[str, int]:
    """Remove the pieces below an application's `folder` that no record names and that are as in
    `seen`, an earlier answer; the answer is the versions of those that no record names now."""
    versions = {}
    for name in records.children(f"{folder}/{store_paths.PIECES}"):
        path = f"{folder}/{store_paths.PIECES}/{name}"
        found = records.stat(path)
        if found is not None:
            versions[path] = found.version
    if not versions:
        return {}
    wanted = {piece for path in _paths(records, folder) for piece in _pieces(records, path)}
    left = {path: version for path, version in versions.items() if path not in wanted}
    for path, version in left.items():
        if seen.get(path) == version:
            records.commit([chunked_records.delete(path, version)], path)
    return {path: version for path, version in left.items() if seen.get(path) != version}


def _paths(records: ChunkedRecords, folder: str) -> Iterator[str]:
    """All records of an application."""
    for name in records.children(folder):
        if name == store_paths.PIECES:
            continue
        path = f"{folder}/{name}"
        yield path
        if name in (store_paths.DIRECTIVES, store_paths.ACKS):
            yield from (f"{path}/{below}" for below in records.children(path))


def _pieces(records: ChunkedRecords, path: str) -> tuple[str, ...]:
    return records.pieces(path, records.stat(path))


LABEL = r"[A-Za-z0-9_-]{1,63}"
# A dot at the end of a name keeps search domains off it.
HOST = re.compile(rf"(?:{LABEL}(?:\.{LABEL})*\.?|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{{1,5}}))?")
PORT_MAX = 65_535


def connect(
    hosts: str,
    *,
    secret: str | None = None,
    secret_file: Path | None = None,
    encryption: Encryption | None = None,
    isolated: bool = False,
    session_seconds: float = 10.0,
    deadline_seconds: float = 5.0,
) -> "Connection":
    """A connection to `hosts`, `HOST[:PORT]` of each server with commas between; it does not wait
    for them.

    The secret is a text, or that of a file, which is read again when it opens nothing any more.
    Without `encryption` all crosses the network in plain text.
    With `isolated` it is the operator's, and its `namespaces` are kept apart. Raises InputError for
    hosts that are no such list, and for a file without a secret.
    """
    check_hosts(hosts)
    access = Access.of(secret, secret_file)
    namespaces = None
    if isolated and access.credential is not None:
        namespaces = Namespaces(access.credential.digest)
    return Connection(
        hosts,
        access,
        namespaces,
        encryption=encryption,
        session_seconds=session_seconds,
        deadline_seconds=deadline_seconds,
    )


def check_hosts(hosts: str) -> None:
    """InputError for what is no list that `connect` takes."""
    for host in hosts.split(","):
        match = HOST.fullmatch(host)
        if match is None or not 0 < int(match["port"] or 1) <= PORT_MAX:
            raise InputError(
                where=f"ZooKeeper servers {hosts[:200]!r}",
                what=f"{host[:60]!r} is no server",
                remedy="give HOST:PORT of each server, with commas between and nothing else",
            )


class Connection:
    """Kept for ever, over one session after the other, until it is closed. `namespaces` is None
    unless they are kept apart through this connection, `encryption` where there is no TLS."""

    def __init__(
        self,
        hosts: str,
        access: Access,
        namespaces: Namespaces | None,
        *,
        encryption: Encryption | None = None,
        session_seconds: float,
        deadline_seconds: float,
    ) -> None:
        self._callbacks: list[Callable[[], None]] = []
        self._watches = Watches()
        self._sessions = Sessions(
            hosts,
            access,
            None if namespaces is None else namespaces.acl,
            encryption=encryption,
            session_seconds=session_seconds,
            deadline_seconds=deadline_seconds,
            changed=self._changed,
        )
        self._records = ChunkedRecords(self._sessions, self._watches.of)
        self.encryption = encryption
        self.namespaces = namespaces
        if namespaces is not None:
            namespaces.attach(self._sessions, self._records)
        self._sessions.start()

    @property
    def reachable(self) -> bool:
        """Whether there is a connection now. One that has fallen silent is given up after two
        thirds of the session's time."""
        return self._sessions.reachable

    @property
    def session(self) -> int | None:
        """The id of the session: another one after an expiry, None while there is none."""
        return self._sessions.session

    def on_change(self, callback: Callable[[], None]) -> None:
        """Have it called after each connect, suspend and loss."""
        self._callbacks.append(callback)

    def send_read(self, path: str) -> IAsyncResult | None:
        """Send a read of a record, whose answer `get` takes later, without waiting for it. Arms the
        watch as `get` does. None without a connection."""
        return self._records.send_read(path)

    def get(self, path: str, sent: IAsyncResult | None = None) -> tuple[bytes, int] | None:
        """A record and its version, the number of its changes; None when it is not there. With a
        read that was `sent` it is as it was then, or later."""
        return self._records.get(path, sent)

    def children(self, path: str) -> list[str]:
        """Names below a path, ascending; none when it is not there."""
        return self._records.children(path)

    def stats(self, paths: Sequence[str]) -> dict[str, RecordStat]:
        """Version and time of several records, of those that are there."""
        return self._records.stats(paths)

    def put(self, path: str, data: bytes, *, ephemeral: bool = False) -> None:
        """Write a record whatever is there, its parents if need be. An ephemeral one goes with
        the session."""
        self._records.transact({}, {path: data}, ephemeral=ephemeral)

    def transact(
        self,
        expected: Mapping[str, int | None],
        writes: Mapping[str, bytes],
        *,
        ephemeral: bool = False,
    ) -> dict[str, int]:
        """Write all; or, unless every record of `expected` is at its version (None: not there),
        nothing, and raise Conflict. Returns the versions of what was written."""
        return self._records.transact(expected, writes, ephemeral=ephemeral)

    def remove(self, path: str, version: int | None = None) -> None:
        """Remove a record with its pieces, if it is there; with `version` only that one, and
        raise Conflict when it is another."""
        self._records.remove(path, version)

    def remove_together(
        self, removed: Mapping[str, int], expected: Mapping[str, int | None]
    ) -> None:
        """Remove records that are at these versions, folders after what is in them; or, unless
        every record of `expected` is at its version (None: not there) and nothing else lies below
        those that are removed, nothing, and raise Conflict."""
        self._records.remove_together(removed, expected)

    def watch(self, path: str, callback: Callable[[], None]) -> None:
        """Have it called when the record or its children may have changed, and after each connect,
        for ever, beginning with the next read at the latest: a change before it may be missed.
        Once it was called for the record it is called again only after `get` has read that, for
        the children after `children`: whoever is told is to read."""
        self._watches.add(path, callback)
        self._watches.arm(self._sessions.client, path)

    def unwatch(self, path: str) -> None:
        """Have nothing called for a path any more, but for once that may be on its way."""
        self._watches.remove(path)

    def elect(self, path: str, identity: str, on_change: Callable[[], None]) -> Election:
        """Stand for leadership among all that do so at `path`, until the answer is closed;
        `on_change` is called, on any thread, when leadership may have come or gone."""
        election = Election(self._sessions, path, identity, on_change)
        self.on_change(election.look)
        election.start()
        return election

    def sweep(self, folder: str, seen: Mapping[str, int]) -> dict[str, int]:
        """Remove pieces below an application's `folder` that no record has named since `seen` was
        returned, some minutes ago; returns those that no record names now."""
        return sweep(self._records, folder, seen)

    def close(self) -> None:
        """End the session, and with it what is ephemeral."""
        self._sessions.close()

    def _changed(self) -> None:
        client = self._sessions.client
        if self.reachable:
            self._watches.begin_again(client)
        for callback in self._callbacks:
            dispatch(client, callback)
