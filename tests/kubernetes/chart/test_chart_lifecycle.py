"""The chart on a real API server: installed, upgraded and removed by helm.

bare cluster   installed, told apart from a second one, its definitions upgraded, removed
bad values     refused, mended, upgraded and rolled back on both ways of applying
"""

import copy
import io
import json
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart_commands import CHART, NAMESPACE, RELEASE, ROOT, Helm, Object
from kubernetes import client

from rekindle_local import process_sets
from rekindle_operator.webhook import webhook_configuration
from rekindle_testing.operator_builders import policy_object
from testbed.control_plane import ControlPlane
from testbed.simulated_kubelets import SimulatedKubelets

WAIT_SECONDS_MAX = 180.0
WAITING = ("--wait", "--timeout", "120s")
ZONE = "topology.kubernetes.io/zone"
GROUP, VERSION = "rekindle.dev", "v1alpha1"
# A store that is named but never asked: no pod runs anything here.
OTHER_STORE = (
    *("--set", "zookeeper.enabled=false", "--set", "store.addresses={zookeeper.data:2181}"),
    *("--set", "store.plaintext=true"),
)
# The last commit whose operator served the webhook.
SERVED_BY_OPERATOR = "2f3df030be9541fb420d74c72aefaf6f65b59455"
AUTHORITY = b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
MERGE = "application/strategic-merge-patch+json"


@pytest.fixture
def custom(api_client: client.ApiClient) -> client.CustomObjectsApi:
    return client.CustomObjectsApi(api_client)


@pytest.fixture
def bare(installer: Helm, api_client: client.ApiClient) -> Helm:
    """Helm for a cluster that has never heard of our kinds."""
    extensions = client.ApiextensionsV1Api(api_client)
    for name in definitions(api_client):
        extensions.delete_custom_resource_definition(name)
    assert process_sets.await_condition(
        lambda: not definitions(api_client), limit_seconds=WAIT_SECONDS_MAX
    )
    return installer


@pytest.fixture
def volumes(api_client: client.ApiClient) -> Iterator[None]:
    """Volumes without a class, as many as ZooKeeper has servers."""
    core = client.CoreV1Api(api_client)
    names = [f"volume-{number}" for number in range(3)]
    for name in names:
        spec: Any = {
            "capacity": {"storage": "4Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/nowhere"},
        }
        volume: Any = {"metadata": {"name": name}, "spec": spec}
        core.create_persistent_volume(volume)
    yield
    # As docs/install.md says it; nothing else removes what ZooKeeper keeps.
    labelled = "app.kubernetes.io/component=zookeeper"
    assert len(core.list_namespaced_persistent_volume_claim(NAMESPACE).items) == 3
    core.delete_collection_namespaced_persistent_volume_claim(NAMESPACE, label_selector=labelled)
    gone = process_sets.await_condition(
        lambda: not core.list_namespaced_persistent_volume_claim(NAMESPACE).items,
        limit_seconds=WAIT_SECONDS_MAX,
    )
    assert gone
    for name in names:
        core.delete_persistent_volume(name)


@pytest.mark.usefixtures("volumes")
def test_what_is_installed_comes_up_and_what_is_removed_leaves_policies_and_no_finalizer(
    bare: Helm,
    api_client: client.ApiClient,
    control_plane: ControlPlane,
    kubectl: Path,
    namespace: str,
    nodes: SimulatedKubelets,
    tmp_path: Path,
) -> None:
    """Replicas are in different zones, policies find a class, a second installation is refused, and
    definitions are upgraded below what is there."""
    for zone in "abc":
        nodes.add(1, zone=zone, wait=False)
    nodes.await_ready(*nodes.names)
    notes = bare.do("install", RELEASE, CHART, *WAITING)
    assert "rekindle.dev/inject" in notes
    assert bare.run("status", RELEASE)[0] == 0
    assert deployment(api_client).status.ready_replicas == 2
    assert len(zones_of(api_client, "operator")) == 2
    assert len(zones_of(api_client, "webhook")) == 2
    assert zones_of(api_client, "zookeeper") == {"a", "b", "c"}
    custom = client.CustomObjectsApi(api_client)
    assert_policies_find_a_class(api_client, custom, namespace)

    code, _, said = bare.run("install", "another", CHART, *OTHER_STORE, namespace="default")
    assert code != 0
    assert "cannot be imported into the current release" in said, said

    upgrade_definitions(custom, control_plane, namespace, kubectl, tmp_path)
    bare.do("uninstall", RELEASE, *WAITING)
    assert len(definitions(api_client)) == 3
    kept: Any = custom.get_namespaced_custom_object(*place(namespace), "everything")
    assert "finalizers" not in kept["metadata"]
    assert not remains(api_client), "of the release"
    # It goes at once, with nobody there who could give it up.
    custom.delete_namespaced_custom_object(*place(namespace), "everything")
    found: Any = custom.list_namespaced_custom_object(*place(namespace))
    assert not found["items"]


def assert_policies_find_a_class(
    api_client: client.ApiClient, custom: client.CustomObjectsApi, namespace: str
) -> None:
    """There are our definitions, a class, and a policy `everything` of that class."""
    assert definitions(api_client) == {
        f"{plural}.{GROUP}" for plural in ("recoverypolicies", "recoveryclasses", "recoveries")
    }
    found: Any = custom.get_cluster_custom_object(GROUP, VERSION, "recoveryclasses", "default")
    assert found["spec"]["provisioning"][0]["provider"] == "PendingPods"
    policy = plain_policy(namespace, strategy="blocking")
    made: Any = custom.create_namespaced_custom_object(*place(namespace), policy)
    assert made["spec"]["className"] == "default"


def upgrade_definitions(
    custom: client.CustomObjectsApi,
    control_plane: ControlPlane,
    namespace: str,
    kubectl: Path,
    folder: Path,
) -> None:
    """As docs/install.md says it, by server-side apply, with a field that a later version adds; and
    back again. What is there is kept."""
    for file in (ROOT / "crds").glob("*.yaml"):
        text = file.read_text()
        if file.name == "recoverypolicies.yaml":
            text = yaml.safe_dump(with_note(yaml.safe_load(text)))
        (folder / file.name).write_text(text)
    command = [str(kubectl), "--kubeconfig", str(control_plane.kubeconfig), "apply"]
    for source, knows in ((folder, True), (ROOT / "crds", False)):
        # helm owns what it has installed, and would never give it up.
        done = subprocess.run(
            [*command, "--server-side", "--force-conflicts", "-f", str(source)],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert has_note(custom, namespace, knows)
        kept: Any = custom.get_namespaced_custom_object(*place(namespace), "everything")
        assert kept["spec"]["strategy"] == "blocking"


def test_what_is_refused_is_mended_as_the_page_says_and_an_upgrade_brings_what_values_say(
    installer: Helm, api_client: client.ApiClient, custom: client.CustomObjectsApi
) -> None:
    """Values that are refused make nothing; a quantity is left to the API server by the chart."""
    code, _, said = installer.run("install", RELEASE, CHART, "--set", "zookeeper.replicas=2")
    assert code != 0
    assert "/zookeeper/replicas': value must be one of 1, 3, 5" in said
    assert not client.AppsV1Api(api_client).list_namespaced_deployment(NAMESPACE).items

    memory = "recoveryClass.spec.sidecar.resources.requests.memory"
    bad = ("--set", f"{memory}=lots")
    code, _, said = installer.run("install", RELEASE, CHART, *OTHER_STORE, *bad)
    assert code != 0
    assert "spec.sidecar.resources.requests.memory" in said
    mended = ("--reset-values", "--set", f"{memory}=32Mi")
    installer.do("upgrade", "--install", RELEASE, CHART, *OTHER_STORE, *mended)

    assert budgets(api_client) == {"rekindle-operator", "rekindle-webhook"}
    installer.do(
        *("upgrade", RELEASE, CHART, *OTHER_STORE, "--set", "operator.replicas=1"),
        *("--set", "image.tag=9.9.9", "--set", "recoveryClass.spec.dryRun=true"),
    )
    after = deployment(api_client)
    assert after.spec.replicas == 1
    assert after.spec.template.spec.containers[0].image == "rekindle:9.9.9"
    webhook: Any = client.AppsV1Api(api_client).read_namespaced_deployment(
        "rekindle-webhook", NAMESPACE
    )
    assert "--sidecar-image=rekindle:9.9.9" in webhook.spec.template.spec.containers[0].args
    assert budgets(api_client) == {"rekindle-webhook"}
    found: Any = custom.get_cluster_custom_object(GROUP, VERSION, "recoveryclasses", "default")
    assert found["spec"]["dryRun"] is True
    installer.do("uninstall", RELEASE)


@pytest.mark.parametrize("way", ["true", "false"], ids=["server-side", "client-side"])
def test_an_upgrade_and_a_rollback_keep_the_authority_that_the_operator_has_set(
    installer: Helm, api_client: client.ApiClient, way: str
) -> None:
    installer.do("install", RELEASE, CHART, *OTHER_STORE, f"--server-side={way}")
    try:
        trust(api_client)
        installer.do(
            *("upgrade", RELEASE, CHART, *OTHER_STORE, f"--server-side={way}"),
            *("--set", "webhook.timeoutSeconds=3", "--set", "webhook.excludedNamespaces={istio}"),
        )
        changed = webhooks(api_client)
        assert [hook["timeoutSeconds"] for hook in changed["webhooks"]] == [3, 2]
        assert webhook_configuration.bundle_of(changed) == AUTHORITY
        installer.do("rollback", RELEASE, "1", f"--server-side={way}")
        restored = webhooks(api_client)
        assert [hook["timeoutSeconds"] for hook in restored["webhooks"]] == [5, 2]
        assert webhook_configuration.bundle_of(restored) == AUTHORITY
    finally:
        installer.do("uninstall", RELEASE)


def test_from_a_release_whose_operator_served_the_webhook_its_service_leads_to_pods_of_its_own(
    installer: Helm, api_client: client.ApiClient, tmp_path: Path
) -> None:
    before = chart_of(SERVED_BY_OPERATOR, tmp_path)
    core, apps = client.CoreV1Api(api_client), client.AppsV1Api(api_client)
    installer.do("install", RELEASE, before, *OTHER_STORE, "--force-conflicts")
    try:
        trust(api_client)
        old: Any = core.read_namespaced_service("rekindle-webhook", NAMESPACE)
        upgrade = ("upgrade", RELEASE, CHART, "--reset-then-reuse-values")
        installer.do(*upgrade, "--force-conflicts")
        new: Any = core.read_namespaced_service("rekindle-webhook", NAMESPACE)
        assert new.metadata.uid == old.metadata.uid, "another Service has another address"
        found: Any = apps.read_namespaced_deployment("rekindle-webhook", NAMESPACE)
        assert new.spec.selector.items() <= found.spec.template.metadata.labels.items()
        assert not new.spec.selector.items() <= old.spec.selector.items()
        assert webhook_configuration.bundle_of(webhooks(api_client)) == AUTHORITY
        (container,) = deployment(api_client).spec.template.spec.containers
        assert "webhook" not in {port.name for port in container.ports}
        installer.do("rollback", RELEASE, "1", "--force-conflicts")
        back: Any = core.read_namespaced_service("rekindle-webhook", NAMESPACE)
        assert back.spec.selector == old.spec.selector
    finally:
        installer.do("uninstall", RELEASE)


def budgets(api_client: client.ApiClient) -> set[str]:
    """The names of all disruption budgets of the release."""
    found: Any = client.PolicyV1Api(api_client).list_namespaced_pod_disruption_budget(NAMESPACE)
    return {item.metadata.name for item in found.items}


def chart_of(commit: str, folder: Path) -> Path:
    """The chart of an earlier commit, as git has it."""
    done = subprocess.run(
        ["git", "archive", commit, "charts", "crds"], cwd=ROOT, capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"git has no {commit[:10]} here: the release before is not tested")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "charts" / "rekindle"


def test_the_secret_of_the_store_stays_and_no_upgrade_closes_an_open_store(
    installer: Helm, api_client: client.ApiClient
) -> None:
    """It is made once, kept by upgrades, and there again after the chart was removed."""
    core = client.CoreV1Api(api_client)

    def secret() -> str:
        found: Any = core.read_namespaced_secret("rekindle-store", NAMESPACE)
        return str(found.data["secret"])

    installer.do("install", RELEASE, CHART, *OTHER_STORE)
    made = secret()
    installer.do("upgrade", RELEASE, CHART, *OTHER_STORE, "--set", "operator.replicas=1")
    assert secret() == made
    installer.do("uninstall", RELEASE)
    installer.do("install", RELEASE, CHART, *OTHER_STORE)
    assert secret() == made
    installer.do("uninstall", RELEASE)
    core.delete_namespaced_secret("rekindle-store", NAMESPACE)

    opened = (*OTHER_STORE, "--set", "store.open=true")
    installer.do("install", RELEASE, CHART, *opened)
    code, _, said = installer.run("upgrade", RELEASE, CHART, *OTHER_STORE, "--reset-values")
    assert code != 0
    assert "the store of this release has been open" in said
    installer.do("upgrade", RELEASE, CHART, *opened)
    named = ("--set", "store.secret.name=ours")
    installer.do("upgrade", RELEASE, CHART, *OTHER_STORE, *named)
    installer.do("uninstall", RELEASE)


def test_no_upgrade_closes_the_port_of_drivers_that_run_or_parts_the_servers(
    installer: Helm, api_client: client.ApiClient
) -> None:
    """As docs/install.md says it: both ports, then one; and servers change once all are stopped."""
    sent = ("--set", "zookeeper.replicas=3", "--reset-values")
    installer.do("install", RELEASE, CHART, "--set", "store.plaintext=true")
    try:
        code, _, said = installer.run("upgrade", RELEASE, CHART, *sent)
        assert code != 0
        assert "the store of this release has been without TLS: set zookeeper.tls.plain" in said
        assert "speak to each other in plain text, and cannot change that one by one" in said
        both = ("--set", "zookeeper.tls.plaintextPort=true")
        apart = ("--set", "zookeeper.tls.betweenServers=false")
        installer.do("upgrade", RELEASE, CHART, *sent, *both, *apart)
        installer.do("upgrade", RELEASE, CHART, *sent, *apart)
        code, _, said = installer.run("upgrade", RELEASE, CHART, *sent)
        assert code != 0
        assert "stop them for the upgrade" in said
        apps: Any = client.AppsV1Api(api_client)
        stopped = {"spec": {"replicas": 0}}
        apps.patch_namespaced_stateful_set_scale("rekindle-zookeeper", NAMESPACE, stopped)
        installer.do("upgrade", RELEASE, CHART, *sent, "--force-conflicts")
        servers = apps.read_namespaced_stateful_set("rekindle-zookeeper", NAMESPACE)
        assert servers.spec.replicas == 3
    finally:
        installer.do("uninstall", RELEASE)


def webhooks(api_client: client.ApiClient) -> Object:
    registrations = client.AdmissionregistrationV1Api(api_client)
    found = registrations.read_mutating_webhook_configuration("rekindle")
    written: Callable[[object], Object] = api_client.sanitize_for_serialization
    return written(found)


def trust(api_client: client.ApiClient) -> None:
    """Sets the authority as the operator does."""
    patch = webhook_configuration.bundle_patch(webhooks(api_client), AUTHORITY)
    assert patch
    client.AdmissionregistrationV1Api(api_client).patch_mutating_webhook_configuration(
        "rekindle", patch, field_manager="rekindle-operator", _content_type=MERGE
    )


def deployment(api_client: client.ApiClient) -> Any:
    return client.AppsV1Api(api_client).read_namespaced_deployment("rekindle-operator", NAMESPACE)


def zones_of(api_client: client.ApiClient, component: str) -> set[str]:
    core = client.CoreV1Api(api_client)
    pods: Any = core.list_namespaced_pod(
        NAMESPACE, label_selector=f"app.kubernetes.io/component={component}"
    ).items
    found: list[Any] = [core.read_node(pod.spec.node_name) for pod in pods]
    return {node.metadata.labels[ZONE] for node in found}


def definitions(api_client: client.ApiClient) -> set[str]:
    found: Any = client.ApiextensionsV1Api(api_client).list_custom_resource_definition().items
    return {item.metadata.name for item in found if item.spec.group == GROUP}


def place(namespace: str) -> tuple[str, str, str, str]:
    """Of policies."""
    return (GROUP, VERSION, namespace, "recoverypolicies")


def plain_policy(namespace: str, **spec: Any) -> Object:
    record = policy_object("everything", namespace=namespace, **spec)
    record["metadata"] = {"name": "everything", "namespace": namespace}
    return record


def with_note(definition: Object) -> Object:
    later = copy.deepcopy(definition)
    spec = later["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["note"] = {"type": "string", "description": "Of a later version."}
    return later


def has_note(custom: client.CustomObjectsApi, namespace: str, expected: bool) -> bool:
    """Whether the field can be set, or is dropped, as expected; it takes a moment to be known."""

    def is_as_expected() -> bool:
        change = {"spec": {"note": "set"}}
        patched: Any = custom.patch_namespaced_custom_object(
            *place(namespace), "everything", change
        )
        return ("note" in patched["spec"]) == expected

    return process_sets.await_condition(is_as_expected, limit_seconds=WAIT_SECONDS_MAX)


def remains(api_client: client.ApiClient) -> list[str]:
    """Names of all that has the release's label, or would ask for its webhook."""
    labelled: dict[str, Any] = {"label_selector": f"app.kubernetes.io/instance={RELEASE}"}
    rights = client.RbacAuthorizationV1Api(api_client)
    found: list[Any] = [
        *rights.list_cluster_role(**labelled).items,
        *rights.list_cluster_role_binding(**labelled).items,
        *rights.list_role_for_all_namespaces(**labelled).items,
        *rights.list_role_binding_for_all_namespaces(**labelled).items,
        *client.AppsV1Api(api_client).list_deployment_for_all_namespaces(**labelled).items,
        *client.CoreV1Api(api_client).list_service_for_all_namespaces(**labelled).items,
        *client.SchedulingV1Api(api_client).list_priority_class(**labelled).items,
        *client.AdmissionregistrationV1Api(api_client)
        .list_mutating_webhook_configuration(**labelled)
        .items,
    ]
    return [json.dumps(item.metadata.name) for item in found]
