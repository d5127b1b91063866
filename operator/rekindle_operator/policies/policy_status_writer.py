"""The statuses of policies and classes: worked out by who decides, written by errands.

At most one writing a second of each, and only of what is otherwise than it stands there. The words
are those of `policy_conditions`.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from rekindle.model.errors import InputError
from rekindle.protocol.store_paths import Place
from rekindle_operator.api import recovery_class, recovery_policy
from rekindle_operator.api.custom_resources import (
    API_VERSION,
    Condition,
    ConditionFinding,
    Resource,
    camel_case,
    identity,
    updated,
)
from rekindle_operator.api.recovery_class import ClassStatus, RecoveryClass
from rekindle_operator.api.recovery_policy import PolicyStatus, RecoveryPolicy, SelectedApplication
from rekindle_operator.cluster import object_kinds
from rekindle_operator.cluster.api_client import Api, path_of
from rekindle_operator.cluster.application_matching import MatchedApplication
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.cluster.json_access import ObjectKind
from rekindle_operator.cluster.pods import APPLICATION_LABEL, PodSeen
from rekindle_operator.cluster.work_queue import WorkQueue
from rekindle_operator.policies import effective_policy, policy_conditions
from rekindle_operator.policies.effective_policy import Effective, UnknownQuery
from rekindle_operator.policies.policy_conditions import DomainLossForecast, Remark
from rekindle_operator.policies.policy_selection import Overlap, ProtectionReason
from rekindle_operator.recovery import event_writer, kubernetes_events
from rekindle_operator.recovery.kubernetes_events import ObjectReference
from rekindle_operator.recovery.recovery_inputs import Danger
from rekindle_operator.recovery.recovery_reasons import RecoveryReason

# Which applications are protected, and why the others are not, as a policy's status says it.
#
# The words are those of `policy_selection`; `policy_conditions` makes conditions of this.


def of_application(application: MatchedApplication) -> SelectedApplication:
    """The entry of an application that a policy selects."""
    footing = application.footing
    return SelectedApplication(
        kind=application.kind,
        name=application.place.application,
        protected=application.protected,
        group=application.group or None,
        reason=camel_case(footing) if footing else None,
        message=_sentence(application, footing) if footing else None,
    )


def of_nameless(driver: PodSeen) -> SelectedApplication:
    """The entry of a driver that a policy selects, and that nothing names: by its pod's name."""
    footing = ProtectionReason.NAME_MISSING
    return SelectedApplication(
        kind="Driver",
        name=driver.name,
        protected=False,
        reason=camel_case(footing),
        message=f"Driver {driver.name} has no label with its name; give it {APPLICATION_LABEL}.",
    )


def _sentence(application: MatchedApplication, footing: ProtectionReason) -> str:
    whose = application.driver.name if application.driver is not None else ""
    match footing:
        case ProtectionReason.SIDECAR_MISSING:
            return f"Driver {whose} runs without its sidecar; start it again with the webhook up."
        case ProtectionReason.NAME_SHARED:
            names = ", ".join([*(pod.name for pod in application.earlier_drivers), whose])
            return f"Several go by this name (drivers: {names}); give each its own."
    told = f"{footing.meaning[:1].upper()}{footing.meaning[1:]}"
    return f"{told} ({whose})." if whose else f"{told}."


MARKED = {kind.name: kind for kind in (object_kinds.POLICIES, object_kinds.CLASSES)}
PAUSE_SECONDS = 1.0
PAUSE_SHARE = 20.0


@dataclass(slots=True)
class PolicyStatusWriter:
    """`queries` (application -> its queries) is None for one that nobody has heard of, as `stopped`
    (application -> its queries that have, with why); `outlook` is what a lost domain would stop;
    `dangers` (applications) is what may make coordination fail, and `gate_dangers` what does so for
    whole applications alone. `_found` is what was worked out
    last of each resource, beside what stood there then: as long as both are so, there is nothing to
    do."""

    api: Api
    errands: WorkQueue
    known: ClusterView
    identity: str
    queries: Callable[[Place], frozenset[str] | None]
    stopped: Callable[[Place], Mapping[str, tuple[str, ...]] | None]
    outlook: Callable[[Place], DomainLossForecast | None]
    dangers: Callable[[Iterable[Place]], tuple[Danger, ...]]
    gate_dangers: Callable[[], tuple[Danger, ...]] = tuple
    _marked: dict[str, str] = field(default_factory=dict)
    _at: float = 0.0
    _pause_seconds: float = PAUSE_SECONDS
    _found: dict[str, tuple[object, object]] = field(default_factory=dict)
    # by the UID of a policy, with the generation of which they are
    _cycles: dict[str, tuple[int, list[tuple[str, ...]]]] = field(default_factory=dict)

    def refresh(self, *, stirred: bool) -> bool:
        """Work all statuses out anew when something was stirred, a while after the last time;
        whether it was done."""
        now = time.monotonic()
        if not stirred or now - self._at < self._pause_seconds:
            return False
        held: dict[str, list[MatchedApplication]] = defaultdict(list)
        overlaps: dict[str, list[Overlap]] = defaultdict(list)
        for application in self.known.applications():
            if not application.policy:
                continue
            held[application.policy].append(application)
            if application.overlapping:
                overlap = Overlap(
                    application.place.application, application.policy, application.overlapping
                )
                for name in (application.policy, *application.overlapping):
                    overlaps[name].append(overlap)
        recovering = self._recovering()
        for name, policy in self.known.policies.items():
            self._refresh_policy(policy, held[name], overlaps[name], recovering)
        self._refresh_classes(recovering)
        self._forget_gone()
        self._mark_unreadable()
        # of a thousand policies it takes a while, in which nothing is decided
        self._at = time.monotonic()
        self._pause_seconds = max(PAUSE_SECONDS, PAUSE_SHARE * (self._at - now))
        return True

    def forget(self) -> None:
        """Another one writes from now on."""
        self._found.clear()
        self._marked.clear()

    def _forget_gone(self) -> None:
        """Keep nothing of policies and classes that are not there any more."""
        resources = (*self.known.policies.values(), *self.known.classes.values())
        names = {_name(resource) for resource in resources}
        uids = {resource.metadata.uid for resource in resources}
        for uid in self._cycles.keys() - uids:
            del self._cycles[uid]
        for name in self._found.keys() - names:
            self._found.pop(name, None)  # an errand may have taken it out on its thread

    def _recovering(self) -> dict[str, list[Place]]:
        """The application of each Recovery of a policy (namespace/name) that is not over."""
        found: dict[str, list[Place]] = defaultdict(list)
        for place, item in self.known.open_recoveries():
            found[f"{place.namespace}/{item.spec.policy_name}"].append(place)
        return found

    def _refresh_policy(
        self,
        policy: RecoveryPolicy,
        applications: list[MatchedApplication],
        overlaps: list[Overlap],
        recovering: Mapping[str, list[Place]],
    ) -> None:
        name = identity(policy)
        effective = self.known.effective(name)
        selected = [of_application(item) for item in applications]
        selected += [of_nameless(pod) for pod in self.known.nameless(policy)]
        whole = policy.spec.recovers == "Applications"
        if whole:
            selected = [_without_sidecar(item) for item in selected]
        places = [item.place for item in applications]
        if whole:
            # of an application whose driver has gone nothing may be there until it comes back
            places = sorted({*places, *recovering.get(name, ())})
        dangers = self.dangers(places)
        if whole:
            dangers = (*self.gate_dangers(), *dangers)
        findings = (
            self._accepted(policy, effective, places, len(overlaps)),
            policy_conditions.exclusive(name, overlaps),
            policy_conditions.whole_applications()
            if whole
            else policy_conditions.protected(selected),
            policy_conditions.queries_running(
                {item.application: self.stopped(item) for item in places}
            ),
            policy_conditions.domain_loss_survived(
                {item.application: self.outlook(item) for item in places}
            ),
            policy_conditions.at_risk(dangers),
        )
        status = PolicyStatus(
            observed_generation=policy.metadata.generation,
            recovering=len(recovering.get(name, ())),
            webhook_away=any(reason == RecoveryReason.WEBHOOK_AWAY for reason, _ in dangers),
            applications=tuple(selected),
            narrowed=effective.narrowed if isinstance(effective, Effective) else (),
            conditions=_conditions(policy, policy.status.conditions, findings),
        )
        self._write(object_kinds.POLICIES, policy, status, recovery_policy.to_status)

    def _accepted(
        self,
        policy: RecoveryPolicy,
        effective: Effective | InputError | None,
        places: list[Place],
        overlaps: int,
    ) -> ConditionFinding:
        if effective is None and policy.spec.class_name in self.known.classes:
            return policy_conditions.class_not_allowed(policy)
        if effective is None:
            return policy_conditions.class_missing(policy.spec, self.known.classes)
        if isinstance(effective, InputError):
            return policy_conditions.unreadable(effective)
        if policy.spec.recovers == "Applications":
            remarks = self._remarks(policy, places) if places else ()
            return policy_conditions.accepted(effective, len(places), (), overlaps, remarks)
        unknown = self._unknown(effective, places)
        return policy_conditions.accepted(effective, len(places), unknown, overlaps)

    def _remarks(self, policy: RecoveryPolicy, places: list[Place]) -> Iterable[Remark]:
        uid, generation = policy.metadata.uid, policy.metadata.generation
        known = self._cycles.get(uid)
        if known is None or known[0] != generation:
            known = generation, policy_conditions.dependency_cycles(policy.spec)
            self._cycles[uid] = known
        names = {place.application for place in places}
        return policy_conditions.application_remarks(policy.spec, names, known[1])

    def _unknown(self, effective: Effective, places: list[Place]) -> tuple[UnknownQuery, ...]:
        """Queries with a priority that no pipeline has, as far as all of them are known."""
        heard = [self.queries(place) for place in places]
        if not heard or None in heard:
            return ()
        queries = frozenset().union(*(item for item in heard if item is not None))
        return effective_policy.known(effective, queries)[1]

    def _refresh_classes(self, recovering: Mapping[str, list[Place]]) -> None:
        users: dict[str, list[str]] = defaultdict(list)
        for name, policy in self.known.policies.items():
            users[policy.spec.class_name].append(name)
        for class_ in self.known.classes.values():
            named = users[class_.metadata.name]
            status = msgspec.structs.replace(
                class_.status,
                observed_generation=class_.metadata.generation,
                policies=len(named),
                recovering=sum(len(recovering.get(name, ())) for name in named),
                conditions=_conditions(
                    class_,
                    class_.status.conditions,
                    (
                        policy_conditions.class_accepted(len(named), class_.spec),
                        policy_conditions.store_secured(class_.spec),
                        policy_conditions.store_encrypted(class_.spec),
                    ),
                ),
            )
            self._write(
                object_kinds.CLASSES,
                class_,
                status,
                partial(recovery_class.to_status, spec=class_.spec),
            )

    def _mark_unreadable(self) -> None:
        """Have those that mean nothing say so: of their status only that is written."""
        for resource in self._marked.keys() - self.known.unreadable.keys():
            del self._marked[resource]
        for resource, why in self.known.unreadable.items():
            kind_name, _, name = resource.partition(" ")
            kind = MARKED.get(kind_name)
            if kind is None or self._marked.get(resource) == str(why):
                continue
            self._marked[resource] = str(why)
            errand = partial(self._put_unreadable, kind, name, why)
            self._found.pop(resource, None)
            self.errands.leave(f"status {resource}", errand)

    def _put_unreadable(self, kind: ObjectKind, name: str, why: InputError) -> None:
        path = path_of(kind, *(name.split("/", 1) if "/" in name else ("", name)))
        stands = self.api.get(path)
        if stands is None:
            return
        metadata, status = stands["metadata"], stands.get("status") or {}
        before, generation = _legible(status.get("conditions")), metadata.get("generation", 0)
        after = updated(before, (policy_conditions.unreadable(why),), generation, datetime.now(UTC))
        if after == before:
            return
        about = ObjectReference(
            *(API_VERSION, kind.name, metadata["name"]),
            *(metadata.get("namespace", ""), metadata["uid"]),
        )
        told = kubernetes_events.of_conditions(about, before, after)
        event_writer.announce(self.api, told, self.identity)
        status = {**status, "conditions": msgspec.to_builtins(after)}
        self.api.replace(f"{path}/status", {**stands, "status": status})

    def _write(
        self,
        kind: ObjectKind,
        resource: RecoveryPolicy | RecoveryClass,
        status: PolicyStatus | ClassStatus,
        encode: Callable[[Any], dict[str, Any]],
    ) -> None:
        """Leave it to be written, unless it stands there or is on its way."""
        name = _name(resource)
        found = (status, resource.status)
        if found == self._found.get(name):
            return
        self._found[name] = found
        body, stands = encode(status), encode(resource.status)
        if body != stands:
            errand = partial(self._put, kind, resource, body, resource.status.conditions, name)
            self.errands.leave(f"status {name}", errand)

    def _put(
        self,
        kind: ObjectKind,
        resource: Resource,
        body: dict[str, Any],
        conditions: tuple[Condition, ...],
        name: str,
    ) -> None:
        metadata = resource.metadata
        path = path_of(kind, metadata.namespace, metadata.name)
        stands = self.api.get(path)
        if stands is None or stands["metadata"].get("uid") != metadata.uid:
            self._found.pop(name, None)
            return
        after = msgspec.convert(body.get("conditions", []), tuple[Condition, ...])
        about = ObjectReference(
            API_VERSION, kind.name, metadata.name, metadata.namespace, metadata.uid
        )
        told = kubernetes_events.of_conditions(about, conditions, after)
        event_writer.announce(self.api, told, self.identity)
        self.api.replace(f"{path}/status", {**stands, "status": body})


def _name(resource: Resource) -> str:
    """Of a resource among those of all kinds."""
    return f"{resource.kind} {identity(resource)}"


def _without_sidecar(item: SelectedApplication) -> SelectedApplication:
    """A whole application needs none: that it is missing is nothing to tell."""
    if item.reason != camel_case(ProtectionReason.SIDECAR_MISSING):
        return item
    return msgspec.structs.replace(item, reason=None, message=None)


def _legible(conditions: object) -> tuple[Condition, ...]:
    """Those that stand there; none where they mean nothing either."""
    try:
        return msgspec.convert(conditions or [], tuple[Condition, ...])
    except msgspec.ValidationError:
        return ()


def _conditions(
    resource: Resource, before: tuple[Condition, ...], findings: Iterable[ConditionFinding]
) -> tuple[Condition, ...]:
    return updated(before, findings, resource.metadata.generation, datetime.now(UTC))
