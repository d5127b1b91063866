"""What may be done with the chart installed: by the operator's account, and by people of two teams.

Each of the people has a certificate of his own.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from chart_commands import CHART, NAMESPACE, RELEASE, Helm, Object
from chart_rights import WEBHOOK, documented, given
from chart_users import OPERATOR, Asked, each, permitted
from kubernetes import client
from kubernetes.client import ApiException

from rekindle_local import process_sets
from rekindle_operator.api import recovery_resource
from rekindle_operator.api.recovery_resource import ApplicationReference, RecoverySpec
from rekindle_testing.operator_builders import policy_object
from testbed.control_plane import ControlPlane

WAIT_SECONDS_MAX = 180.0
PLACE = ("rekindle.dev", "v1alpha1")
RIGHTS = "rbac.authorization.k8s.io"
VALUES = (
    *("--set", "zookeeper.enabled=false", "--set", "store.addresses={zookeeper.data:2181}"),
    *("--set", "store.plaintext=true"),
    *("--set", "classReaders[0].kind=User", "--set", "classReaders[0].name=rita"),
    *("--set", f"classReaders[0].apiGroup={RIGHTS}"),
)
OWN, OTHER = "team-a", "team-b"
SYSTEM, LEASES = "kube-system", "kube-node-lease"
APPROVED: Object = {"spec": {"approved": True}}
PAUSED: Object = {"spec": {"paused": True}}
# By default the operator makes the webhook's certificate.
SELF_MANAGED = "webhook.certificates.certManager=false"
# Where rights of the cluster and of the operator's own namespace are asked for.
PLACES = {"cluster": OWN, "own": NAMESPACE}
CHANGES = ("create", "update", "patch", "delete")
WEBHOOKS = "webhookconfigurations.admissionregistration.k8s.io"

Login = Callable[[str], client.ApiClient]

NEVER = [
    *each(("create", "update"), ("nodes",)),
    *each(("get", "create"), ("nodes/proxy", "pods/exec", "pods/attach", "pods/portforward"), OWN),
    *each(("create", "update"), ("pods", "pods/eviction", "pods/status"), OWN, SYSTEM),
    *each(("patch",), ("pods/eviction", "pods/status"), OWN, SYSTEM),
    *each(("get",), ("pods/log",), OWN),
    *each(("get", "list", "watch", *CHANGES), ("secrets",), OWN, SYSTEM),
    *each(("list", "watch", "delete"), ("secrets",), NAMESPACE),
    Asked("get", "secrets", NAMESPACE, "another"),
    Asked("update", "secrets", NAMESPACE, "another"),
    *each(("get", "list", *CHANGES), ("configmaps",), OWN, SYSTEM),
    *each(("create",), ("serviceaccounts", "serviceaccounts/token"), NAMESPACE, SYSTEM),
    *each(CHANGES, ("namespaces",)),
    *each(("get", "delete"), ("persistentvolumeclaims",), OWN),
    *each(CHANGES, ("deployments.apps", "statefulsets.apps"), NAMESPACE, OWN),
    *each(CHANGES, ("leases.coordination.k8s.io",), LEASES, OWN),
    Asked("update", "leases.coordination.k8s.io", NAMESPACE, "another"),
    *each(CHANGES, ("sparkapplications.sparkoperator.k8s.io",), OWN),
    *each(CHANGES, ("sparkapplications.spark.apache.org",), OWN),
    *each(CHANGES, ("recoverypolicies.rekindle.dev", "recoveryclasses.rekindle.dev"), OWN),
    *each(CHANGES, ("customresourcedefinitions.apiextensions.k8s.io",)),
    *each((*CHANGES, "bind", "escalate"), (f"clusterroles.{RIGHTS}", f"roles.{RIGHTS}"), NAMESPACE),
    *each(CHANGES, (f"clusterrolebindings.{RIGHTS}", f"rolebindings.{RIGHTS}"), NAMESPACE),
    *each(("create", "update", "delete"), (f"mutating{WEBHOOKS}", f"validating{WEBHOOKS}")),
    Asked("patch", f"mutating{WEBHOOKS}", name="another"),
    Asked("patch", f"validating{WEBHOOKS}", name="rekindle"),
    *each(("impersonate",), ("users", "groups", "serviceaccounts")),
]
UNLESS_GIVEN = [
    *each(("patch",), ("pods",), OWN, SYSTEM),
    *each(("patch", "delete"), ("nodes",)),
    *each(("create", "delete"), ("nodeclaims.karpenter.sh",)),
    *each(("create",), ("provisioningrequests.autoscaling.x-k8s.io", "podtemplates"), OWN),
    *each(("patch",), ("machinedeployments.cluster.x-k8s.io/scale",), "capi"),
    *each(("patch",), ("machines.cluster.x-k8s.io",), "capi"),
    *each(("list",), ("selfnoderemediations.self-node-remediation.medik8s.io",), OWN),
]


@pytest.fixture(scope="module")
def administrator(installer: Helm, control_plane: ControlPlane) -> Iterator[client.ApiClient]:
    """Of a cluster with two tenants; of the first, edith has the role edit and viola view."""
    installer.do("install", RELEASE, CHART, *VALUES)
    with control_plane.api_client() as api_client:
        core: Any = client.CoreV1Api(api_client)
        for name in (OWN, OTHER):
            core.create_namespace({"metadata": {"name": name}})
        for user, role in (("edith", "edit"), ("viola", "view")):
            bind(api_client, user, role)
        for user, verb in (("edith", "patch"), ("viola", "list")):
            await_right(api_client, user, Asked(verb, "recoveries.rekindle.dev", OWN))
        yield api_client
        for name in (OWN, OTHER):
            core.delete_namespace(name)


def bind(api_client: client.ApiClient, user: str, role: str) -> None:
    body: Any = {
        "metadata": {"name": user},
        "roleRef": {"apiGroup": RIGHTS, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": RIGHTS, "kind": "User", "name": user}],
    }
    client.RbacAuthorizationV1Api(api_client).create_namespaced_role_binding(OWN, body)


def await_right(api_client: client.ApiClient, user: str, asked: Asked) -> None:
    """The cluster's own roles take ours up after a moment, and the API server learns of changes."""
    there = process_sets.await_condition(
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
    return recovery_resource.to_object(namespace, spec)


def a_policy(namespace: str, name: str) -> Object:
    record = policy_object(name, namespace=namespace)
    record["metadata"] = {"name": name, "namespace": namespace}
    return record


def test_the_operators_account_may_do_what_the_table_says(
    administrator: client.ApiClient,
) -> None:
    table = given(None) | given(SELF_MANAGED)
    asked = [
        Asked(right.verb, right.resource, PLACES.get(right.where, right.where), right.name)
        for right in table
    ]
    assert len(asked) > 40
    assert permitted(administrator, OPERATOR, asked) == asked


def test_the_operators_account_may_not_do_what_it_has_no_business_with(
    administrator: client.ApiClient,
) -> None:
    assert not permitted(administrator, OPERATOR, NEVER)
    assert not permitted(administrator, OPERATOR, UNLESS_GIVEN)


def test_the_webhooks_account_may_do_what_its_table_says_and_nothing_else(
    administrator: client.ApiClient,
) -> None:
    account = f"system:serviceaccount:{NAMESPACE}:{WEBHOOK}"
    asked = [
        Asked(right.verb, right.resource, PLACES.get(right.where, right.where), right.name)
        for right in given(None, WEBHOOK) | given(SELF_MANAGED, WEBHOOK)
    ]
    assert len(asked) == 11
    assert permitted(administrator, account, asked) == asked
    more = [
        *each(("get", "list", "watch"), ("pods", "nodes", "recoveries.rekindle.dev")),
        *each(("list", "watch"), ("secrets", "configmaps"), NAMESPACE),
        *each(("create", "update", "patch"), ("recoverypolicies.rekindle.dev", "pods")),
        *each(("update", "patch", "delete"), ("secrets", "configmaps"), NAMESPACE),
    ]
    assert not permitted(administrator, account, [*more, *NEVER, *UNLESS_GIVEN])


def test_the_account_of_zookeeper_may_do_nothing(administrator: client.ApiClient) -> None:
    account = f"system:serviceaccount:{NAMESPACE}:rekindle-zookeeper"
    some = each(("get", "list"), ("pods", "configmaps", "secrets", "nodes"), NAMESPACE)
    assert not permitted(administrator, account, [*some, *NEVER])


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


def test_with_every_right_that_there_is_the_rest_is_still_refused(
    installer: Helm, administrator: client.ApiClient
) -> None:
    settings = {word for row in documented() for word in row.settings}
    options = [word for setting in sorted(settings) for word in ("--set", setting)]
    installer.do("upgrade", RELEASE, CHART, *VALUES, *options, "--set", SELF_MANAGED)
    for asked in UNLESS_GIVEN:
        await_right(administrator, OPERATOR, asked)
    assert not permitted(administrator, OPERATOR, NEVER)
