"""The leases of all nodes, listed again and again from a thread of its own.

A list and not a watch: a watch that has gone silent cannot be told from leases that have stopped.
What the lists mean is for `node_detector`; `detection_runner` takes the newest.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from rekindle.model.errors import RekindleError
from rekindle_coordinator.coordinator_log import Log
from rekindle_operator.cluster import object_kinds
from rekindle_operator.cluster.api_client import Api, path_of
from rekindle_operator.detection.detection_input import Leases

LOOK_SECONDS_MAX = 5.0
# A pause takes so many times what the look before it took: looks cost little, ours and the API
# server's time, however many leases there are.
PAUSE_FACTOR = 30.0
# Many leases may fall due one after the other.
LOOK_SECONDS_MIN = 1.0
# A kubelet renews four times within the duration that it gives its lease.
RENEWALS_PER_DURATION = 4


class _Metadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str
    resource_version: str = ""


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    renew_time: str | None = None
    lease_duration_seconds: int | None = None


class _Lease(msgspec.Struct, frozen=True, gc=False):
    """What is read of a lease."""

    metadata: _Metadata
    spec: _Spec = _Spec()

    @property
    def token(self) -> str:
        """What changes with each renewal, and, where a kubelet does not say when it was, with each
        change."""
        return self.spec.renew_time or self.metadata.resource_version

    @property
    def interval_seconds(self) -> float:
        """How often its kubelet renews it, 0 where that does not say."""
        return (self.spec.lease_duration_seconds or 0) / RENEWALS_PER_DURATION


@dataclass(slots=True)
class LeasePoller:
    """`newest` is the newest complete list; `lease_seconds` how often kubelets renew.

    Besides looking now and then it looks when a lease is due that was not renewed: otherwise that
    would show a whole pause later.
    """

    api: Api
    log: Log
    lease_seconds: Callable[[], float]
    newest: Leases | None = None
    _due: float = math.inf
    _ending: bool = False
    _stirred: threading.Event = field(default_factory=threading.Event)
    _trouble: str = ""

    def start(self) -> None:
        """Look until `stop` is called."""
        threading.Thread(target=self._run, name="renewals", daemon=True).start()

    def stop(self) -> None:
        """End after the present look."""
        self._ending = True
        self._stirred.set()

    def look_at(self, moment: float) -> None:
        """Look at this moment (time.monotonic()) as well, if no look comes before it."""
        self._due = moment
        self._stirred.set()

    @property
    def pause_seconds(self) -> float:
        """How long after a look the next one is begun: soon where the last one was cheap, and twice
        within an interval at least."""
        took = 0.0 if self.newest is None else self.newest.answered_at - self.newest.asked_at
        affordable = min(LOOK_SECONDS_MAX, max(LOOK_SECONDS_MIN, PAUSE_FACTOR * took))
        return min(affordable, self.lease_seconds() / 2)

    def look(self) -> None:
        """List them once. Raises what the API server says."""
        asked_at = time.monotonic()
        found = list(self.api.forms(path_of(object_kinds.LEASES, object_kinds.NODE_LEASES), _Lease))
        lease_seconds = self.lease_seconds()
        intervals = {lease.metadata.name: lease.interval_seconds for lease in found}
        self.newest = Leases(
            tokens={lease.metadata.name: lease.token for lease in found},
            asked_at=asked_at,
            answered_at=time.monotonic(),
            intervals={name: at for name, at in intervals.items() if at > lease_seconds},
        )

    def _run(self) -> None:
        while not self._ending:
            began, self._due = time.monotonic(), math.inf
            try:
                self.look()
                self._note("")
            except RekindleError as trouble:
                self._note(str(trouble))
            except Exception as error:  # a lease of a form that nobody has seen
                self._note(f"{type(error).__name__}: {error}")
            self._rest(began)

    def _rest(self, began: float) -> None:
        """Until the next look is due, after one that began then."""
        pause = self.pause_seconds
        least = min(LOOK_SECONDS_MIN, pause)
        due = began + max(0.1, pause)
        while not self._ending:
            seconds = max(began + least, min(due, self._due)) - time.monotonic()
            if seconds <= 0:
                return
            self._stirred.wait(seconds)
            self._stirred.clear()

    def _note(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            self.log.write("leases-unread", text=trouble)
        self._trouble = trouble
