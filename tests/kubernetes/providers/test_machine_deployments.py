"""A real MachineDeployment is scaled by its subresource, and its machines are marked."""

import time
from dataclasses import replace
from typing import Any

import pytest
from kubernetes import client
from provider_shell import Shell, make_demand, notes, settle

from rekindle_operator.cluster.json_access import ObjectKind, text
from rekindle_operator.provisioning import NodeNow, SetReplicas
from rekindle_operator.provisioning.providers.cluster_api_machines import DELETE_FIRST, MACHINE
from rekindle_operator.provisioning.providers.machine_deployments import MACHINE_DEPLOYMENT

MACHINE_SPEC = {
    "clusterName": "spark",
    "bootstrap": {"dataSecretName": "bootstrap"},
    "infrastructureRef": {
        "apiGroup": "infrastructure.cluster.x-k8s.io",
        "kind": "DockerMachine",
        "name": "machine",
    },
}


def make_deployment(shell: Shell, namespace: str, replicas: int) -> None:
    labels = {"cluster.x-k8s.io/deployment-name": "spark-b"}
    shell.api(MACHINE_DEPLOYMENT).create(
        namespace=namespace,
        field_validation="Strict",
        body={
            "apiVersion": MACHINE_DEPLOYMENT.api_version,
            "kind": MACHINE_DEPLOYMENT.name,
            "metadata": {"name": "spark-b"},
            "spec": {
                "clusterName": "spark",
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": MACHINE_SPEC},
            },
        },
    )


def make_machine(shell: Shell, namespace: str, name: str, node: str) -> None:
    shell.api(MACHINE).create(
        namespace=namespace,
        field_validation="Strict",
        body={
            "apiVersion": MACHINE.api_version,
            "kind": MACHINE.name,
            "metadata": {
                "name": name,
                "labels": {"cluster.x-k8s.io/deployment-name": "spark-b"},
            },
            "spec": MACHINE_SPEC,
        },
    )
    report(shell, MACHINE, namespace, name, nodeRef={"name": node})


def report(shell: Shell, kind: ObjectKind, namespace: str, name: str, **status: Any) -> None:
    """Set an object's status, as Cluster API does."""
    group, _, version = kind.api_version.partition("/")
    shell.custom.patch_namespaced_custom_object_status(
        group, version, namespace, kind.plural, name, {"status": status}
    )


def machines_entry(namespace: str) -> dict[str, Any]:
    place = {"namespace": namespace, "name": "spark-b", "domain": "b", "replicasMax": 9}
    return {
        "name": "machines",
        "provider": "ClusterAPI",
        "clusterAPI": {"machineDeployments": [place]},
    }


def test_a_machine_deployment_is_scaled_up_once_and_back_down_by_marked_machines(
    shell: Shell, namespace: str
) -> None:
    make_deployment(shell, namespace, 2)
    for number in (1, 2):
        make_machine(shell, namespace, f"machine-{number}", f"n{number}")
        shell.nodes[f"n{number}"] = NodeNow("2026-11-21T18:00:00Z")
    demand = make_demand(shell, machines_entry(namespace), count=1)
    for actions in (0, 1, 0, 9, 0, 9):
        shell.act(shell.decide(demand, time.time()).actions[:actions])
    assert replicas(shell, namespace) == 3
    time.sleep(1.1)  # creationTimestamps have whole seconds
    make_machine(shell, namespace, "machine-3", "n3")
    shell.nodes["n3"] = NodeNow("2026-11-21T18:10:00Z")
    (row,) = settle(shell, demand)
    assert (row.outcome, row.message) == ("Arrived", "Nodes: n3.")
    report(shell, MACHINE_DEPLOYMENT, namespace, "spark-b", replicas=3, upToDateReplicas=3)
    shell.lost.add("n1")
    over = replace(demand, over=True)
    shell.act(shell.decide(over, time.time()).actions)
    (marked,) = [body for body in shell.all(MACHINE, namespace) if annotations(body)]
    assert text(marked, "metadata", "name") == "machine-1"
    assert list(annotations(marked)) == [DELETE_FIRST]
    shell.act(shell.decide(over, time.time()).actions)
    assert replicas(shell, namespace) == 2
    shell.api(MACHINE).delete(name="machine-1", namespace=namespace)
    report(shell, MACHINE_DEPLOYMENT, namespace, "spark-b", replicas=2, upToDateReplicas=2)
    settle(shell, over)
    assert replicas(shell, namespace) == 2
    assert notes(shell) == []


def test_replicas_that_somebody_has_changed_since_are_not_overwritten(
    shell: Shell, namespace: str
) -> None:
    make_deployment(shell, namespace, 2)
    demand = make_demand(shell, machines_entry(namespace), count=1)
    note, scale = shell.decide(demand, time.time()).actions
    assert isinstance(scale, SetReplicas)
    report(shell, MACHINE_DEPLOYMENT, namespace, "spark-b", replicas=2)
    with pytest.raises(client.ApiException) as refused:
        shell.carry_out(scale)
    assert refused.value.status == 409
    assert replicas(shell, namespace) == 2
    shell.carry_out(note)
    shell.act(shell.decide(demand, time.time()).actions)
    assert replicas(shell, namespace) == 3


def annotations(body: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = body["metadata"].get("annotations", {})
    return found


def replicas(shell: Shell, namespace: str) -> Any:
    (deployment,) = shell.all(MACHINE_DEPLOYMENT, namespace)
    return deployment["spec"]["replicas"]
