"""Reads and writes custom resources: the fields and names that all kinds share.

A resource is a value: identity, spec, and what was written to its status. Unknown fields are
ignored, and so is what cannot be read of a status, so that an older operator reads what a newer one
has stored. What a resource is about is for `recovery_policy`, `recovery_class` and
`recovery_resource`, which call this; nothing here talks to an API server.
"""

import copy
import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Final, Literal, NoReturn, TypeVar

import msgspec

from rekindle.model.errors import InputError
from rekindle.model.reasons import Explained, Reason

GROUP = "rekindle.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
COUNT_MAX = 2**53 - 1  # what JSON numbers hold exactly everywhere
SHOWN_MAX = 200
STATUS = "status"
# Each time something is left out, all is read again: so many items, and then so many whole fields.
LEFT_OUT_MAX = 10
# Of the path of a field: a name, or the number of an item.
STEP = re.compile(r"(\w+)|\[(\d+)\]")

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
Label = Annotated[str, msgspec.Meta(max_length=63)]
Word = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Number = Annotated[int, msgspec.Meta(ge=1, le=COUNT_MAX)]
Seconds = Annotated[int, msgspec.Meta(ge=0, le=86_400)]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class Value(msgspec.Struct, frozen=True, rename="camel"):
    """Part of a resource: snake_case here is camelCase there."""


class ResourceMetadata(Value, frozen=True):
    """What identifies an object; `namespace` is empty for those of the cluster."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None


class Resource(Value, frozen=True):
    """An object of ours; `kind` is the same for all of a type."""

    kind: ClassVar[str]
    metadata: ResourceMetadata


Kind = TypeVar("Kind", bound=Resource)


def read(record: object, kind: type[Kind]) -> Kind:
    """The resource in an object from the API; InputError names kind, namespace/name and field.

    What this release cannot read of a status is left out: a newer one may have written it, and what
    a person wants, the spec, holds whatever stands there.
    """
    return read_parts(record, kind)[0]


def read_parts(record: object, kind: type[Kind]) -> tuple[Kind, bool]:
    """The same as `read`, and whether something was left out."""
    left: Any = record
    for count in itertools.count():
        try:
            return msgspec.convert(left, kind), left is not record
        except msgspec.ValidationError as error:
            what, _, path = str(error).partition(" - at `")
            field = path.rstrip("`").removeprefix("$").removeprefix(".")
            if field.partition(".")[0] != STATUS:
                where = f"{kind.kind} {_shown_identity(record)}"
                _refuse(f"{where}: {field}" if field else where, what[:1].lower() + what[1:])
            if not count:
                left = {**left, STATUS: copy.deepcopy(left[STATUS])}
            _leave_out(left, field, count)
    raise AssertionError("each time there is less of it")


def _leave_out(record: Any, field: str, count: int) -> None:
    """Take out what cannot be read: a field or item below the status, after some of them the whole
    field of the status, and after some of these the status."""
    steps = [name or int(number) for name, number in STEP.findall(field)]
    if count >= LEFT_OUT_MAX:
        steps = steps[: 2 if count < 2 * LEFT_OUT_MAX else 1]
    for step in steps[:-1]:
        record = record[step]
    del record[steps[-1]]


def written(value: Value) -> dict[str, Any]:
    """A value as JSON holds it, without what is not there (None, empty lists and mappings).

    Times are in UTC and whole seconds, or milliseconds where they have any.
    """
    record = _without_nothing(msgspec.to_builtins(value, builtin_types=(datetime,)))
    assert isinstance(record, dict)
    return record


def identity(resource: Resource) -> str:
    """`namespace/name`, or the name of an object of the cluster."""
    metadata = resource.metadata
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


def clipped(text: str, length_max: int) -> str:
    """A text, cut where it would be refused for its length."""
    return text if len(text) <= length_max else f"{text[: length_max - 1]}…"


def _shown_identity(record: object) -> str:
    """Of an object that cannot be read, as far as it says."""
    metadata = record.get("metadata") if isinstance(record, Mapping) else None
    if not isinstance(metadata, Mapping):
        return "without a name"
    names = [metadata.get("namespace"), metadata.get("name")]
    found = [name for name in names if isinstance(name, str) and name]
    return clipped("/".join(found), SHOWN_MAX) if found else "without a name"


def _without_nothing(value: Any) -> Any:
    if isinstance(value, Mapping):
        cleaned = {key: _without_nothing(item) for key, item in value.items()}
        return {key: item for key, item in cleaned.items() if not _is_nothing(item)}
    if isinstance(value, list | tuple):
        return [_without_nothing(item) for item in value]
    if isinstance(value, datetime):
        precision = "milliseconds" if value.microsecond >= 1_000 else "seconds"
        return value.astimezone(UTC).isoformat(timespec=precision).replace("+00:00", "Z")
    return value


def _is_nothing(value: object) -> bool:
    return value is None or (isinstance(value, list | dict) and not value)


def _refuse(where: str, what: str) -> NoReturn:
    raise InputError(where=where, what=clipped(what, SHOWN_MAX), remedy="see docs/resources.md")


# Conditions of resources, and the words for their reasons.
#
# The core's reasons (rekindle.model.reasons) are words like `no-capacity`; Kubernetes wants
# `NoCapacity`, and `camel_case` is the one place that turns them. Those here are of resources
# alone; no word is in both lists.

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
    UNKNOWN_APPLICATIONS = (
        "unknown-applications",
        "the policy names an application that it does not select",
    )
    DEPENDENCY_CYCLE = "dependency-cycle", "applications of the policy depend on each other"
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
