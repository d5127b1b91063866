"""What the webhook goes by: policies, classes, SparkApplications and avoided domains, as watched.

    list ──► watch ──► what is known ──► a PolicyView, made when the next pod asks

The webhook watches them itself, so it answers whether or not an operator runs. It keeps what it
knows while the API server is away. Of SparkApplications it asks for metadata alone, since whole
ones would take the most of its memory. `webhook_main` starts it.

Why: docs/decisions/0050-the-webhook-is-a-deployment-of-its-own.md.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from rekindle.model.errors import InputError
from rekindle_coordinator.json_lines import JsonLineLog
from rekindle_operator.api import recovery_class, recovery_policy
from rekindle_operator.api.recovery_class import RecoveryClass
from rekindle_operator.api.recovery_policy import RecoveryPolicy
from rekindle_operator.cluster import object_kinds
from rekindle_operator.cluster.api_client import Api
from rekindle_operator.cluster.json_access import Body
from rekindle_operator.cluster.object_watcher import (
    EventInbox,
    News,
    ObjectWatcher,
    WatchHandler,
    WatchScope,
)
from rekindle_operator.cluster.spark_applications import SparkApplicationSeen, application_seen
from rekindle_operator.detection.failure_domains import Domain
from rekindle_operator.webhook import avoided_domains, injector
from rekindle_operator.webhook.avoided_domains import AvoidedRecord
from rekindle_operator.webhook.injection_spec import InjectionRefusal, Terms
from rekindle_operator.webhook.injector import Defaults, PolicyView, gathered

# Of a list: whole policies of a thousand applications in one answer would take 50 MB to read.
PAGE_ITEMS = 50


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class WatchedPolicies:
    """What is known; by UID. Asked by the server's thread, changed by those that watch. `clock` is
    in seconds; `wall_clock` is the time of day, in UTC."""

    defaults: Defaults
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], datetime] = _utc_now
    policies: dict[str, RecoveryPolicy] = field(default_factory=dict)
    classes: dict[str, RecoveryClass] = field(default_factory=dict)
    applications: dict[str, SparkApplicationSeen] = field(default_factory=dict)
    avoided: dict[str, tuple[Domain, ...]] = field(default_factory=dict)
    waiting: frozenset[str] = frozenset()
    # the newest record: its own time, and until when both hold
    avoided_written: datetime | None = None
    avoided_until: float = 0.0
    # when all records that had been written until then were known last; None before the first list
    avoided_current_at: float | None = None
    _view: PolicyView | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def terms_of(self, pod: Body, namespace: str) -> Terms | InjectionRefusal | None:
        """What holds for a pod by what is known now."""
        return injector.terms_of(pod, namespace, self.view())

    def waits(self, pod: Body, namespace: str) -> bool:
        """Whether a new pod waits for its turn, by what is known now."""
        return self.gates and injector.waits(pod, namespace, self.view())

    @property
    def gates(self) -> bool:
        """Whether there are pods that wait for their turn, by a record that is valid."""
        return bool(self.waiting) and self._is_valid

    @property
    def _is_valid(self) -> bool:
        return self.clock() < self.avoided_until

    def view(self) -> PolicyView:
        """What is known now, as a value."""
        with self._lock:
            if self._view is None:
                self._view = gathered(
                    self.policies.values(),
                    self.classes.values(),
                    self.applications.values(),
                    (),
                    self.defaults,
                )
            if not self._is_valid:
                return replace(self._view, avoided={})
            return replace(self._view, avoided=self.avoided, waiting=self.waiting)

    def take(self, news: "News[WatchedPolicies]") -> None:
        """Carry out what a watch tells."""
        with self._lock:
            news(self)

    def see_policy(self, policy: RecoveryPolicy) -> None:
        """A policy as it is now."""
        self.policies[policy.metadata.uid] = policy
        self._view = None

    def see_class(self, class_: RecoveryClass) -> None:
        """A class as it is now."""
        self.classes[class_.metadata.uid] = class_
        self._view = None

    def see_application(self, application: SparkApplicationSeen) -> None:
        """A SparkApplication as it is now; its status changes often, and counts for nothing."""
        if self.applications.get(application.uid) != application:
            self.applications[application.uid] = application
            self._view = None

    def see_avoided(self, record: AvoidedRecord, waiting: frozenset[str]) -> None:
        """Both hold for `VALID_SECONDS` after the record was written, and no longer: the operator
        may have gone since. It says when that was. By a clock that is behind ours it seems older
        than it is; but it was written after the watch was current without it. Bookmarks come every
        minute, so a record of such a clock holds for two minutes at least."""
        before, self.avoided_written = self.avoided_written, record.at
        if record.at == before:
            return  # it is listed again
        age_seconds = (self.wall_clock() - record.at).total_seconds()
        written_at = self.clock() - max(0.0, age_seconds)
        if self.avoided_current_at is not None:
            written_at = max(written_at, self.avoided_current_at)
        self.avoided, self.waiting = record.avoided, waiting
        self.avoided_until = written_at + avoided_domains.VALID_SECONDS

    def see_avoided_current(self) -> None:
        """No other record has been written until now."""
        self.avoided_current_at = self.clock()

    def see_nothing_avoided(self) -> None:
        """There is no record."""
        self.avoided, self.waiting = {}, frozenset()

    def forget(self, uid: str) -> None:
        """An object that is gone, of whichever kind."""
        for known in (self.policies, self.classes, self.applications):
            if known.pop(uid, None) is not None:
                self._view = None

    def see_unreadable(self, kind: str, name: str, why: InputError) -> None:
        """It has been forgotten, and the watch has logged why."""


class _AtOnce(EventInbox[WatchedPolicies]):
    """News are carried out where they arrive: nobody decides here."""

    def __init__(self, known: WatchedPolicies) -> None:
        super().__init__()
        self._known = known

    def put(self, news: News[WatchedPolicies]) -> None:
        self._known.take(news)


def _gone(body: Body) -> News[WatchedPolicies]:
    uid = body["metadata"]["uid"]
    return lambda known: known.forget(uid)


def _policy_seen(body: Body) -> News[WatchedPolicies]:
    # its status, with a line for each application, takes the most of its memory
    policy = recovery_policy.from_object({**body, "status": {}})
    return lambda known: known.see_policy(policy)


def _policies_only(uids: Collection[str]) -> News[WatchedPolicies]:
    def news(known: WatchedPolicies) -> None:
        for uid in known.policies.keys() - uids:
            known.forget(uid)

    return news


def _class_seen(body: Body) -> News[WatchedPolicies]:
    class_ = recovery_class.from_object(body)
    return lambda known: known.see_class(class_)


def _classes_only(uids: Collection[str]) -> News[WatchedPolicies]:
    def news(known: WatchedPolicies) -> None:
        for uid in known.classes.keys() - uids:
            known.forget(uid)

    return news


def _applications(group: str, api_version: str) -> WatchHandler[WatchedPolicies]:
    """Of one operator. Metadata says of another kind that it is."""

    def seen(body: Body) -> News[WatchedPolicies]:
        application = application_seen({**body, "apiVersion": api_version})
        return lambda known: known.see_application(application)

    def only(uids: Collection[str]) -> News[WatchedPolicies]:
        def news(known: WatchedPolicies) -> None:
            those = [uid for uid, item in known.applications.items() if item.group == group]
            for uid in set(those) - set(uids):
                known.forget(uid)

        return news

    return WatchHandler(seen, _gone, only)


def _avoided_seen(body: Body) -> News[WatchedPolicies]:
    found = avoided_domains.from_config_map(body)
    waiting = avoided_domains.waiting_buckets(body)
    return lambda known: known.see_avoided(found, waiting)


def _avoided_gone(_: Body) -> News[WatchedPolicies]:
    return lambda known: known.see_nothing_avoided()


def _avoided_only(uids: Collection[str]) -> News[WatchedPolicies]:
    return lambda known: None if uids else known.see_nothing_avoided()


def watchers(
    api: Api, known: WatchedPolicies, namespace: str, log: JsonLineLog, silence_seconds: float
) -> Iterator[ObjectWatcher[WatchedPolicies]]:
    """A watch of each kind, not started yet; `namespace` is the operator's."""
    inbox = _AtOnce(known)
    whole = replace(api, page_items=PAGE_ITEMS)
    policies = WatchHandler(_policy_seen, _gone, _policies_only)
    classes = WatchHandler(_class_seen, _gone, _classes_only)
    avoided = WatchHandler(
        _avoided_seen, _avoided_gone, _avoided_only, WatchedPolicies.see_avoided_current
    )
    scope = WatchScope(namespace, avoided_domains.NAME)
    yield ObjectWatcher(whole, object_kinds.CLASSES, classes, inbox, log, silence_seconds)
    yield ObjectWatcher(whole, object_kinds.POLICIES, policies, inbox, log, silence_seconds)
    yield ObjectWatcher(
        whole, object_kinds.CONFIG_MAPS, avoided, inbox, log, silence_seconds, scope
    )
    for group, kind in object_kinds.SPARK_APPLICATIONS.items():
        yield ObjectWatcher(
            replace(whole, metadata_only=True),
            kind,
            _applications(group, kind.api_version),
            inbox,
            log,
            silence_seconds,
            optional=True,
        )
