"""A MachineDeployment of Cluster API, scaled up for an incident and back down after it.

    up    planned ── scale to `after` ──► made ── a new machine's node is usable ──► arrived
    down  ended ── spare machines marked ── step planned ── scale ──► cleared

A number of replicas does not tell who asked for what, so the note has what was added, as *steps*. A
step is planned on one generation of the spec and done while that lasts; any change, ours or
another's, ends it. So none is done twice, and whoever scales by hand meanwhile is left his number.
Down goes only what is in the note, only as far as there are spare machines, and only after those
were marked, since Cluster API chooses which machines go. Where all of it lies in another cluster,
the management cluster, nothing new is scaled; what was asked for before is never done in this one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from rekindle_operator.api.node_providers import ClusterApi, KubeconfigSecret, MachineDeployment
from rekindle_operator.cluster.json_access import (
    Body,
    ObjectKind,
    count,
    is_deleting,
    mapping,
    text,
)
from rekindle_operator.provisioning.providers import cluster_api_machines
from rekindle_operator.provisioning.providers.provider_base import ProviderInput, Seen, Tally
from rekindle_operator.provisioning.provisioning_actions import Action, Mark, SetReplicas
from rekindle_operator.provisioning.request_ledger import ReplicaStep, Slot

MACHINE_DEPLOYMENT = ObjectKind(
    "cluster.x-k8s.io/v1beta2", "MachineDeployment", "machinedeployments"
)
PAUSED = "cluster.x-k8s.io/paused"


@dataclass(frozen=True, slots=True)
class MachineDeployments:
    """`settings` is None when the class has the entry no more; then nothing can be given back
    either, because it is not known in which cluster it is."""

    settings: ClusterApi | None
    gives_back: bool = True

    def assign(self, slot: Slot, scene: ProviderInput, tally: Tally) -> Slot | str:
        """A step of the first MachineDeployment that may be scaled."""
        if self.settings is None:
            return "is not in the class any more"
        if self.settings.kubeconfig_secret_ref is not None:
            return "is in another cluster, which cannot be reached yet"
        bad = {domain.value for domain in scene.avoided}
        why = []
        for candidate in self.settings.machine_deployments:
            found = _step(candidate, slot.nodes, bad, scene, tally)
            if isinstance(found, ReplicaStep):
                return msgspec.structs.replace(slot, up=found)
            why.append(f"{candidate.namespace}/{candidate.name} {found}")
        return "; ".join(why)

    def look(self, slot: Slot, scene: ProviderInput, tally: Tally) -> Seen:
        """By the MachineDeployment's spec, and by the nodes of its new machines."""
        step = slot.up
        assert step is not None, "assign has seen to that"
        body = scene.standing.find(MACHINE_DEPLOYMENT, *step.place)
        if body is None:
            return Seen(there=False, failure="the MachineDeployment is not there")
        if slot.stage == "planned":
            if _generation(body) == step.generation:
                return Seen(there=False)
            if _replicas(body) < step.after:
                what = f"somebody has changed it meanwhile, to {_replicas(body)} replicas"
                return Seen(there=False, failure=what)
        nodes = cluster_api_machines.arrived(
            cluster_api_machines.of(step.place, scene), step, scene, tally.taken
        )
        if len(nodes) >= slot.nodes:
            return Seen(there=True, arrived=tuple(nodes[: slot.nodes]))
        return Seen(there=True, message=f"Scaled to {step.after}; the machine is not there yet.")

    def is_harmless(self, slot: Slot, scene: ProviderInput) -> bool:
        """Whether there are as many spare machines, or no MachineDeployment any more."""
        assert slot.up is not None, "assign has seen to that"
        if scene.standing.find(MACHINE_DEPLOYMENT, *slot.up.place) is None:
            return True
        return (
            len(cluster_api_machines.spare(cluster_api_machines.of(slot.up.place, scene), scene))
            >= slot.nodes
        )

    def wind_up(self, slot: Slot, scene: ProviderInput, tally: Tally) -> Slot:
        """Plan the step down once enough spare machines are marked; notice that it is over."""
        if slot.cleared or slot.up is None or self.settings is None:
            return slot
        body = scene.standing.find(MACHINE_DEPLOYMENT, *slot.up.place)
        if slot.made_at is None or body is None or is_deleting(body):
            # never scaled up, or gone with all its machines
            return msgspec.structs.replace(slot, cleared=True)
        if slot.down is None:
            return _with_step_down(slot, body, scene, tally)
        over = _generation(body) != slot.down.generation
        if not over and len(_marked_spare(slot, scene)) < slot.nodes:
            # something has come to run there since: begin again
            return msgspec.structs.replace(slot, down=None)
        left = cluster_api_machines.marked(cluster_api_machines.of(slot.up.place, scene), scene)
        cleared = over and _is_steady(body) and all(map(is_deleting, left))
        down = msgspec.structs.replace(slot.down, settled=over)
        return msgspec.structs.replace(slot, down=down, cleared=cleared)

    def is_left(self, slot: Slot, scene: ProviderInput) -> bool:
        """Whether its replicas have not been given back yet."""
        del scene
        return not slot.cleared

    def act(self, slot: Slot, scene: ProviderInput) -> Iterable[Action]:
        """Scale as the step says; before a step down, mark machines."""
        if slot.cleared or slot.up is None or self.settings is None:
            return
        body = scene.standing.find(MACHINE_DEPLOYMENT, *slot.up.place)
        if body is None:
            return
        cluster = self.settings.kubeconfig_secret_ref
        if slot.stage == "planned":
            yield from _scaling(slot.up, body, scene, cluster)
        elif slot.stage not in ("made", "arrived") and slot.made_at is not None:
            yield from _giving_back(slot, body, scene, cluster)


def _step(
    candidate: MachineDeployment, nodes: int, bad: set[str], scene: ProviderInput, tally: Tally
) -> ReplicaStep | str:
    """A step up by so many, or why there is none now."""
    place = candidate.namespace, candidate.name
    body = scene.standing.find(MACHINE_DEPLOYMENT, *place)
    if candidate.domain in bad:
        return f"is in {candidate.domain}, which is impaired"
    if body is None or is_deleting(body):
        return "is not there"
    if _is_paused(body):
        return "is paused"
    before = _replicas(body)
    if place in tally.steps:
        scope, step = tally.steps[place]
        going_down = step.after < step.before
        if scope != scene.scope or going_down or step.generation != _generation(body):
            return "is just being scaled"
        before = step.after
    if before + nodes > candidate.replicas_max:
        return f"is at {before} replicas of at most {candidate.replicas_max}"
    return ReplicaStep(
        namespace=candidate.namespace,
        name=candidate.name,
        generation=_generation(body),
        before=before,
        after=before + nodes,
        newest=cluster_api_machines.newest(cluster_api_machines.of(place, scene)),
    )


def _with_step_down(slot: Slot, body: Body, scene: ProviderInput, tally: Tally) -> Slot:
    """The slot with a step down where that can be planned now; one at a time."""
    assert slot.up is not None, "assign has seen to that"
    ready = (
        slot.up.place not in tally.steps
        and _is_steady(body)
        and len(_marked_spare(slot, scene)) >= slot.nodes
        and not cluster_api_machines.foreign_marks(
            cluster_api_machines.of(slot.up.place, scene), scene
        )
    )
    if not ready:
        return slot
    before = _replicas(body)
    down = msgspec.structs.replace(
        slot.up,
        generation=_generation(body),
        before=before,
        after=max(0, before - slot.nodes),
        settled=False,
    )
    tally.steps[down.place] = (scene.scope, down)
    return msgspec.structs.replace(slot, down=down)


def _giving_back(
    slot: Slot, body: Body, scene: ProviderInput, cluster: KubeconfigSecret | None
) -> Iterator[Action]:
    assert slot.up is not None, "assign has seen to that"
    all_of_them = cluster_api_machines.of(slot.up.place, scene)
    spare = cluster_api_machines.spare(all_of_them, scene)
    busy = [machine for machine in all_of_them if machine not in spare]
    yield from cluster_api_machines.unmark(busy, scene, cluster)
    if slot.down is None:
        yield from _marking(spare[: slot.nodes], all_of_them, scene, cluster)
    elif not slot.down.settled:
        yield from _scaling(slot.down, body, scene, cluster)
    elif _is_steady(body):
        yield from cluster_api_machines.unmark(all_of_them, scene, cluster)


def _marking(
    chosen: list[Body],
    all_of_them: list[Body],
    scene: ProviderInput,
    cluster: KubeconfigSecret | None,
) -> Iterator[Mark]:
    """Mark what was chosen, unless others have marked machines; then wait, or let them go first."""
    foreign = cluster_api_machines.foreign_marks(all_of_them, scene)
    if not foreign:
        yield from cluster_api_machines.mark(chosen, scene, cluster)
    elif min(foreign) < cluster_api_machines.own_mark(scene):
        yield from cluster_api_machines.unmark(all_of_them, scene, cluster)


def _scaling(
    step: ReplicaStep, body: Body, scene: ProviderInput, cluster: KubeconfigSecret | None
) -> Iterator[SetReplicas]:
    """A step that is not settled, so the generation lasts that it was planned on."""
    yield SetReplicas(
        scope=scene.scope,
        namespace=step.namespace,
        name=step.name,
        replicas=step.after,
        resource_version=text(body, "metadata", "resourceVersion"),
        text=f"{step.namespace}/{step.name} goes from {step.before} to {step.after} replicas.",
        cluster=cluster,
    )


def _marked_spare(slot: Slot, scene: ProviderInput) -> list[Body]:
    assert slot.up is not None, "assign has seen to that"
    return cluster_api_machines.marked(
        cluster_api_machines.spare(cluster_api_machines.of(slot.up.place, scene), scene), scene
    )


def _generation(body: Body) -> int:
    return count(body, "metadata", "generation")


def _replicas(body: Body) -> int:
    """What its spec wants; Cluster API's own default where nobody has said."""
    return count(body, "spec", "replicas") if "replicas" in mapping(body, "spec") else 1


def _is_steady(body: Body) -> bool:
    """Whether it has the machines that it wants, all of one template: no roll-out is under way."""
    wanted = _replicas(body)
    return wanted == count(body, "status", "replicas") == count(body, "status", "upToDateReplicas")


def _is_paused(body: Body) -> bool:
    annotations = mapping(body, "metadata", "annotations")
    return mapping(body, "spec").get("paused") is True or PAUSED in annotations
