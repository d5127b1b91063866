"""What is to be done about nodes: from demand and standing to actions.

    read the notes ► settle every slot ► end what nobody wants ► fill ► note first, then actions

All incidents are decided together, in the order in which they are given, because providers have
limits over all of them: the most urgent first. It may be called as often as you like: with the same
standing it decides the same, and once everything is done it decides nothing. Called by the
operator's shell, which reads the standing before and carries the actions out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rekindle.model.errors import InputError
from rekindle_operator.api.recovery_status import NodeRequest
from rekindle_operator.cluster.json_access import Body, text
from rekindle_operator.provisioning import (
    object_names,
    request_ledger,
    request_rows,
    slot_filling,
    slot_progress,
    slot_provider,
    slot_release,
)
from rekindle_operator.provisioning.cluster_state import ClusterState
from rekindle_operator.provisioning.node_demand import NodeDemand, NodeIncident
from rekindle_operator.provisioning.providers.provider_base import ProviderInput, Tally
from rekindle_operator.provisioning.provisioning_actions import (
    Action,
    Create,
    Mark,
    Replace,
    SetReplicas,
    delete,
)
from rekindle_operator.provisioning.request_ledger import COMING, CONFIG_MAP, Note

__all__ = ["ProvisioningDecision", "decide"]


@dataclass(frozen=True, slots=True)
class ProvisioningDecision:
    """`actions` in order, those of an incident together, its note first.

    `requests` (incident -> rows of its Recovery) is None where no provider makes requests.
    `waiting` (incident -> sentence) says what cannot be requested now. `due` is the next moment at
    which time alone changes something; None when none does. `troubles` are of incidents whose note
    cannot be read: nothing is done for them.
    """

    actions: tuple[Action, ...]
    requests: Mapping[NodeIncident, tuple[NodeRequest, ...] | None]
    waiting: Mapping[NodeIncident, str]
    due: float | None
    troubles: Mapping[NodeIncident, InputError]


@dataclass(slots=True)
class _Case:
    """An incident on its way through a decision; `before` is the ConfigMap that was read."""

    scene: ProviderInput
    note: Note
    before: Body | None
    kept: Note
    messages: Mapping[int, str] = field(default_factory=dict)
    waiting: str = ""


def decide(
    wanted: Sequence[NodeDemand], standing: ClusterState, *, home: str, now: float
) -> ProvisioningDecision:
    """What to do for incidents, the most urgent first.

    `home` is the operator's namespace, where notes are; `now` in seconds since 1970.
    """
    known, troubles = request_ledger.read_all(standing, home)
    scopes = {object_names.scope(demand.incident): demand for demand in wanted}
    assert len(scopes) == len(wanted), "an incident has one demand"
    cases = {
        scope: _open(scope, demand, standing, known)
        for scope, demand in scopes.items()
        if scope not in troubles
    }
    latest = {scope: note for scope, (note, _) in known.items()}
    tally = Tally()
    tally.count(latest)
    for scope, case in cases.items():
        settled = slot_progress.settle(case.note, case.scene, tally, now)
        case.note = slot_release.end(settled.note, case.scene, now)
        case.messages = settled.messages
        latest[scope] = case.note
    tally.count(latest)
    for case in cases.values():
        filled = slot_filling.fill(case.note, case.scene, tally, now)
        case.note = slot_release.wind_up(filled.note, case.scene, tally)
        case.waiting = _refusal(case) or filled.text
    by_incident = {case.scene.demand.incident: case for case in cases.values()}
    return ProvisioningDecision(
        actions=tuple(action for case in cases.values() for action in _actions(case, home)),
        requests={
            incident: request_rows.rows(case.note, case.scene, case.messages)
            for incident, case in by_incident.items()
        },
        waiting={incident: case.waiting for incident, case in by_incident.items() if case.waiting},
        due=min((at for case in cases.values() for at in _moments(case) if at > now), default=None),
        troubles={scopes[scope].incident: troubles[scope] for scope in scopes if scope in troubles},
    )


def _open(
    scope: str, demand: NodeDemand, standing: ClusterState, known: Mapping[str, tuple[Note, Body]]
) -> _Case:
    note, before = known.get(scope, (None, None))
    if note is None:
        note = request_ledger.new(demand.incident, demand.class_name)
    return _Case(ProviderInput(demand, standing, scope), note, before, note)


def _refusal(case: _Case) -> str:
    """What keeps the note from being written, and so everything else from being done."""
    said = case.scene.standing.refused.get(object_names.note_name(case.scene.demand.incident), "")
    return f"The note of the incident cannot be written: {said}" if said else ""


def _actions(case: _Case, home: str) -> Iterator[Action]:
    """The note, if it has changed, and then what it says."""
    scene, note = case.scene, case.note
    if slot_release.is_finished(note, scene):
        if case.before is not None:
            found = delete(scene.scope, CONFIG_MAP, case.before, "Nothing is left of the incident.")
            version = text(case.before, "metadata", "resourceVersion")
            yield replace(found, resource_version=version)
        return
    if note != case.kept:
        manifest = request_ledger.manifest(note, home, case.before)
        if case.before is None:
            said = "What is going to be requested is written down."
            yield Create(scene.scope, CONFIG_MAP, manifest, "", said, alone=True)
        else:
            yield Replace(scene.scope, CONFIG_MAP, manifest)
    held = scene.demand.held and not scene.demand.over
    slots = (slot for slot in note.slots if not (held and slot.stage == "planned"))
    yield from _merged(
        action for slot in slots for action in slot_provider.source(slot, scene).act(slot, scene)
    )


def _merged(actions: Iterable[Action]) -> Iterator[Action]:
    """Without repeats: slots that share a MachineDeployment are brought about by one change of its
    replicas, the furthest, and a machine is marked once."""
    scales: dict[tuple[str, str], SetReplicas] = {}
    touched: set[tuple[str, str]] = set()
    for action in actions:
        if isinstance(action, SetReplicas):
            place = action.namespace, action.name
            known = scales.get(place, action)
            scales[place] = max(known, action, key=_replicas)
        elif not isinstance(action, Mark):
            yield action
        elif (place := (action.namespace, action.name)) not in touched:
            touched.add(place)
            yield action
    yield from scales.values()


def _moments(case: _Case) -> Iterator[float]:
    """When time alone changes something: a request takes too long, a back-off ends."""
    scene, note = case.scene, case.note
    for slot in note.slots:
        if slot.stage in COMING:
            yield slot.requested_at + slot_provider.limits(slot.entry, scene).request_seconds_max
    for entry in note.back_offs:
        yield slot_progress.back_off_until(note, entry, scene)


def _replicas(action: SetReplicas) -> int:
    return action.replicas
