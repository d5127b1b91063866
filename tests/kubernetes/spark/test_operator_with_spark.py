"""The running operator and a real Spark driver: two of four nodes are lost, and nobody helps."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from application import Application
from kubernetes import client
from spark_on_kubernetes import SHAPE, Cluster

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "operating"))

from operator_process import OperatorProcess

from rekindle_local import processes
from rekindle_operator.injection import configuration
from testbed.control_plane import ControlPlane
from testbed.definitions import install
from testbed.nodes import Fate

Start = Callable[..., tuple[Cluster, Application]]
DEFINITIONS = Path(__file__).parents[3] / "crds"
GROUP, VERSION = "rekindle.dev", "v1alpha1"
HOST = "127.0.0.1"
LOST = 2
# Spark alone looks every 30 s; how long it takes is printed, and 5 s on a machine of its own.
PENDING_SECONDS_MAX = 20.0
WAIT_SECONDS_MAX = 180.0
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
    """An operator that acts, and whose webhook is asked about the pods of the namespace."""
    made = plane.serving_certificate(HOST)
    folder.mkdir()
    (folder / "tls.crt").write_bytes(Path(made.certificate).read_bytes())
    (folder / "tls.key").write_bytes(Path(made.key).read_bytes())
    operator = OperatorProcess(
        folder,
        "operator",
        *("--store", store, "--namespace", cluster.namespace, "--webhook", "--webhook-port", "0"),
        *("--kubeconfig", str(plane.kubeconfig), "--certificates-folder", str(folder)),
    )
    admission = client.AdmissionregistrationV1Api(api_client)
    bundle = Path(plane.authority).read_bytes()
    with ExitStack() as stack:
        stack.callback(tell, operator)
        stack.callback(operator.close)
        operator.start()
        port = operator.lines("webhook-serves")[-1]["port"]
        manifest = asking(cluster.namespace, port, bundle)
        admission.create_mutating_webhook_configuration(manifest)
        stack.callback(admission.delete_mutating_webhook_configuration, cluster.namespace)
        assert processes.await_condition(
            lambda: bool(operator.lines("leading")), limit_seconds=WAIT_SECONDS_MAX
        )
        yield operator


def tell(operator: OperatorProcess) -> None:
    """Print what it did: shown where the test fails."""
    print("--- operator", *operator.lines(), sep="\n")


def asking(namespace: str, port: int, bundle: bytes) -> dict[str, Any]:
    """The configuration of a webhook on loopback that is asked about one namespace."""
    where = {"url": f"https://{HOST}:{port}{configuration.PATH}"}
    manifest = configuration.manifest(namespace, where, bundle=bundle)
    only = {"key": configuration.NAMESPACE_LABEL, "operator": "In", "values": [namespace]}
    for webhook in manifest["webhooks"]:
        webhook["namespaceSelector"] = {"matchExpressions": [only]}
    return manifest


def recovery(custom: client.CustomObjectsApi, namespace: str) -> dict[str, Any]:
    """The one Recovery's status; empty while there is none.

    Where connections are reset the driver knows at once, and may have recovered before the leases
    are missed: that is no second story.
    """
    found: Any = custom.list_namespaced_custom_object(GROUP, VERSION, namespace, "recoveries")
    statuses = [item.get("status", {}) for item in found["items"]]
    assert len(statuses) <= 1, statuses
    return statuses[0] if statuses else {}


@pytest.mark.parametrize("fate", [Fate.FREEZE, Fate.DIE], ids=lambda fate: str(fate.value))
def test_lost_executors_are_replaced_and_the_rows_are_right(
    start: Start,
    fate: Fate,
    control_plane: ControlPlane,
    api_client: client.ApiClient,
    tmp_path: Path,
) -> None:
    cluster, application = start(led=True, in_pod=True, silent_seconds=300)
    assert application.control is not None
    custom = make_terms(api_client, cluster.namespace)
    store = application.control.zookeeper.connect_string
    application.control.kill(application.control.coordinator)
    with operating(control_plane, api_client, cluster, store, tmp_path / "operator") as operator:
        begin = application.seen
        lost = cluster.names[:LOST]
        cluster.await_level()
        cluster.simulated.lose(*lost, fate=fate)
        application.await_condition(
            "the operator deletes pods", lambda: bool(operator.lines("executor-deleted"))
        )
        seconds = cluster.await_pending(LOST, time.monotonic())
        print(f"  {LOST} pods Pending {seconds:.1f} s after the first was deleted")
        assert seconds < PENDING_SECONDS_MAX
        cluster.simulated.add(LOST, SHAPE)
        application.await_condition(
            "new executors", lambda: len(application.happened("joined", after=begin)) == LOST
        )
        application.await_condition(
            "the story ends",
            lambda: recovery(custom, cluster.namespace).get("phase") == "Recovered",
        )
        status = recovery(custom, cluster.namespace)
        assert {row["name"] for row in status["lostNodes"]} == set(lost)
        assert status["plans"]
        application.finish()
    custom.delete_cluster_custom_object(GROUP, VERSION, "recoveryclasses", cluster.namespace)
