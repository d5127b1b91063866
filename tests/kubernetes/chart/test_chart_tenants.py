"""What people may do with the chart installed, each with a certificate of his own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from chart_commands import CHART, RELEASE, Helm, Object
from chart_rights import Asked, permitted
from kubernetes import client
from kubernetes.client import ApiException

from rekindle_local import processes
from rekindle_operator import recoveries
from rekindle_operator.recoveries import ApplicationReference, RecoverySpec
from rekindle_testing.operator_builders import policy_object
from testbed.control_plane import ControlPlane

WAIT_SECONDS_MAX = 180.0
PLACE = ("rekindle.dev", "v1alpha1")
RIGHTS = "rbac.authorization.k8s.io"
VALUES = (
    *("--set", "zookeeper.enabled=false", "--set", "store.addresses={zookeeper.data:2181}"),
    *("--set", "classReaders[0].kind=User", "--set", "classReaders[0].name=rita"),
    *("--set", f"classReaders[0].apiGroup={RIGHTS}"),
)
OWN, OTHER = "team-a", "team-b"
APPROVED: Object = {"spec": {"approved": True}}
PAUSED: Object = {"spec": {"paused": True}}

Login = Callable[[str], client.ApiClient]


@pytest.fixture(scope="module")
def administrator(installer: Helm, control_plane: ControlPlane) -> Iterator[client.ApiClient]:
    """Of a cluster with two tenants; of the first, edith has the role edit and viola view."""
    installer.do("install", RELEASE, CHART, *VALUES)
    with control_plane.api_client() as api_client:
        for name in (OWN, OTHER):
            named = client.V1ObjectMeta(name=name)
            client.CoreV1Api(api_client).create_namespace(client.V1Namespace(metadata=named))
        for user, role in (("edith", "edit"), ("viola", "view")):
            bind(api_client, user, role)
        for user, verb in (("edith", "patch"), ("viola", "list")):
            await_right(api_client, user, Asked(verb, "recoveries.rekindle.dev", OWN))
        yield api_client


def bind(api_client: client.ApiClient, user: str, role: str) -> None:
    body: Any = {
        "metadata": {"name": user},
        "roleRef": {"apiGroup": RIGHTS, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": RIGHTS, "kind": "User", "name": user}],
    }
    client.RbacAuthorizationV1Api(api_client).create_namespaced_role_binding(OWN, body)


def await_right(api_client: client.ApiClient, user: str, asked: Asked) -> None:
    """The cluster's own roles take ours up after a moment."""
    there = processes.await_condition(
        lambda: bool(permitted(api_client, user, [asked])), limit_seconds=WAIT_SECONDS_MAX
    )
    assert there, f"{user} may not {asked}"


@pytest.fixture
def login(control_plane: ControlPlane, administrator: client.ApiClient) -> Iterator[Login]:
    """A client of a user."""
    assert administrator
    with ExitStack() as held:

        def make(user: str) -> client.ApiClient:
            api_client = control_plane.api_client(control_plane.user_kubeconfig(user))
            held.enter_context(api_client)
            return api_client

        yield make


@pytest.fixture
def stories(administrator: client.ApiClient) -> Iterator[dict[str, str]]:
    """A policy `all` and a recovery of each tenant: the recovery's name by namespace."""
    custom = client.CustomObjectsApi(administrator)
    names = {}
    for namespace in (OWN, OTHER):
        record = a_recovery(namespace)
        names[namespace] = record["metadata"]["name"]
        custom.create_namespaced_custom_object(*PLACE, namespace, "recoveries", record)
        policy = a_policy(namespace, "all")
        custom.create_namespaced_custom_object(*PLACE, namespace, "recoverypolicies", policy)
    yield names
    for namespace in names:
        for plural in ("recoveries", "recoverypolicies"):
            custom.delete_collection_namespaced_custom_object(*PLACE, namespace, plural)


def a_recovery(namespace: str, incident: int = 1) -> Object:
    spec = RecoverySpec(ApplicationReference("Driver", "app"), incident, "all", "default")
    return recoveries.to_object(namespace, spec)


def a_policy(namespace: str, name: str) -> Object:
    record = policy_object(name, namespace=namespace)
    record["metadata"] = {"name": name, "namespace": namespace}
    return record


def assert_forbidden(call: Callable[..., Any], *arguments: Any) -> None:
    with pytest.raises(ApiException) as caught:
        call(*arguments)
    assert caught.value.status == 403, caught.value


def test_who_may_edit_a_namespace_writes_its_policies(login: Login) -> None:
    custom = client.CustomObjectsApi(login("edith"))
    place = (*PLACE, OWN, "recoverypolicies")
    custom.create_namespaced_custom_object(*place, a_policy(OWN, "mine"))
    changed: Any = custom.patch_namespaced_custom_object(*place, "mine", PAUSED)
    assert changed["spec"]["paused"] is True
    custom.delete_namespaced_custom_object(*place, "mine")


def test_who_may_edit_a_namespace_approves_its_recoveries_and_changes_nothing_else_of_them(
    login: Login, stories: dict[str, str]
) -> None:
    custom = client.CustomObjectsApi(login("edith"))
    place, name = (*PLACE, OWN, "recoveries"), stories[OWN]
    listed: Any = custom.list_namespaced_custom_object(*place)
    assert listed["items"]
    approved: Any = custom.patch_namespaced_custom_object(*place, name, APPROVED)
    assert approved["spec"]["approved"] is True
    with pytest.raises(ApiException) as caught:
        custom.patch_namespaced_custom_object(*place, name, {"spec": {"policyName": "another"}})
    assert caught.value.status == 422
    phase = {"status": {"phase": "Recovered"}}
    assert_forbidden(custom.patch_namespaced_custom_object_status, *place, name, phase)
    assert_forbidden(custom.create_namespaced_custom_object, *place, a_recovery(OWN, incident=2))
    assert_forbidden(custom.delete_namespaced_custom_object, *place, name)


def test_who_may_edit_a_namespace_touches_nothing_of_another(
    login: Login, stories: dict[str, str]
) -> None:
    custom = client.CustomObjectsApi(login("edith"))
    policies, others = (*PLACE, OTHER, "recoverypolicies"), (*PLACE, OTHER, "recoveries")
    assert_forbidden(custom.list_namespaced_custom_object, *policies)
    assert_forbidden(custom.list_namespaced_custom_object, *others)
    assert_forbidden(custom.get_namespaced_custom_object, *others, stories[OTHER])
    assert_forbidden(custom.patch_namespaced_custom_object, *others, stories[OTHER], APPROVED)
    assert_forbidden(custom.patch_namespaced_custom_object, *policies, "all", PAUSED)
    assert_forbidden(custom.delete_namespaced_custom_object, *policies, "all")
    assert_forbidden(custom.create_namespaced_custom_object, *policies, a_policy(OTHER, "mine"))


def test_who_may_edit_a_namespace_touches_no_node_and_no_class(login: Login) -> None:
    api_client = login("edith")
    custom, core = client.CustomObjectsApi(api_client), client.CoreV1Api(api_client)
    assert_forbidden(core.list_node)
    assert_forbidden(core.patch_node, "any", {"spec": {"unschedulable": True}})
    assert_forbidden(core.delete_node, "any")
    classes = (*PLACE, "recoveryclasses")
    assert_forbidden(custom.list_cluster_custom_object, *classes)
    assert_forbidden(custom.patch_cluster_custom_object, *classes, "default", PAUSED)
    assert_forbidden(custom.create_cluster_custom_object, *classes, {})


def test_who_may_view_a_namespace_changes_nothing(login: Login, stories: dict[str, str]) -> None:
    custom = client.CustomObjectsApi(login("viola"))
    policies, told = (*PLACE, OWN, "recoverypolicies"), (*PLACE, OWN, "recoveries")
    listed: Any = custom.list_namespaced_custom_object(*policies)
    assert listed["items"]
    assert custom.get_namespaced_custom_object(*told, stories[OWN])
    assert_forbidden(custom.patch_namespaced_custom_object, *told, stories[OWN], APPROVED)
    assert_forbidden(custom.patch_namespaced_custom_object, *policies, "all", PAUSED)
    assert_forbidden(custom.delete_namespaced_custom_object, *policies, "all")


def test_who_reads_classes_reads_nothing_else(login: Login) -> None:
    custom = client.CustomObjectsApi(login("rita"))
    classes = (*PLACE, "recoveryclasses")
    found: Any = custom.list_cluster_custom_object(*classes)
    assert [item["metadata"]["name"] for item in found["items"]] == ["default"]
    assert_forbidden(custom.patch_cluster_custom_object, *classes, "default", PAUSED)
    assert_forbidden(custom.list_namespaced_custom_object, *PLACE, OWN, "recoveries")
