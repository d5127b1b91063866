"""Rights as the chart renders them: those of docs/install.md and no others."""

import pytest
from chart_commands import EVERYTHING, NAMESPACE, Helm
from chart_rights import RELEASE, WEBHOOK, Right, documented, given, rights

# Who makes the certificates of the webhook and of ZooKeeper; the first are the defaults.
SELF_MANAGED = ("webhook.certificates.certManager=false", "zookeeper.tls.certManager=false")
OTHERS_MANAGE = "webhook.certificates.certManager=true,zookeeper.tls.certManager=true"


def test_the_operator_has_the_rights_of_the_table_and_no_other(renderer: Helm) -> None:
    assert rights(renderer.objects()) == given(None).union(*map(given, SELF_MANAGED))


@pytest.mark.parametrize("setting", sorted({word for row in documented() for word in row.settings}))
def test_a_value_gives_the_rights_that_the_table_says(renderer: Helm, setting: str) -> None:
    without = ("--set", OTHERS_MANAGE)
    assert rights(renderer.objects(*without)) == given(None)
    found = rights(renderer.objects(*without, "--set", setting))
    assert found == given(None) | given(setting)


def test_the_webhook_has_the_rights_of_its_table_writes_nothing_and_reads_no_pods(
    renderer: Helm,
) -> None:
    found = rights(renderer.objects(), WEBHOOK)
    assert found == given(None, WEBHOOK) | given(SELF_MANAGED[0], WEBHOOK)
    assert {right.verb for right in found} == {"get", "list", "watch"}
    assert "pods" not in {right.resource for right in found}
    others = rights(renderer.objects("--set", OTHERS_MANAGE), WEBHOOK)
    assert others == given(None, WEBHOOK)


def test_the_job_before_an_uninstall_has_the_rights_of_its_table_and_no_other(
    renderer: Helm,
) -> None:
    found = rights(renderer.objects("--set", "wholeApplications=true"), RELEASE)
    assert found == given("wholeApplications=true", RELEASE)
    assert not rights(renderer.objects(), RELEASE)


def test_a_kubeconfig_of_another_cluster_is_read_where_it_is_named(renderer: Helm) -> None:
    found = rights(renderer.objects("-f", EVERYTHING))
    assert {right for right in found if right.resource == "secrets"} == {
        Right("capi", "secrets", "management-cluster", "get"),
        Right("cluster", "secrets", "rekindle-credential", "create"),
        Right("cluster", "secrets", "rekindle-credential", "patch"),
    }


def test_no_role_has_a_wildcard(renderer: Helm) -> None:
    roles = [item for item in renderer.objects("-f", EVERYTHING) if item["kind"].endswith("Role")]
    assert len(roles) > 5
    for role in roles:
        assert "*" not in str(role["rules"]), role["metadata"]["name"]


def test_nobody_but_operator_and_webhook_is_bound_by_default(renderer: Helm) -> None:
    kinds = ("RoleBinding", "ClusterRoleBinding")
    bindings = [item for item in renderer.objects() if item["kind"] in kinds]
    assert len(bindings) == 5
    for item in bindings:
        (subject,) = item["subjects"]
        assert (subject["name"], subject["namespace"]) == (item["metadata"]["name"], NAMESPACE)
