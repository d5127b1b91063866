"""Writes Recovery objects: creates them, updates their status, and removes old ones.

    moment (from the deciding thread) ──► the objects as the API server has them ──► story.tell
                                       ──► events first, then the status on its version

A moment stays until all that it says was written, so nothing is left out when the API server does
not answer; what is written twice is the same. A status of a newer release, of which something was
left out, is not written over. The plans of other operators come from the store.
Runs in errands, one at a time for each application.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from rekindle.coordination.application_status import ApplicationView
from rekindle.coordination.coordination_state import CoordinationState
from rekindle.protocol import Acknowledgement, Directive, PlanOrder, store_paths
from rekindle.protocol.store_paths import Place
from rekindle_coordinator.coordinator_ports import Look
from rekindle_coordinator.status_reader import numbered
from rekindle_operator.api import recovery_resource
from rekindle_operator.api.custom_resources import API_VERSION
from rekindle_operator.api.recovery_resource import (
    ApplicationReference,
    NodeRequest,
    Recovery,
    RecoverySpec,
    RecoveryStatus,
    to_status,
)
from rekindle_operator.cluster import object_kinds
from rekindle_operator.cluster.api_client import Api, ApiRefused, Body, ObjectConflict, path_of
from rekindle_operator.cluster.work_queue import WorkQueue
from rekindle_operator.controller.operator_metrics import OperatorMetrics
from rekindle_operator.recovery import event_writer, kubernetes_events, status_builder
from rekindle_operator.recovery.kubernetes_events import KubernetesEvent, ObjectReference
from rekindle_operator.recovery.recovery_inputs import (
    ClusterFacts,
    Danger,
    RecoveryInputs,
    RecoveryTerms,
)
from rekindle_operator.recovery.recovery_reasons import RecoveryReason
from rekindle_zookeeper import Connection

EARLIER_MAX = 50
# of one application, while its Recovery cannot be written
MOMENTS_MAX = 50


@dataclass(frozen=True, slots=True)
class Moment:
    """What is known of an application when something was decided.

    `recovery_resource` are those that are known to be there; `requests` (incident -> rows) what
    providers say, if any of them makes requests (`makes`); `kept_max` how many objects are kept.
    """

    place: Place
    application: ApplicationReference
    policy_name: str
    class_name: str
    look: Look
    terms: RecoveryTerms
    cluster: ClusterFacts
    recoveries: Mapping[str, Recovery]
    requests: Mapping[int, tuple[NodeRequest, ...]] = field(default_factory=dict)
    makes: bool = False
    provider: str = "pending-pods"
    dangers: tuple[Danger, ...] = ()
    kept_max: int = 20

    @property
    def state(self) -> CoordinationState:
        """The core's, after the decision."""
        state = self.look.decision.case.state
        assert state is not None, "a decision has a state"
        return state

    @property
    def incident(self) -> int | None:
        """What there is to tell about."""
        return status_builder.subject(self.state, self.cluster)

    @property
    def matters(self) -> bool:
        """Whether there is anything to tell, or to end."""
        return self.incident is not None or any(_is_open(item) for item in self.recoveries.values())


@dataclass(slots=True)
class RecoveryWriter:
    """`settled` is called, on any thread, when a recovery has ended."""

    api: Api
    connection: Connection
    errands: WorkQueue
    identity: str
    metrics: OperatorMetrics
    settled: Callable[[Place], None]
    _moments: dict[Place, list[Moment]] = field(default_factory=dict)
    _objects: dict[tuple[Place, str], Body] = field(default_factory=dict)
    _there: dict[Place, frozenset[str]] = field(default_factory=dict)
    _earlier: dict[Place, tuple[tuple[Directive, ...], tuple[Acknowledgement, ...]]] = field(
        default_factory=dict
    )
    _unread: dict[Place, int] = field(default_factory=dict)
    # applications that are gone, maybe with their namespace
    _gone: set[Place] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def tell(self, moment: Moment) -> None:
        """Tell of a moment, soon."""
        place = moment.place
        if not moment.matters:
            self.pass_over(moment.look, place)
            return
        with self._lock:
            self._gone.discard(place)
            waiting = self._moments.setdefault(place, [])
            waiting.append(moment)
            left_out = _shortened(waiting)
        for older in left_out:
            self.pass_over(older.look, place)
        for name in self._there.get(place, frozenset()) - moment.recoveries.keys():
            self._drop(place, name)  # somebody has deleted it
        self._there[place] = frozenset(moment.recoveries)
        self.errands.leave(key_of(place), partial(self._tell, place))

    def __post_init__(self) -> None:
        self.metrics.unwritten.set_function(self._unwritten_seconds)

    @property
    def unwritten_since(self) -> float | None:
        """When the oldest decision was made that no Recovery tells yet; asked for by any thread."""
        with self._lock:
            waiting = [moments[0].look.at for moments in self._moments.values() if moments]
        return min(waiting, default=None)

    def _unwritten_seconds(self) -> float:
        since = self.unwritten_since
        return 0.0 if since is None else max(0.0, time.time() - since)

    def pass_over(self, look: Look, place: Place) -> None:
        """A decision that is not told: a plan of it has to be found in the store later."""
        if look.decision.case.plan_sequence != look.case.plan_sequence:
            self.read_again(place)

    def read_again(self, place: Place) -> None:
        """There are plans of an application that were not told."""
        with self._lock:
            self._earlier.pop(place, None)
            self._unread[place] = self._unread.get(place, 0) + 1

    def abandon(self, recovery: Recovery) -> None:
        """End the story of an application that is not there any more, soon."""
        place = Place(recovery.metadata.namespace, recovery.spec.application.name)
        errand = partial(self._abandon, place, recovery.metadata.name)
        self.errands.leave(f"abandon {recovery.metadata.uid}", errand)

    def retire(self, recoveries: Iterable[Recovery]) -> None:
        """Delete Recoveries of applications that are long gone, soon, namespace by namespace."""
        by_namespace = defaultdict[str, list[Recovery]](list)
        for item in recoveries:
            by_namespace[item.metadata.namespace].append(item)
        for namespace, items in by_namespace.items():
            self.errands.leave(f"retire {namespace}", partial(self._delete, items))

    def note_gone(self, place: Place) -> None:
        """An application is not there any more: what waits is written, unless it is refused, as in
        a namespace that has gone with it."""
        with self._lock:
            self._there.pop(place, None)
            if place in self._moments:
                self._gone.add(place)
            else:
                self._forget_place(place)

    def forget(self) -> None:
        """Another one tells from now on: what it writes is to be read again."""
        with self._lock:
            self._gone.clear()
            for known in (
                self._moments,
                self._objects,
                self._there,
                self._earlier,
                self._unread,
            ):
                known.clear()

    def _forget_place(self, place: Place) -> None:
        """With the lock held."""
        self._gone.discard(place)
        for known in (self._moments, self._earlier, self._unread):
            known.pop(place, None)
        for key in [key for key in self._objects if key[0] == place]:
            del self._objects[key]

    def _tell(self, place: Place) -> None:
        with self._lock:
            moments = list(self._moments.get(place, ()))
        if not moments:
            return
        try:
            self._tell_all(place, moments)
        except ApiRefused:
            with self._lock:
                if place not in self._gone:
                    raise
                self._forget_place(place)
            return
        self._put_away(moments[-1])

    def _tell_all(self, place: Place, moments: list[Moment]) -> None:
        open_ = {name for name, item in moments[-1].recoveries.items() if _is_open(item)}
        with self._lock:
            open_ |= {name for where, name in self._objects if where == place}
        open_ |= {name for moment in moments if (name := _name(moment)) is not None}
        for name in sorted(open_):
            self._tell_one(name, moments)
        done = {id(moment) for moment in moments}
        with self._lock:
            left = [item for item in self._moments.pop(place, ()) if id(item) not in done]
            if left:
                self._moments[place] = left
            elif place in self._gone:
                self._forget_place(place)

    def _tell_one(self, name: str, moments: list[Moment]) -> None:
        """One Recovery through all moments, written once."""
        place = moments[0].place
        body = self._object(name, moments)
        if body is None:
            return
        recovery = recovery_resource.from_object(body)
        if recovery.left_out:
            return
        first = status = recovery.status
        told: list[KubernetesEvent] = []
        for moment in moments:
            scene = self._scene(moment, recovery)
            after = status_builder.tell(status, scene, moment.look.at)
            if after.news:
                told += _announced(recovery, moment, status, after.status)
                status = after.status
        if status == first:
            self._keep(place, name, body, status)
            return
        event_writer.announce(self.api, told, self.identity)
        try:
            written = self.api.replace(
                path_of(object_kinds.RECOVERIES, place.namespace, name, "status"),
                {**body, "status": to_status(status)},
            )
        except (ObjectConflict, ApiRefused):
            self._drop(place, name)  # somebody has changed or deleted it
            raise
        self._keep(place, name, written, status)
        self.metrics.told(moments[0].look.at)
        if status.has_ended:
            self.settled(place)

    def _abandon(self, place: Place, name: str) -> None:
        path = path_of(object_kinds.RECOVERIES, place.namespace, name)
        body = self.api.get(path)
        if body is None:
            return
        recovery = recovery_resource.from_object(body)
        told = status_builder.abandon(
            recovery.status,
            RecoveryReason.APPLICATION_GONE,
            f"{place.application} is not there any more.",
            time.time(),
        )
        if told.news and not recovery.left_out:
            self.api.replace(f"{path}/status", {**body, "status": to_status(told.status)})
        with self._lock:
            self._objects.pop((place, name), None)
        self.settled(place)

    def _object(self, name: str, moments: list[Moment]) -> Body | None:
        """The object as it was read or written last; made when it is not there and due."""
        place = moments[0].place
        with self._lock:
            known = self._objects.get((place, name))
        if known is not None:
            return known
        begins = [moment for moment in moments if _name(moment) == name]
        if not begins or name in moments[-1].recoveries:
            body = self.api.get(path_of(object_kinds.RECOVERIES, place.namespace, name))
            if body is not None or not begins:
                return body
        moment = begins[0]
        assert moment.incident is not None
        spec = RecoverySpec(
            moment.application, moment.incident, moment.policy_name, moment.class_name
        )
        made = recovery_resource.to_object(place.namespace, spec)
        with suppress(ObjectConflict):
            return self.api.create(path_of(object_kinds.RECOVERIES, place.namespace), made)
        return self.api.get(path_of(object_kinds.RECOVERIES, place.namespace, name))

    def _drop(self, place: Place, name: str) -> None:
        """Have it read again, or made where it is not there; then with all plans so far."""
        with self._lock:
            self._objects.pop((place, name), None)
        self.read_again(place)

    def _keep(self, place: Place, name: str, body: Body, status: RecoveryStatus) -> None:
        """Keep an open one, so that it need not be read again."""
        with self._lock:
            if status.has_ended:
                self._objects.pop((place, name), None)
            else:
                self._objects[place, name] = body

    def _scene(self, moment: Moment, recovery: Recovery) -> RecoveryInputs:
        place, look = moment.place, moment.look
        sequence = look.case.plan_sequence
        earlier, answers = self._stored(place)
        terms = replace(moment.terms, approved=recovery.spec.approved)
        return RecoveryInputs(
            incident=recovery.spec.incident,
            view=ApplicationView(
                application=str(place),
                case=look.case,
                reading=look.reading,
                plan=numbered(self.connection, place, store_paths.DIRECTIVES, sequence, Directive),
                answer=numbered(
                    self.connection, place, store_paths.ACKS, sequence, Acknowledgement
                ),
            ),
            decision=look.decision,
            terms=terms,
            cluster=moment.cluster,
            earlier=earlier,
            answers=answers,
            requests=moment.requests.get(recovery.spec.incident, () if moment.makes else None),
            provider=moment.provider,
            dangers=moment.dangers,
            generation=recovery.metadata.generation,
        )

    def _stored(self, place: Place) -> tuple[tuple[Directive, ...], tuple[Acknowledgement, ...]]:
        """The newest plans that the store holds, and the answers to them; read when there may be
        some that nobody has told."""
        with self._lock:
            known, unread = self._earlier.get(place), self._unread.get(place)
        if known is not None:
            return known
        names = self.connection.children(place.path(store_paths.DIRECTIVES))
        found = [
            numbered(self.connection, place, store_paths.DIRECTIVES, sequence, Directive)
            for sequence in sorted(store_paths.numbers(names))[-EARLIER_MAX:]
        ]
        plans = tuple(item for item in found if item and isinstance(item.order, PlanOrder))
        answers = (
            numbered(self.connection, place, store_paths.ACKS, item.sequence, Acknowledgement)
            for item in plans
        )
        known = plans, tuple(item for item in answers if item)
        with self._lock:
            if self._unread.get(place) == unread:  # what has come meanwhile is read the next time
                self._earlier[place] = known
        return known

    def _put_away(self, moment: Moment) -> None:
        """Delete the oldest that have ended, beyond as many as are kept."""
        ended = [item for item in moment.recoveries.values() if not _is_open(item)]
        ended.sort(key=recovery_resource.age, reverse=True)
        self._delete(ended[moment.kept_max :])

    def _delete(self, recoveries: Iterable[Recovery]) -> None:
        for item in recoveries:
            path = path_of(object_kinds.RECOVERIES, item.metadata.namespace, item.metadata.name)
            with suppress(ObjectConflict):  # another one has its name by now
                self.api.delete(path, {"preconditions": {"uid": item.metadata.uid}})


def _shortened(moments: list[Moment]) -> list[Moment]:
    """Take out as many as are too many, those first in which nothing was decided; gives them. The
    newest stays: it says how things are."""
    gone = []
    while len(moments) > MOMENTS_MAX:
        older = enumerate(moments[:-1])
        index = next((index for index, moment in older if not _has_news(moment)), 0)
        gone.append(moments.pop(index))
    return gone


def _has_news(moment: Moment) -> bool:
    decision = moment.look.decision
    return bool(decision.directives or decision.instructions)


def key_of(place: Place) -> str:
    """The key of an application's errands here."""
    return f"story {place}"


def _name(moment: Moment) -> str | None:
    """The Recovery that a moment is about, whether it is there or not."""
    number = moment.incident
    return None if number is None else recovery_resource.recovery_name(moment.application, number)


def _is_open(recovery: Recovery) -> bool:
    return not recovery.status.has_ended


def _announced(
    recovery: Recovery, moment: Moment, before: RecoveryStatus, after: RecoveryStatus
) -> tuple[KubernetesEvent, ...]:
    metadata, application = recovery.metadata, moment.application
    about = ObjectReference(
        API_VERSION, Recovery.kind, metadata.name, metadata.namespace, metadata.uid
    )
    owner = None
    if application.kind == "SparkApplication" and application.group is not None:
        version = object_kinds.SPARK_VERSIONS[application.group]
        owner = ObjectReference(
            f"{application.group}/{version}",
            application.kind,
            application.name,
            metadata.namespace,
            application.uid or "",
        )
    return kubernetes_events.of_recovery(about, owner, before, after)
