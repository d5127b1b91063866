"""Actions for the shell, in their order, for one incident after the other.

    Create    an object; that it is there already is success, or, of a note, a conflict
    Replace   a note, if it is still as it was read
    Scale     a MachineDeployment, if it is still as it was read
    Mark      a Machine that is to go first when its MachineDeployment is scaled down, or unmark it
    Delete    an object, if it is still this one; that it is gone already is success

A conflict means that somebody else has acted. It, or an answer that did not come, ends the actions
of that `scope` for now: the next decision begins with what is there. What the API server refuses
for good (400, 403, 404 of the kind, 422) goes into the next `Standing.refused` under the object's
name. Values only; `decide` makes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rekindle_operator.api.node_providers import KubeconfigSecret
from rekindle_operator.cluster.json_access import Body, ObjectKind, text

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Create:
    """`reason` is a word of the core's, `text` a sentence for people. `alone`: that the object is
    there already is a conflict."""

    scope: str
    kind: ObjectKind
    manifest: Manifest
    reason: str
    text: str
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Replace:
    """`manifest` has the resourceVersion of what was read."""

    scope: str
    kind: ObjectKind
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class SetReplicas:
    """Set the replicas by the subresource `scale`, with the resourceVersion as a condition.

    `cluster` has the kubeconfig of another cluster where it is not this one.
    """

    scope: str
    namespace: str
    name: str
    replicas: int
    resource_version: str
    text: str
    cluster: KubeconfigSecret | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """Set an annotation of a Machine, or remove it where `value` is None; a merge patch."""

    scope: str
    namespace: str
    name: str
    annotation: str
    value: str | None
    uid: str
    cluster: KubeconfigSecret | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """With the uid as a precondition, in the background, without a grace period of its own; of a
    note with its `resource_version` too."""

    scope: str
    kind: ObjectKind
    namespace: str
    name: str
    uid: str
    text: str
    resource_version: str = ""


Action = Create | Replace | SetReplicas | Mark | Delete


def delete(scope: str, kind: ObjectKind, body: Body, text_: str) -> Delete:
    """Delete just this object."""
    return Delete(
        scope=scope,
        kind=kind,
        namespace=text(body, "metadata", "namespace"),
        name=text(body, "metadata", "name"),
        uid=text(body, "metadata", "uid"),
        text=text_,
    )
