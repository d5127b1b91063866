"""Conditions of resources, and the words for their reasons.

The core's reasons (rekindle.model.reasons) are words like `no-capacity`; Kubernetes wants
`NoCapacity`, and `camel_case` is the one place that turns them. Those here are of resources alone;
no word is in both lists. Pure: `policy_conditions` and the shell call it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec

from rekindle.model.reasons import Explained, Reason
from rekindle_operator.api.custom_resources import Count, Moment, Value, Word, clipped

ACCEPTED: Final = "Accepted"
EXCLUSIVE: Final = "Exclusive"
PROTECTED: Final = "Protected"
QUERIES_RUNNING: Final = "QueriesRunning"
COORDINATION_AT_RISK: Final = "CoordinationAtRisk"
DOMAIN_LOSS_SURVIVED: Final = "DomainLossSurvived"
STORE_ENCRYPTED: Final = "StoreEncrypted"
STORE_SECURED: Final = "StoreSecured"
CONFIRMED: Final = "Confirmed"
APPROVED: Final = "Approved"
PLANNED: Final = "Planned"
RECOVERED: Final = "Recovered"

MESSAGE_LENGTH_MAX = 1_000


class ResourceReason(Explained):
    """A kebab-case word; `meaning` says it in a line."""

    AS_WRITTEN = "as-written", "the policy or class holds as it is written"
    NARROWED = "narrowed", "the policy holds, but its class allows less than it asks for"
    CLASS_MISSING = "class-missing", "there is no class of the name that the policy gives"
    CLASS_NOT_ALLOWED = "class-not-allowed", "the class is not for the policy's namespace"
    BAD_RESOURCE = "bad-resource", "the policy or class cannot be read"
    CLUSTER_NOT_REACHED = "cluster-not-reached", "machines of the class are in another cluster"
    NOTHING_SELECTED = "nothing-selected", "the policy selects no application"
    POLICIES_OVERLAP = "policies-overlap", "several policies select the same application"
    NO_OVERLAP = "no-overlap", "no other policy selects the same application"
    SIDECARS_PRESENT = "sidecars-present", "every selected driver has its sidecar"
    SIDECAR_MISSING = "sidecar-missing", "a driver runs without its sidecar"
    SIDECAR_NOT_NEEDED = "sidecar-not-needed", "the policy brings back whole applications"
    UNKNOWN_QUERIES = "unknown-queries", "a priority names a query that no pipeline has"
    NOT_HEARD_OF = "not-heard-of", "nothing has been heard of an application"
    QUERIES_RUN = "queries-run", "no query has stopped"
    SOME_SURVIVES = "some-survives", "whichever failure domain is lost, some query goes on"
    NOTHING_SURVIVES = "nothing-survives", "the loss of one failure domain would stop every query"
    DOMAINS_UNKNOWN = "domains-unknown", "no node says which failure domain it is in"
    COORDINATION_SOUND = "coordination-sound", "store, sidecars and coordinators answer"
    STORE_HAS_SECRET = "store-has-secret", "drivers of the class reach the store with a secret"
    NAMESPACES_APART = "namespaces-apart", "each namespace has a credential for its records alone"
    STORE_OPEN = "store-open", "whoever reaches the store reads and writes all records"
    STORE_TLS = "store-tls", "drivers of the class reach the store by TLS"
    STORE_PLAINTEXT = "store-plaintext", "the way to the store is not encrypted"


class Condition(Value, frozen=True):
    """One thing that is so, or not."""

    type: Word
    status: Literal["True", "False", "Unknown"]
    reason: Word
    message: Annotated[str, msgspec.Meta(max_length=MESSAGE_LENGTH_MAX)]
    last_transition_time: Moment
    observed_generation: Count = 0


@dataclass(frozen=True, slots=True)
class ConditionFinding:
    """What is to be said in a condition: whether it is so (None: not known), and why."""

    type: str
    holds: bool | None
    reason: Reason | ResourceReason
    message: str


def camel_case(word: str) -> str:
    """`NoCapacity` for `no-capacity`: how a reason is written in conditions and events."""
    return "".join(part[:1].upper() + part[1:] for part in word.split("-"))


def updated(
    before: Iterable[Condition], said: Iterable[ConditionFinding], generation: int, now: datetime
) -> tuple[Condition, ...]:
    """All conditions after some have been said anew, in order of type.

    The moment of the last transition, in whole seconds, stays while the status does. `generation`
    is the spec's that was looked at.
    """
    conditions = {condition.type: condition for condition in before}
    for finding in said:
        old = conditions.get(finding.type)
        status = _status(finding.holds)
        moment = now.replace(microsecond=0)
        if old is not None and old.status == status:
            moment = old.last_transition_time
        conditions[finding.type] = Condition(
            type=finding.type,
            status=status,
            reason=camel_case(finding.reason),
            message=clipped(finding.message, MESSAGE_LENGTH_MAX),
            last_transition_time=moment,
            observed_generation=generation,
        )
    return tuple(conditions[name] for name in sorted(conditions))


def _status(holds: bool | None) -> Literal["True", "False", "Unknown"]:
    if holds is None:
        return "Unknown"
    return "True" if holds else "False"
