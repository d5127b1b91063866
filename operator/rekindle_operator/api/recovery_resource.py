"""Recovery as values: one incident of one application, from the first suspicion to its end.

The operator makes the object when an incident begins, and writes its status whenever the story
(`recovery_status`) has gone on; a person sets approvals, nothing else.
"""

import hashlib
from typing import Annotated, Any, ClassVar

import msgspec

from rekindle_operator.api.custom_resources import (
    API_VERSION,
    Name,
    Number,
    Resource,
    Value,
    read,
    written,
)
from rekindle_operator.api.recovery_policy import ApplicationKind, Group
from rekindle_operator.api.recovery_status import RecoveryStatus

NAME_LENGTH_MAX = 253
DIGEST_LENGTH = 5


class ApplicationReference(Value, frozen=True):
    """An application of the Recovery's namespace; a Driver has neither group nor uid."""

    kind: ApplicationKind
    name: Name
    group: Group | None = None
    uid: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] | None = None


class RecoverySpec(Value, frozen=True):
    """What the recovery is about; `approved` is set by a person, `fencing_approved` by one who may
    say of a node that it is off."""

    application: ApplicationReference
    incident: Number
    policy_name: Name
    class_name: Name
    approved: bool = False
    fencing_approved: bool = False


class Recovery(Resource, frozen=True):
    """One incident of one application."""

    kind: ClassVar[str] = "Recovery"
    spec: RecoverySpec
    status: RecoveryStatus = RecoveryStatus()


def from_object(record: object) -> Recovery:
    """The recovery in an object from the API; InputError names object and field."""
    return read(record, Recovery)


def recovery_name(application: ApplicationReference, incident: int) -> str:
    """The object's name: the same for the same incident, so that it is made only once.

    A digest keeps apart what kind, group, uid or a name cut for its length would let collide.
    """
    identity = (application.kind, application.group, application.name, application.uid)
    digest = hashlib.sha256(repr((*identity, incident)).encode()).hexdigest()[:DIGEST_LENGTH]
    ending = f"-{incident}-{digest}"
    return application.name[: NAME_LENGTH_MAX - len(ending)].rstrip("-.") + ending


def to_object(namespace: str, spec: RecoverySpec) -> dict[str, Any]:
    """The object to create at the beginning of an incident; its status comes separately."""
    name = recovery_name(spec.application, spec.incident)
    return {
        "apiVersion": API_VERSION,
        "kind": Recovery.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": written(spec),
    }
