"""The present state: objects of ours and of the providers, nodes, and idle nodes.

A shell reads it before each decision, in this order: first the notes, then everything else, each
from the API server itself and not from a cache (nodes may be older). So an object that a note calls
made, and that is not there, is really gone. Judges nothing; `decide` gets it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rekindle_operator.api.custom_resources import GROUP
from rekindle_operator.cluster.json_access import Body, ObjectKind, text
from rekindle_operator.detection.failure_domains import Domain

# An executor that ends leaves its node idle for a moment; its successor comes within seconds.
GIVE_BACK_IDLE_SECONDS = 600.0
# On whatever we make, with the incident's scope.
SCOPE_LABEL = f"{GROUP}/scope"
# On each Machine, by Cluster API.
DEPLOYMENT_LABEL = "cluster.x-k8s.io/deployment-name"

# Set until a node has joined for good, by Karpenter and by cloud controllers.
_JOINING_TAINTS = frozenset(
    {
        "karpenter.sh/unregistered",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }
)
Place = tuple[str, str]


@dataclass(frozen=True, slots=True)
class NodeNow:
    """A Node object. `created_at` is its creationTimestamp, `ready` whether its condition Ready is
    True, `taints` are the keys of its taints."""

    created_at: str = ""
    ready: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()

    def is_usable(self, startup_taints: Collection[str] = ()) -> bool:
        """Whether pods may start there: Ready, and through with joining."""
        joining = _JOINING_TAINTS.union(startup_taints)
        return self.ready and joining.isdisjoint(self.taints)

    def is_in(self, domains: Iterable[Domain]) -> bool:
        """Whether it is in one of these failure domains."""
        return any(self.labels.get(domain.key) == domain.value for domain in domains)


@dataclass(slots=True)
class ClusterState:
    """`bodies` are the objects, each with its `kind`, which lists of the API leave out; `nodes` are
    by name.

    `idle_seconds` (node -> seconds) is how long nothing but pods of DaemonSets has been there; a
    node that is not in it is in use. `lost` are nodes whose loss is confirmed. `refused` (name ->
    the API server's words) are objects of ours that it has refused for good since the last
    decision. Not to be changed once it is made.
    """

    bodies: Iterable[Body] = ()
    nodes: Mapping[str, NodeNow] = field(default_factory=dict)
    idle_seconds: Mapping[str, float] = field(default_factory=dict)
    lost: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)
    ages: list[tuple[str, str]] = field(init=False)
    _kinds: dict[str, dict[Place, Body]] = field(init=False, default_factory=dict)
    _scopes: dict[tuple[str, str], list[Body]] = field(init=False, default_factory=dict)
    _machines: dict[Place, list[Body]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.ages = sorted((node.created_at, name) for name, node in self.nodes.items())
        for body in sorted(self.bodies, key=_place):
            self._kinds.setdefault(text(body, "kind"), {})[_place(body)] = body
            if scope := text(body, "metadata", "labels", SCOPE_LABEL):
                self._scopes.setdefault((text(body, "kind"), scope), []).append(body)
            if deployment := text(body, "metadata", "labels", DEPLOYMENT_LABEL):
                owner = text(body, "metadata", "namespace"), deployment
                self._machines.setdefault(owner, []).append(body)

    def find(self, kind: ObjectKind, namespace: str, name: str) -> Body | None:
        """The object, if it is there."""
        place = namespace if kind.namespaced else "", name
        return self._kinds.get(kind.name, {}).get(place)

    def all(self, kind: ObjectKind) -> Iterator[Body]:
        """All objects of a kind, in order of namespace and name."""
        yield from self._kinds.get(kind.name, {}).values()

    def of_scope(self, kind: ObjectKind, scope: str) -> list[Body]:
        """The objects of a kind that were made for an incident."""
        return self._scopes.get((kind.name, scope), [])

    def machines(self, deployment: Place, kind: ObjectKind) -> list[Body]:
        """The machines of a MachineDeployment, in order of name."""
        found = self._machines.get(deployment, ())
        return [body for body in found if text(body, "kind") == kind.name]

    def is_idle(self, node: str) -> bool:
        """Whether taking that node away takes nothing from anybody."""
        return self.idle_seconds.get(node, 0.0) >= GIVE_BACK_IDLE_SECONDS


def _place(body: Body) -> Place:
    return text(body, "metadata", "namespace"), text(body, "metadata", "name")
