"""The shared part of all providers: how one slot of a note is handled.

    assign    take a new slot, or say in words why not now
    look      what is seen of a slot in the cluster
    wind_up   plan how a slot that has ended is cleared away, where that takes planning
    act       the actions that bring a slot about, or clear it away; the same again, however often

None of them remembers anything or decides how many nodes are asked for; `node_slots` and
`provisioning_planner` call them, each with the scene of an incident and the tally of all.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from rekindle_operator.api.custom_resources import API_VERSION, GROUP
from rekindle_operator.cluster.json_access import Body, mapping, moment, text
from rekindle_operator.detection.failure_domains import Domain
from rekindle_operator.provisioning import request_ledger
from rekindle_operator.provisioning.cluster_state import ClusterState
from rekindle_operator.provisioning.node_demand import NodeDemand
from rekindle_operator.provisioning.provisioning_actions import Action
from rekindle_operator.provisioning.request_ledger import COMING, Note, ReplicaStep, Slot, Stage

REQUEST_ANNOTATION = f"{GROUP}/request"
REASON_ANNOTATION = f"{GROUP}/reason"
NODES_ANNOTATION = f"{GROUP}/nodes"
APPLICATION_ANNOTATION = f"{GROUP}/application"
RECOVERY_ANNOTATION = f"{GROUP}/recovery"
UID_ANNOTATION = f"{GROUP}/recovery-uid"
CLASS_ANNOTATION = f"{GROUP}/class"


@dataclass(frozen=True, slots=True)
class Seen:
    """Whether what was made for a slot is `there`; the nodes that have `arrived`, None until all of
    them have; why it has failed; and what the provider says meanwhile."""

    there: bool
    arrived: tuple[str, ...] | None = None
    failure: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class ProviderInput:
    """An incident: what is wanted, what is there, and its scope."""

    demand: NodeDemand
    standing: ClusterState
    scope: str

    def name(self, slot: Slot) -> str:
        """Name of what is made for a slot."""
        return request_ledger.slot_name(self.demand.incident, slot.number)

    @property
    def avoided(self) -> tuple[Domain, ...]:
        """The domains that new nodes must be outside of, in order."""
        return tuple(sorted(self.demand.impaired))

    def reason(self, slot: Slot) -> str:
        """Why the core asked, as long as it does."""
        request = self.demand.requests.get(slot.request)
        return str(request.reason) if request is not None else ""


@dataclass(slots=True)
class Tally:
    """What incidents share; it changes while a decision is made.

    `taken` are nodes that count as somebody's already, `coming` the nodes on their way by class and
    entry, `steps` the unsettled step of each MachineDeployment, with the scope that it is for.
    """

    taken: set[str] = field(default_factory=set)
    coming: Counter[tuple[str, str]] = field(default_factory=Counter)
    steps: dict[tuple[str, str], tuple[str, ReplicaStep]] = field(default_factory=dict)

    def count(self, notes: Mapping[str, Note]) -> None:
        """Begin again from notes by scope; nodes that were taken stay taken."""
        self.coming.clear()
        self.steps.clear()
        for scope, note in notes.items():
            for slot in note.slots:
                self.taken.update(slot.arrived)
                self.add(scope, note.class_name, slot)

    def add(self, scope: str, class_name: str, slot: Slot) -> None:
        """Count one slot."""
        if slot.stage in COMING:
            self.coming[class_name, slot.entry] += slot.nodes
        step = slot.up if slot.stage == "planned" else slot.down
        if step is not None and not step.settled:
            _, known = self.steps.get(step.place, (scope, step))
            self.steps[step.place] = (scope, max(known, step, key=_target))


class ProviderKind(Protocol):
    """One kind of provider."""

    @property
    def gives_back(self) -> bool:
        """Whether nodes that have come are given back after the incident; otherwise a slot is
        cleared away as soon as its nodes have come."""

    def assign(self, slot: Slot, scene: ProviderInput, tally: Tally) -> Slot | str:
        """The slot as this provider would fulfil it, or why it cannot now."""

    def look(self, slot: Slot, scene: ProviderInput, tally: Tally) -> Seen:
        """What is seen of a slot that is planned or made."""

    def is_harmless(self, slot: Slot, scene: ProviderInput) -> bool:
        """Whether clearing it away now takes nothing from anybody."""

    def wind_up(self, slot: Slot, scene: ProviderInput, tally: Tally) -> Slot:
        """A slot that has ended, with what is planned or known of its clearing away."""

    def is_left(self, slot: Slot, scene: ProviderInput) -> bool:
        """Whether anything of a slot that has ended is left in the cluster."""

    def act(self, slot: Slot, scene: ProviderInput) -> Iterable[Action]:
        """What is to be done for a slot in its stage."""


def metadata(slot: Slot, scene: ProviderInput, namespace: str) -> dict[str, Any]:
    """Metadata of an object for a slot; one in a namespace belongs to the incident's Recovery."""
    incident = scene.demand.incident
    found: dict[str, Any] = {
        "name": scene.name(slot),
        "labels": request_ledger.labels(incident, slot.entry, slot.number),
        "annotations": {
            APPLICATION_ANNOTATION: f"{incident.namespace}/{incident.application}",
            RECOVERY_ANNOTATION: incident.recovery,
            UID_ANNOTATION: incident.uid,
            CLASS_ANNOTATION: scene.demand.class_name,
            REQUEST_ANNOTATION: slot.request,
            REASON_ANNOTATION: scene.reason(slot),
            NODES_ANNOTATION: str(slot.nodes),
        },
    }
    if namespace:
        owner = {"apiVersion": API_VERSION, "kind": "Recovery"}
        found["namespace"] = namespace
        found["ownerReferences"] = [{**owner, "name": incident.recovery, "uid": incident.uid}]
    return found


def adopted(body: Body, provider: str, stage: Stage) -> Slot | None:
    """The slot in `stage` of an object of ours that is in no note, as far as the object tells."""
    labels = mapping(body, "metadata", "labels")
    annotations = mapping(body, "metadata", "annotations")
    number = text(labels, request_ledger.SLOT_LABEL)
    entry = text(labels, request_ledger.PROVIDER_LABEL)
    if not (number.isdecimal() and entry):
        return None
    created = moment(text(body, "metadata", "creationTimestamp")) or 0.0
    nodes = text(annotations, NODES_ANNOTATION)
    return Slot(
        number=int(number),
        request=text(annotations, REQUEST_ANNOTATION),
        entry=entry,
        provider=provider,
        requested_at=created,
        nodes=int(nodes) if nodes.isdecimal() and int(nodes) else 1,
        stage=stage,
        made_at=None if stage == "planned" else created,
    )


def _target(step: ReplicaStep) -> int:
    """Steps of one generation go one way: the last of those that go up is the highest."""
    return step.after
