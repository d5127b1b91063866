"""Which applications have an incident, so that no more recover at once than may.

Kept from decisions, for a Recovery object comes only after the first one; when this process begins
to act, from the objects. Used by the deciding thread alone.

An application that has had a plan goes on; of the others the oldest is next. So a recovery that has
begun is never stopped by one that comes later, and an operator that takes over lets the same ones
go on. So it is within a policy, and again among those that their policies let go on, of all
policies of a class. The first of each policy never waits for the class: recoveries of one namespace
that do not end must not keep those of all others waiting.

Why: docs/decisions/0051-the-first-recovery-of-a-policy-never-waits-for-its-class.md.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rekindle.coordination.session import Case
from rekindle.protocol.store_paths import Place
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.policies.effective_policy import Effective, ReachedLimit


@dataclass(frozen=True, slots=True)
class RecoveryClaim:
    """An application with an incident: whether that has had a plan, and since when it is (seconds
    since 1970)."""

    application: str
    planned: bool
    since: float


def reached(
    application: str, claims: Iterable[RecoveryClaim], at_once_max: int, owner: str
) -> ReachedLimit | None:
    """The owner's limit where it keeps this application waiting, None where it may go on.

    One without a claim is the newest.
    """
    going = tuple(claim.application for claim in first(claims, at_once_max))
    if application in going or len(going) < at_once_max:
        return None
    return ReachedLimit(owner, at_once_max, going)


def first(claims: Iterable[RecoveryClaim], at_once_max: int) -> list[RecoveryClaim]:
    """Those that go on, the first first."""
    ranked = sorted(claims, key=lambda claim: (not claim.planned, claim.since, claim.application))
    return ranked[:at_once_max]


@dataclass(slots=True)
class Limiter:
    """Claims are by the policy (namespace/name) that held when they were made."""

    known: ClusterView
    _claims: dict[str, dict[Place, RecoveryClaim]] = field(default_factory=dict)
    _policies: dict[Place, str] = field(default_factory=dict)

    def begin(self) -> None:
        """Another one has decided so far: what is open is as its Recovery says."""
        self._claims.clear()
        self._policies.clear()
        for place, item in self.known.open_recoveries():
            created_at, status = item.metadata.creation_timestamp, item.status
            if created_at is not None and status.kind not in (None, "Suspected"):
                planned = status.plans_total > 0 and not status.dry_run
                self._note(place, RecoveryClaim(str(place), planned, created_at.timestamp()))

    def decided(self, place: Place, case: Case) -> None:
        """What is known of an application from now on. When an incident is over, those that wait
        are looked at. Losses that are only announced keep nobody waiting."""
        incident = case.incident
        if incident is not None and not incident.is_announced:
            self._note(place, RecoveryClaim(str(place), incident.plans > 0, incident.began_at))
        else:
            self.forget(place)

    def forget(self, place: Place) -> None:
        """An application without an incident, or one that is gone."""
        policy = self._policies.pop(place, None)
        if policy is not None:
            del self._claims[policy][place]
            for claims in self._of_class(self._class(policy) or "", policy).values():
                self.known.changed |= {left for left, it in claims.items() if not it.planned}

    def reached(self, place: Place, held: Effective) -> ReachedLimit | None:
        """The limit that keeps this application waiting, with those that fill it. One that waits
        for approval fills none."""
        application = self.known.application(place)
        policy = "" if application is None else application.policy
        claims = self._claims.get(policy, {})
        at_once_max = held.concurrent_recoveries_max
        if len(claims.keys() - {place}) >= at_once_max:
            # a policy without a limit of its own, or with a higher one, has that of its class
            is_own = at_once_max < held.class_recoveries_max
            owner = f"policy {policy.rpartition('/')[2]}" if is_own else f"class {held.class_name}"
            counted = self._counted(claims, place, held)
            found = reached(str(place), counted, at_once_max, owner)
            if found is not None:
                return found
        return self._reached_in_class(place, policy, held)

    def _reached_in_class(self, place: Place, policy: str, held: Effective) -> ReachedLimit | None:
        """The same among all policies of the class, of those that their own policies let go on."""
        if len(self._policies.keys() - {place}) < held.class_recoveries_max:
            return None  # all there are, of whatever class
        by_policy = self._of_class(held.class_name, policy)
        others = sum(len(claims.keys() - {place}) for claims in by_policy.values())
        if others < held.class_recoveries_max:
            return None
        going: list[RecoveryClaim] = []
        for name, claims in by_policy.items():
            terms = held if name == policy else self.known.effective(name)
            if isinstance(terms, Effective):
                counted = self._counted(claims, place, terms)
                going += first(counted, terms.concurrent_recoveries_max)
        own = first(self._counted(by_policy.get(policy, {}), place, held), 1)
        if not own or own[0].application == str(place):
            return None
        return reached(str(place), going, held.class_recoveries_max, f"class {held.class_name}")

    def _counted(
        self, claims: Mapping[Place, RecoveryClaim], place: Place, held: Effective
    ) -> list[RecoveryClaim]:
        return [claim for other, claim in claims.items() if self._counts(other, place, held)]

    def _counts(self, other: Place, place: Place, held: Effective) -> bool:
        if self.known.application(other) is None:
            return False
        return other == place or self.known.approved(other, held)

    def _of_class(self, class_name: str, policy: str) -> dict[str, dict[Place, RecoveryClaim]]:
        """Claims of a policy, and of all others of a class."""
        return {
            name: claims
            for name, claims in self._claims.items()
            if name == policy or self._class(name) == class_name
        }

    def _class(self, policy: str) -> str | None:
        held = self.known.effective(policy)
        return held.class_name if isinstance(held, Effective) else None

    def _note(self, place: Place, claim: RecoveryClaim) -> None:
        application = self.known.application(place)
        policy = "" if application is None else application.policy
        if self._policies.get(place, policy) != policy:
            self.forget(place)
        if policy:
            self._policies[place] = policy
            self._claims.setdefault(policy, {})[place] = claim
