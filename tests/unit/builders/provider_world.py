"""A cluster of plain objects for tests of providers: actions change it.

It does what an API server does about names, uids, versions and generations. The tests play the
parts of Karpenter and of the cluster autoscaler; `reconcile` is Cluster API.
"""

import copy
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from rekindle.coordination.directives import NodeRequestOrder
from rekindle.model.reasons import Reason
from rekindle_operator.api import recovery_class
from rekindle_operator.api.node_providers import Provider
from rekindle_operator.detection.failure_domains import Domain
from rekindle_operator.provisioning import (
    Action,
    ClusterState,
    Create,
    Delete,
    ExecutorShape,
    Mark,
    NodeDemand,
    NodeIncident,
    NodeLimits,
    NodeNow,
    ProvisioningDecision,
    Replace,
    SetReplicas,
    decide,
    executor_of,
)

HOME = "rekindle-system"
START = 1_763_740_800.0
ZONE = "topology.kubernetes.io/zone"
FLIGHTS = NodeIncident(
    namespace="flights", application="departures", number=1, recovery="departures-1-5e1f", uid="u1"
)
WEATHER = NodeIncident(
    namespace="weather", application="storms", number=4, recovery="storms-4-77aa", uid="u2"
)
POD: dict[str, Any] = {
    "metadata": {"labels": {"spark-role": "executor", "spark-exec-id": "7"}},
    "spec": {
        "containers": [
            {
                "name": "spark-kubernetes-executor",
                "image": "spark:4.3",
                "resources": {"requests": {"cpu": "1500m", "memory": "4Gi"}},
            }
        ],
        "nodeSelector": {"pool": "spark"},
        "tolerations": [
            {"key": "spot", "operator": "Exists"},
            {
                "key": "node.kubernetes.io/not-ready",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            },
        ],
    },
}
EXECUTOR: ExecutorShape = executor_of(POD)

KARPENTER: dict[str, Any] = {
    "name": "karpenter",
    "provider": "Karpenter",
    "karpenter": {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "spark"},
        "requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
        ],
    },
}
AUTOSCALER: dict[str, Any] = {
    "name": "autoscaler",
    "provider": "ProvisioningRequest",
    "provisioningRequest": {"className": "best-effort-atomic-scale-up.autoscaling.x-k8s.io"},
}
MACHINES: dict[str, Any] = {
    "name": "machines",
    "provider": "ClusterAPI",
    "clusterAPI": {
        "machineDeployments": [
            {"namespace": "capi", "name": "spark-b", "domain": "b", "replicasMax": 12}
        ]
    },
}
PENDING: dict[str, Any] = {"name": "pending-pods", "provider": "PendingPods"}
Place = tuple[str, str, str]


class Conflict(Exception):
    """What an API server answers to who has read something older."""


def entries(*records: Mapping[str, Any]) -> tuple[Provider, ...]:
    """Providers as a class says them."""
    spec = {"provisioning": [*records]}
    return recovery_class.from_object(
        {"metadata": {"name": "default"}, "spec": spec}
    ).spec.provisioning


def lost(count: int) -> NodeRequestOrder:
    """Whatever the core says of domains, the operator's own judgement holds."""
    return NodeRequestOrder("nodes", Reason.CORRELATED_FAILURE, count, ("core",))


def stamp(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


class World:
    """Objects by kind, namespace and name; what was created or scaled is counted."""

    def __init__(self, *records: Mapping[str, Any], **limits: int) -> None:
        self.limits = NodeLimits(entries(*records), **limits)
        self.now = START
        self.objects: dict[Place, dict[str, Any]] = {}
        self.nodes: dict[str, NodeNow] = {}
        self.idle: dict[str, float] = {}
        self.lost: set[str] = set()
        self.refusing: dict[str, str] = {}
        self.refused: dict[str, str] = {}
        self.created: list[tuple[str, str]] = []
        self.demands: dict[NodeIncident, NodeDemand] = {}
        self._number = 0

    def want(self, incident: NodeIncident = FLIGHTS, **fields: Any) -> None:
        """Set the demand of an incident; requests are given as `requests={identity: request}`."""
        usual = {
            "class_name": "default",
            "limits": self.limits,
            "domain_keys": (ZONE,),
            "impaired": (Domain(ZONE, "a"),),
            "executor": EXECUTOR,
        }
        self.demands[incident] = NodeDemand(incident, **{**usual, **fields})

    def standing(self) -> ClusterState:
        """All of it as it is now, not as it will be."""
        return ClusterState(
            copy.deepcopy([*self.objects.values()]),
            dict(self.nodes),
            idle_seconds=dict(self.idle),
            lost=frozenset(self.lost),
            refused=dict(self.refused),
        )

    def decide(self) -> ProvisioningDecision:
        decision = decide([*self.demands.values()], self.standing(), home=HOME, now=self.now)
        self.refused.clear()
        return decision

    def round(self, kill_after: int | None = None) -> ProvisioningDecision:
        """Decide and act once; `kill_after` so many actions the operator dies."""
        decision = self.decide()
        self.act(decision.actions[:kill_after])
        return decision

    def settle(self, rounds_max: int = 40) -> ProvisioningDecision:
        """Decide and act until there is nothing more to do."""
        for _ in range(rounds_max):
            decision = self.round()
            if not decision.actions:
                return decision
        raise AssertionError(f"still acting after {rounds_max} rounds: {decision.actions}")

    def act(self, actions: Iterable[Action]) -> None:
        """Carry actions out as a shell does: a conflict ends those of its incident."""
        ended: set[str] = set()
        for action in actions:
            if action.scope not in ended:
                try:
                    self._carry_out(action)
                except Conflict:
                    ended.add(action.scope)

    def put(self, body: dict[str, Any]) -> dict[str, Any]:
        """Have an object, with the metadata that an API server adds."""
        self._number += 1
        metadata = {
            "uid": f"uid-{self._number}",
            "generation": 1,
            "creationTimestamp": stamp(self.now),
            **body["metadata"],
            "resourceVersion": str(self._number),
        }
        made = {**copy.deepcopy(body), "metadata": metadata}
        self.objects[made["kind"], metadata.get("namespace", ""), metadata["name"]] = made
        return made

    def change(self, body: dict[str, Any], *, spec: bool = False) -> None:
        """Count a change that was made in an object."""
        self._number += 1
        body["metadata"]["resourceVersion"] = str(self._number)
        body["metadata"]["generation"] += spec

    def all(self, kind: str) -> list[dict[str, Any]]:
        return [body for place, body in sorted(self.objects.items()) if place[0] == kind]

    def counted(self, kind: str) -> int:
        """How many objects of a kind were ever created."""
        return Counter(made for made, _ in self.created)[kind]

    def remove(self, body: dict[str, Any]) -> None:
        metadata = body["metadata"]
        del self.objects[body["kind"], metadata.get("namespace", ""), metadata["name"]]

    def say(
        self, body: dict[str, Any], type_: str, status: str = "True", message: str = ""
    ) -> None:
        """Set a condition."""
        conditions = body.setdefault("status", {}).setdefault("conditions", [])
        conditions[:] = [item for item in conditions if item["type"] != type_]
        conditions.append(
            {"type": type_, "status": status, "reason": "Because", "message": message}
        )
        self.change(body)

    def join(self, name: str, zone: str = "b", **fields: Any) -> None:
        """A new node."""
        self.nodes[name] = NodeNow(stamp(self.now), labels={ZONE: zone}, **fields)

    def bring(self, claim: dict[str, Any], node: str, **fields: Any) -> None:
        """Do as Karpenter does: launch, register, initialize."""
        for type_ in ("Launched", "Registered", "Initialized"):
            self.say(claim, type_)
        claim["status"]["nodeName"] = node
        self.join(node, **fields)

    def deployment(self, name: str = "spark-b", replicas: int = 3) -> dict[str, Any]:
        """A MachineDeployment with machines, each with a node in use."""
        body = self.put(
            {
                "apiVersion": "cluster.x-k8s.io/v1beta2",
                "kind": "MachineDeployment",
                "metadata": {"namespace": "capi", "name": name},
                "spec": {"replicas": replicas},
                "status": {"replicas": 0, "upToDateReplicas": 0},
            }
        )
        self.reconcile(body)
        return body

    def reconcile(self, deployment: dict[str, Any]) -> None:
        """Do as Cluster API does: as many machines as replicas, marked ones and those without a
        node go first, and a new one's node joins at once."""
        name, wanted = deployment["metadata"]["name"], deployment["spec"]["replicas"]
        machines = [m for m in self.all("Machine") if m["metadata"]["labels"] == _labels(name)]
        for machine in sorted(machines, key=_deletion)[: max(0, len(machines) - wanted)]:
            self.nodes.pop(machine["status"].get("nodeRef", {}).get("name", ""), None)
            self.remove(machine)
        for _ in range(wanted - len(machines)):
            self._number += 1
            node = f"{name}-{self._number}"
            self.put(
                {
                    "apiVersion": "cluster.x-k8s.io/v1beta2",
                    "kind": "Machine",
                    "metadata": {"namespace": "capi", "name": node, "labels": _labels(name)},
                    "status": {"nodeRef": {"name": node}},
                }
            )
            self.join(node)
        if deployment["status"] != {"replicas": wanted, "upToDateReplicas": wanted}:
            deployment["status"] = {"replicas": wanted, "upToDateReplicas": wanted}
            self.change(deployment)

    def _carry_out(self, action: Action) -> None:
        match action:
            case Create():
                self._create(action)
            case Replace():
                metadata = action.manifest["metadata"]
                place = (action.kind.name, metadata["namespace"], metadata["name"])
                before = self.objects.get(place)
                if before is None or metadata["resourceVersion"] != _version(before):
                    raise Conflict
                self.put(dict(action.manifest))
            case SetReplicas():
                body = self.objects["MachineDeployment", action.namespace, action.name]
                self._check_allowed("MachineDeployment", action.name)
                if action.resource_version != _version(body):
                    raise Conflict
                body["spec"]["replicas"] = action.replicas
                self.change(body, spec=True)
            case Mark():
                body = self.objects["Machine", action.namespace, action.name]
                annotations = body["metadata"].setdefault("annotations", {})
                annotations.pop(action.annotation, None)
                if action.value is not None:
                    annotations[action.annotation] = action.value
                self.change(body)
            case Delete():
                place = (action.kind.name, action.namespace, action.name)
                there = self.objects.get(place)
                if there is not None:
                    assert there["metadata"]["uid"] == action.uid
                    del self.objects[place]

    def _create(self, action: Create) -> None:
        metadata = action.manifest["metadata"]
        name = metadata["name"]
        place = (action.kind.name, metadata.get("namespace", ""), name)
        self._check_allowed(action.kind.name, name)
        if place in self.objects:
            if action.alone:
                raise Conflict
            return
        self.created.append((action.kind.name, name))
        self.put(dict(action.manifest))

    def _check_allowed(self, kind: str, name: str) -> None:
        """Refuse for good what the test says; that ends the actions of an incident too."""
        if kind in self.refusing:
            self.refused[name] = self.refusing[kind]
            raise Conflict


def _labels(deployment: str) -> dict[str, str]:
    return {"cluster.x-k8s.io/deployment-name": deployment}


def _deletion(machine: dict[str, Any]) -> tuple[bool, bool]:
    marks = machine["metadata"].get("annotations", {})
    return "cluster.x-k8s.io/delete-machine" not in marks, "nodeRef" in machine["status"]


def _version(body: Mapping[str, Any]) -> Any:
    return body["metadata"]["resourceVersion"]
