"""A real Spark driver that is led: by a coordinator that is told of losses, then by the operator.

With the operator it is: leases stop, the driver hears nothing, the operator deletes the pods, as
many are Pending, other nodes come, and the rows are right.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml
from application import Application
from kubernetes import client
from spark_on_kubernetes import LOST, NODES, SHAPE, Cluster

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "operating"))

from operator_process import OperatorProcess, WebhookProcess

from rekindle import protocol
from rekindle.protocol import ProgressReport, store_paths
from rekindle_cli import coordination_access
from rekindle_operator.webhook import webhook_configuration
from testbed.control_plane import ControlPlane
from testbed.foreign_crds import install
from testbed.simulated_kubelets import Fate

Start = Callable[..., tuple[Cluster, Application]]
DEFINITIONS = Path(__file__).parents[3] / "crds"
GROUP, VERSION = "rekindle.dev", "v1alpha1"
HOST = "127.0.0.1"
# An executor says every second that it is there, and a report may be as old as 5 s.
SILENT_SECONDS_MAX = 3.0
# So long that no test waits for it: nothing is dropped because it is silent.
LONG_SECONDS = 300
DETECTION = {"leaseSeconds": 1, "leaseIntervals": 2, "driverSilenceSeconds": 5}


def make_terms(api_client: client.ApiClient, namespace: str) -> client.CustomObjectsApi:
    """Definitions, a class that is fast, and a policy for the driver of a namespace."""
    bodies = [yaml.safe_load(path.read_text()) for path in sorted(DEFINITIONS.glob("*.yaml"))]
    install(api_client, bodies)
    custom = client.CustomObjectsApi(api_client)
    api_version = f"{GROUP}/{VERSION}"
    custom.create_cluster_custom_object(
        GROUP,
        VERSION,
        "recoveryclasses",
        {
            "apiVersion": api_version,
            "kind": "RecoveryClass",
            "metadata": {"name": namespace},
            "spec": {"detection": DETECTION},
        },
    )
    selector = {"drivers": {"labelSelector": {"matchLabels": {"spark-role": "driver"}}}}
    spec = {"selector": selector, "className": namespace, "stabilisationSeconds": 0}
    custom.create_namespaced_custom_object(
        GROUP,
        VERSION,
        namespace,
        "recoverypolicies",
        {
            "apiVersion": api_version,
            "kind": "RecoveryPolicy",
            "metadata": {"name": "readings"},
            "spec": spec,
        },
    )
    return custom


@contextmanager
def operating(
    plane: ControlPlane, api_client: client.ApiClient, cluster: Cluster, store: str, folder: Path
) -> Iterator[OperatorProcess]:
    """An operator that acts, and a webhook that is asked about the pods of the namespace."""
    made = plane.serving_certificate(HOST)
    folder.mkdir()
    (folder / "tls.crt").write_bytes(Path(made.certificate).read_bytes())
    (folder / "tls.key").write_bytes(Path(made.key).read_bytes())
    shared = ("--store", store, "--namespace", cluster.namespace)
    shared = (*shared, "--kubeconfig", str(plane.kubeconfig))
    operator = OperatorProcess(
        folder, "operator", *shared, "--webhook", "--no-issue-webhook-certificate"
    )
    webhook = WebhookProcess(folder, "webhook", *shared, "--certificates-folder", str(folder))
    admission = client.AdmissionregistrationV1Api(api_client)
    bundle = Path(plane.authority).read_bytes()
    with ExitStack() as stack:
        stack.callback(tell, operator)
        stack.callback(operator.close)
        operator.start()
        stack.callback(webhook.close)
        webhook.start()
        manifest = asking(cluster.namespace, webhook.webhook_port, bundle)
        admission.create_mutating_webhook_configuration(manifest)
        stack.callback(admission.delete_mutating_webhook_configuration, cluster.namespace)
        operator.lead()
        yield operator


def tell(operator: OperatorProcess) -> None:
    """Print what it did: shown where the test fails."""
    print("--- operator", *operator.lines(), sep="\n")


def asking(namespace: str, port: int, bundle: bytes) -> dict[str, Any]:
    """The configuration of a webhook on loopback that is asked about one namespace."""
    where = {"url": f"https://{HOST}:{port}{webhook_configuration.PATH}"}
    manifest = webhook_configuration.manifest(namespace, where, bundle=bundle)
    only = {"key": webhook_configuration.NAMESPACE_LABEL, "operator": "In", "values": [namespace]}
    for webhook in manifest["webhooks"]:
        webhook["namespaceSelector"] = {"matchExpressions": [only]}
    return manifest


def progress(application: Application) -> ProgressReport:
    """The driver's newest report, as the coordination store has it."""
    control = application.control
    assert control is not None
    with coordination_access.opened(control.zookeeper.connect_string, None) as connection:
        found = connection.get(control.place.path(store_paths.PROGRESS))
    assert found is not None
    return protocol.decode(found[0], ProgressReport, "progress")


def silences(application: Application) -> dict[str, float]:
    """By node of the cluster, how long the driver has heard nothing from there."""
    nodes = progress(application).nodes.values()
    return {str(node.cluster_node): node.silent_seconds or 0.0 for node in nodes}


def stories(custom: client.CustomObjectsApi, namespace: str) -> list[dict[str, Any]]:
    """The statuses of all Recoveries, in order."""
    found: Any = custom.list_namespaced_custom_object(GROUP, VERSION, namespace, "recoveries")
    items = sorted(found["items"], key=lambda item: int(item["spec"]["incident"]))
    return [item.get("status", {}) for item in items]


def test_executors_of_a_driver_that_is_led_are_dropped_and_replaced_and_the_rows_are_right(
    start: Start, control_plane: ControlPlane, api_client: client.ApiClient, tmp_path: Path
) -> None:
    cluster, application = start(led=True, in_pod=True, silent_seconds=LONG_SECONDS)
    lose_as_told(cluster, application, cluster.names[:LOST])
    control = application.control
    assert control is not None
    store = control.zookeeper.connect_string
    custom = make_terms(api_client, cluster.namespace)
    control.kill(control.coordinator)
    with operating(control_plane, api_client, cluster, store, tmp_path / "operator") as operator:
        lost = cluster.names[LOST:]
        lose_and_replace(cluster, application, operator, lost)
        await_story(custom, cluster, application, lost)
        application.finish()
    custom.delete_cluster_custom_object(GROUP, VERSION, "recoveryclasses", cluster.namespace)


def lose_as_told(cluster: Cluster, application: Application, lost: tuple[str, ...]) -> None:
    """The coordinator is told which nodes are gone; the driver drops them at once, and its reports
    name them."""
    begin = application.seen
    addresses = {pod.status.pod_ip: pod.spec.node_name for pod in cluster.executors()}
    seen = progress(application).nodes
    assert {name: node.cluster_node for name, node in seen.items()} == addresses
    assert len(seen) == NODES
    assert all(0 <= (node.silent_seconds or 0) < SILENT_SECONDS_MAX for node in seen.values())
    confirmed_at = cluster.lose(application, dict.fromkeys(lost, Fate.FREEZE))
    told = silences(application)
    cluster.await_pending(confirmed_at)
    application.await_condition(
        "both are dropped", lambda: len(application.happened("confirmed", after=begin)) == LOST
    )
    dropped = time.monotonic() - confirmed_at
    print(f"  both dropped within {dropped:.1f} s")
    assert not any(one["silent"] for one in application.happened("confirmed", after=begin))
    assert all(told[name] >= SILENT_SECONDS_MAX for name in lost if name in told)
    assert all(told[name] < SILENT_SECONDS_MAX for name in cluster.names if name not in lost)
    cluster.replace_lost(application, begin)


def lose_and_replace(
    cluster: Cluster,
    application: Application,
    operator: OperatorProcess,
    lost: tuple[str, ...],
) -> None:
    """One node freezes, one dies; the operator sees it by itself, and as many come instead."""
    begin = application.seen
    cluster.meet(dict(zip(lost, (Fate.FREEZE, Fate.DIE), strict=True)))
    application.await_condition(
        "the operator deletes pods", lambda: bool(operator.lines("executor-deleted"))
    )
    cluster.await_pending(time.monotonic())
    cluster.simulated.add(LOST, SHAPE)
    application.await_condition(
        "new executors", lambda: len(application.happened("joined", after=begin)) == LOST
    )


def await_story(
    custom: client.CustomObjectsApi,
    cluster: Cluster,
    application: Application,
    lost: tuple[str, ...],
) -> None:
    """The story ends, and tells of these nodes.

    Where connections are reset the driver knows at once, and may have recovered from that before
    the other node is missed, which is a story of its own then; the lease that is missed later is
    none.
    """

    def are_over() -> bool:
        found = stories(custom, cluster.namespace)
        assert len(found) <= len(lost), found
        told = {row["name"] for status in found for row in status.get("lostNodes", ())}
        return told == set(lost) and all(item.get("phase") == "Recovered" for item in found)

    application.await_condition("the story ends", are_over)
    assert all(status["plans"] for status in stories(custom, cluster.namespace))
