"""What a pod that is about to be made gets, and why it gets nothing."""

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
import spark_objects as objects
from injection_world import ASKS, DEFAULTS, SECURED, STORE, applied, driver, knowledge, new
from operator_world import FLIGHTS, RESOURCES, application, policy, told
from spark_objects import Body

from rekindle.protocol.store_paths import Place
from rekindle_operator.api.recovery_class import Executors
from rekindle_operator.cluster import application_matching
from rekindle_operator.cluster.pods import APPLICATION_LABEL
from rekindle_operator.detection.failure_domains import Domain
from rekindle_operator.webhook import avoided_domains, injector, pod_patch
from rekindle_operator.webhook.injection_spec import ExecutorTerms, InjectionRefusal, SidecarTerms
from rekindle_operator.webhook.injector import Defaults, Impairment, avoided
from rekindle_testing.operator_builders import make_class

ZONE_A = Domain("topology.kubernetes.io/zone", "a")
RACK_7 = Domain("example.com/rack", "7")
BY_LABEL: dict[str, Any] = {"drivers": {"labelSelector": {"matchLabels": {"team": "departures"}}}}
NAMED_BY_TEAM: dict[str, Any] = {"drivers": {"labelSelector": {}, "nameLabel": "team"}}


def place_of(pod: Body, *policies: Any, **more: Any) -> Place:
    found = injector.terms_of(pod, "flights", knowledge(*policies, **more))
    assert isinstance(found, SidecarTerms), found
    return found.place


def refused(pod: Body, *policies: Any, **more: Any) -> str:
    found = injector.terms_of(pod, "flights", knowledge(*policies, **more))
    assert isinstance(found, InjectionRefusal), found
    assert len(found.sentence) < 200
    return found.sentence


@pytest.mark.parametrize(
    ("pod", "selector"),
    [
        pytest.param(objects.kubeflow_driver(), RESOURCES, id="kubeflow"),
        pytest.param(objects.apache_driver(), RESOURCES, id="apache"),
        pytest.param(objects.submitted_driver(), {"drivers": {"labelSelector": {}}}, id="submit"),
        pytest.param(objects.client_driver(), {"drivers": {"labelSelector": {}}}, id="client"),
        pytest.param(
            objects.client_driver(labels={"team": "departures"}), NAMED_BY_TEAM, id="named by team"
        ),
    ],
)
def test_a_driver_gets_the_name_by_which_the_registry_will_know_it(
    pod: Body, selector: dict[str, Any]
) -> None:
    policies = (policy(**selector),)
    place = place_of(new(pod), *policies)
    with_sidecar = {**pod, "spec": {**pod["spec"], "initContainers": [objects.sidecar()]}}
    registry = told(with_sidecar, *policies)
    assert application(registry, place).driver is not None


def test_the_own_label_goes_before_the_name_given_at_submission() -> None:
    assert place_of(driver()) == FLIGHTS
    named = new(objects.submitted_driver(extra={APPLICATION_LABEL: "departures"}))
    assert place_of(named) == Place("flights", "departures")


def test_a_pod_whose_name_is_to_be_generated_gets_a_sidecar() -> None:
    pod = driver()
    pod["metadata"]["generateName"] = f"{pod['metadata'].pop('name')}-"
    assert place_of(pod) == FLIGHTS


@pytest.mark.parametrize("value", ["false", "True", "", "yes"])
def test_only_the_word_true_asks_for_a_sidecar(value: str) -> None:
    label = dict.fromkeys(ASKS, value)
    pod = new(objects.submitted_driver(), label)
    assert injector.terms_of(pod, "flights", knowledge()) is None


def test_other_pods_are_none_of_ours() -> None:
    for labels in ({}, {"spark-role": "driver"}):
        pod = new(objects.pod("web"), labels)
        assert injector.terms_of(pod, "flights", knowledge()) is None


def test_values_come_from_the_class_and_the_rest_from_the_operator() -> None:
    own = {
        "image": "own:2",
        "imagePullPolicy": "Always",
        "sessionSeconds": 6,
        "store": {
            "addresses": list(STORE.addresses),
            "secretRef": {"name": "zk", "key": "password"},
        },
    }
    found = injector.terms_of(driver(), "flights", knowledge(class_=make_class(sidecar=own)))
    assert isinstance(found, SidecarTerms)
    assert (found.image, found.image_pull_policy, found.session_seconds) == ("own:2", "Always", 6)
    assert found.store == SECURED
    plain = injector.terms_of(driver(), "flights", knowledge())
    assert isinstance(plain, SidecarTerms)
    assert (plain.image, plain.store) == (DEFAULTS.image, STORE)


@pytest.mark.parametrize(
    ("pod", "more", "sentence"),
    [
        pytest.param(
            new(objects.client_driver(labels={"spark-role": "driver"})),
            {},
            "nothing names the driver's application; give it rekindle.dev/application",
            id="no name",
        ),
        pytest.param(
            new(objects.submitted_driver("x" * 201)),
            {},
            "is no name; use letters",
            id="no name for the store",
        ),
        pytest.param(
            driver(),
            {"class_": make_class("default", allowedNamespaces=["weather"])},
            "RecoveryClass default is not for namespace flights",
            id="a class for others",
        ),
        pytest.param(
            driver(),
            {"class_": make_class("gold")},
            "policy flights/all has no RecoveryClass default; make it, or name another",
            id="no class",
        ),
        pytest.param(
            driver(),
            {"defaults": Defaults(store=STORE)},
            "no image of the sidecar is known; name one in the RecoveryClass",
            id="no image",
        ),
        pytest.param(
            driver(),
            {"defaults": Defaults(image="rekindle/sidecar:1")},
            "no coordination store is known; name one in the RecoveryClass",
            id="no store",
        ),
        pytest.param(
            driver(),
            {"class_": make_class(sidecar={"resources": {"requests": {"memory": "256Mi"}}})},
            "in RecoveryClass default the sidecar's limits.memory 192Mi is below its "
            "requests.memory 256Mi; raise the one, or lower the other",
            id="requests above limits",
        ),
        pytest.param(
            driver(),
            {"class_": make_class(sidecar={"resources": {"limits": {"cpu": "10m"}}})},
            "limits.cpu 10m is below its requests.cpu 20m",
            id="a limit below the default request",
        ),
        pytest.param(
            driver(),
            {"class_": make_class(sidecar={"resources": {"requests": {"cpu": -1}}})},
            "cpu of the sidecar is below 0",
            id="less than nothing",
        ),
        pytest.param(
            driver(),
            {"class_": make_class(sidecar={"resources": {"limits": {"memory": "lots"}}})},
            "'lots': is not a quantity of Kubernetes",
            id="no quantity",
        ),
    ],
)
def test_a_driver_without_what_it_needs_comes_up_as_it_is_and_is_told(
    pod: Body, more: dict[str, Any], sentence: str
) -> None:
    assert sentence in refused(pod, **more)


def test_a_driver_that_no_policy_selects_is_told() -> None:
    sentence = "no RecoveryPolicy selects flights; make one in its namespace"
    assert refused(driver(), policy(**BY_LABEL)) == sentence
    assert injector.terms_of(driver(), "elsewhere", knowledge()) == InjectionRefusal(sentence)


def test_a_policy_selects_a_resource_by_its_labels_or_while_it_is_unseen_by_its_drivers() -> None:
    by_label = policy(sparkApplications={"labelSelector": {"matchLabels": {"team": "departures"}}})
    pod = new(objects.kubeflow_driver())
    pod["metadata"]["labels"]["team"] = "departures"
    assert place_of(pod, by_label) == FLIGHTS
    unlabelled = (objects.kubeflow_application(),)
    assert "no RecoveryPolicy" in refused(pod, by_label, resources=unlabelled)
    other_group = (objects.apache_application(),)
    assert place_of(pod, by_label, resources=other_group) == FLIGHTS


KUBEFLOW_TOLD = (objects.kubeflow_driver(**objects.protected()), objects.kubeflow_application())
SUBMITTED_TOLD = (objects.submitted_driver(**objects.protected()),)
CLIENT_TOLD = (objects.client_driver(**objects.protected()),)
APACHE_TOLD = (objects.apache_driver(**objects.protected()), objects.apache_application())


@pytest.mark.parametrize(
    ("there", "executor"),
    [
        pytest.param(KUBEFLOW_TOLD, objects.kubeflow_executor(1), id="kubeflow"),
        pytest.param(KUBEFLOW_TOLD, objects.kubeflow_executor(1, start="b"), id="a new start"),
        pytest.param(APACHE_TOLD, objects.apache_executor(1), id="apache"),
        pytest.param(SUBMITTED_TOLD, objects.submitted_executor(1), id="spark-submit"),
        pytest.param(SUBMITTED_TOLD, objects.set_executor(1), id="of a StatefulSet"),
        pytest.param(CLIENT_TOLD, objects.client_executor(1), id="client mode"),
    ],
)
def test_executors_avoid_the_domains_that_are_impaired_for_their_application(
    there: tuple[Body, ...], executor: Body
) -> None:
    its = application(told(*there, policy()))
    known = knowledge(impairments=(Impairment(its, (ZONE_A,)),))
    pod = new(executor, {})
    assert injector.terms_of(pod, "flights", known) == ExecutorTerms((ZONE_A,))


def test_executors_of_other_applications_are_told_their_node_and_avoid_nothing() -> None:
    its = application(told(*KUBEFLOW_TOLD, policy()))
    known = knowledge(impairments=(Impairment(its, (ZONE_A,)),))
    other = new(objects.kubeflow_executor(1, "weather", driver_uid="driver-w"), {})
    assert injector.terms_of(other, "flights", known) == ExecutorTerms()


def test_executors_of_spark_applications_that_nobody_put_under_rekindle_are_left_alone() -> None:
    executor = objects.submitted_executor(1)
    assert injector.terms_of(new(executor, {}), "flights", knowledge()) == ExecutorTerms()
    del executor["metadata"]["labels"]["rekindle.dev/executor"]
    for more in ({}, {"rekindle.dev/inject": "true"}):
        assert injector.terms_of(new(executor, more), "flights", knowledge()) is None


def test_an_executor_that_has_its_applications_label_for_drivers_gets_no_sidecar() -> None:
    """kubeflow's operator gives the labels of a SparkApplication to executors too."""
    found = injector.terms_of(new(objects.kubeflow_executor(1)), "flights", knowledge())
    assert found == ExecutorTerms()


def test_a_class_may_say_that_executors_avoid_nothing() -> None:
    its = application(told(*KUBEFLOW_TOLD, policy()))
    allowed = Executors(avoid_impaired_domains=False)
    assert avoided([Impairment(its, (ZONE_A,), allowed), Impairment(its, ())]) == {}


def test_domains_of_two_incidents_are_all_avoided() -> None:
    its = application(told(*KUBEFLOW_TOLD, policy()))
    found = avoided([Impairment(its, (ZONE_A,)), Impairment(its, (RACK_7, ZONE_A))])
    assert set(found.values()) == {(RACK_7, ZONE_A)}


PODS = [
    pytest.param(KUBEFLOW_TOLD, objects.kubeflow_executor(1), id="kubeflow executor"),
    pytest.param(KUBEFLOW_TOLD, objects.kubeflow_driver(), id="kubeflow driver"),
    pytest.param(APACHE_TOLD, objects.apache_executor(1), id="apache executor"),
    pytest.param(APACHE_TOLD, objects.apache_driver(), id="apache driver"),
    pytest.param(SUBMITTED_TOLD, objects.submitted_executor(1), id="spark-submit executor"),
    pytest.param(SUBMITTED_TOLD, objects.submitted_driver(), id="spark-submit driver"),
]


@pytest.mark.parametrize(("there", "pod"), PODS)
def test_new_pods_of_an_application_in_an_incident_wait_for_their_turn(
    there: tuple[Body, ...], pod: Body
) -> None:
    made = new(pod, {})
    quiet = knowledge()
    buckets = application_matching.pod_buckets(application(told(*there, policy())))
    known = replace(quiet, waiting=buckets)
    assert injector.waits(made, "flights", known)
    assert not injector.waits(made, "flights", quiet)
    assert not injector.waits(made, "elsewhere", known)
    placed = {**made, "spec": {**made["spec"], "nodeName": "a"}}
    assert not injector.waits(placed, "flights", known), "the API server would refuse it"


def test_pods_of_two_thousand_applications_wait_for_their_turn() -> None:
    names = [f"departures-of-an-airport-by-hour-{number:04}" for number in range(2_000)]
    buckets: set[str] = set()
    for number, name in enumerate(names):
        there = objects.kubeflow_driver(name, uid=f"00000000-0000-4000-8000-{number:012}")
        found = application(told(there, policy()), Place("flights", name))
        buckets |= application_matching.pod_buckets(found)
    at = datetime(2026, 11, 21, 17, tzinfo=UTC)
    written = avoided_domains.to_config_map({}, "rekindle", at, buckets)
    known = replace(knowledge(), waiting=avoided_domains.waiting_buckets(written))
    for make in (objects.kubeflow_driver, partial(objects.kubeflow_executor, 1)):
        pod = new(make(), {})
        for name in names:
            pod["metadata"]["labels"]["sparkoperator.k8s.io/app-name"] = name
            assert injector.waits(pod, "flights", known)


def test_the_gate_is_added_once_beside_those_of_others() -> None:
    pod = new(objects.kubeflow_executor(1), {})
    pod["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    gated = applied(pod, pod_patch.gate(pod))
    names = [item["name"] for item in gated["spec"]["schedulingGates"]]
    assert names == ["kueue.x-k8s.io/admission", "rekindle.dev/turn"]
    assert gated["metadata"]["labels"]["rekindle.dev/turn"] == "awaited"
    assert gated["metadata"]["labels"].items() > pod["metadata"]["labels"].items()
    assert pod_patch.gate(gated) == ()


def test_pods_that_are_none_of_sparks_do_not_wait() -> None:
    known = replace(knowledge(), waiting=frozenset({""}))
    assert not injector.waits({"metadata": {}, "spec": {}}, "flights", known)
    bad = new(objects.kubeflow_executor(1), {})
    bad["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "many"}}
    assert not injector.waits(bad, "flights", known)
