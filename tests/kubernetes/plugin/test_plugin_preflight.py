"""Preflight on a real API server: kubeflow's applications, apache's, plain drivers, and a file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import foreign_crds
import preflight_world as world
import pytest
import yaml
from kubernetes import client
from plugin_runs import Plugin, Run, make, make_policy
from resource_requests import Api, Object, class_of

from rekindle_local import process_sets
from rekindle_testing.operator_builders import policy_object
from testbed.foreign_crds import install
from testbed.simulated_kubelets import SimulatedKubelets

WAIT_SECONDS_MAX = 180.0
Send = Callable[[str, Object], Object]


def words(run: Run, subject: str) -> dict[str, str]:
    """What was found about a subject: word -> severity."""
    return {
        item["word"]: item["severity"]
        for item in run.record["findings"]
        if item["subject"] == subject
    }


@pytest.fixture
def cluster_class(api: Api) -> Any:
    """A class that fences, so that fixed names are no danger, and whose drivers have a secret."""
    record = class_of("preflight", fencing=world.FENCING, sidecar=world.WITH_SECRET)
    code, answer = api.apply(record, "rekindle-tests", force=True)
    assert code in (200, 201), answer
    yield "preflight"
    api.delete(record)


@pytest.fixture
def send(api: Api, plugin: Plugin, api_client: client.ApiClient) -> Send:
    """Create an object in the test's namespace."""
    install(api_client, foreign_crds.spark_applications())

    def create(plural: str, record: Object) -> Object:
        version = record["apiVersion"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        metadata = {
            name: value
            for name, value in record["metadata"].items()
            if name in ("name", "labels", "ownerReferences")
        }
        body = {**record, "metadata": {**metadata, "namespace": plugin.namespace}}
        body.pop("status", None)
        path = f"{root}/namespaces/{plugin.namespace}/{plural}"
        code, made = api.send("POST", path, body)
        assert code == 201, made
        return made

    return create


def claim(name: str, mode: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}},
    }


def quota(cpu: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "team"},
        "spec": {"hard": {"requests.cpu": cpu}},
    }


@pytest.mark.parametrize("body", [world.kubeflow_body(), world.apache_body()])
def test_an_application_in_order_passes_at_every_level(
    api: Api, plugin: Plugin, send: Send, nodes: SimulatedKubelets, cluster_class: str, body: Object
) -> None:
    for zone in world.ZONES:
        nodes.add(1, zone=zone)
    make_policy(api, plugin.namespace, className=cluster_class)
    send("sparkapplications", body)
    run = plugin("preflight", "--fail-on", "note", "-o", "json").done()
    assert run.record["findings"] == []
    assert run.record["subjects"] == [
        f"SparkApplication {plugin.namespace}/departures",
        "cluster",
    ]
    assert ": nothing found" in plugin("preflight", "departures").done().out


def test_what_is_around_an_application_is_read(
    api: Api, plugin: Plugin, send: Send, nodes: SimulatedKubelets
) -> None:
    nodes.add(2, zone="a")
    make_policy(api, plugin.namespace, className="absent")
    send("resourcequotas", quota("4"))
    send("persistentvolumeclaims", claim("shared", "ReadWriteOnce"))
    mounted = "spark.kubernetes.executor.volumes.persistentVolumeClaim.x.options.claimName"
    send(
        "sparkapplications",
        world.kubeflow_body(lambda body: body["spec"]["sparkConf"].update({mounted: "shared"})),
    )
    run = plugin("preflight", "departures", "-o", "json")
    assert run.code == 1
    assert words(run, f"SparkApplication {plugin.namespace}/departures") == {
        "class-missing": "error",
        "claim-read-write-once": "error",
        "quota-exceeded": "error",
        "driver-name-fixed": "note",
    }
    assert words(run, "cluster") == {"domains-too-few": "warning"}


def test_a_plain_driver_is_looked_at_with_the_settings_of_its_config_map(
    api: Api, plugin: Plugin, send: Send
) -> None:
    conf_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "spark-drv-1-conf-map"},
        "data": {
            "spark.properties": "spark.executor.instances=2\n"
            "spark.kubernetes.executor.podNamePrefix=fixed\n"
        },
    }
    send("configmaps", conf_map)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "nightly-driver",
            "labels": {"spark-role": "driver", "spark-app-name": "nightly"},
        },
        "spec": {
            "containers": [{"name": "spark-kubernetes-driver", "image": "spark"}],
            "volumes": [
                {
                    "name": "spark-conf-volume-driver",
                    "configMap": {"name": "spark-drv-1-conf-map"},
                }
            ],
        },
    }
    send("pods", pod)
    run = plugin("preflight", "-o", "json")
    assert run.code == 1
    assert words(run, f"Driver {plugin.namespace}/nightly") == {
        "no-policy": "error",
        "inject-label-missing": "error",
        "driver-not-restarted": "error",
        "executor-names-fixed": "warning",
        "failures-limited": "warning",
        "not-checked": "note",
    }
    assert api


def test_a_manifest_is_looked_at_before_it_is_applied(
    api: Api, plugin: Plugin, tmp_path: Path, cluster_class: str
) -> None:
    make_policy(api, plugin.namespace, className=cluster_class)

    def spoil(body: Object) -> None:
        del body["metadata"]["namespace"]
        body["spec"]["sparkConf"] = {}

    file = tmp_path / "departures.yaml"
    file.write_text(yaml.safe_dump(world.kubeflow_body(spoil)))
    run = plugin("preflight", "-f", str(file), "-o", "json").done()
    assert words(run, f"SparkApplication {plugin.namespace}/departures") == {
        "failures-limited": "warning"
    }
    assert plugin("preflight", "-f", str(file), "--fail-on", "warning").code == 1


def test_what_is_around_a_manifest_is_read_in_the_namespace_that_it_names(
    api: Api, plugin: Plugin, tmp_path: Path, cluster_class: str
) -> None:
    make_policy(api, plugin.namespace, className=cluster_class)
    body = world.kubeflow_body()
    body["metadata"]["namespace"] = plugin.namespace
    file = tmp_path / "departures.yaml"
    file.write_text(yaml.safe_dump(body))
    run = plugin("preflight", "-n", "default", "-f", str(file), "-o", "json").done()
    assert words(run, f"SparkApplication {plugin.namespace}/departures") == {}


def test_an_application_that_is_not_there_is_refused(plugin: Plugin, send: Send) -> None:
    assert send
    plugin("preflight", "absent").refused("absent", "is not in the cluster")


def test_pods_that_run_are_joined_to_their_application(
    api: Api, plugin: Plugin, send: Send, cluster_class: str
) -> None:
    """A driver without its sidecar, and a quota that its pods have used up."""
    make_policy(api, plugin.namespace, className=cluster_class)
    made = send("sparkapplications", world.kubeflow_body())
    owner = {
        "apiVersion": made["apiVersion"],
        "kind": made["kind"],
        "name": made["metadata"]["name"],
        "uid": made["metadata"]["uid"],
        "controller": True,
    }
    labels = {"spark-role": "driver", "sparkoperator.k8s.io/app-name": "departures"}
    requests = {"requests": {"cpu": "1"}}
    container = {"name": "spark-kubernetes-driver", "image": "spark", "resources": requests}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "departures-driver", "labels": labels, "ownerReferences": [owner]},
        "spec": {"containers": [container]},
    }
    send("resourcequotas", quota("5"))

    def counted() -> bool:
        path = f"/api/v1/namespaces/{plugin.namespace}/resourcequotas/team"
        return "hard" in api.send("GET", path)[1].get("status", {})

    assert process_sets.await_condition(counted, limit_seconds=WAIT_SECONDS_MAX)
    send("pods", pod)
    run = plugin("preflight", "-o", "json")
    assert words(run, f"SparkApplication {plugin.namespace}/departures") == {
        "sidecar-missing": "error",
        "quota-without-headroom": "warning",
    }


def test_policies_that_overlap_are_named(api: Api, plugin: Plugin, send: Send) -> None:
    make_policy(api, plugin.namespace)
    make(api, policy_object("other", namespace=plugin.namespace))
    send("sparkapplications", world.apache_body())
    run = plugin("preflight", "-o", "json")
    found = words(run, f"SparkApplication {plugin.namespace}/departures")
    assert found["policies-overlap"] == "warning"
