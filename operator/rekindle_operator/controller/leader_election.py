"""Who acts: the holder of one Lease of Kubernetes, and of the store's election besides.

    take or renew ──► leads until two thirds of `lease_seconds` after the last renewal began
    another one holds it: it has it until nothing has changed for all of them by our own clock

The holder gives up before anybody else may take over, by a clock that goes on while the process, or
its machine, stands still; so one that was stopped and goes on does nothing before it has looked.
One that does not decide any more gives the Lease back and does not stand for it, though this thread
goes on. Other clocks are compared with nothing. The holder also takes part in the election of
coordinators in the store, so that one that was started by hand beside the operator does not decide
with it.

Why: docs/decisions/0027-the-lease-election-is-our-own.md.
Also: docs/decisions/0031-a-stuck-operator-gives-the-lease-back.md.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from rekindle.model.errors import RekindleError
from rekindle_coordinator.coordinator_log import Log
from rekindle_coordinator.coordinator_loop import Candidacy
from rekindle_operator.cluster import object_kinds
from rekindle_operator.cluster.api_client import Api, Body, ObjectConflict, path_of

LEASE_SECONDS = 15
# Shares of the Lease's time, those of client-go: 10 s and 2 s of 15.
DEADLINE_SHARE = 2 / 3
RENEW_SHARE = 2 / 15
# time.monotonic() stands still while a machine is suspended, and other replicas go on.
SUSPENDED_TOO = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(slots=True)
class LeaderElection:
    """A candidate `identity` for the Lease `name`, which whoever holds it loses when nothing has
    changed for `lease_seconds`; `elect` (who is told of changes) joins the store's election,
    `decides` tells whether the thread that decides goes on."""

    api: Api
    namespace: str
    name: str
    identity: str
    log: Log
    elect: Callable[[Callable[[], None]], Candidacy]
    decides: Callable[[], bool] = lambda: True
    clock: Callable[[], float] = SUSPENDED_TOO
    lease_seconds: int = LEASE_SECONDS
    transitions: int = 0
    looked_at: float = 0.0
    _until: float = 0.0
    _seen: tuple[str, float] = ("", 0.0)
    _on_change: Callable[[], None] = lambda: None
    _elected: Candidacy | None = None
    _ending: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _trouble: str = ""
    _held: bool = False

    @property
    def deadline_seconds(self) -> float:
        """How long after a renewal began the Lease is ours."""
        return self.lease_seconds * DEADLINE_SHARE

    @property
    def holds(self) -> bool:
        """Whether the Lease is ours now."""
        return self.clock() < self._until

    @property
    def leads(self) -> bool:
        """Whether this process acts."""
        return self.holds and self._elected is not None and self._elected.leads

    @property
    def term(self) -> object:
        """Another one whenever somebody else may have led meanwhile."""
        return self.transitions, None if self._elected is None else self._elected.term

    def stand(self, on_change: Callable[[], None]) -> "LeaderElection":
        """Who is told of changes, on any thread."""
        self._on_change = on_change
        return self

    def start(self) -> None:
        """Stand for it, from a thread of its own."""
        self._thread = threading.Thread(target=self._stand, name="leadership", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Give the Lease up, so that another one may have it at once."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(self.deadline_seconds)
        self._leave()

    def _stand(self) -> None:
        while not self._ending.is_set():
            self.turn()
            self._ending.wait(self.lease_seconds * RENEW_SHARE)
        if self.holds:
            self._try(self._release)

    def turn(self) -> None:
        """Stand for the Lease once, or give it back while nothing is decided here."""
        if self.decides():
            if self._try(self.look):
                self._trouble = ""
        else:
            self._note("nothing is decided here any more; another one may have the Lease")
            if self.holds:
                self._try(self._release)
        self._follow()

    def _try(self, step: Callable[[], None]) -> bool:
        """Whether it came off."""
        try:
            step()
        except RekindleError as trouble:
            self._note(str(trouble))
        except Exception as error:  # a Lease that somebody else has spoilt
            self._note(f"{type(error).__name__}: {error}")
        else:
            return True
        return False

    def look(self) -> None:
        """Take the Lease, or renew it, or see who has it. Raises what the API server says."""
        began = self.clock()
        path = path_of(object_kinds.LEASES, self.namespace, self.name)
        lease = self.api.get(path)
        self.looked_at = self.clock()
        if lease is None:
            self._written(self._first(), began, create=True)
            return
        holder, version = lease["spec"].get("holderIdentity"), lease["metadata"]["resourceVersion"]
        if version != self._seen[0]:
            self._seen = (version, self.looked_at)
        if holder and holder != self.identity:
            seconds = lease["spec"].get("leaseDurationSeconds", self.lease_seconds)
            if self.looked_at - self._seen[1] < seconds:
                self._until = 0.0
                return
        self._written(self._taken(lease), began)

    def _written(self, lease: Body, began: float, *, create: bool = False) -> None:
        path = path_of(object_kinds.LEASES, self.namespace)
        try:
            if create:
                written = self.api.create(path, lease)
            else:
                written = self.api.replace(f"{path}/{self.name}", lease)
        except ObjectConflict:
            # Somebody has changed it in between, perhaps no more than a label. What was ours is so
            # until its deadline; the next look shows who has it.
            return
        self.transitions = written["spec"]["leaseTransitions"]
        self._seen = (written["metadata"]["resourceVersion"], self.clock())
        self._until = began + self.deadline_seconds

    def _first(self) -> Body:
        metadata = {"name": self.name, "namespace": self.namespace}
        return {
            "apiVersion": object_kinds.LEASES.api_version,
            "kind": object_kinds.LEASES.name,
            "metadata": metadata,
            "spec": self._spec(1, now := _now(), now),
        }

    def _taken(self, lease: Body) -> Body:
        """The Lease as ours. A term of our own that had run out is another one: somebody may have
        acted in between and given it back."""
        spec, now = lease["spec"], _now()
        ours = spec.get("holderIdentity") == self.identity and self.holds
        transitions = spec.get("leaseTransitions", 0) + (not ours)
        acquired = spec.get("acquireTime", now) if ours else now
        return {**lease, "spec": {**spec, **self._spec(transitions, acquired, now)}}

    def _spec(self, transitions: int, acquired: str, renewed: str) -> Body:
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self.lease_seconds,
            "leaseTransitions": transitions,
            "acquireTime": acquired,
            "renewTime": renewed,
        }

    def _follow(self) -> None:
        """Join the store's election while the Lease is ours, and leave it when it is not."""
        holds = self.holds
        if holds and self._elected is None:
            self._elected = self.elect(self._on_change)
        elif not holds:
            self._leave()
        if holds != self._held:
            self._held = holds
            self.log.write("lease-held" if holds else "lease-not-held", identity=self.identity)
            self._on_change()

    def _note(self, trouble: str) -> None:
        if trouble != self._trouble:
            self.log.write("lease-failed", text=trouble)
        self._trouble = trouble

    def _leave(self) -> None:
        elected, self._elected = self._elected, None
        if elected is not None:
            elected.close()

    def _release(self) -> None:
        path = path_of(object_kinds.LEASES, self.namespace, self.name)
        try:
            lease = self.api.get(path)
            if lease is not None and lease["spec"].get("holderIdentity") == self.identity:
                spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
                self.api.replace(path, {**lease, "spec": spec})
        finally:
            self._until = 0.0


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
