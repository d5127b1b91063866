"""A credential of the store for each namespace: made, put into a Secret there, given its rights.

    namespace with a policy or driver ──► UID ──► credential ──► rights in the store ──► Secret
    application's driver ──► its place in the store, with its rights

By whoever acts, on a thread of its own. Nothing of it is kept: the credential is made from the
operator's secret, and everything may be done again. The rights come before the Secret, so that who
reads it is let in. A namespace that is being deleted gets nothing more.
"""

import base64
import hashlib
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rekindle import protocol
from rekindle.coordination import session
from rekindle.model.errors import InputError, RekindleError
from rekindle.protocol import Orders, store_paths
from rekindle.protocol.store_paths import Place
from rekindle_coordinator.coordinator_log import Log
from rekindle_operator.api.recovery_class import AUTHORITY_KEY, CREDENTIAL_KEY, CREDENTIAL_SECRET
from rekindle_operator.cluster import object_kinds
from rekindle_operator.cluster.api_client import Api, ApiRefused, path_of
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_zookeeper import (
    Conflict,
    Connection,
    Credential,
    NamespaceQuota,
    Namespaces,
    derive,
    to_text,
)

APPLY = "application/apply-patch+yaml"
OWNER = "rekindle-operator"
PAUSE_SECONDS = 1.0
RETRY_SECONDS = 5.0
# How often a Secret that somebody has changed or deleted is put right.
AGAIN_SECONDS = 300.0
# How often all records are looked at: applications that are gone leave empty namespaces behind.
CONVERT_SECONDS = 86_400.0
# How the API server answers a name that no namespace can have.
NO_SUCH_NAME = (400, 422)


@dataclass(frozen=True, slots=True)
class CredentialSettings:
    """`secret` is the operator's, from which all are made; another `generation` makes all of them
    anew. With `lock_root` the store is nobody else's."""

    secret: str = field(repr=False)
    generation: int
    lock_root: bool
    quota: NamespaceQuota | None


@dataclass(frozen=True, slots=True)
class _Step:
    """How it ended for a version, and when it is due again (monotonic seconds)."""

    version: str
    due: float
    done: bool


@dataclass(slots=True)
class NamespaceCredentials:
    """`start` it once everything has been seen; `note` is called by the deciding thread.
    `authorities` are those of the servers' certificates, in PEM, where there is TLS."""

    settings: CredentialSettings
    connection: Connection
    namespaces: Namespaces
    api: Api
    known: ClusterView
    log: Log
    acts: Callable[[], bool]
    authorities: Callable[[], str] | None = None
    _drivers: dict[Place, str] = field(default_factory=dict)
    _wanted: frozenset[str] = frozenset()
    _identities: dict[str, str] = field(default_factory=dict)
    _steps: dict[str, _Step] = field(default_factory=dict)
    _said: dict[str, str] = field(default_factory=dict)
    _due_at: float = 0.0
    _authorities_seen: str = ""
    _woken: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ending: bool = False

    def start(self) -> None:
        """Begin."""
        threading.Thread(target=self._run, name="credentials", daemon=True).start()

    def close(self) -> None:
        """Begin nothing more."""
        self._ending = True
        self._woken.set()

    def note(self, places: Collection[Place], *, policies: bool) -> None:
        """Take in the drivers of applications, and with `policies` the namespaces that have any."""
        with self._lock:
            moved = [place for place in places if self._note_driver(place)]
            if policies or not self._wanted:
                named = {name.partition("/")[0] for name in self.known.policies}
                policies = named != self._wanted
                self._wanted = frozenset(named)
        if moved or policies:
            self._woken.set()

    def _note_driver(self, place: Place) -> bool:
        """Note an application's driver; whether it is another one than before."""
        found = self.known.application(place)
        uid = None if found is None or found.driver is None else found.driver.uid
        if self._drivers.get(place) == uid:
            return False
        if uid is None:
            del self._drivers[place]
        else:
            self._drivers[place] = uid
        return True

    def _run(self) -> None:
        while not self._ending:
            if self._woken.wait(PAUSE_SECONDS):
                self._due_at = 0.0  # also when the store is away, for once it is back
            self._woken.clear()
            if not self.acts():
                self._forget()
            elif self.connection.reachable and self._is_due(time.monotonic()):
                try:
                    self.turn(time.monotonic())
                except Exception as error:  # a bug of ours must not end what all namespaces need
                    self._note("turn", f"{type(error).__name__}: {error}")

    def _is_due(self, now: float) -> bool:
        """Whether a turn has anything to do: to look through a thousand applications each second
        takes a few hundredths of a core."""
        return now >= self._due_at or self._known_authorities() != self._authorities_seen

    def _forget(self) -> None:
        """Another one acts: what it does is looked at again once it does no more."""
        if self._steps:
            self._steps.clear()
            self._due_at = 0.0
            self._identities.clear()
            self.namespaces.forget()

    def turn(self, now: float) -> None:
        """Do what is due."""
        with self._lock:
            drivers = dict(self._drivers)
            wanted = self._wanted | {place.namespace for place in drivers}
        self._due_at = now + RETRY_SECONDS  # unless the turn ends
        lock = partial(self.namespaces.lock, root=self.settings.lock_root)
        if not self._keep("store", "", lock, now):
            return
        uids: dict[str, list[str]] = {namespace: [] for namespace in sorted(wanted)}
        for place, uid in drivers.items():
            uids[place.namespace].append(uid)
        authorities = self._authorities_seen = self._known_authorities()
        for namespace, found in uids.items():
            # A Secret that is not there keeps a driver from starting: looked at for each new one.
            issue = partial(self._issue, namespace)
            version = " ".join((authorities, *sorted(found)))
            self._keep(namespace, version, issue, now, again_seconds=AGAIN_SECONDS)
        for place, uid in drivers.items():
            if place.namespace in self._identities:
                # the records of one that was thought to be gone may have been removed meanwhile
                secure = partial(self._secure, place, uid)
                self._keep(str(place), uid, secure, now, again_seconds=AGAIN_SECONDS)
        for namespace in set(self._identities) - wanted:
            leave = partial(self._leave, namespace)
            self._keep(f"{namespace} left", "", leave, now, again_seconds=AGAIN_SECONDS)
        convert = partial(self._convert, drivers)
        self._keep("records", "", convert, now, again_seconds=CONVERT_SECONDS)
        left = {f"{namespace} left" for namespace in set(self._identities) - wanted}
        known = {"store", "records", "turn", *wanted, *map(str, drivers), *left}
        for kept in (self._steps, self._said):  # namespaces come and go for months
            for what in kept.keys() - known:
                del kept[what]
        self._due_at = min(step.due for step in self._steps.values())

    def _keep(
        self,
        what: str,
        version: str,
        step: Callable[[], None],
        now: float,
        again_seconds: float = math.inf,
    ) -> bool:
        """Do a step that has not been done for this version, or that is due again; whether it is
        done. Why it fails is said once."""
        known = self._steps.get(what)
        if known is not None and known.version == version and now < known.due:
            return known.done
        try:
            step()
            done = True
            self._said.pop(what, None)
        except Conflict:  # a place was removed under our hands
            done = False
        except RekindleError as trouble:
            done = False
            self._note(what, str(trouble))
        self._steps[what] = _Step(version, now + (again_seconds if done else RETRY_SECONDS), done)
        return done

    def _convert(self, drivers: Mapping[Place, str]) -> None:
        """All that an earlier release, or an open store, has left. What is of a namespace that is
        gone becomes the operator's alone, and goes once nothing is in it."""
        trouble: RekindleError | None = None
        for namespace in self.connection.children(store_paths.APPLICATIONS):
            try:
                if namespace in self._identities or self._is_there(namespace):
                    self.namespaces.hold(namespace)
                else:
                    self.namespaces.dismiss(namespace)
                    self.namespaces.remove_namespace(namespace)
            except RekindleError as error:  # of one namespace, which others do not wait for
                trouble = error
                continue
            for name in self.connection.children(f"{store_paths.APPLICATIONS}/{namespace}"):
                place = Place(namespace, name)
                try:
                    self._secure(place, drivers.get(place, ""))
                except Conflict:  # its records were removed meanwhile
                    continue
                except RekindleError as error:  # of one application
                    trouble = error
        if trouble is not None:
            raise trouble

    def _is_there(self, namespace: str) -> bool:
        try:
            return self.api.get(path_of(object_kinds.NAMESPACES, name=namespace)) is not None
        except ApiRefused as refused:
            if refused.status in NO_SUCH_NAME:
                return False
            raise

    def _leave(self, namespace: str) -> None:
        """Take its rights from a namespace that is gone: one of its name is another one."""
        found = self.api.get(path_of(object_kinds.NAMESPACES, name=namespace))
        if found is not None and found["metadata"]["uid"] == self._identities[namespace]:
            return
        self.namespaces.dismiss(namespace)
        for name in self.connection.children(f"{store_paths.APPLICATIONS}/{namespace}"):
            self._secure(Place(namespace, name), "")
        del self._identities[namespace]

    def _issue(self, namespace: str) -> None:
        """Its rights in the store, then its Secret."""
        found = self.api.get(path_of(object_kinds.NAMESPACES, name=namespace))
        if found is None or found["metadata"].get("deletionTimestamp"):
            return
        identity = found["metadata"]["uid"]
        settings = self.settings
        credential = derive(settings.secret, namespace, identity, settings.generation)
        self.namespaces.admit(namespace, credential, settings.quota)
        path = path_of(object_kinds.SECRETS, namespace, CREDENTIAL_SECRET)
        authorities = None if self.authorities is None else self.authorities()
        body = _body(namespace, credential, authorities)
        self.api.patch(f"{path}?fieldManager={OWNER}&force=true", body, APPLY)
        if self._identities.get(namespace) != identity:
            self._identities[namespace] = identity
            self.log.write("credential-issued", namespace=namespace, generation=settings.generation)

    def _known_authorities(self) -> str:
        """A word that is another one for other authorities."""
        try:
            found = "" if self.authorities is None else self.authorities()
        except RekindleError:  # whoever needs them says so
            found = ""
        return hashlib.sha256(found.encode()).hexdigest()

    def _secure(self, place: Place, uid: str) -> None:
        """Bring the records of an application to their rights; those of a driver, by its `uid`, are
        made where they are not there."""
        try:
            place.checked()
        except InputError:
            return  # no driver has such a name
        records = {
            store_paths.COORDINATION: session.to_record(session.Case()),
            store_paths.ORDERS: protocol.encode(Orders()),
        }
        if self.namespaces.secure(place, records, uid, make=bool(uid)):
            self.log.write("records-secured", application=str(place))

    def _note(self, what: str, text: str) -> None:
        if self._said.get(what) != text:
            self._said[what] = text
            self.log.write("credentials-failed", of=what, text=text)


def _body(namespace: str, credential: Credential, authorities: str | None) -> dict[str, Any]:
    """The Secret."""
    texts = {CREDENTIAL_KEY: to_text(credential)}
    if authorities is not None:
        texts[AUTHORITY_KEY] = authorities
    return {
        "apiVersion": object_kinds.SECRETS.api_version,
        "kind": object_kinds.SECRETS.name,
        "metadata": {
            "name": CREDENTIAL_SECRET,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/managed-by": OWNER},
        },
        "type": "Opaque",
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in texts.items()},
    }
