"""Namespaces kept apart in the store, by the operator: rights, places for applications, quotas.

    lock      what is above the namespaces, and with `root` the whole store
    admit     a namespace, by the digest of its credential: it may read its folder
    secure    an application's place: made as a whole, or brought to the rights of `acl`

A place is made in one transaction, so that its namespace cannot make a record first that only the
operator may. One of an earlier release, or of a store that was open, gets its rights record by
record, and its folder last. All of it may be done again at any time; a *mark* in the guard says
that nothing is to be done. `zookeeper_connection` makes one where it is wanted.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.security import ACL, ANYONE_ID_UNSAFE, Permissions

from rekindle.protocol import store_paths
from rekindle.protocol.store_paths import Place
from rekindle_zookeeper import acl
from rekindle_zookeeper.acl import ALL, Credential, rights
from rekindle_zookeeper.chunked_records import ChunkedRecords, Step, write
from rekindle_zookeeper.sessions import Conflict, Sessions

QUOTAS = "/zookeeper/quota"
SHARED = (store_paths.ELECTION, store_paths.OPERATORS, store_paths.CLOCK)
ROOTS = ("/", "/zookeeper", QUOTAS)
AT_ONCE_MAX = 100


@dataclass(frozen=True, slots=True)
class NamespaceQuota:
    """What a namespace may have in the store; the servers hold it where they are told to."""

    records_max: int
    bytes_max: int


class Namespaces:
    """Of the operator, whose `operator` digest has all rights everywhere. Any thread may call."""

    def __init__(self, operator: str) -> None:
        self._operator = operator
        self._digests: dict[str, str] = {}

    def attach(self, sessions: Sessions, records: ChunkedRecords) -> None:
        """Work through this connection."""
        self._sessions, self._records = sessions, records

    def acl(self, path: str) -> list[ACL]:
        """Who may do what with a record. Asks the store for the digest of a namespace that another
        operator has admitted."""
        namespace = acl.namespace_of(path)
        digest = self._digest(namespace) if namespace else ""
        return acl.acl(path, self._operator, digest)

    def forget(self) -> None:
        """Ask the store again: another operator acts."""
        self._digests.clear()

    def lock(self, *, root: bool) -> None:
        """Let nobody else make records above the namespaces; with `root` nowhere else either."""
        folder = store_paths.APPLICATIONS.rpartition("/")[0]
        ours = (folder, store_paths.APPLICATIONS, *SHARED)
        for path in ours:
            self._make(path)
        self._bring(ours)
        if root:
            seen = [rights(self._operator, ALL), ACL(Permissions.READ, ANYONE_ID_UNSAFE)]
            self._bring(ROOTS, seen)

    def admit(self, namespace: str, credential: Credential, quota: NamespaceQuota | None) -> None:
        """Give a namespace its folder, which its credential may read, and its quota."""
        self._digests[namespace] = credential.digest
        path = self.hold(namespace)
        if quota is not None:
            limits = f"byteHardLimit={quota.bytes_max};countHardLimit={quota.records_max}"
            self._put(f"{QUOTAS}{path}/zookeeper_limits", f"count=-1,bytes=-1;{limits}".encode())
            self._put(f"{QUOTAS}{path}/zookeeper_stats", b"count=0,bytes=0", keep=True)

    def hold(self, namespace: str) -> str:
        """Have a namespace's folder with its rights, and nothing more for one that has not been
        admitted; the folder."""
        path = f"{store_paths.APPLICATIONS}/{namespace}"
        if self._records.stat(path) is None:
            self.lock(root=False)  # an emptied store lacks the folders above as well
            self._make(path)
        self._bring([path])
        return path

    def dismiss(self, namespace: str) -> None:
        """Take its folder from a namespace; `secure` then takes the places."""
        self._digests[namespace] = ""
        self.hold(namespace)

    def remove_namespace(self, namespace: str) -> None:
        """Remove the folder and the quota of a namespace that is gone, once it has no application
        any more."""
        path = f"{store_paths.APPLICATIONS}/{namespace}"
        if self._records.children(path):
            return
        quota = f"{QUOTAS}{path}"
        for gone in (f"{quota}/zookeeper_limits", f"{quota}/zookeeper_stats", quota, path):
            self._records.remove(gone)
        self._digests.pop(namespace, None)

    def secure(
        self, place: Place, records: Mapping[str, bytes], mark: str, *, make: bool = True
    ) -> bool:
        """Have an application's place with just its rights; whether there was anything to do.

        `records` are what `coordination` and `orders` hold where they are made; `mark` is another
        one whenever all is to be looked at again, as when another driver has come. A place that is
        not there is made only with `make`. Raises Conflict where a place is removed meanwhile.
        """
        said = self._mark(place, mark)
        guard = place.path(store_paths.COORDINATION, store_paths.GUARD)
        found = self._records.get(guard)
        if found is not None and found[0] == said:
            return False
        is_there = self._records.stat(place.path()) is not None
        if not is_there and not make:
            return False
        wanted = _wanted(place, records)
        if is_there or not self._make_all(wanted):
            self._complete(place, wanted)
        made = self._records.stat(guard)
        if made is None or not self._records.commit([write(guard, said, made, 0)], guard):
            raise Conflict(guard)
        return True

    def _complete(self, place: Place, wanted: Mapping[str, bytes]) -> None:
        """Make what a place lacks, but not the place itself, and bring all of it to its rights."""
        try:
            for path, data in wanted.items():
                if path != place.path():
                    self._make(path, data)
        except exceptions.NoNodeError as error:
            raise Conflict(place.path()) from error
        self._bring(self._below(place))
        self._bring([place.path()])

    def _mark(self, place: Place, mark: str) -> bytes:
        text = "\n".join(("1", self._operator, self._digest(place.namespace), mark))
        return hashlib.sha256(text.encode()).hexdigest().encode()

    def _digest(self, namespace: str) -> str:
        """Of a namespace's credential; "" for one that has none."""
        known = self._digests.get(namespace)
        if known is not None:
            return known
        found = self._one(partial(_acls, path=f"{store_paths.APPLICATIONS}/{namespace}"))
        user = f"namespace/{namespace}:"
        for entry in found[0] if found is not None else ():
            if entry.id.scheme == "digest" and entry.id.id.startswith(user):
                return self._digests.setdefault(namespace, entry.id.id)
        return ""

    def _make(self, path: str, data: bytes = b"") -> None:
        """A record, if it is not there: to make what is there is a right as well."""
        if self._records.stat(path) is None:
            self._records.create(path, data)

    def _make_all(self, wanted: Mapping[str, bytes]) -> bool:
        """All of a place at once; whether there was nothing of it."""
        return self._records.commit(
            [_creation(path, data, self.acl(path)) for path, data in wanted.items()],
            next(iter(wanted)),
        )

    def _below(self, place: Place) -> list[str]:
        """All records of an application. None but guards lie deeper than in its folders."""
        found = {place.path(*names) for names in acl.GUARDS}
        for name in self._records.children(place.path()):
            lower = self._records.children(place.path(name))
            found |= {place.path(name), *(place.path(name, item) for item in lower)}
        return sorted(found)

    def _bring(self, paths: Sequence[str], acl: Sequence[ACL] | None = None) -> None:
        """Give records their rights, as far as they are there and have others."""
        for start in range(0, len(paths), AT_ONCE_MAX):
            some = paths[start : start + AT_ONCE_MAX]
            found = zip(some, self._all([partial(_acls, path=path) for path in some]), strict=True)
            asks = []
            for path, answer in found:
                wanted = list(self.acl(path) if acl is None else acl)
                if answer is not None and set(answer[0]) != set(wanted):
                    asks.append(partial(_set_acls, path=path, acl=wanted))
            self._all(asks)

    def _all(self, asks: Sequence[Any]) -> list[Any]:
        """The answers; None for a record that is gone."""
        try:
            return self._sessions.run_all(asks, store_paths.APPLICATIONS)
        except exceptions.NoNodeError:
            return [self._one(ask) for ask in asks]

    def _one(self, ask: Any) -> Any:
        try:
            return self._sessions.run(ask, store_paths.APPLICATIONS)
        except exceptions.NoNodeError:
            return None

    def _put(self, path: str, data: bytes, *, keep: bool = False) -> None:
        found = self._records.get(path)
        if found is None or (found[0] != data and not keep):
            self._records.put(path, data)


def _wanted(place: Place, records: Mapping[str, bytes]) -> dict[str, bytes]:
    """What an application's place has before anything is reported, the upper ones first."""
    wanted = {place.path(): b"", **{place.path(name): b"" for name in store_paths.FOLDERS}}
    wanted |= {place.path(name): data for name, data in records.items()}
    for names in acl.GUARDS:
        wanted |= {place.path(*names[:depth]): b"" for depth in range(2, len(names) + 1)}
    return wanted


def _creation(path: str, data: bytes, acl: Sequence[ACL]) -> Step:
    return lambda transaction: transaction.create(path, data, acl=acl)


def _acls(client: KazooClient, path: str) -> Any:
    return client.get_acls_async(path)


def _set_acls(client: KazooClient, path: str, acl: Sequence[ACL]) -> Any:
    return client.set_acls_async(path, acl)
