"""A cluster with Rekindle on it: nodes in three zones, images, the chart, a namespace for Spark.

    zone-a, zone-b, zone-c     a node each for ZooKeeper and the operator
    zone-a, zone-b             a node each for drivers
    all three, in turn         nodes for executors, as many as a scenario asks for

What was there before is `cluster_setup`'s. Everything that it makes goes with it. Scenarios begin
with one.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from kubernetes import client, utils

from scenarios import helm_chart, scenario_clusters
from scenarios.cluster_setup import Ground
from scenarios.flights_application import EXAMPLES, NAME, ROLE, FlightsApplication
from scenarios.footprint import GROUP, VERSION, VOLUMES
from testbed import test_programs
from testbed.cluster.node_configuration import NodeSpec
from testbed.node_objects import ZONE
from testbed.test_programs import HELM

__all__ = ["DRIVER", "EXECUTOR", "GROUP", "NAMESPACE", "SERVICE", "VERSION", "ZONES", "Site"]

SPOT_TAINT = "aws-node-termination-handler/spot-itn"
ZONES = ("zone-a", "zone-b", "zone-c")
SERVICE = NodeSpec(cores=1.0, memory_mib=3_072, labels={ROLE: "service"})
DRIVER = NodeSpec(cores=1.0, memory_mib=3_072, labels={ROLE: "driver"})
EXECUTOR = NodeSpec(cores=0.3, memory_mib=1_536, labels={ROLE: "executor"})
NAMESPACE = "factory"  # the examples'
LEASE = "rekindle-operator"
# Parts of the chart by their label, and how many replicas of each it has when nothing is said.
OPERATOR, STORE = "operator", "zookeeper"
REPLICAS = {OPERATOR: 2, STORE: 3}
COMPONENT = "app.kubernetes.io/component"

Object = Mapping[str, Any]


@dataclass(slots=True)
class Site(Ground):
    """A ground on which operator and ZooKeeper are ready, once it is entered; nothing is submitted.

    `chart` are values of the chart, `class_spec` and `policy_spec` the class's and the policy's,
    all beside the defaults. `storage_mib` limits what each container of the application's namespace
    may write to its node. Without protection there is no Rekindle. There are so many nodes for
    `drivers`, and for `executors`, which are an `executor_node` each.
    """

    executors: int = 10
    drivers: int = 2
    executor_node: NodeSpec = EXECUTOR
    chart: Object = field(default_factory=dict)
    class_spec: Object = field(default_factory=dict)
    policy_spec: Object = field(default_factory=dict)
    storage_mib: int | None = None
    is_protected: bool = True

    @property
    def spark_image(self) -> str:
        """The name of the image of drivers and executors."""
        return self.images["spark"]

    def submit(self, flights: FlightsApplication) -> None:
        """Create the application, and what it needs."""
        self.core.create_namespaced_config_map(NAMESPACE, flights.config_map())
        body = flights.application()
        group, _, version = body["apiVersion"].partition("/")
        self.custom.create_namespaced_custom_object(
            group, version, NAMESPACE, "sparkapplications", body
        )

    def withdraw(self, flights: FlightsApplication) -> None:
        """Delete the application: its Spark operator would start it again."""
        group, _, version = flights.application()["apiVersion"].partition("/")
        self.custom.delete_namespaced_custom_object(
            group, version, NAMESPACE, "sparkapplications", NAME
        )

    def nodes(self, role: str) -> list[str]:
        """Nodes with a role."""
        found = self.core.list_node(label_selector=f"{ROLE}={role}").items
        return [node.metadata.name for node in found]

    def zone(self, node: str) -> str:
        """Where a node is."""
        return str(self.core.read_node(node).metadata.labels[ZONE])

    def is_ready(self, node: str) -> bool:
        """Whether the cluster takes it for Ready."""
        return scenario_clusters.is_ready(self.core.read_node(node))

    def cordon(self, node: str) -> None:
        """No more pods for this node."""
        self.core.patch_node(node, {"spec": {"unschedulable": True}})

    def announce(self, node: str) -> None:
        """The taint by which a spot node is announced to go in two minutes."""
        taint = {"key": SPOT_TAINT, "effect": "NoSchedule"}
        self.core.patch_node(node, {"spec": {"taints": [taint]}})

    def scale(self, part: str, replicas: int) -> None:
        """Run so many replicas of a part of the chart, OPERATOR or STORE."""
        apps: Any = client.AppsV1Api(self.api_client)
        scale = (
            apps.patch_namespaced_stateful_set_scale
            if part == STORE
            else apps.patch_namespaced_deployment_scale
        )
        name = f"{helm_chart.RELEASE}-{part}"
        scale(name, helm_chart.NAMESPACE, {"spec": {"replicas": replicas}})

    def replicas(self, part: str) -> list[bool]:
        """For each pod of a part of the chart, also one that ends, whether it is ready."""
        found = self.core.list_namespaced_pod(
            helm_chart.NAMESPACE, label_selector=f"{COMPONENT}={part}"
        )
        return [
            any(
                condition.type == "Ready" and condition.status == "True"
                for condition in pod.status.conditions or ()
            )
            for pod in found.items
        ]

    def claims(self) -> list[str]:
        """The claims of the store's servers, also those that are being deleted."""
        found = self.core.list_namespaced_persistent_volume_claim(
            helm_chart.NAMESPACE, label_selector=f"{COMPONENT}={STORE}"
        )
        return [claim.metadata.name for claim in found.items]

    def drop_claims(self) -> None:
        """Delete the claims of the store's servers, and with them all that these hold."""
        self.core.delete_collection_namespaced_persistent_volume_claim(
            helm_chart.NAMESPACE, label_selector=f"{COMPONENT}={STORE}"
        )

    def empty_volumes(self) -> None:
        """Empty the store's volumes, whose claims have gone, and have new claims bound to them."""
        for name in VOLUMES:
            for path in (self.cluster.shared / name).iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            self.core.patch_persistent_volume(name, {"spec": {"claimRef": None}})

    def leader_zone(self) -> str:
        """Where the operator is that decides; "" while none does."""
        coordination: Any = client.CoordinationV1Api(self.api_client)
        leases = coordination.list_namespaced_lease(
            helm_chart.NAMESPACE, field_selector=f"metadata.name={LEASE}"
        )
        holders = [lease.spec.holder_identity or "" for lease in leases.items]
        for pod in self.core.list_namespaced_pod(helm_chart.NAMESPACE).items:
            if any(pod.metadata.name in holder for holder in holders):
                return self.zone(pod.spec.node_name)
        return ""

    def start(self) -> None:
        """The ground, Rekindle on it, and nodes for an application."""
        Ground.start(self)
        if self.is_protected:
            self._install()
        self.cluster.add(self.drivers, DRIVER, zones=ZONES)
        self.cluster.add(self.executors, self.executor_node, zones=ZONES)
        self._make_namespace()

    def _install(self) -> None:
        self.cluster.add(len(ZONES), SERVICE, zones=ZONES)
        test_programs.say("installing the chart")
        values = {**_values(self.images, self.class_spec), **self.chart}
        home = self.directory / "helm"
        helm_chart.install(self.programs[HELM], self.cluster.kubeconfig, values, home)

    def _make_namespace(self) -> None:
        """What an application finds: the example's account, rights, claim and policy."""
        text = (EXAMPLES / "namespace.yaml").read_text(encoding="utf-8")
        create: Any = utils.create_from_dict
        for body in yaml.safe_load_all(text):
            if body["kind"] != "RecoveryPolicy":
                create(self.api_client, body)
            elif self.is_protected:
                body["spec"] |= self.policy_spec
                self.custom.create_namespaced_custom_object(
                    GROUP, VERSION, NAMESPACE, "recoverypolicies", body
                )
        if self.storage_mib is not None:
            limit = {"type": "Container", "default": {"ephemeral-storage": f"{self.storage_mib}Mi"}}
            self.core.create_namespaced_limit_range(
                NAMESPACE, {"metadata": {"name": "storage"}, "spec": {"limits": [limit]}}
            )


def _values(references: Mapping[str, str], class_spec: Object) -> Object:
    """Values of the chart: images of this machine, and service nodes for all that it brings."""
    operator, spark = (_image(references[name]) for name in ("operator", "spark"))
    service = {ROLE: "service"}
    return {
        "image": operator,
        "operator": {"nodeSelector": service},
        "store": {"open": True},
        "zookeeper": {"image": spark, "nodeSelector": service},
        "recoveryClass": {"spec": dict(class_spec)},
    }


def _image(reference: str) -> Object:
    repository, _, tag = reference.rpartition(":")
    return {"repository": repository, "tag": tag, "pullPolicy": "Never"}
