"""Simulated nodes as the real scheduler, controllers and clients see them."""

from datetime import datetime
from typing import Any

import pytest
from kubernetes import client
from waiting import wait_until

from rekindle.model.errors import InputError
from testbed import node_objects
from testbed.control_plane import ControlPlane
from testbed.node_objects import NodeShape
from testbed.simulated_kubelets import SimulatedKubelets

# Bodies are plain dicts here, and answers are read without asking whether a field is there: the
# types of the client allow neither.
Api = Any
WAIT_SECONDS_MAX = 180.0
# Of renewals that would have been, had the node not been lost.
SILENT_RENEWALS = 5
SLEEPER = {"name": "main", "image": "nobody/pulls-this"}


@pytest.fixture
def core(api_client: client.ApiClient) -> Api:
    return client.CoreV1Api(api_client)


def test_a_pod_is_scheduled_on_a_simulated_node_and_runs(
    core: Api, namespace: str, nodes: SimulatedKubelets
) -> None:
    (name,) = nodes.add(zone="a")
    create_pod(core, namespace, "one")
    wait_until(lambda: phase(core, namespace, "one") == "Running")
    pod = core.read_namespaced_pod("one", namespace)
    assert pod.spec.node_name == name
    assert pod.status.pod_ip is not None
    assert all(status.ready for status in pod.status.container_statuses)
    assert core.read_node(name).metadata.labels[node_objects.ZONE] == "a"


def test_a_sidecar_of_a_pod_runs_and_its_other_init_containers_have_ended(
    core: Api, namespace: str, nodes: SimulatedKubelets
) -> None:
    nodes.add()
    sidecar = {**SLEEPER, "name": "sidecar", "restartPolicy": "Always"}
    create_pod(core, namespace, "one", initContainers=[sidecar, {**SLEEPER, "name": "first"}])
    wait_until(lambda: phase(core, namespace, "one") == "Running")
    statuses = core.read_namespaced_pod("one", namespace).status.init_container_statuses
    states = {status.name: status.state for status in statuses}
    assert states["sidecar"].running is not None
    assert states["first"].terminated.exit_code == 0


def test_a_deployment_becomes_available_and_its_service_has_endpoints(
    api_client: client.ApiClient, core: Api, namespace: str, nodes: SimulatedKubelets
) -> None:
    nodes.add(2)
    applications: Api = client.AppsV1Api(api_client)
    discovery: Api = client.DiscoveryV1Api(api_client)
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [SLEEPER]}}
    spec = {"replicas": 3, "selector": {"matchLabels": labels}, "template": template}
    applications.create_namespaced_deployment(
        namespace, {"metadata": {"name": "web"}, "spec": spec}
    )
    core.create_namespaced_service(
        namespace,
        {"metadata": {"name": "web"}, "spec": {"selector": labels, "ports": [{"port": 80}]}},
    )

    def are_available() -> bool:
        status = applications.read_namespaced_deployment("web", namespace).status
        return bool(status.available_replicas == 3)

    def are_endpoints() -> bool:
        listed = discovery.list_namespaced_endpoint_slice(namespace).items
        return sum(len(one.endpoints or ()) for one in listed) == 3

    wait_until(are_available)
    wait_until(are_endpoints)


def test_a_node_that_is_lost_becomes_unknown_and_its_pods_stay_running(
    core: Api, namespace: str, nodes: SimulatedKubelets
) -> None:
    name, other = nodes.add(2)
    create_pod(core, namespace, "one", nodeName=name)
    wait_until(lambda: phase(core, namespace, "one") == "Running")
    nodes.lose(name)
    wait_until(lambda: ready(core, name) == ("Unknown", "NodeStatusUnknown"))
    wait_until(lambda: node_objects.UNREACHABLE in taints(core, name))  # written apart
    assert ready(core, other) == ("True", "KubeletReady")
    core.delete_namespaced_pod("one", namespace)
    create_pod(core, namespace, "two", nodeName=other)
    core.delete_namespaced_pod("two", namespace)
    wait_until(lambda: phase(core, namespace, "two") == "gone")
    assert phase(core, namespace, "one") == "Running"
    core.delete_namespaced_pod("one", namespace, grace_period_seconds=0)
    assert phase(core, namespace, "one") == "gone"


def test_a_lost_node_renews_no_lease_and_one_that_is_back_does_and_becomes_ready(
    api_client: client.ApiClient, core: Api, namespace: str, nodes: SimulatedKubelets
) -> None:
    name, _ = nodes.add(2)
    create_pod(core, namespace, "one", nodeName=name)
    wait_until(lambda: phase(core, namespace, "one") == "Running")
    nodes.lose(name)
    core.delete_namespaced_pod("one", namespace)
    before, count = renewed(api_client, name), nodes.renewals
    wait_until(lambda: nodes.renewals >= count + SILENT_RENEWALS)
    assert renewed(api_client, name) == before
    wait_until(lambda: ready(core, name)[0] == "Unknown")
    nodes.bring_back(name)
    nodes.await_ready(name)
    wait_until(lambda: renewed(api_client, name) != before)
    wait_until(lambda: phase(core, namespace, "one") == "gone")
    assert {one.status for one in core.read_node(name).status.conditions} == {"True", "False"}


def test_a_kubelet_says_itself_that_it_is_shutting_down(
    core: Api, nodes: SimulatedKubelets
) -> None:
    (name,) = nodes.add()
    nodes.report_ready(name, ready=False, reason="KubeletNotReady", message="shutting down")
    assert ready(core, name) == ("False", "KubeletNotReady")


def test_a_node_with_a_wrong_clock_renews_its_lease_by_that_clock_and_stays_ready(
    api_client: client.ApiClient, core: Api, nodes: SimulatedKubelets
) -> None:
    ahead, right = nodes.add(2)
    nodes.set_clock(ahead, ahead_seconds=600)

    def difference() -> float:
        return float((renewed(api_client, ahead) - renewed(api_client, right)).total_seconds())

    wait_until(lambda: 590 < difference() < 610)
    assert ready(core, ahead)[0] == "True"


def test_a_removed_node_takes_its_lease_with_it(
    api_client: client.ApiClient, core: Api, nodes: SimulatedKubelets
) -> None:
    name, other = nodes.add(2)
    nodes.remove(name)
    assert {node.metadata.name for node in core.list_node().items} == {other}
    leases: Api = client.CoordinationV1Api(api_client)

    def names() -> set[str]:
        listed = leases.list_namespaced_lease("kube-node-lease").items
        return {lease.metadata.name for lease in listed}

    wait_until(lambda: names() == {other})
    assert nodes.names == (other,)


def test_a_node_has_the_shape_that_was_asked_for(core: Api, nodes: SimulatedKubelets) -> None:
    taint = {"key": "reserved", "value": "yes", "effect": "NoSchedule"}
    shape = NodeShape(cpu="48", memory="192Gi", pods=20, labels={"rack": "7"}, taints=[taint])
    (name,) = nodes.add(1, shape)
    node = core.read_node(name)
    assert node.status.allocatable["cpu"] == "48"
    assert node.metadata.labels["rack"] == "7"
    assert "reserved" in taints(core, name)


def test_nodes_live_on_through_an_outage_of_the_api_server(
    control_plane: ControlPlane, core: Api, namespace: str, nodes: SimulatedKubelets
) -> None:
    names = nodes.add(3)
    control_plane.kill("kube-apiserver")
    control_plane.start_component("kube-apiserver")
    create_pod(core, namespace, "after", nodeName=names[0])
    wait_until(lambda: phase(core, namespace, "after") == "Running")
    count = nodes.renewals
    wait_until(lambda: nodes.renewals >= count + SILENT_RENEWALS)
    nodes.await_ready(*names)


def test_when_a_set_of_nodes_is_closed_nothing_of_it_is_left(
    control_plane: ControlPlane,
    api_client: client.ApiClient,
    core: Api,
    namespace: str,
) -> None:
    with SimulatedKubelets(control_plane, lease_seconds=1) as nodes:
        dead, alive = nodes.add(2)
        create_pod(core, namespace, "on-dead", nodeName=dead)
        create_pod(core, namespace, "on-alive", nodeName=alive)
        wait_until(lambda: phase(core, namespace, "on-dead") == "Running")
        wait_until(lambda: phase(core, namespace, "on-alive") == "Running")
        nodes.lose(dead)
    assert core.list_node().items == []
    assert core.list_namespaced_pod(namespace).items == []
    leases: Api = client.CoordinationV1Api(api_client)
    assert leases.list_namespaced_lease("kube-node-lease").items == []


def test_an_unknown_node_is_refused(nodes: SimulatedKubelets) -> None:
    with pytest.raises(InputError, match="name one that `add` has returned"):
        nodes.lose("node-9")


def create_pod(core: Api, namespace: str, name: str, **spec: object) -> None:
    body = {"metadata": {"name": name}, "spec": {"containers": [SLEEPER], **spec}}
    core.create_namespaced_pod(namespace, body)


def phase(core: Api, namespace: str, name: str) -> str:
    """Of a pod; `gone` when it is not there."""
    try:
        return str(core.read_namespaced_pod(name, namespace).status.phase)
    except client.ApiException as error:
        if error.status == 404:
            return "gone"
        raise


def ready(core: Api, name: str) -> tuple[str, str]:
    """Status and reason of a node's condition Ready."""
    conditions = core.read_node(name).status.conditions
    return next((one.status, one.reason) for one in conditions if one.type == "Ready")


def taints(core: Api, name: str) -> set[str]:
    return {taint.key for taint in core.read_node(name).spec.taints or ()}


def renewed(api_client: client.ApiClient, name: str) -> datetime:
    leases: Api = client.CoordinationV1Api(api_client)
    moment: datetime = leases.read_namespaced_lease(name, "kube-node-lease").spec.renew_time
    return moment
