"""Gathers and carries out for tests what `decide` needs and says, on a real API server.

As the operator's shell has to: the notes are read before everything else, and lists come from the
API server. It counts what is created; to give it only the first actions is to kill it after those.
"""

import json
import time
from collections.abc import Iterable
from typing import Any

from kubernetes import client, dynamic
from kubernetes.dynamic.exceptions import ConflictError, DynamicApiError

from rekindle.coordination.directives import NodeRequestOrder
from rekindle.model.reasons import Reason
from rekindle_operator.api.recovery_resource import ApplicationReference, RecoverySpec, to_object
from rekindle_operator.cluster.json_access import ObjectKind, text
from rekindle_operator.detection.failure_domains import Domain
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
    ProvisioningDecision,
    Replace,
    SetReplicas,
    decide,
    executor_of,
)
from rekindle_operator.provisioning.providers.cluster_api_machines import MACHINE
from rekindle_operator.provisioning.providers.machine_deployments import MACHINE_DEPLOYMENT
from rekindle_operator.provisioning.providers.node_claims import NODE_CLAIM
from rekindle_operator.provisioning.providers.provisioning_requests import (
    POD_TEMPLATE,
    PROVISIONING_REQUEST,
)
from rekindle_operator.provisioning.request_ledger import CONFIG_MAP
from rekindle_testing.operator_builders import make_class

RECOVERY = ObjectKind("rekindle.dev/v1alpha1", "Recovery", "recoveries")
SPEC = RecoverySpec(
    ApplicationReference("Driver", "departures"),
    incident=1,
    policy_name="departures",
    class_name="default",
)
ZONE = "topology.kubernetes.io/zone"
CONFLICT, GONE, REFUSED = 409, 404, (400, 403, 422)
Body = dict[str, Any]


POD: dict[str, Any] = {
    "metadata": {"labels": {"spark-role": "executor", "spark-exec-id": "1"}},
    "spec": {
        "containers": [
            {
                "name": "executor",
                "image": "spark:4.3",
                "resources": {"requests": {"cpu": "1500m", "memory": "4Gi"}},
            }
        ],
        "nodeSelector": {"pool": "spark"},
        "tolerations": [{"key": "spark", "operator": "Exists"}],
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "labelSelector": {"matchLabels": {"spark-role": "executor"}},
                        "topologyKey": "kubernetes.io/hostname",
                    }
                ]
            }
        },
    },
}


class Shell:
    """Of one operator; `nodes`, `idle_seconds` and `lost` are what the test says."""

    def __init__(self, api_client: client.ApiClient, home: str) -> None:
        self.dynamic: Any = dynamic.DynamicClient(api_client)  # type: ignore[no-untyped-call]
        self.custom = client.CustomObjectsApi(api_client)
        self.home = home
        self.nodes: dict[str, NodeNow] = {}
        self.idle_seconds: dict[str, float] = {}
        self.lost: set[str] = set()
        self.refused: dict[str, str] = {}
        self.created: list[str] = []

    def api(self, kind: ObjectKind) -> Any:
        return self.dynamic.resources.get(api_version=kind.api_version, kind=kind.name)

    def recovery(self) -> Body:
        """The Recovery of the incident, made when it is not there."""
        try:
            made = self.api(RECOVERY).create(body=to_object(self.home, SPEC), namespace=self.home)
        except ConflictError:
            (found,) = self.all(RECOVERY, self.home)
            return found
        return dict(made.to_dict())

    def all(self, kind: ObjectKind, namespace: str | None = None) -> list[Body]:
        """Objects of a kind, with the kind that lists leave out of them."""
        found = self.api(kind).get(namespace=namespace).to_dict()["items"]
        return [{**body, "kind": kind.name} for body in found]

    def standing(self, namespace: str) -> ClusterState:
        bodies = self.all(CONFIG_MAP, self.home)
        for kind in (POD_TEMPLATE, PROVISIONING_REQUEST, MACHINE_DEPLOYMENT, MACHINE):
            bodies += self.all(kind, namespace)
        ours = [body for body in self.all(NODE_CLAIM) if is_of(body, namespace)]
        refused, self.refused = self.refused, {}
        return ClusterState(
            bodies + ours,
            dict(self.nodes),
            idle_seconds=dict(self.idle_seconds),
            lost=frozenset(self.lost),
            refused=refused,
        )

    def decide(self, demand: NodeDemand, now: float) -> ProvisioningDecision:
        standing = self.standing(demand.incident.namespace)
        return decide([demand], standing, home=self.home, now=now)

    def act(self, actions: Iterable[Action]) -> None:
        """Carry them out until one meets a conflict or is refused."""
        for action in actions:
            try:
                self.carry_out(action)
            except DynamicApiError as error:
                if isinstance(action, Create) and error.status in REFUSED:
                    name = action.manifest["metadata"]["name"]
                    self.refused[name] = json.loads(str(error.body))["message"]
                elif error.status != CONFLICT:
                    raise
                return
            except client.ApiException as error:
                if error.status != CONFLICT:
                    raise
                return

    def carry_out(self, action: Action) -> None:
        match action:
            case Create():
                self._create(action)
            case Replace():
                self.api(action.kind).replace(body=dict(action.manifest))
            case SetReplicas():
                self.custom.patch_namespaced_custom_object_scale(
                    *addressed(MACHINE_DEPLOYMENT, action.namespace, action.name),
                    {
                        "metadata": {"resourceVersion": action.resource_version},
                        "spec": {"replicas": action.replicas},
                    },
                )
            case Mark():
                metadata = {"uid": action.uid, "annotations": {action.annotation: action.value}}
                self.custom.patch_namespaced_custom_object(
                    *addressed(MACHINE, action.namespace, action.name), {"metadata": metadata}
                )
            case Delete():
                self._delete(action)

    def _create(self, action: Create) -> None:
        manifest = dict(action.manifest)
        try:
            self.api(action.kind).create(
                body=manifest,
                namespace=manifest["metadata"].get("namespace"),
                field_validation="Strict",
            )
        except DynamicApiError as error:
            if action.alone or error.status != CONFLICT:
                raise
        else:
            self.created.append(action.kind.name)

    def _delete(self, action: Delete) -> None:
        conditions = {"uid": action.uid}
        if action.resource_version:
            conditions["resourceVersion"] = action.resource_version
        try:
            self.api(action.kind).delete(
                name=action.name,
                namespace=action.namespace or None,
                body={"preconditions": conditions, "propagationPolicy": "Background"},
            )
        except DynamicApiError as error:
            if error.status != GONE:
                raise


def addressed(kind: ObjectKind, namespace: str, name: str) -> tuple[str, str, str, str, str]:
    group, _, version = kind.api_version.partition("/")
    return group, version, namespace, kind.plural, name


def is_of(body: Body, namespace: str) -> bool:
    labels: dict[str, str] = body["metadata"].get("labels", {})
    return labels.get("rekindle.dev/namespace") == namespace


def make_demand(
    shell: Shell, *entries: dict[str, Any], count: int = 2, **fields: Any
) -> NodeDemand:
    """So many lost nodes of an application in the shell's namespace, with a Recovery of its own."""
    recovery = shell.recovery()
    incident = NodeIncident(
        namespace=shell.home,
        application="departures",
        number=1,
        recovery=text(recovery, "metadata", "name"),
        uid=text(recovery, "metadata", "uid"),
    )
    usual: dict[str, Any] = {
        "requests": {"1-nodes-2": NodeRequestOrder("nodes", Reason.CORRELATED_FAILURE, count)},
        "domain_keys": (ZONE,),
        "impaired": (Domain(ZONE, "a"), Domain("kubernetes.io/hostname", "n1")),
        "executor": executor_of(POD),
    }
    class_ = make_class(provisioning=[*entries])
    limits = NodeLimits(class_.spec.provisioning)
    return NodeDemand(incident, "default", limits, **{**usual, **fields})


def settle(shell: Shell, demand: NodeDemand, now: float | None = None) -> Any:
    """Decide and act until nothing is to be done; the rows of the Recovery."""
    for _ in range(20):
        decision = shell.decide(demand, time.time() if now is None else now)
        if not decision.actions:
            return decision.requests[demand.incident]
        shell.act(decision.actions)
    raise AssertionError(f"still acting: {decision.actions}")


def condition(type_: str) -> dict[str, str]:
    return {
        "type": type_,
        "status": "True",
        "reason": "Because",
        "message": "",
        "lastTransitionTime": "2026-11-21T18:00:00Z",
    }


def notes(shell: Shell) -> list[dict[str, Any]]:
    """Notes in the namespace, without the ConfigMap that every namespace has."""
    found = shell.all(CONFIG_MAP, shell.home)
    return [body for body in found if "note" in (body.get("data") or {})]
