"""The machines of a MachineDeployment: which have brought a node, and which may be given back.

Scaling down lets Cluster API choose the machines that go, and healthy ones run executors. Machines
with its own annotation go before all others, so spare ones are marked first. It is the one
annotation of ours on objects of others, and the only way that Cluster API has to say which.
machine_deployments.py calls it.
"""

from collections.abc import Iterable, Iterator

from rekindle_operator.api.node_providers import KubeconfigSecret
from rekindle_operator.cluster.json_access import Body, ObjectKind, is_deleting, mapping, text
from rekindle_operator.provisioning.providers.provider_base import ProviderInput
from rekindle_operator.provisioning.provisioning_actions import Mark
from rekindle_operator.provisioning.request_ledger import ReplicaStep

MACHINE = ObjectKind("cluster.x-k8s.io/v1beta2", "Machine", "machines")
DELETE_FIRST = "cluster.x-k8s.io/delete-machine"


def of(place: tuple[str, str], scene: ProviderInput) -> list[Body]:
    """The machines of a MachineDeployment, in order of name."""
    return scene.standing.machines(place, MACHINE)


def newest(machines: Iterable[Body]) -> str:
    """When the newest of them was created, as the API writes it."""
    return max((_created(machine) for machine in machines), default="")


def arrived(
    machines: Iterable[Body], step: ReplicaStep, scene: ProviderInput, taken: set[str]
) -> list[str]:
    """Usable nodes of machines that were created since a step was planned, the oldest first."""
    found: list[str] = []
    for machine in sorted(machines, key=_created):
        name = _node(machine)
        node = scene.standing.nodes.get(name)
        has_come = node is not None and node.is_usable() and name not in taken
        if has_come and _created(machine) > step.newest:
            found.append(name)
    return found


def spare(machines: Iterable[Body], scene: ProviderInput) -> list[Body]:
    """Machines that nothing runs on: without a node, or with one that is lost, gone or idle."""
    return [
        machine for machine in machines if not is_deleting(machine) and _is_spare(machine, scene)
    ]


def marked(machines: Iterable[Body], scene: ProviderInput) -> list[Body]:
    """Machines that are marked for this incident."""
    return [machine for machine in machines if _mark(machine) == own_mark(scene)]


def foreign_marks(machines: Iterable[Body], scene: ProviderInput) -> set[str]:
    """The marks of others, for whom machines would go instead of for us."""
    marks = {found for machine in machines if (found := _mark(machine)) is not None}
    return marks - {own_mark(scene)}


def own_mark(scene: ProviderInput) -> str:
    """The mark of this incident. Of two that marked machines at once, the lower goes first."""
    return f"rekindle-{scene.scope}"


def mark(
    machines: Iterable[Body], scene: ProviderInput, cluster: KubeconfigSecret | None
) -> Iterator[Mark]:
    """Mark those that are not marked yet."""
    for machine in machines:
        if _mark(machine) is None:
            yield _marking(machine, scene, cluster, own_mark(scene))


def unmark(
    machines: Iterable[Body], scene: ProviderInput, cluster: KubeconfigSecret | None
) -> Iterator[Mark]:
    """Take our marks away from those that are not going."""
    for machine in marked(machines, scene):
        if not is_deleting(machine):
            yield _marking(machine, scene, cluster, None)


def _marking(
    machine: Body, scene: ProviderInput, cluster: KubeconfigSecret | None, value: str | None
) -> Mark:
    return Mark(
        scope=scene.scope,
        namespace=text(machine, "metadata", "namespace"),
        name=text(machine, "metadata", "name"),
        annotation=DELETE_FIRST,
        value=value,
        uid=text(machine, "metadata", "uid"),
        cluster=cluster,
    )


def _is_spare(machine: Body, scene: ProviderInput) -> bool:
    node, standing = _node(machine), scene.standing
    return not node or node in standing.lost or node not in standing.nodes or standing.is_idle(node)


def _created(machine: Body) -> str:
    return text(machine, "metadata", "creationTimestamp")


def _node(machine: Body) -> str:
    return text(machine, "status", "nodeRef", "name")


def _mark(machine: Body) -> str | None:
    """The value of the annotation: its being there is what counts for Cluster API, so it may be
    empty."""
    annotations = mapping(machine, "metadata", "annotations")
    return str(annotations[DELETE_FIRST]) if DELETE_FIRST in annotations else None
