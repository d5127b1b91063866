"""The operator itself, with the chart's arguments and with no rights but the chart's.

At rest with those that it has by default; then through incidents with every one that there is: it
uses each and misses none. What it asks of the API server is read in the audit log of that.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import foreign_crds
import pytest
from chart_audit import Audit, arguments_here, pairs
from chart_commands import CHART, NAMESPACE, RELEASE, Helm, Object
from chart_rights import WEBHOOK
from chart_webhook import ask_about_nothing
from kubernetes import client

from testbed.foreign_crds import PROVIDERS, install

sys.path.insert(0, str(Path(__file__).parents[1] / "operating"))

from acting_driver import pod_body
from grounds import Grounds
from node_requests import NodeRequests
from operating_world import World, await_that, connected, new_world
from operator_process import OperatorProcess, WebhookProcess

from rekindle_local.local_zookeeper import LocalZookeeper
from rekindle_operator.cluster.pods import GATE
from rekindle_operator.webhook import certificate_rotation
from rekindle_operator.webhook.certificate_store import SECRET
from testbed.control_plane import ControlPlane
from testbed.simulated_kubelets import SimulatedKubelets

STREAMING = "streaming"
VALUES = Path(__file__).parent / "rights_in_use.yaml"
LOOK_OFTEN = "--request-look-seconds=1"
SHUT_DOWN = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}
# What it does without any incident. The rest needs one.
AT_ONCE = {
    *(("nodes", verb) for verb in ("list", "watch")),
    *(("pods", verb) for verb in ("list", "watch")),
    *(("recoverypolicies.rekindle.dev", verb) for verb in ("list", "watch")),
    *(("recoveryclasses.rekindle.dev", verb) for verb in ("list", "watch")),
    *(("recoveries.rekindle.dev", verb) for verb in ("list", "watch")),
    *(("leases.coordination.k8s.io", verb) for verb in ("list", "get", "create", "update")),
    ("customresourcedefinitions.apiextensions.k8s.io", "list"),
    ("recoverypolicies.rekindle.dev/status", "update"),
    ("recoveryclasses.rekindle.dev/status", "update"),
}

# What the webhook does when it starts, and nothing else ever.
WEBHOOKS = {
    *(("recoverypolicies.rekindle.dev", verb) for verb in ("list", "watch")),
    *(("recoveryclasses.rekindle.dev", verb) for verb in ("list", "watch")),
    *(("sparkapplications.sparkoperator.k8s.io", verb) for verb in ("list", "watch")),
    *(("sparkapplications.spark.apache.org", verb) for verb in ("list", "watch")),
    *(("configmaps", verb) for verb in ("list", "watch")),
    ("secrets", "get"),
}

Make = Callable[[list[Object]], OperatorProcess]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalZookeeper]:
    """The operator's own."""
    with LocalZookeeper(directory=tmp_path / "zookeeper") as store:
        yield store


@pytest.fixture
def streaming(cluster: client.ApiClient) -> Iterator[str]:
    """The namespace that the values name, in a cluster with all foreign kinds."""
    install(cluster, [*foreign_crds.stored(*PROVIDERS), *foreign_crds.spark_applications()])
    core: Any = client.CoreV1Api(cluster)
    core.create_namespace({"metadata": {"name": STREAMING}})
    await_that(lambda: core.list_namespaced_service_account(STREAMING).items)
    yield STREAMING
    core.delete_namespace(STREAMING)
    await_that(
        lambda: all(found.metadata.name != STREAMING for found in core.list_namespace().items),
        "the namespace is not gone",
    )


@pytest.fixture
def make_operator(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Make]:
    """Makes operators with the arguments of rendered objects, and with the account's token."""
    with ExitStack() as stack:

        def make(objects: list[Object]) -> OperatorProcess:
            token = control_plane.service_account_kubeconfig(NAMESPACE, "rekindle-operator")
            options = (*arguments_here(objects), f"--kubeconfig={token}", LOOK_OFTEN)
            made = OperatorProcess(tmp_path / "operators", "operator-a", *options, "--webhook")
            stack.callback(made.close)
            return made

        yield make


def test_at_rest_and_through_incidents_it_uses_each_right_that_it_is_given_and_misses_none(
    installer: Helm,
    renderer: Helm,
    cluster: client.ApiClient,
    streaming: str,
    store: LocalZookeeper,
    make_operator: Make,
    nodes: SimulatedKubelets,
    audit: Path,
) -> None:
    seen, grounds = Audit.begin(audit), Grounds(nodes, client.CoreV1Api(cluster))
    where = f"store.addresses={{{store.connect_string}}}"
    store_values = f"zookeeper.enabled=false,store.open=true,{where}"
    values: tuple[Any, ...] = ("--set", store_values)
    installer.do("install", RELEASE, CHART, *values)
    ask_about_nothing(cluster)
    objects = renderer.objects(*values)
    with (
        connected(store) as connection,
        new_world(streaming, grounds, connection, make_operator(objects)) as world,
    ):
        world.class_name = "default"
        world.start(nodes=4, zones=("a", "b"))
        await_that(lambda: seen.used() >= AT_ONCE, "what it does at once it has not done")
        assert not seen.refused()
        assert seen.used() <= pairs(objects)

        world.operator.close()
        values = ("-f", VALUES, *values)
        installer.do("upgrade", RELEASE, CHART, *values, "--force-conflicts")
        ask_about_nothing(cluster)
        objects = renderer.objects(*values)
        world.operator = make_operator(objects)
        world.operator.lead()
        go_through_incidents(world, NodeRequests(cluster, streaming, NAMESPACE), seen)
    assert not seen.refused()
    assert seen.used() <= pairs(objects)
    assert not pairs(objects) - seen.used(), "given and never used"


def test_the_webhook_uses_each_right_that_it_is_given_and_misses_none(
    installer: Helm,
    renderer: Helm,
    cluster: client.ApiClient,
    streaming: str,
    control_plane: ControlPlane,
    audit: Path,
    tmp_path: Path,
) -> None:
    """Without an operator it waits for a certificate; somebody else gives one meanwhile."""
    assert streaming
    values = ("--set", "zookeeper.enabled=false,store.open=true,store.addresses={zk:2181}")
    # of the test before, whose webhook was changed; nobody would run the Job of the hook
    installer.run("uninstall", RELEASE, "--wait", "--no-hooks")
    installer.do("install", RELEASE, CHART, *values)
    ask_about_nothing(cluster)
    objects = renderer.objects(*values)
    seen = Audit.begin(audit, WEBHOOK)
    token = control_plane.service_account_kubeconfig(NAMESPACE, WEBHOOK)
    options = (*arguments_here(objects, WEBHOOK), f"--kubeconfig={token}")
    webhook = WebhookProcess(tmp_path, "webhook-a", *options)
    core: Any = client.CoreV1Api(cluster)
    remove_certificate(core)
    issued = certificate_rotation.issue(("rekindle-webhook",), datetime.now(UTC))
    kept = certificate_rotation.StoredCertificates(current=issued)
    core.create_namespaced_secret(
        NAMESPACE, certificate_rotation.to_secret(kept, SECRET, NAMESPACE, None)
    )
    try:
        webhook.start()
        await_that(lambda: seen.used() >= WEBHOOKS, "what it does at once it has not done")
        assert not seen.refused()
        assert seen.used() == pairs(objects, WEBHOOK) == WEBHOOKS
        assert webhook.metric("rekindle_operator_webhook_certificate_ends") > 0
    finally:
        webhook.close()
        remove_certificate(core)


def go_through_incidents(world: World, requests: NodeRequests, seen: Audit) -> None:
    requests.deploy_machines()
    spoil_certificate(world.core, seen)
    lose_and_replace(world, requests)
    lose_one_more(world)
    lose_the_driver(world)
    leave_at_the_gate(world)


def remove_certificate(core: Any) -> None:
    """Only the certificate: helm keeps the release in a Secret of the same namespace."""
    there = {item.metadata.name for item in core.list_namespaced_secret(NAMESPACE).items}
    if SECRET in there:
        core.delete_namespaced_secret(SECRET, NAMESPACE)


def spoil_certificate(core: Any, seen: Audit) -> None:
    """So that it is not only made but replaced."""
    await_that(lambda: ("secrets", "create") in seen.used())
    core.patch_namespaced_secret(SECRET, NAMESPACE, {"stringData": {"tls.crt": "spoilt"}})
    await_that(lambda: ("secrets", "update") in seen.used(), "it is not replaced")


def lose_and_replace(world: World, requests: NodeRequests) -> None:
    """Three nodes, each asked of another provider; none arrives, others come by themselves."""
    pods = world.lose(*world.executors_nodes()[:3])
    one_each = {"Karpenter": 1, "ProvisioningRequest": 1, "ClusterAPI": 1}
    await_that(lambda: requests.counts() == one_each, "not all providers are asked")
    await_that(lambda: pods.isdisjoint(world.executors()))
    await_that(lambda: world.operator.lines("node-deleted"))
    world.nodes.add(3, zone="b")
    await_that(lambda: world.driver.is_whole)
    world.end()
    await_that(lambda: requests.act_as_cluster_api() and requests.is_clear(), "something is left")


def lose_one_more(world: World) -> None:
    """A second story that ends, so that there is one to put away at the next incident; an operator
    that begins in its middle reads it."""
    world.lose(world.executors_nodes()[0])
    world.nodes.add(1, zone="b")
    await_that(lambda: 2 in numbers(world))
    await_that(lambda: world.driver.is_whole)
    await_that(lambda: world.phase() == "AwaitingCheckpoint")
    world.operator.kill()
    world.operator.start()
    world.end()


def lose_the_driver(world: World) -> None:
    """Fenced once it is certain that its node is off."""
    node = world.drivers_node()
    world.lose(node)
    world.driver.die()
    await_that(lambda: world.phase() == "AwaitingDriver")
    taints = world.core.read_node(node).spec.taints or []
    kept = [world.core.api_client.sanitize_for_serialization(item) for item in taints]
    world.core.patch_node(node, {"spec": {"taints": [*kept, SHUT_DOWN]}})
    await_that(lambda: "fencedAt" in world.status().get("driver", {}))
    await_that(lambda: 1 not in numbers(world), "the oldest story is not put away")


def leave_at_the_gate(world: World) -> None:
    """A pod that waits for its turn while there is no incident that it could wait in."""
    body = pod_body("left", "executor", "another")
    body["spec"]["schedulingGates"] = [{"name": GATE}]
    world.core.create_namespaced_pod(world.namespace, body)
    await_that(
        lambda: not world.core.read_namespaced_pod("left", world.namespace).spec.scheduling_gates,
        "it waits for ever",
    )


def numbers(world: World) -> set[int]:
    """Of the incidents whose stories are there."""
    return {item["spec"]["incident"] for item in world.recoveries()}
