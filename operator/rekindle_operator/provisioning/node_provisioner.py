"""Carries out the newest demand for replacement nodes.

    notes first, then all objects, each from the API server ──► provisioning.decide ──► actions

One errand for all incidents, since providers have limits over all of them. An action that meets a
conflict ends those of its incident for now; the next look begins with what is there. What is
refused for good is told to the next decision.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from rekindle.model.errors import RekindleError
from rekindle.protocol.store_paths import Place
from rekindle_coordinator.coordinator_log import Log
from rekindle_operator.api.recovery_resource import NodeRequest
from rekindle_operator.cluster.api_client import (
    NOT_FOUND,
    Api,
    ApiRefused,
    Body,
    ObjectConflict,
    path_of,
)
from rekindle_operator.cluster.json_access import ObjectKind
from rekindle_operator.cluster.nodes import ClusterNode
from rekindle_operator.cluster.work_queue import WorkQueue
from rekindle_operator.controller.operator_metrics import OperatorMetrics
from rekindle_operator.detection.detection_input import READY
from rekindle_operator.provisioning import (
    Action,
    ClusterState,
    Create,
    Delete,
    Mark,
    NodeDemand,
    NodeIncident,
    NodeLimits,
    NodeNow,
    Replace,
    SetReplicas,
    decide,
    remains,
    request_ledger,
)
from rekindle_operator.provisioning.cluster_state import SCOPE_LABEL
from rekindle_operator.provisioning.providers.cluster_api_machines import MACHINE
from rekindle_operator.provisioning.providers.machine_deployments import MACHINE_DEPLOYMENT
from rekindle_operator.provisioning.providers.node_claims import NODE_CLAIM
from rekindle_operator.provisioning.providers.provisioning_requests import (
    POD_TEMPLATE,
    PROVISIONING_REQUEST,
)
from rekindle_operator.provisioning.request_ledger import CONFIG_MAP

KEY = "nodes"
# Refusals that are told once: their words have names in them, of which there are ever more.
SAID_KNOWN_MAX = 1_000
PROVIDERS_KINDS: Mapping[str, tuple[ObjectKind, ...]] = {
    "ProvisioningRequest": (POD_TEMPLATE, PROVISIONING_REQUEST),
    "Karpenter": (NODE_CLAIM,),
    "ClusterAPI": (MACHINE_DEPLOYMENT, MACHINE),
}
Rows = Mapping[NodeIncident, tuple[NodeRequest, ...] | None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the deciding thread knows: demands, the most urgent first; the limits of each class, for
    what is left of incidents that are over; incidents that are not over or may not be; nodes."""

    demands: tuple[NodeDemand, ...] = ()
    classes: Mapping[str, NodeLimits] = field(default_factory=dict)
    open: frozenset[str] = frozenset()
    nodes: Mapping[str, ClusterNode] = field(default_factory=dict)
    idle_seconds: Mapping[str, float] = field(default_factory=dict)
    lost: frozenset[str] = frozenset()


@dataclass(slots=True)
class NodeProvisioner:
    """`home` is the operator's namespace; `told` gets the rows of each incident's Recovery, on any
    thread. While anything is under way it is looked at every `look_seconds`."""

    api: Api
    errands: WorkQueue
    log: Log
    home: str
    metrics: OperatorMetrics
    told: Callable[[Rows], None]
    look_seconds: float
    _wanted: Wanted = field(default_factory=Wanted)
    _wanted_at: float = 0.0
    _busy: bool = False
    _refused: dict[str, str] = field(default_factory=dict)
    _said: set[str] = field(default_factory=set)
    _waiting: dict[NodeIncident, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def want(self, wanted: Wanted) -> None:
        """What is wanted from now on."""
        with self._lock:
            self._wanted = wanted
        self._wanted_at = time.monotonic()
        self.errands.leave(KEY, self._look)

    @property
    def is_due(self) -> bool:
        """Whether it is to be said anew what is wanted: something was asked for, and by themselves
        nodes come and turn idle, and incidents end."""
        return self._busy and time.monotonic() - self._wanted_at >= self.look_seconds

    @property
    def makes(self) -> bool:
        """Whether any class has a provider that makes objects."""
        return any(limits.makers for limits in self._wanted.classes.values())

    def _look(self) -> float | None:
        with self._lock:
            wanted = self._wanted
        standing = self._standing(wanted)
        left = remains(standing, self.home)
        self._busy = bool(left) or any(demand.limits.makers for demand in wanted.demands)
        if not self._busy:
            self.told({demand.incident: None for demand in wanted.demands})
            return None
        over = tuple(
            NodeDemand(
                incident, class_name, wanted.classes.get(class_name, NodeLimits()), over=True
            )
            for incident, class_name in left.items()
            if incident.uid not in wanted.open
        )
        now = time.time()
        decision = decide((*wanted.demands, *over), standing, home=self.home, now=now)
        self._note(decision.waiting, decision.troubles)
        self.told(decision.requests)
        self._act(decision.actions)
        if decision.actions:
            return 0.2
        return None if decision.due is None else min(self.look_seconds, decision.due - now)

    def _standing(self, wanted: Wanted) -> ClusterState:
        """The notes first: what is not in a list that was read later is really gone."""
        scoped = {"labelSelector": SCOPE_LABEL}
        bodies = self._all(CONFIG_MAP, path_of(CONFIG_MAP, self.home), scoped)
        makers = [item for limits in wanted.classes.values() for item in limits.makers]
        used: set[str] = {item.provider for item in makers}
        noted, _ = request_ledger.read_all(ClusterState(bodies), self.home)
        # what was asked for of a provider that no class names any more is to be cleared away too
        used |= {slot.provider for note, _ in noted.values() for slot in note.slots}
        for provider, kinds in PROVIDERS_KINDS.items():
            if provider in used:
                for kind in kinds:
                    ours = kind in (POD_TEMPLATE, PROVISIONING_REQUEST, NODE_CLAIM)
                    bodies += self._all(kind, path_of(kind), scoped if ours else {})
        refused, self._refused = self._refused, {}
        return ClusterState(
            bodies,
            {name: _node_now(node) for name, node in wanted.nodes.items()},
            idle_seconds=wanted.idle_seconds,
            lost=wanted.lost,
            refused=refused,
        )

    def _all(self, kind: ObjectKind, path: str, query: Mapping[str, str]) -> list[Body]:
        """Objects of a kind, with the kind that lists leave out; none where there is no such
        kind."""
        try:
            return [{**body, "kind": kind.name} for body in self.api.all(path, **query)]
        except ApiRefused as refused:
            if refused.status == NOT_FOUND:
                return []
            raise

    def _act(self, actions: Iterable[Action]) -> None:
        """In order; what fails ends its incident's for now."""
        ended: set[str] = set()
        failed: RekindleError | None = None
        for action in actions:
            if action.scope in ended:
                continue
            try:
                self._carry_out(action)
            except ObjectConflict:
                ended.add(action.scope)
            except ApiRefused as refused:
                ended.add(action.scope)
                if isinstance(action, Create):
                    name = action.manifest["metadata"]["name"]
                    self._refused[name] = refused.message
                self.metrics.refused.inc()
                if str(refused) not in self._said:
                    if len(self._said) >= SAID_KNOWN_MAX:
                        self._said.clear()
                    self._said.add(str(refused))
                    self.log.write("request-refused", text=str(refused))
            except RekindleError as trouble:
                ended.add(action.scope)
                failed = trouble
        if failed is not None:
            raise failed

    def _carry_out(self, action: Action) -> None:
        if isinstance(action, SetReplicas | Mark) and action.cluster is not None:
            # one of the same name in this cluster is another one
            what = "is in another cluster, which cannot be scaled from here yet"
            raise ApiRefused(f"{action.namespace}/{action.name}", NOT_FOUND, what)
        match action:
            case Create():
                self._create(action)
            case Replace():
                metadata = action.manifest["metadata"]
                path = path_of(action.kind, metadata.get("namespace", ""), metadata["name"])
                self.api.replace(path, action.manifest)
            case SetReplicas():
                path = path_of(MACHINE_DEPLOYMENT, action.namespace, action.name, "scale")
                metadata = {"resourceVersion": action.resource_version}
                body = {"metadata": metadata, "spec": {"replicas": action.replicas}}
                self.api.patch(path, body)
                self.log.write("scaled", text=action.text)
            case Mark():
                path = path_of(MACHINE, action.namespace, action.name)
                annotations = {action.annotation: action.value}
                metadata = {"uid": action.uid, "annotations": annotations}
                self.api.patch(path, {"metadata": metadata})
            case Delete():
                self._delete(action)

    def _create(self, action: Create) -> None:
        metadata = action.manifest["metadata"]
        path = f"{path_of(action.kind, metadata.get('namespace', ''))}?fieldValidation=Strict"
        try:
            self.api.create(path, action.manifest)
        except ObjectConflict:
            if action.alone:
                raise
        else:
            name = metadata["name"]
            self.log.write("made", resource=f"{action.kind.name} {name}", text=action.text)

    def _delete(self, action: Delete) -> None:
        conditions = {"uid": action.uid}
        if action.resource_version:
            conditions["resourceVersion"] = action.resource_version
        options = {"preconditions": conditions, "propagationPolicy": "Background"}
        if self.api.delete(path_of(action.kind, action.namespace, action.name), options):
            name = f"{action.kind.name} {action.name}"
            self.log.write("deleted", resource=name, text=action.text)

    def _note(
        self, waiting: Mapping[NodeIncident, str], troubles: Mapping[NodeIncident, object]
    ) -> None:
        """Say once what cannot be asked for."""
        said = {**waiting, **{incident: str(trouble) for incident, trouble in troubles.items()}}
        for incident, text in said.items():
            if self._waiting.get(incident) != text:
                place = Place(incident.namespace, incident.application)
                self.log.write("nodes-not-requested", application=str(place), text=text)
        self._waiting = dict(said)


def by_place(rows: Rows) -> dict[Place, dict[int, tuple[NodeRequest, ...]]]:
    """Rows of incidents, by application and number."""
    found: dict[Place, dict[int, tuple[NodeRequest, ...]]] = defaultdict(dict)
    for incident, those in rows.items():
        if those is not None:
            found[Place(incident.namespace, incident.application)][incident.number] = those
    return found


def _node_now(node: ClusterNode) -> NodeNow:
    judged = node.judged
    return NodeNow(node.created_at, judged.ready == READY, judged.labels, judged.taints)
