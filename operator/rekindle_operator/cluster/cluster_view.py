"""The view of the cluster, and the effective policy of each application.

The registry joins pods, nodes and SparkApplications; here are policies with their classes, the
Recovery objects, and what of them cannot be read. Used by the deciding thread alone, which
`EventInbox` feeds; other threads get values that do not change. Reads nothing itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from rekindle.model.errors import InputError
from rekindle.protocol.store_paths import Place
from rekindle_operator.api.custom_resources import identity
from rekindle_operator.api.recovery_class import RecoveryClass
from rekindle_operator.api.recovery_policy import RecoveryPolicy
from rekindle_operator.api.recovery_resource import Recovery
from rekindle_operator.cluster import application_matching, cluster_cache, pods
from rekindle_operator.policies import effective_policy, policy_selection
from rekindle_operator.policies.effective_policy import Effective


@dataclass(slots=True)
class ClusterView:
    """`unreadable` (kind namespace/name -> why) are resources that mean nothing; `recoveries` are
    by their application's place and their own name, `with_recoveries` (namespace -> places) says
    which applications have any. `stirred`: policies or classes have changed since somebody last
    looked.
    """

    registry: cluster_cache.ClusterCache = field(default_factory=cluster_cache.ClusterCache)
    policies: dict[str, RecoveryPolicy] = field(default_factory=dict)
    classes: dict[str, RecoveryClass] = field(default_factory=dict)
    recoveries: dict[Place, dict[str, Recovery]] = field(default_factory=dict)
    with_recoveries: dict[str, set[Place]] = field(default_factory=dict)
    unreadable: dict[str, InputError] = field(default_factory=dict)
    stirred: bool = True
    changed: set[Place] = field(default_factory=set)
    _held: dict[str, Effective | InputError | None] = field(default_factory=dict)

    def see_policy(self, policy: RecoveryPolicy) -> None:
        """A policy as it is now."""
        name = identity(policy)
        self.unreadable.pop(f"{policy.kind} {name}", None)
        known = self.policies.get(name)
        self.policies[name] = policy
        self.registry.see_policy(policy)
        if known is None or known.metadata.generation != policy.metadata.generation:
            self._reconsider(name)

    def forget_policy(self, namespace: str, name: str) -> None:
        """A policy that is gone."""
        place = f"{namespace}/{name}"
        self.unreadable.pop(f"{RecoveryPolicy.kind} {place}", None)
        if self.policies.pop(place, None) is not None:
            self.registry.forget_policy(namespace, name)
            self._reconsider(place)

    def see_class(self, class_: RecoveryClass) -> None:
        """A class as it is now."""
        name = class_.metadata.name
        self.unreadable.pop(f"{class_.kind} {name}", None)
        known = self.classes.get(name)
        self.classes[name] = class_
        if known is None or known.spec != class_.spec:
            self._reconsider_class(name)

    def forget_class(self, name: str) -> None:
        """A class that is gone."""
        self.unreadable.pop(f"{RecoveryClass.kind} {name}", None)
        if self.classes.pop(name, None) is not None:
            self._reconsider_class(name)

    def see_recovery(self, recovery: Recovery) -> None:
        """A Recovery as it is now."""
        place = place_of(recovery)
        known = self.recoveries.setdefault(place, {})
        self.with_recoveries.setdefault(place.namespace, set()).add(place)
        before = known.get(recovery.metadata.name)
        known[recovery.metadata.name] = recovery
        if before is None or before.spec != recovery.spec:
            self.changed.add(place)

    def forget_recovery(self, namespace: str, name: str) -> None:
        """A Recovery that is gone."""
        for place in list(self.with_recoveries.get(namespace, ())):
            known = self.recoveries[place]
            if known.pop(name, None) is not None:
                self.changed.add(place)
                if not known:
                    del self.recoveries[place]
                    self.with_recoveries[namespace].discard(place)

    def see_unreadable(self, kind: str, name: str, why: InputError) -> None:
        """A resource that the API server has let in and that means nothing."""
        self.unreadable[f"{kind} {name}"] = why
        self.stirred = True

    def application(self, place: Place) -> application_matching.MatchedApplication | None:
        """An application as it is now."""
        return self.registry.application(place)

    def has_objects(self, place: Place) -> bool:
        """Whether there is a pod or a SparkApplication of an application. Any thread may ask, and
        gets RuntimeError where what is seen changes meanwhile."""
        return self.registry.has_objects(place)

    def applications(self) -> Iterator[application_matching.MatchedApplication]:
        """All of them."""
        for place in sorted(self.registry.places()):
            found = self.registry.application(place)
            if found is not None:
                yield found

    def held(self, place: Place) -> Effective | None:
        """What holds for an application by its policy and class; None where there is no policy, or
        one without a class, or one that cannot be understood: then nothing is done for it."""
        application = self.registry.application(place)
        if application is None or not application.policy:
            return None
        found = self.effective(application.policy)
        return found if isinstance(found, Effective) else None

    def effective(self, policy: str) -> Effective | InputError | None:
        """What holds of a policy (namespace/name); None while it has no class that it may use."""
        if policy not in self._held:
            self._held[policy] = self._effective(policy)
        return self._held[policy]

    def open_recoveries(self) -> Iterator[tuple[Place, Recovery]]:
        """Recoveries that are not over."""
        for place in self.recoveries:
            for item in self.open_of(place).values():
                yield place, item

    def open_of(self, place: Place) -> dict[str, Recovery]:
        """An application's recoveries that are not over, by name."""
        known = self.recoveries.get(place, {})
        return {name: item for name, item in known.items() if not item.status.has_ended}

    def past(self, before: datetime) -> list[Recovery]:
        """Recoveries that had ended by a moment, of applications without objects. Of an application
        with objects the newest are kept, however old they are."""
        gone = (place for place in self.recoveries if self.application(place) is None)
        return [item for place in gone for item in self._ended(place, before)]

    def approved(self, place: Place, held: Effective) -> bool:
        """Whether a person has approved of the recovery that is open, or nobody has to."""
        return not held.approval_needed or self.has_approval(place)

    def has_fencing_approval(self, place: Place) -> bool:
        """Whether a person who may has said that the driver's lost node runs nothing."""
        return any(item.spec.fencing_approved for item in self.open_of(place).values())

    def has_approval(self, place: Place) -> bool:
        """Whether a person has approved of a recovery that is open."""
        return any(item.spec.approved for item in self.open_of(place).values())

    def nameless(self, policy: RecoveryPolicy) -> tuple[pods.PodSeen, ...]:
        """Drivers that a policy selects and that nothing names."""
        selector = policy.spec.selector
        return tuple(
            pod
            for pod in self.registry.nameless(policy.metadata.namespace)
            if policy_selection.selects(selector, application_matching.driver_as_selected(pod))
        )

    def take_changed(self) -> frozenset[Place]:
        """Applications about which something may be otherwise since the last call."""
        changed = self.registry.take_changed() | self.changed
        self.changed.clear()
        return changed

    def _ended(self, place: Place, before: datetime) -> Iterator[Recovery]:
        for item in self.recoveries[place].values():
            status = item.status
            if status.has_ended and status.ended_at is not None and status.ended_at <= before:
                yield item

    def _effective(self, policy: str) -> Effective | InputError | None:
        known = self.policies.get(policy)
        class_ = self.classes.get(known.spec.class_name) if known is not None else None
        if known is None or class_ is None or not class_.spec.allows(known.metadata.namespace):
            return None
        try:
            return effective_policy.effective(known, class_)
        except InputError as error:
            return error

    def _reconsider_class(self, name: str) -> None:
        for place, policy in self.policies.items():
            if policy.spec.class_name == name:
                self._reconsider(place)
        self.stirred = True

    def _reconsider(self, policy: str) -> None:
        self._held.pop(policy, None)
        self.stirred = True
        namespace = policy.partition("/")[0]
        self.changed |= {place for place in self.registry.places() if place.namespace == namespace}


def place_of(recovery: Recovery) -> Place:
    """The application that a Recovery is about."""
    return Place(recovery.metadata.namespace, recovery.spec.application.name)
