"""Two teams in one cluster, with the chart as it is: what one of them can do to the other.

The operator runs with its account's own rights, on a ZooKeeper whose root is locked. Team b has a
driver that runs. Everything that team a has, the right to edit its namespace and its credential of
the store, is tried on what is team b's, the operator's, or everybody's.
"""

import base64
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from chart_audit import arguments_here
from chart_commands import CHART, NAMESPACE, RELEASE, Helm, Object
from chart_webhook import ask_about_nothing
from kazoo.client import KazooClient
from kubernetes import client
from store_attempts import attempts_on, is_refused

sys.path.insert(0, str(Path(__file__).parents[1] / "operating"))

from acting_driver import ActingDriver, pod_body
from grounds import Grounds
from operating_world import World, await_that
from operator_process import OperatorProcess

from rekindle.protocol import store_paths
from rekindle_local.local_zookeeper import LocalZookeeper
from rekindle_operator.api import recovery_resource
from rekindle_operator.api.recovery_class import CREDENTIAL_KEY, CREDENTIAL_SECRET
from rekindle_operator.api.recovery_resource import ApplicationReference, RecoverySpec
from rekindle_operator.cluster.pods import GATE
from rekindle_zookeeper import Connection, connect
from testbed.control_plane import ControlPlane
from testbed.simulated_kubelets import SimulatedKubelets

A, B = "tenant-a", "tenant-b"
GROUP, VERSION = "rekindle.dev", "v1alpha1"
RIGHTS = "rbac.authorization.k8s.io"
SECRET = "the operators own secret, long"
FORBIDDEN = 403
DETECTION = {"leaseSeconds": 1, "leaseIntervals": 2, "driverSilenceSeconds": 2}
FAST = ",".join(f"recoveryClass.spec.detection.{name}={value}" for name, value in DETECTION.items())
# On loopback; TLS is tried in test_chart_store_tls.py.
PLAIN = "store.plaintext=true"
FENCING = "fencing.outOfServiceTaint=true,recoveryClass.spec.fencing.mode=OutOfServiceTaint"


@dataclass
class Tenants:
    """Both, with team b's world, and the operator's connection."""

    world: World
    store: LocalZookeeper
    operator: Connection
    edith: client.ApiClient

    def credential(self, namespace: str) -> str:
        """What the Secret of a namespace has; "" while there is none."""
        core: Any = self.world.core
        names = {item.metadata.name for item in core.list_namespaced_secret(namespace).items}
        if CREDENTIAL_SECRET not in names:
            return ""
        found = core.read_namespaced_secret(CREDENTIAL_SECRET, namespace)
        return base64.b64decode(found.data[CREDENTIAL_KEY]).decode()

    def status_of(self, method: str, path: str, body: object = None) -> int:
        """What the API server says to edith."""
        kinds = {"PATCH": "application/merge-patch+json"}
        headers = {"Content-Type": kinds.get(method, "application/json")}
        request = self.edith.param_serialize(
            method, path, header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        return int(self.edith.call_api(*request).response.status)


@pytest.fixture
def tenants(
    installer: Helm,
    renderer: Helm,
    cluster: client.ApiClient,
    control_plane: ControlPlane,
    nodes: SimulatedKubelets,
    tmp_path: Path,
) -> Iterator[Tenants]:
    """The chart installed, the operator that acts, and team b's driver that runs."""
    with ExitStack() as stack:
        store = stack.enter_context(LocalZookeeper(directory=tmp_path / "zookeeper"))
        where = f"zookeeper.enabled=false,store.addresses={{{store.connect_string}}},{PLAIN}"
        certainty = "recoveryClass.spec.fencing.certainty={Approval}"
        mine = "store.secret.name=ours,store.credentials.recordsMax=2000"
        allowed = f"recoveryClass.spec.allowedNamespaces={{{A},{B}}}"
        values = [where, mine, FAST, FENCING, certainty, allowed, "wholeApplications=true"]
        arguments = [word for value in values for word in ("--set", value)]
        installer.do("install", RELEASE, CHART, *arguments)
        stack.callback(installer.run, "uninstall", RELEASE, "--no-hooks")
        ask_about_nothing(cluster)
        for name in (A, B):
            stack.enter_context(a_namespace(cluster, name))
        bind(cluster, "edith", "edit", A)
        token = control_plane.service_account_kubeconfig(NAMESPACE, "rekindle-operator")
        secret = tmp_path / "secret"
        secret.write_text(SECRET)
        operator = OperatorProcess(
            tmp_path / "operator",
            "operator-a",
            *with_secret(arguments_here(renderer.objects(*arguments)), secret),
            *("--lock-store-root", f"--kubeconfig={token}", "--webhook"),
        )
        stack.callback(operator.close)
        ours = connect(store.connect_string, secret=SECRET)
        stack.callback(ours.close)
        edith = control_plane.api_client(control_plane.user_kubeconfig("edith"))
        stack.enter_context(edith)
        grounds = Grounds(nodes, client.CoreV1Api(cluster))
        custom = client.CustomObjectsApi(cluster)
        world = World(B, grounds, custom, lambda **_: None, operator, class_name="default")
        found = Tenants(world, store, ours, edith)
        world.make_driver = lambda **_: stack.enter_context(a_driver(found))
        world.start(nodes=4)
        yield found


def with_secret(arguments: list[str], file: Path) -> list[str]:
    """The operator's secret lies elsewhere on this machine."""
    option = "--store-secret-file="
    assert any(word.startswith(option) for word in arguments)
    return [f"{option}{file}" if word.startswith(option) else word for word in arguments]


@contextmanager
def a_namespace(api_client: client.ApiClient, name: str) -> Iterator[None]:
    core: Any = client.CoreV1Api(api_client)
    # one of the test before may be on its way out
    await_that(lambda: name not in {item.metadata.name for item in core.list_namespace().items})
    core.create_namespace({"metadata": {"name": name}})
    await_that(lambda: core.list_namespaced_service_account(name).items)
    try:
        yield
    finally:
        core.delete_namespace(name)


class PatientDriver(ActingDriver):
    """Says nothing before the operator has made its place, as a sidecar tries again until then."""

    def _introduce(self) -> None:
        orders = self.place.path(store_paths.ORDERS)
        await_that(lambda: self.connection.get(orders), "its place was not made")
        super()._introduce()


@contextmanager
def a_driver(tenants: Tenants) -> Iterator[ActingDriver]:
    """Team b's, which reaches the store with what its namespace's Secret has."""
    await_that(lambda: tenants.credential(B), "team b got no credential")
    connection = connect(tenants.store.connect_string, secret=tenants.credential(B))
    driver = PatientDriver(connection, tenants.world.core, B)
    driver.start()
    try:
        await_that(lambda: driver.is_whole or driver.error, "the executors do not run")
        await_that(lambda: driver.is_placed or driver.error, "there was no first plan")
        assert driver.error is None, driver.error
        yield driver
    finally:
        driver.connection = tenants.operator  # only the operator's removes its records
        driver.close()
        connection.close()


def bind(api_client: client.ApiClient, user: str, role: str, namespace: str) -> None:
    body: Any = {
        "metadata": {"name": f"{user}-{role}"},
        "roleRef": {"apiGroup": RIGHTS, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": RIGHTS, "kind": "User", "name": user}],
    }
    client.RbacAuthorizationV1Api(api_client).create_namespaced_role_binding(namespace, body)


def a_recovery(namespace: str) -> Object:
    spec = RecoverySpec(ApplicationReference("Driver", "app"), 1, "all", "default")
    return recovery_resource.to_object(namespace, spec)


def attempts_on_objects(recovery: str, driver: str) -> list[tuple[str, str, object]]:
    """What an editor of team a might ask of the API server: method, path, body."""
    core, ours = "/api/v1", f"/apis/{GROUP}/{VERSION}"
    b, home = f"{core}/namespaces/{B}", f"{core}/namespaces/{NAMESPACE}"
    policies, told = f"{ours}/namespaces/{B}/recoverypolicies", f"{ours}/namespaces/{B}/recoveries"
    hooks = "/apis/admissionregistration.k8s.io/v1"
    mark = {"metadata": {"labels": {"rekindle.dev/inject": "true"}}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "mine", **mark["metadata"]},
        "spec": {"containers": [{"name": "mine", "image": "mine"}]},
    }
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return [
        ("GET", f"{b}/secrets", None),
        ("GET", f"{b}/secrets/{CREDENTIAL_SECRET}", None),
        ("PATCH", f"{b}/secrets/{CREDENTIAL_SECRET}", {"data": {}}),
        ("DELETE", f"{b}/secrets/{CREDENTIAL_SECRET}", None),
        ("GET", f"{home}/secrets", None),
        ("GET", f"{home}/secrets/rekindle-store", None),
        ("GET", f"{home}/secrets/rekindle-webhook-certificate", None),
        ("GET", f"{home}/secrets/rekindle-zookeeper-tls", None),
        ("GET", f"{home}/configmaps", None),
        ("GET", f"{b}/pods", None),
        ("POST", f"{b}/pods", pod),
        ("PATCH", f"{b}/pods/{driver}", mark),
        ("DELETE", f"{b}/pods/{driver}", None),
        ("POST", f"{b}/pods/{driver}/exec", None),
        ("POST", f"{b}/pods/{driver}/portforward", None),
        ("GET", f"{b}/pods/{driver}:9465/proxy/metrics", None),
        ("GET", f"{home}/services/rekindle-operator:8080/proxy/metrics", None),
        ("POST", f"{home}/services/rekindle-webhook:443/proxy/mutate", {}),
        ("PATCH", f"{hooks}/mutatingwebhookconfigurations/{RELEASE}", mark),
        ("DELETE", f"{hooks}/validatingadmissionpolicies/rekindle-fencing-approvals", None),
        ("GET", policies, None),
        ("PATCH", f"{policies}/all", {"spec": {"paused": True}}),
        ("DELETE", f"{policies}/all", None),
        ("GET", told, None),
        ("PATCH", f"{told}/any", {"spec": {"approved": True}}),
        ("POST", f"{ours}/namespaces/{A}/recoveries", a_recovery(A)),
        ("PATCH", f"{ours}/namespaces/{A}/recoveries/{recovery}/status", {"status": {}}),
        ("PATCH", f"{ours}/namespaces/{A}/recoveries/{recovery}", fencing_approved()),
        ("GET", f"{ours}/recoveryclasses", None),
        ("PATCH", f"{ours}/recoveryclasses/default", {"spec": {"paused": True}}),
        ("DELETE", f"{ours}/recoveryclasses/default", None),
        ("PATCH", f"{core}/nodes/any", {"spec": {"unschedulable": True}}),
        ("DELETE", f"{core}/nodes/any", None),
        ("PATCH", f"{core}/namespaces/{B}", mark),
        ("POST", f"{home}/serviceaccounts/rekindle-operator/token", token),
        ("POST", f"{b}/serviceaccounts/default/token", token),
        (
            "PATCH",
            f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/rekindle-operator",
            {"spec": {"holderIdentity": "mine"}},
        ),
    ]


def fencing_approved() -> Object:
    return {"spec": {"fencingApproved": True}}


def test_one_team_can_do_nothing_to_another_whose_driver_goes_on(tenants: Tenants) -> None:
    world = tenants.world
    driver: ActingDriver = world.driver
    world_of_a = replace(world, namespace=A)
    world_of_a.make_policy()
    await_that(lambda: tenants.credential(A), "team a got no credential")
    assert tenants.credential(A) != tenants.credential(B)
    made: Any = world.custom.create_namespaced_custom_object(
        GROUP, VERSION, A, "recoveries", a_recovery(A)
    )
    recovery = made["metadata"]["name"]

    _, _, user, password, _ = ("", *tenants.credential(A).split(" "))
    with raw(tenants.store, f"{user}:{password}") as stranger:
        records = attempts_on(stranger, driver.place)
        done = [what for what, attempt in records.items() if not is_refused(attempt)]
    assert done == []
    objects = attempts_on_objects(recovery, f"{driver.application}-driver")
    answers = {
        f"{method} {path}": tenants.status_of(method, path, body) for method, path, body in objects
    }
    assert {what: status for what, status in answers.items() if status != FORBIDDEN} == {}
    assert len(records) + len(objects) >= 60

    # what is its own team a may do, and approving is one of these things
    path = f"/apis/{GROUP}/{VERSION}/namespaces/{A}/recoveries/{recovery}"
    assert tenants.status_of("PATCH", path, {"spec": {"approved": True}}) == 200
    world.custom.patch_namespaced_custom_object(
        GROUP, VERSION, A, "recoveries", recovery, fencing_approved()
    )

    # a class that is not for team a any more holds for nothing there, and says so
    default = {"spec": {"allowedNamespaces": [B]}}
    world.custom.patch_cluster_custom_object(GROUP, VERSION, "recoveryclasses", "default", default)
    await_that(lambda: world_of_a.condition("Accepted").get("reason") == "ClassNotAllowed")
    assert world.condition("Accepted")["status"] == "True"

    # team b's driver has gone on, and is led through a loss
    assert driver.error is None
    before = driver.connection.get(driver.place.path(store_paths.PROGRESS))
    await_that(lambda: driver.connection.get(driver.place.path(store_paths.PROGRESS)) != before)
    lost = world.executors_nodes()[0]
    world.lose(lost)
    await_that(lambda: driver.plans() or driver.error, "nothing was planned")
    world.finish(nodes=1)
    assert driver.error is None


def test_the_operators_account_does_nothing_that_it_has_no_business_with(
    tenants: Tenants, control_plane: ControlPlane
) -> None:
    token = control_plane.service_account_kubeconfig(NAMESPACE, "rekindle-operator")
    core: Any = tenants.world.core
    plain = {"metadata": {"name": "plain"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
    core.create_namespaced_pod(B, plain)
    gates = [{"name": "example.com/quota"}, {"name": GATE}]
    waiting = pod_body("waiting", "executor", "another")
    waiting["spec"]["schedulingGates"] = gates
    core.create_namespaced_pod(B, waiting)
    pod = f"/api/v1/namespaces/{B}/pods/waiting"
    node = tenants.world.nodes.names[0]
    cordon = {"spec": {"unschedulable": True}}
    foreign = {"spec": {"taints": [{"key": "example.com/mine", "effect": "NoSchedule"}]}}
    ours = {"spec": {"taints": [{"key": "rekindle.dev/suspected", "effect": "NoSchedule"}]}}
    path = f"/api/v1/nodes/{node}"
    nobody = {"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "0-0"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "another"}}
    with control_plane.api_client(token) as account:
        acting = replace(tenants, edith=account)
        refused = {
            "a pod that is not Spark's": ("DELETE", f"/api/v1/namespaces/{B}/pods/plain", None),
            "another's gate": ("PATCH", pod, {"spec": {"schedulingGates": []}}),
            "a pod's label": ("PATCH", pod, {"metadata": {"labels": {"a": "b"}}}),
            "a gate's label": ("PATCH", pod, {"metadata": {"labels": {GATE: "else"}}}),
            "a pod's end": ("PATCH", pod, {"spec": {"activeDeadlineSeconds": 1}}),
            "a pod's owner": ("PATCH", pod, {"metadata": {"ownerReferences": [nobody]}}),
            "a pod's finalizer": ("PATCH", pod, {"metadata": {"finalizers": ["a.b/c"]}}),
            "a cordon": ("PATCH", path, cordon),
            "a foreign taint": ("PATCH", path, foreign),
            "a label": ("PATCH", path, {"metadata": {"labels": {"a": "b"}}}),
            "a secret": ("POST", f"/api/v1/namespaces/{NAMESPACE}/secrets", secret),
            "a secret of a team": ("POST", f"/api/v1/namespaces/{B}/secrets", secret),
        }
        answers = {what: acting.status_of(*asked) for what, asked in refused.items()}
        assert answers == dict.fromkeys(refused, FORBIDDEN)
        lifted = {"spec": {"schedulingGates": gates[:1]}, "metadata": {"labels": {GATE: None}}}
        assert acting.status_of("PATCH", pod, lifted) == 200
        assert acting.status_of("PATCH", path, ours) == 200
        assert acting.status_of("PATCH", path, {"spec": {"taints": None}}) == 200


@contextmanager
def raw(store: LocalZookeeper, shown: str) -> Iterator[KazooClient]:
    """A client that has only these credentials."""
    stranger = KazooClient(store.connect_string, auth_data=[("digest", shown)])
    stranger.start(timeout=60)
    try:
        yield stranger
    finally:
        stranger.stop()
        stranger.close()
