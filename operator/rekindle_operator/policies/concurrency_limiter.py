"""Which applications have an incident, so that no more of a policy recover at once than may.

Kept from decisions, for a Recovery object comes only after the first one; when this process begins
to act, from the objects. Used by the deciding thread alone.

An application that has had a plan goes on; of the others the oldest is next. So a recovery that has
begun is never stopped by one that comes later, and an operator that takes over lets the same ones
go on.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from rekindle.coordination.session import Case
from rekindle.protocol.store_paths import Place
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.policies.effective_policy import Effective


@dataclass(frozen=True, slots=True)
class RecoveryClaim:
    """An application with an incident: whether that has had a plan, and since when it is (seconds
    since 1970)."""

    application: str
    planned: bool
    since: float


def ahead(application: str, claims: Iterable[RecoveryClaim], at_once_max: int) -> tuple[str, ...]:
    """Applications that keep this one waiting, the first first; none where it may go on.

    One without a claim is the newest.
    """
    ranked = sorted(claims, key=lambda claim: (not claim.planned, claim.since, claim.application))
    going = tuple(claim.application for claim in ranked[:at_once_max])
    return () if application in going or len(going) < at_once_max else going


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
            left = self._claims[policy]
            del left[place]
            self.known.changed |= left.keys()

    def ahead(self, place: Place, held: Effective) -> tuple[str, ...]:
        """Applications that keep this one waiting. One that waits for approval keeps none."""
        application = self.known.application(place)
        claims = self._claims.get("" if application is None else application.policy, {})
        if len(claims.keys() - {place}) < held.concurrent_recoveries_max:
            return ()
        going = [claim for other, claim in claims.items() if self._counts(other, place, held)]
        return ahead(str(place), going, held.concurrent_recoveries_max)

    def _counts(self, other: Place, place: Place, held: Effective) -> bool:
        if self.known.application(other) is None:
            return False
        return other == place or self.known.approved(other, held)

    def _note(self, place: Place, claim: RecoveryClaim) -> None:
        application = self.known.application(place)
        policy = "" if application is None else application.policy
        if self._policies.get(place, policy) != policy:
            self.forget(place)
        if policy:
            self._policies[place] = policy
            self._claims.setdefault(policy, {})[place] = claim
