"""Applications of both Spark operators: told apart by their group, and never written to."""

from typing import Any

import foreign_crds
import pytest
from acting_driver import ActingDriver
from kubernetes import client
from operating_world import World, await_that

from rekindle.protocol import PlanOrder
from rekindle_operator.cluster import object_kinds
from rekindle_operator.cluster.api_client import Api, path_of
from rekindle_operator.cluster.json_access import ObjectKind
from testbed.foreign_crds import install

KUBEFLOW, APACHE = "sparkoperator.k8s.io", "spark.apache.org"
SPECS: dict[str, dict[str, Any]] = {
    KUBEFLOW: {
        "type": "Scala",
        "sparkVersion": "4.3.0",
        "mainApplicationFile": "local:///flights.jar",
        "restartPolicy": {"type": "Always"},
        "driver": {},
        "executor": {},
    },
    APACHE: {"mainClass": "Flights", "runtimeVersions": {"sparkVersion": "4.3.0"}},
}
STATUSES: dict[str, dict[str, Any]] = {
    KUBEFLOW: {"applicationState": {"state": "RUNNING"}, "driverInfo": {}},
    APACHE: {"currentState": {"currentStateSummary": "RunningHealthy"}},
}
NAMES = {KUBEFLOW: "flights", APACHE: "departures"}
Object = dict[str, Any]


@pytest.fixture
def applications(api_client: client.ApiClient, namespace: str) -> dict[str, Object]:
    """A SparkApplication of each group, as its operator leaves it when all is well."""
    install(api_client, foreign_crds.spark_applications())
    api = Api(api_client)
    return {
        group: make(api, kind, namespace) for group, kind in object_kinds.SPARK_APPLICATIONS.items()
    }


def make(api: Api, kind: ObjectKind, namespace: str) -> Object:
    group = kind.api_version.partition("/")[0]
    path = path_of(kind, namespace)
    body = {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {"name": NAMES[group], "labels": {"team": group}},
        "spec": SPECS[group],
    }
    api.create(path, body)
    return api.patch(f"{path}/{NAMES[group]}/status", {"status": STATUSES[group]})


def driver_fields(group: str, application: Object) -> Object:
    """What its operator puts on the pods of an application."""
    name = NAMES[group]
    labels = {
        KUBEFLOW: {
            "sparkoperator.k8s.io/app-name": name,
            "sparkoperator.k8s.io/launched-by-spark-operator": "true",
            "sparkoperator.k8s.io/submission-id": f"{name}-submission",
        },
        APACHE: {"spark.operator/name": "spark", "spark.operator/spark-app-name": name},
    }
    owner = {
        "apiVersion": application["apiVersion"],
        "kind": application["kind"],
        "name": name,
        "uid": application["metadata"]["uid"],
        "controller": True,
    }
    return {"application": name, "labels": labels[group], "owners": [owner]}


def test_a_loss_is_a_recovery_of_each_spark_application_by_its_own_identity(
    world: World, applications: dict[str, Object], api_client: client.ApiClient
) -> None:
    chosen = {"sparkApplications": {"labelSelector": {"matchLabels": {"team": APACHE}}}}
    fields = {group: driver_fields(group, body) for group, body in applications.items()}
    by_name = {"sparkApplications": {"groups": [KUBEFLOW], "names": [NAMES[KUBEFLOW]]}}
    world.start(nodes=7, driver=fields[KUBEFLOW], selector=by_name)
    world.make_policy("apache", selector=chosen)
    drivers = {KUBEFLOW: world.driver, APACHE: world.make_driver(**fields[APACHE])}
    await_that(lambda: selected(world, "all") == [(KUBEFLOW, "flights")])
    await_that(lambda: selected(world, "apache") == [(APACHE, "departures")])
    foreign = foreign_objects(world)
    lost = shared_nodes(world, drivers)
    assert lost, "no node has executors of both"
    world.lose(*lost)
    for driver in drivers.values():
        driver.silent |= set(lost)
        await_that(lambda driver=driver: driver.plans(), f"no plan for {driver.application}")
        (_, plan), *_ = driver.plans()
        assert isinstance(plan.order, PlanOrder)
    await_that(lambda: len(world.recoveries()) == 2)
    found = {item["spec"]["application"]["group"]: item["spec"] for item in world.recoveries()}
    for group, policy in ((KUBEFLOW, "all"), (APACHE, "apache")):
        assert found[group]["application"] == {
            "kind": "SparkApplication",
            "group": group,
            "name": NAMES[group],
            "uid": applications[group]["metadata"]["uid"],
        }
        assert found[group]["policyName"] == policy
    api = Api(api_client)
    for group, kind in object_kinds.SPARK_APPLICATIONS.items():
        assert api.get(path_of(kind, world.namespace, NAMES[group])) == applications[group]
    assert (
        foreign_objects(world).items()
        >= {
            name: marks for name, marks in foreign.items() if name in foreign_objects(world)
        }.items()
    )


def test_the_pod_of_a_fenced_driver_goes_at_once(
    world: World, applications: dict[str, Object]
) -> None:
    """By the deletion of its node, after which Kubernetes leaves it for 40 s."""
    class_ = {"fencing": {"mode": "DeleteNode", "certainty": ["ShutdownTaint"]}}
    by_name = {"sparkApplications": {"groups": [KUBEFLOW], "names": [NAMES[KUBEFLOW]]}}
    fields = driver_fields(KUBEFLOW, applications[KUBEFLOW])
    world.start(class_=class_, driver=fields, selector=by_name)
    node = world.drivers_node()
    world.lose(node)
    world.driver.die()
    shutdown = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}
    world.core.patch_node(node, {"spec": {"taints": [shutdown]}})
    await_that(lambda: world.operator.lines("driver-deleted"))
    assert node not in {item.metadata.name for item in world.core.list_node().items}
    pods = world.core.list_namespaced_pod(world.namespace).items
    assert "flights-driver" not in {pod.metadata.name for pod in pods}
    await_that(lambda: "fencedAt" in world.status().get("driver", {}))
    assert world.phase() == "AwaitingDriver"


def selected(world: World, policy: str) -> list[tuple[str, str]]:
    rows = world.policy(policy).get("status", {}).get("applications", ())
    return [(row.get("group", ""), row["name"]) for row in rows]


def shared_nodes(world: World, drivers: dict[str, ActingDriver]) -> list[str]:
    """Two nodes with executors of both applications and the driver of neither."""
    pods = world.core.list_namespaced_pod(world.namespace).items
    taken = {pod.spec.node_name for pod in pods if pod.metadata.labels["spark-role"] == "driver"}
    there = [{pod.spec.node_name for pod in driver.executors()} for driver in drivers.values()]
    return sorted(set.intersection(*there) - taken)[:2]


def foreign_objects(world: World) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Finalizers and annotations of all pods and nodes; those of Kubernetes' own components, which
    nodes get with time, left out."""
    items = [*world.core.list_namespaced_pod(world.namespace).items, *world.core.list_node().items]
    return {
        item.metadata.uid: (
            item.metadata.finalizers or [],
            {
                key: value
                for key, value in (item.metadata.annotations or {}).items()
                if "kubernetes.io/" not in key
            },
        )
        for item in items
    }
