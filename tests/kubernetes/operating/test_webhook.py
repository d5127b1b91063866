"""The webhook in the running operator: new executors keep off lost nodes, drivers get sidecars."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from acting_driver import pod_body
from kubernetes import client
from operating_world import World, await_that

from rekindle_operator.injection import configuration
from rekindle_operator.pods import KEPT_OFF_ANNOTATION
from testbed.bodies import ZONE
from testbed.control_plane import ControlPlane

HOST = "127.0.0.1"


@pytest.fixture
def asking(world: World, control_plane: ControlPlane, tmp_path: Path) -> Iterator[World]:
    """A world whose API server asks the operator about the pods of its namespace."""
    made = control_plane.serving_certificate(HOST)
    folder = tmp_path / "certificates"
    folder.mkdir()
    (folder / "tls.crt").write_bytes(Path(made.certificate).read_bytes())
    (folder / "tls.key").write_bytes(Path(made.key).read_bytes())
    options = ("--certificates-folder", str(folder), "--sidecar-image", "rekindle/sidecar:1")
    world.make_class()
    world.make_policy()
    options = ("--webhook", "--webhook-port", "0", *options)
    world.operator = world.make_operator("operator-a", *options)
    world.operator.start()
    port = world.operator.lines("webhook-serves")[-1]["port"]
    where = {"url": f"https://{HOST}:{port}{configuration.PATH}"}
    manifest = configuration.manifest(
        world.namespace, where, bundle=Path(control_plane.authority).read_bytes()
    )
    only = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [world.namespace]}
    for webhook in manifest["webhooks"]:
        webhook["namespaceSelector"] = {"matchExpressions": [only]}
    with control_plane.api_client() as api_client:
        admission = client.AdmissionregistrationV1Api(api_client)
        admission.create_mutating_webhook_configuration(manifest)
        core = client.CoreV1Api(api_client)
        await_that(lambda: is_asked(core, world.namespace), "the API server does not ask")
        yield world
        admission.delete_mutating_webhook_configuration(world.namespace)


def is_asked(core: client.CoreV1Api, namespace: str) -> bool:
    """Whether the API server asks by now, which it begins to a while after it has been told."""
    body = pod_body("probe", "driver", "probe", **{"rekindle.dev/inject": "true"})
    made = core.create_namespaced_pod(namespace, body, dry_run="All")
    return bool(made.spec.init_containers)


def test_new_executors_keep_off_lost_nodes_and_drivers_get_their_sidecar(asking: World) -> None:
    world = asking
    world.start(running=True, driver={"inject": True})
    driver = world.core.read_namespaced_pod("flights-driver", world.namespace)
    names = [container.name for container in driver.spec.init_containers]
    assert names == ["rekindle-sidecar"]
    lost = world.executors_nodes()[:2]
    pods = world.lose(*lost)
    await_that(lambda: pods.isdisjoint(world.executors()))
    world.nodes.add(2, zone="a")
    await_that(lambda: world.driver.is_whole)
    replaced = [pod for pod in world.driver.executors() if pod.metadata.name not in pods]
    terms = [
        expression.values
        for pod in replaced
        if pod.spec.affinity.node_affinity is not None
        for term in (
            pod.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
        ).node_selector_terms
        for expression in term.match_expressions or ()
        if expression.key == "kubernetes.io/hostname"
    ]
    assert any(set(values) & set(lost) for values in terms), "they may run on lost nodes"


def test_executors_that_wait_are_let_into_a_domain_that_gives_nodes_again(asking: World) -> None:
    world = asking
    world.start(running=True, nodes=6, zones=("a", "b"))
    zone, lost = world.other_zone()
    pods = world.lose(*lost)
    await_that(lambda: pods.isdisjoint(world.executors()), "their pods are there still")
    await_that(lambda: waiting(world, f"{ZONE}={zone}"), "none waits, kept off the lost zone")
    (fresh,) = world.nodes.add(1, zone=zone)
    await_that(lambda: world.driver.is_whole, "the executors were not replaced")
    assert fresh in {pod.spec.node_name for pod in world.driver.executors()}


def waiting(world: World, kept_off: str) -> list[str]:
    """Names of executors without a node that are kept off a domain."""
    return [
        pod.metadata.name
        for pod in world.driver.executors()
        if pod.spec.node_name is None
        and kept_off in (pod.metadata.annotations or {}).get(KEPT_OFF_ANNOTATION, "")
    ]
