"""What stands where in a benchmark's cluster: nodes in zones, applications, pods, manifests.

Executors go round all nodes, so that each application has some in each zone; drivers keep out of
the last zone, which is the one that is lost. Ten applications share a namespace. Pure: sizes in,
names and JSON-like values out. `cluster_objects` writes them, `benchmark_drivers` reports for them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rekindle.model.errors import InputError
from rekindle.protocol.store_paths import Place
from testbed import node_objects

Body = dict[str, Any]
ZONES = 5
CLASS = "default"
APPLICATIONS_PER_NAMESPACE = 10
OTHERS_PER_NAMESPACE = 5_000
DRIVER_SILENCE_SECONDS = 15
GROUP_VERSION = "rekindle.dev/v1alpha1"
LABEL = "bench.rekindle.dev/application"


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """`pods` are all, drivers and `executors` of each application among them; each application has
    a policy of its own and as many `queries`."""

    nodes: int
    pods: int
    policies: int
    executors: int = 10
    queries: int = 10

    def __str__(self) -> str:
        return f"{self.nodes:,} nodes, {self.pods:,} pods, {self.policies:,} policies"

    def checked(self) -> "ClusterSize":
        """The same. Raises InputError when it does not fit together."""
        if self.nodes < 5 * ZONES:
            raise InputError(
                where="--nodes", what=f"is {self.nodes}", remedy=f"give at least {5 * ZONES}"
            )
        least = self.policies * (1 + self.executors)
        if self.policies < 1 or self.pods < least:
            raise InputError(
                where="--pods",
                what=f"is {self.pods}, with {self.policies} applications",
                remedy=f"give at least {least}: each has a driver and {self.executors} executors",
            )
        return self

    @property
    def lost(self) -> tuple[str, ...]:
        """The nodes of the zone that is lost: one in five."""
        return tuple(node_name(index) for index in range(ZONES - 1, self.nodes, ZONES))


@dataclass(frozen=True, slots=True)
class ExecutorPlace:
    """`node` is where its pod stands, `address` the pod's."""

    number: int
    node: str
    address: str


@dataclass(frozen=True, slots=True)
class Spark:
    """An application: where it is, and its pods."""

    place: Place
    driver_node: str
    driver_address: str
    executors: tuple[ExecutorPlace, ...]


def node_name(index: int) -> str:
    """The name of a node."""
    return f"node-{index:05d}"


def zone_of(index: int) -> str:
    """The zone of a node."""
    return f"zone-{index % ZONES}"


def applications(size: ClusterSize) -> list[Spark]:
    """All applications."""
    return [_application(size, number) for number in range(size.policies)]


def others(size: ClusterSize) -> Iterator[tuple[str, str, str]]:
    """All other pods: namespace, name, node."""
    for number in range(size.pods - size.policies * (1 + size.executors)):
        namespace = f"others-{number // OTHERS_PER_NAMESPACE:04d}"
        yield namespace, f"other-{number:06d}", node_name(number % size.nodes)


def namespaces(size: ClusterSize) -> list[str]:
    """All namespaces that are needed."""
    ours = [spark.place.namespace for spark in applications(size)]
    return list(dict.fromkeys([*ours, *(namespace for namespace, _, _ in others(size))]))


def recovery_class(lease_seconds: int) -> Body:
    """The class of all policies, for kubelets that renew that often."""
    detection = {"leaseSeconds": lease_seconds, "driverSilenceSeconds": DRIVER_SILENCE_SECONDS}
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "RecoveryClass",
        "metadata": {"name": CLASS},
        "spec": {"detection": detection},
    }


def policy(spark: Spark) -> Body:
    """The policy of one application. It plans at once."""
    name = spark.place.application
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "RecoveryPolicy",
        "metadata": {"name": name, "namespace": spark.place.namespace},
        "spec": {
            "selector": {"drivers": {"labelSelector": {"matchLabels": {LABEL: name}}}},
            "stabilisationSeconds": 0,
        },
    }


def driver_pod(spark: Spark) -> Body:
    """A driver with its sidecar, bound to its node."""
    name = spark.place.application
    body = _pod(f"{name}-driver", spark.place.namespace, spark.driver_node, "kubernetes-driver")
    body["metadata"]["labels"] = {"spark-role": "driver", "spark-app-name": name, LABEL: name}
    body["spec"]["initContainers"] = [
        {"name": "rekindle-sidecar", "image": "sidecar", "restartPolicy": "Always"}
    ]
    return body


def executor_pod(spark: Spark, executor: ExecutorPlace, driver_uid: str) -> Body:
    """An executor, bound to its node, as the driver makes it."""
    name = spark.place.application
    body = _pod(
        f"{name}-exec-{executor.number}",
        spark.place.namespace,
        executor.node,
        "kubernetes-executor",
    )
    body["metadata"]["labels"] = {
        "spark-role": "executor",
        "spark-app-name": name,
        "spark-exec-id": str(executor.number),
        LABEL: name,
    }
    body["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": f"{name}-driver",
            "uid": driver_uid,
            "controller": True,
        }
    ]
    return body


def other_pod(namespace: str, name: str, node: str) -> Body:
    """Somebody else's pod, bound to its node."""
    return _pod(name, namespace, node, "main")


def _application(size: ClusterSize, number: int) -> Spark:
    namespace = f"bench-{number // APPLICATIONS_PER_NAMESPACE:04d}"
    first = number * (1 + size.executors)
    driver = number % size.nodes
    if driver % ZONES == ZONES - 1:
        driver -= 1
    return Spark(
        place=Place(namespace, f"application-{number:05d}"),
        driver_node=node_name(driver),
        driver_address=node_objects.pod_address(first),
        executors=tuple(
            ExecutorPlace(
                number=index + 1,
                node=node_name((number * size.executors + index) % size.nodes),
                address=node_objects.pod_address(first + 1 + index),
            )
            for index in range(size.executors)
        ),
    )


def _pod(name: str, namespace: str, node: str, container: str) -> Body:
    requests = {"cpu": "10m", "memory": "16Mi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "name": f"spark-{container}" if container != "main" else container,
                    "image": "spark:4.3",
                    "resources": {"requests": requests},
                }
            ],
        },
    }
