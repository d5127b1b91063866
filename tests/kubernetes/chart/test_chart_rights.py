"""What the operator's account may do with the chart installed, and what it may not."""

import itertools
from collections.abc import Iterator

import pytest
from chart_commands import CHART, EVERYTHING, NAMESPACE, RELEASE, Helm
from chart_rights import OPERATOR, Asked, Right, documented, given, permitted, rights
from kubernetes import client

from testbed.control_plane import ControlPlane

STORE = ("--set", "zookeeper.enabled=false", "--set", "store.addresses={zookeeper.data:2181}")
TEAM, SYSTEM, LEASES = "team-a", "kube-system", "kube-node-lease"
# Who makes the webhook's certificate; the first is the default.
SELF_MANAGED = "webhook.certificates.certManager=false"
OTHERS_MANAGE = "webhook.certificates.certManager=true"
# Where rights of the cluster and of the operator's own namespace are asked for.
PLACES = {"cluster": TEAM, "own": NAMESPACE}
CHANGES = ("create", "update", "patch", "delete")
RIGHTS = "rbac.authorization.k8s.io"
WEBHOOKS = "webhookconfigurations.admissionregistration.k8s.io"


def each(verbs: tuple[str, ...], resources: tuple[str, ...], *places: str) -> list[Asked]:
    return [Asked(*what) for what in itertools.product(verbs, resources, places or ("",))]


NEVER = [
    *each(("create", "update"), ("nodes",)),
    *each(("get", "create"), ("nodes/proxy", "pods/exec", "pods/attach", "pods/portforward"), TEAM),
    *each(("create", "update", "patch"), ("pods", "pods/eviction", "pods/status"), TEAM, SYSTEM),
    *each(("get",), ("pods/log",), TEAM),
    *each(("get", "list", "watch", *CHANGES), ("secrets",), TEAM, SYSTEM),
    *each(("list", "watch", "delete"), ("secrets",), NAMESPACE),
    Asked("get", "secrets", NAMESPACE, "another"),
    Asked("update", "secrets", NAMESPACE, "another"),
    *each(("get", "list", *CHANGES), ("configmaps",), TEAM, SYSTEM),
    *each(("create",), ("serviceaccounts", "serviceaccounts/token"), NAMESPACE, SYSTEM),
    *each(CHANGES, ("namespaces",)),
    *each(("get", "delete"), ("persistentvolumeclaims",), TEAM),
    *each(CHANGES, ("deployments.apps", "statefulsets.apps"), NAMESPACE, TEAM),
    *each(CHANGES, ("leases.coordination.k8s.io",), LEASES, TEAM),
    Asked("update", "leases.coordination.k8s.io", NAMESPACE, "another"),
    *each(CHANGES, ("sparkapplications.sparkoperator.k8s.io",), TEAM),
    *each(CHANGES, ("sparkapplications.spark.apache.org",), TEAM),
    *each(CHANGES, ("recoverypolicies.rekindle.dev", "recoveryclasses.rekindle.dev"), TEAM),
    *each(CHANGES, ("customresourcedefinitions.apiextensions.k8s.io",)),
    *each((*CHANGES, "bind", "escalate"), (f"clusterroles.{RIGHTS}", f"roles.{RIGHTS}"), NAMESPACE),
    *each(CHANGES, (f"clusterrolebindings.{RIGHTS}", f"rolebindings.{RIGHTS}"), NAMESPACE),
    *each(("create", "update", "delete"), (f"mutating{WEBHOOKS}", f"validating{WEBHOOKS}")),
    Asked("patch", f"mutating{WEBHOOKS}", name="another"),
    Asked("patch", f"validating{WEBHOOKS}", name="rekindle"),
    *each(("impersonate",), ("users", "groups", "serviceaccounts")),
]
UNLESS_GIVEN = [
    *each(("patch", "delete"), ("nodes",)),
    *each(("create", "delete"), ("nodeclaims.karpenter.sh",)),
    *each(("create",), ("provisioningrequests.autoscaling.x-k8s.io", "podtemplates"), TEAM),
    *each(("patch",), ("machinedeployments.cluster.x-k8s.io/scale",), "capi"),
    *each(("patch",), ("machines.cluster.x-k8s.io",), "capi"),
    *each(("list",), ("selfnoderemediations.self-node-remediation.medik8s.io",), TEAM),
]


@pytest.fixture(scope="module")
def administrator(installer: Helm, control_plane: ControlPlane) -> Iterator[client.ApiClient]:
    """Of a cluster in which the chart is installed with the rights that it has by default."""
    installer.do("install", RELEASE, CHART, *STORE)
    with control_plane.api_client() as api_client:
        yield api_client


def test_the_operator_has_the_rights_of_the_table_and_no_other(renderer: Helm) -> None:
    assert rights(renderer.objects()) == given(None) | given(SELF_MANAGED)


@pytest.mark.parametrize("setting", sorted({word for row in documented() for word in row.settings}))
def test_a_value_gives_the_rights_that_the_table_says(renderer: Helm, setting: str) -> None:
    without = ("--set", OTHERS_MANAGE)
    assert rights(renderer.objects(*without)) == given(None)
    found = rights(renderer.objects(*without, "--set", setting))
    assert found == given(None) | given(setting)


def test_a_kubeconfig_of_another_cluster_is_read_where_it_is_named(renderer: Helm) -> None:
    found = rights(renderer.objects("-f", EVERYTHING))
    assert {right for right in found if right.resource == "secrets"} == {
        Right("capi", "secrets", "management-cluster", "get")
    }


def test_no_role_has_a_wildcard(renderer: Helm) -> None:
    roles = [item for item in renderer.objects("-f", EVERYTHING) if item["kind"].endswith("Role")]
    assert len(roles) > 5
    for role in roles:
        assert "*" not in str(role["rules"]), role["metadata"]["name"]


def test_nobody_but_the_operator_is_bound_by_default(renderer: Helm) -> None:
    bindings = [item for item in renderer.objects() if item["kind"].endswith("Binding")]
    assert len(bindings) == 3
    for item in bindings:
        (subject,) = item["subjects"]
        assert (subject["name"], subject["namespace"]) == ("rekindle-operator", NAMESPACE)


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


def test_the_account_of_zookeeper_may_do_nothing(administrator: client.ApiClient) -> None:
    account = f"system:serviceaccount:{NAMESPACE}:rekindle-zookeeper"
    some = each(("get", "list"), ("pods", "configmaps", "secrets", "nodes"), NAMESPACE)
    assert not permitted(administrator, account, [*some, *NEVER])


def test_with_every_right_that_there_is_the_rest_is_still_refused(
    installer: Helm, administrator: client.ApiClient
) -> None:
    settings = {word for row in documented() for word in row.settings}
    options = [word for setting in sorted(settings) for word in ("--set", setting)]
    installer.do("upgrade", RELEASE, CHART, *STORE, *options, "--set", SELF_MANAGED)
    assert permitted(administrator, OPERATOR, UNLESS_GIVEN) == UNLESS_GIVEN
    assert not permitted(administrator, OPERATOR, NEVER)
