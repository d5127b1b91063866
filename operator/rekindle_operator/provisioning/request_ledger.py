"""The durable note of an incident: requested nodes, and the state of each request.

    planned ──► made ──► arrived ──► returned
       └──────────┴──► failed, withdrawn

A *slot* is one request. It is in the note before anything is made, and the names of what is made
follow from it. `made` means that it was seen in the cluster, so if it is not there later it is
gone. A *step* is a change of a MachineDeployment's replicas: it is done when the generation that it
was planned on is over, whoever ended it, so it is never done twice.

Holds no rules: `node_slots` and `provisioning_planner` do. The ConfigMap with
its one key `note` is read and written here, in a format with a version: fields are added, never
renamed.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from rekindle.model.errors import InputError
from rekindle_operator.api.custom_resources import GROUP
from rekindle_operator.cluster.json_access import Body, ObjectKind, text
from rekindle_operator.provisioning.cluster_state import SCOPE_LABEL, ClusterState
from rekindle_operator.provisioning.node_demand import NodeIncident

# Names and labels of our objects: the same request always has the same name.
#
# A name is readable in front and certain at its end: a digest of the incident, and the slot's
# number in its note.

MANAGED_BY = {"app.kubernetes.io/managed-by": "rekindle"}
APPLICATION_LABEL = f"{GROUP}/application"
NAMESPACE_LABEL = f"{GROUP}/namespace"
INCIDENT_LABEL = f"{GROUP}/incident"
PROVIDER_LABEL = f"{GROUP}/provider"
SLOT_LABEL = f"{GROUP}/slot"

APPLICATION_LENGTH = 20
SCOPE_LENGTH = 10
LABEL_LENGTH_MAX = 63


def scope(incident: NodeIncident) -> str:
    """What tells an incident from all others, in ten letters and digits."""
    identity = (incident.namespace, incident.application, incident.number, incident.uid)
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:SCOPE_LENGTH]


def note_name(incident: NodeIncident) -> str:
    """Name of the ConfigMap with the incident's note."""
    return f"{_stem(incident)}-note"


def slot_name(incident: NodeIncident, number: int) -> str:
    """Name of what is made for a slot; no longer than a label may be."""
    return f"{_stem(incident)}-{number}"


def labels(incident: NodeIncident, provider: str = "", number: int = 0) -> dict[str, str]:
    """Labels of what is made for a slot; without a provider, of the note."""
    found = {
        **MANAGED_BY,
        NAMESPACE_LABEL: incident.namespace,
        APPLICATION_LABEL: _label(incident.application),
        INCIDENT_LABEL: str(incident.number),
        SCOPE_LABEL: scope(incident),
    }
    if provider:
        found |= {PROVIDER_LABEL: provider, SLOT_LABEL: str(number)}
    return found


def _stem(incident: NodeIncident) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", incident.application.lower())[:APPLICATION_LENGTH]
    return f"rekindle-{name.strip('-') or 'x'}-{incident.number}-{scope(incident)}"


def _label(name: str) -> str:
    """A name as a label's value: cut where it is too long."""
    return re.sub(r"[^A-Za-z0-9]+$", "", name[:LABEL_LENGTH_MAX])


VERSION = 1
KEY = "note"
CONFIG_MAP = ObjectKind("v1", "ConfigMap", "configmaps")

Stage = Literal["planned", "made", "arrived", "failed", "withdrawn", "returned"]
COMING: tuple[Stage, ...] = ("planned", "made")
LIVE: tuple[Stage, ...] = ("planned", "made", "arrived")


class ReplicaStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A MachineDeployment's replicas go from `before` to `after`, while its spec is of
    `generation`.

    `newest` is when its newest machine was created, `settled` whether that generation is over.
    """

    namespace: str
    name: str
    generation: int
    before: int
    after: int
    newest: str = ""
    settled: bool = False

    @property
    def place(self) -> tuple[str, str]:
        """Which MachineDeployment."""
        return self.namespace, self.name


class Slot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request for `nodes` nodes, made to `entry` for the core's request `request`.

    `provider` is the kind of the entry. Moments are seconds since 1970: `made_at` when it was first
    seen in the cluster, `ended_at` when it left `planned` and `made`. `arrived` are the names of
    its nodes. `cleared`: nothing of it is left in the cluster. `up` and `down` are steps, where it
    is replicas that are changed.
    """

    number: int
    request: str
    entry: str
    provider: str
    requested_at: float
    nodes: int = 1
    stage: Stage = "planned"
    made_at: float | None = None
    ended_at: float | None = None
    message: str = ""
    arrived: tuple[str, ...] = ()
    cleared: bool = False
    up: ReplicaStep | None = None
    down: ReplicaStep | None = None


class Ask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why the core asked, and which domains the nodes are outside of, as people are told."""

    reason: str
    outside_domains: tuple[str, ...] = ()


class BackOff(msgspec.Struct, frozen=True, kw_only=True):
    """So many waves of requests to an entry have failed in a row, the last one first at
    `failed_at`."""

    failures: int
    failed_at: float


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`asks` by the core's identity, `back_offs` by entry."""

    version: int
    incident: NodeIncident
    class_name: str
    next_number: int = 1
    asks: dict[str, Ask] = {}
    slots: tuple[Slot, ...] = ()
    back_offs: dict[str, BackOff] = {}

    def nodes(self, stages: Iterable[Stage], request: str | None = None) -> int:
        """How many nodes are in slots of these stages, of one request or of all."""
        return sum(
            slot.nodes
            for slot in self.slots
            if slot.stage in stages and request in (None, slot.request)
        )


def new(incident: NodeIncident, class_name: str) -> Note:
    """The note of an incident for which nothing has been asked yet."""
    return Note(version=VERSION, incident=incident, class_name=class_name)


def manifest(note: Note, home: str, before: Body | None) -> dict[str, Any]:
    """The ConfigMap of a note; `before` is what it replaces, `home` the operator's namespace."""
    metadata: dict[str, Any] = {
        "name": note_name(note.incident),
        "namespace": home,
        "labels": labels(note.incident),
    }
    if before is not None:
        metadata["uid"] = text(before, "metadata", "uid")
        metadata["resourceVersion"] = text(before, "metadata", "resourceVersion")
    return {
        "apiVersion": CONFIG_MAP.api_version,
        "kind": CONFIG_MAP.name,
        "metadata": metadata,
        "data": {KEY: msgspec.json.encode(note).decode()},
    }


def read(body: Body) -> Note:
    """The note in a ConfigMap; InputError names it and what is wrong."""
    place = f"{text(body, 'metadata', 'namespace')}/{text(body, 'metadata', 'name')}"
    where = f"ConfigMap {place}: {KEY}"
    remedy = "restore it; until then nothing is requested or given back for its incident"
    try:
        note = msgspec.json.decode(text(body, "data", KEY), type=Note)
    except msgspec.DecodeError as error:
        raise InputError(where=where, what=str(error), remedy=remedy) from None
    if note.version != VERSION:
        what = f"has version {note.version}, and this operator knows {VERSION}"
        raise InputError(where=where, what=what, remedy="use the operator that wrote it")
    return note


def read_all(
    standing: ClusterState, home: str
) -> tuple[dict[str, tuple[Note, Body]], dict[str, InputError]]:
    """All notes by scope with their ConfigMaps, and the scopes of those that cannot be read."""
    notes: dict[str, tuple[Note, Body]] = {}
    troubles: dict[str, InputError] = {}
    for body in _bodies(standing, home):
        try:
            note = read(body)
        except InputError as trouble:
            troubles[text(body, "metadata", "labels", SCOPE_LABEL)] = trouble
        else:
            notes[scope(note.incident)] = (note, body)
    return notes, troubles


def _bodies(standing: ClusterState, home: str) -> Iterator[Body]:
    for body in standing.all(CONFIG_MAP):
        if (
            text(body, "metadata", "namespace") == home
            and text(body, "metadata", "labels", SCOPE_LABEL)
            and KEY in (body.get("data") or {})
        ):
            yield body
