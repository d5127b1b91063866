"""Pods on a real API server with our webhook: what they get, and that nothing holds them up."""

import contextlib
import time
from dataclasses import replace
from typing import Any

import pytest
from injection_webhook import (
    ASKS,
    HOST,
    Body,
    Webhook,
    driver,
    environment,
    executor,
    is_injected,
    issued,
    make_pod,
    registered,
    silent,
    try_pod,
)
from kubernetes import client

from rekindle.protocol.store_paths import Place
from rekindle_local import process_sets
from rekindle_operator.api.custom_resources import ResourceReason
from rekindle_operator.cluster.application_matching import MatchedApplication
from rekindle_operator.cluster.cluster_cache import ClusterCache
from rekindle_operator.cluster.pods import PodSeen, pod_seen
from rekindle_operator.detection.failure_domains import Domain
from rekindle_operator.policies import policy_conditions, policy_status_writer
from rekindle_operator.webhook.injector import Impairment, avoided
from rekindle_testing.operator_builders import make_class
from testbed.simulated_kubelets import SimulatedKubelets

ZONE = "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NOT_IN_A = {"key": ZONE, "operator": "NotIn", "values": ["a"]}
LIMITS = {"cpu": "2", "memory": "2Gi"}
KUBEFLOW = {
    "sparkoperator.k8s.io/app-name": "flights",
    "sparkoperator.k8s.io/launched-by-spark-operator": "true",
    "sparkoperator.k8s.io/submission-id": "c1f2",
}
APACHE = {
    "spark.operator/name": "spark-kubernetes-operator",
    "spark.operator/spark-app-name": "flights",
}
WAIT_SECONDS_MAX = 180.0


def client_mode(name: str) -> Body:
    """A driver in client mode: a pod of somebody's own, to which Spark adds nothing."""
    pod = driver(name)
    pod["metadata"] = {
        "generateName": f"{name}-6d4cf56db6-",
        "labels": {"app": name, "rekindle.dev/application": name, **ASKS},
    }
    pod["spec"]["containers"][0]["name"] = "main"
    pod["spec"]["restartPolicy"] = "Always"
    return pod


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(driver("a-b-c", KUBEFLOW), id="kubeflow's operator"),
        pytest.param(driver("a-b-c", APACHE), id="apache's operator"),
        pytest.param(driver("flights"), id="spark-submit"),
        pytest.param(client_mode("flights"), id="client mode"),
    ],
)
def test_a_driver_of_any_kind_gets_a_sidecar_and_is_let_in(
    pod: Body, webhook: Webhook, core: Any, restricted: str
) -> None:
    found = make_pod(core, restricted, pod)
    assert is_injected(found)
    assert found["spec"]["initContainers"][0]["restartPolicy"] == "Always"
    told = environment(found)
    assert (told["REKINDLE_NAMESPACE"], told["REKINDLE_APPLICATION"]) == (restricted, "flights")
    application = known_application(webhook, found, Place(restricted, "flights"))
    assert application.driver is not None
    assert application.driver.sidecar == "starting"


def known_application(webhook: Webhook, found: Body, place: Place) -> MatchedApplication:
    """What the operator makes of a driver's pod."""
    registry = ClusterCache()
    for policy in webhook.outlook.knowledge.policies[place.namespace].values():
        registry.see_policy(policy)
    seen = pod_seen(found)
    assert isinstance(seen, PodSeen)
    registry.see_pod(seen)
    application = registry.application(place)
    assert application is not None
    return application


def test_a_pod_without_the_label_is_not_even_asked_about(
    webhook: Webhook, core: Any, restricted: str
) -> None:
    before = webhook.asked()
    found = make_pod(core, restricted, driver("flights", asks=False))
    assert "initContainers" not in found["spec"]
    assert environment(found) == {}
    with_sidecar = driver("other", initContainers=[{"name": "rekindle-sidecar", "image": "own"}])
    with_sidecar["spec"]["initContainers"][0]["securityContext"] = with_sidecar["spec"][
        "containers"
    ][0]["securityContext"]
    own = make_pod(core, restricted, with_sidecar)
    assert own["spec"]["initContainers"][0]["image"] == "own"
    assert webhook.asked() == before


def test_who_makes_a_driver_that_no_policy_selects_is_warned(
    webhook: Webhook, core: Any, restricted: str
) -> None:
    webhook.outlook.knowledge = replace(webhook.outlook.knowledge, policies={})
    _, status, headers = core.create_namespaced_pod_with_http_info(restricted, driver("flights"))
    assert status == 201
    sentence = "rekindle: no RecoveryPolicy selects flights; make one in its namespace"
    assert sentence in headers["Warning"]


def test_where_a_quota_counts_limits_a_default_of_the_namespace_or_the_class_is_needed(
    webhook: Webhook, core: Any, restricted: str
) -> None:
    hard = {"limits.cpu": "10", "limits.memory": "20Gi"}
    quota = {"metadata": {"name": "quota"}, "spec": {"hard": hard}}
    core.create_namespaced_resource_quota(restricted, quota)
    pod = driver("flights")
    pod["spec"]["containers"][0]["resources"]["limits"] = LIMITS

    def is_refused() -> bool:
        with contextlib.suppress(client.ApiException):
            try_pod(core, restricted, pod)
            return False
        return True

    assert process_sets.await_condition(is_refused, limit_seconds=WAIT_SECONDS_MAX)
    own = {"resources": {"limits": {"cpu": "100m"}}}
    before = webhook.outlook.knowledge
    with_limit = {"default": make_class(sidecar=own)}
    webhook.outlook.knowledge = replace(before, classes=with_limit)
    assert is_injected(try_pod(core, restricted, pod))
    webhook.outlook.knowledge = before
    limits = [{"type": "Container", "default": {"cpu": "200m"}}]
    default = {"metadata": {"name": "default"}, "spec": {"limits": limits}}
    core.create_namespaced_limit_range(restricted, default)
    assert process_sets.await_condition(lambda: not is_refused(), limit_seconds=WAIT_SECONDS_MAX)
    found = try_pod(core, restricted, pod)
    assert found["spec"]["initContainers"][0]["resources"]["limits"]["cpu"] == "200m"


def test_executors_are_told_their_node_and_get_no_sidecar(
    webhook: Webhook, core: Any, restricted: str
) -> None:
    before = webhook.asked()
    # kubeflow's operator gives the labels of a SparkApplication to its executors too
    found = make_pod(core, restricted, executor("flights", 1, KUBEFLOW, ASKS))
    assert environment(found)["REKINDLE_NODE"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    assert "initContainers" not in found["spec"]
    assert "affinity" not in found["spec"]
    # a second time at most, when others have changed the pod
    assert webhook.asked() - before in (1, 2)


def of_driver(found: Body) -> Body:
    metadata = found["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
    return {"ownerReferences": [{**owner, "controller": True}]}


def begin_incident(webhook: Webhook, found: Body) -> None:
    """Zone a is impaired for the application of a driver."""
    application = known_application(
        webhook, found, Place(found["metadata"]["namespace"], "flights")
    )
    impairment = Impairment(application, (Domain(ZONE, "a"),))
    webhook.outlook.knowledge = replace(webhook.outlook.knowledge, avoided=avoided([impairment]))


def test_executors_made_during_an_incident_run_outside_the_impaired_domain(
    webhook: Webhook, core: Any, restricted: str, nodes: SimulatedKubelets
) -> None:
    nodes.add(2, zone="a")
    nodes.add(1, zone="b")
    owned = of_driver(make_pod(core, restricted, driver("flights", nodeSelector={"no": "where"})))
    found = core.list_namespaced_pod(restricted).items[0]
    begin_incident(webhook, core.api_client.sanitize_for_serialization(found))
    wanted = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a", "b"]}]}
    own = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [wanted, wanted]}}}
    for number, spec in enumerate(({}, {"affinity": own}, {})):
        pod = executor("flights", number, **spec)
        pod["metadata"] |= owned
        made = make_pod(core, restricted, pod)
        terms = made["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
        assert all(NOT_IN_A in term["matchExpressions"] for term in terms)
    selector = "spark-role=executor"

    def places() -> list[str | None]:
        return [
            pod.spec.node_name
            for pod in core.list_namespaced_pod(restricted, label_selector=selector).items
        ]

    there = process_sets.await_condition(lambda: all(places()), limit_seconds=WAIT_SECONDS_MAX)
    assert there
    zone_b = [node.metadata.name for node in core.list_node(label_selector=f"{ZONE}=b").items]
    assert set(places()) == set(zone_b)


def test_executors_of_other_applications_may_run_where_they_like(
    webhook: Webhook, core: Any, restricted: str
) -> None:
    begin_incident(webhook, make_pod(core, restricted, driver("flights", KUBEFLOW)))
    other = KUBEFLOW | {"sparkoperator.k8s.io/app-name": "weather"}
    found = make_pod(core, restricted, executor("weather", 1, other))
    assert "affinity" not in found["spec"]
    assert "affinity" in make_pod(core, restricted, executor("flights", 1, KUBEFLOW))["spec"]


def test_when_the_webhook_is_away_pods_are_made_all_the_same_and_the_policy_says_so(
    webhook: Webhook, core: Any, restricted: str, nodes: SimulatedKubelets
) -> None:
    nodes.add(1)
    webhook.server.close()
    began_at = time.monotonic()
    found = make_pod(core, restricted, driver("flights"))
    made = make_pod(core, restricted, executor("flights", 1))
    assert time.monotonic() - began_at < 10
    assert not is_injected(found)
    assert environment(made) == {}
    name = found["metadata"]["name"]

    def running() -> Body:
        pod = core.read_namespaced_pod(name, restricted)
        return dict(core.api_client.sanitize_for_serialization(pod))

    there = process_sets.await_condition(
        lambda: running()["status"]["phase"] == "Running", limit_seconds=WAIT_SECONDS_MAX
    )
    assert there
    application = known_application(webhook, running(), Place(restricted, "flights"))
    assert application.policy == f"{restricted}/all"
    finding = policy_conditions.protected([policy_status_writer.of_application(application)])
    assert (finding.type, finding.holds) == ("Protected", False)
    assert finding.reason is ResourceReason.SIDECAR_MISSING


def test_a_webhook_that_hangs_holds_up_a_pod_for_its_timeout(
    api_client: client.ApiClient, core: Any, restricted: str
) -> None:
    with silent() as port:
        url = {"url": f"https://{HOST}:{port}/inject"}
        with registered(api_client, restricted, url, issued().authority):
            took: list[float] = []

            def is_slow() -> bool:
                took.append(seconds_of(core, restricted, executor("flights", 1)))
                return took[-1] > 1.5

            assert process_sets.await_condition(is_slow, limit_seconds=WAIT_SECONDS_MAX)
            assert took[-1] < 8
            assert 4 < seconds_of(core, restricted, driver("flights")) < 15


def seconds_of(core: Any, namespace: str, pod: Body) -> float:
    began_at = time.monotonic()
    try_pod(core, namespace, pod)
    return time.monotonic() - began_at
