"""Providers of a class, and what the running operator has asked of each, read from the API server.

The definitions are the real ones. Nobody answers the requests, but for Cluster API, which a test
acts for: it makes as many machines as are wanted. Tests and the conftest make `NodeRequests`.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kubernetes import client

from rekindle_operator.cluster.api_client import Api, path_of
from rekindle_operator.cluster.json_access import ObjectKind
from rekindle_operator.provisioning.providers.cluster_api_machines import DELETE_FIRST, MACHINE
from rekindle_operator.provisioning.providers.machine_deployments import MACHINE_DEPLOYMENT
from rekindle_operator.provisioning.providers.node_claims import NODE_CLAIM
from rekindle_operator.provisioning.providers.provisioning_requests import (
    POD_TEMPLATE,
    PROVISIONING_REQUEST,
)
from rekindle_operator.provisioning.request_ledger import CONFIG_MAP

__all__ = ["AUTOSCALER", "KARPENTER", "ONE", "NodeRequests", "machines", "values"]

KARPENTER = {
    "name": "karpenter",
    "provider": "Karpenter",
    "karpenter": {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
        "requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
        ],
    },
}
AUTOSCALER = {
    "name": "autoscaler",
    "provider": "ProvisioningRequest",
    "provisioningRequest": {"className": "best-effort-atomic-scale-up.autoscaling.x-k8s.io"},
}
DEPLOYMENT = "spark"
CHOSEN = {"cluster.x-k8s.io/deployment-name": DEPLOYMENT}
MACHINES = {
    "clusterName": DEPLOYMENT,
    "bootstrap": {"dataSecretName": "bootstrap"},
    "infrastructureRef": {
        "apiGroup": "infrastructure.cluster.x-k8s.io",
        "kind": "DockerMachine",
        "name": "machine",
    },
}
NAMESPACE_LABEL = "rekindle.dev/namespace"
ONE = {"nodesPerIncidentMax": 1, "nodesAtOnceMax": 1}
Object = dict[str, Any]


def machines(namespace: str) -> Object:
    """The provider that scales the namespace's MachineDeployment."""
    place = {"namespace": namespace, "name": DEPLOYMENT, "replicasMax": 9}
    return {
        "name": "machines",
        "provider": "ClusterAPI",
        "clusterAPI": {"machineDeployments": [place]},
    }


@dataclass(frozen=True, slots=True)
class NodeRequests:
    """For the applications of a namespace; `home` is the operator's."""

    api_client: client.ApiClient
    namespace: str
    home: str
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def api(self) -> Api:
        return Api(self.api_client)

    def of(self, kind: ObjectKind) -> list[Object]:
        """Objects of a kind that were made for the namespace."""
        found = self.api.all(path_of(kind, self.namespace))
        if kind.namespaced:
            return found
        return [item for item in found if labels(item).get(NAMESPACE_LABEL) == self.namespace]

    def claims(self) -> list[Object]:
        return self.of(NODE_CLAIM)

    def notes(self) -> list[Object]:
        """What the operator has noted of its requests."""
        found = self.api.all(path_of(CONFIG_MAP, self.home))
        return [item for item in found if labels(item).get(NAMESPACE_LABEL) == self.namespace]

    def counts(self) -> Mapping[str, int]:
        """How many nodes each provider was asked for and not yet told that they are not wanted."""
        return {
            "Karpenter": len(self.claims()),
            "ProvisioningRequest": len(self.of(PROVISIONING_REQUEST)),
            "ClusterAPI": sum(item["spec"]["replicas"] for item in self.of(MACHINE_DEPLOYMENT)),
        }

    def is_clear(self) -> bool:
        """Whether nothing is left."""
        kinds = (NODE_CLAIM, PROVISIONING_REQUEST, POD_TEMPLATE, MACHINE)
        return not self.notes() and not any(self.of(kind) for kind in kinds)

    def deploy_machines(self) -> None:
        """A MachineDeployment of none, as Cluster API has it when it has looked at it."""
        body = {
            "apiVersion": MACHINE_DEPLOYMENT.api_version,
            "kind": MACHINE_DEPLOYMENT.name,
            "metadata": {"name": DEPLOYMENT},
            "spec": {
                "clusterName": DEPLOYMENT,
                "replicas": 0,
                "selector": {"matchLabels": CHOSEN},
                "template": {"metadata": {"labels": CHOSEN}, "spec": MACHINES},
            },
        }
        self.api.create(path_of(MACHINE_DEPLOYMENT, self.namespace), body)

    def act_as_cluster_api(self) -> bool:
        """As many machines as are wanted, none of which becomes a node; marked ones go first."""
        for deployment in self.of(MACHINE_DEPLOYMENT):
            wanted = deployment["spec"]["replicas"]
            there = sorted(self.of(MACHINE), key=is_marked, reverse=True)
            for _ in range(wanted - len(there)):
                self._make_machine(f"machine-{next(self.numbers)}")
            for machine in there[: max(0, len(there) - wanted)]:
                name = machine["metadata"]["name"]
                self.api.delete(path_of(MACHINE, self.namespace, name), {})
            status = {"replicas": wanted, "upToDateReplicas": wanted}
            path = path_of(MACHINE_DEPLOYMENT, self.namespace, DEPLOYMENT, "status")
            self.api.patch(path, {"status": status})
        return True

    def _make_machine(self, name: str) -> None:
        body = {
            "apiVersion": MACHINE.api_version,
            "kind": MACHINE.name,
            "metadata": {"name": name, "labels": CHOSEN},
            "spec": MACHINES,
        }
        self.api.create(path_of(MACHINE, self.namespace), body)

    def clear(self) -> None:
        """What is of the cluster and not of the namespace goes."""
        for claim in self.claims():
            self.api.delete(path_of(NODE_CLAIM, name=claim["metadata"]["name"]), {})


def is_marked(machine: Object) -> bool:
    """Whether the operator has said that this one may go."""
    return DELETE_FIRST in (machine["metadata"].get("annotations") or {})


def labels(item: Object) -> Mapping[str, str]:
    found: Mapping[str, str] = item["metadata"].get("labels") or {}
    return found


def values(claim: Object, key: str) -> list[str]:
    """Of a claim's requirements for a label."""
    found = [item for item in claim["spec"]["requirements"] if item["key"] == key]
    return [value for item in found for value in item.get("values", ())]
