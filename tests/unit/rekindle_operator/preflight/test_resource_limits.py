"""Preflight: quotas that want amounts named, LimitRanges, and text without quotes."""

from typing import Any

import preflight_world as world
import pytest
from spark_objects import Body

from rekindle_operator.preflight import preflight_checks
from rekindle_operator.preflight.preflight_findings import Concern, PreflightSeverity
from rekindle_operator.preflight.subjects.environment import quota
from rekindle_operator.preflight.subjects.workloads import Workload
from rekindle_testing.operator_builders import make_class

MAKERS = [world.kubeflow_workload, world.apache_workload]
BOUNDED = make_class(
    sidecar={
        "resources": {
            "requests": {"cpu": "100m", "memory": "128Mi"},
            "limits": {"cpu": "200m", "memory": "128Mi"},
        }
    }
)


def limit_cores(body: Body) -> None:
    for role in ("driver", "executor"):
        body["spec"]["sparkConf"][f"spark.kubernetes.{role}.limit.cores"] = "2"


def counting(*resources: str, amount: str = "1000") -> Any:
    hard = dict.fromkeys(resources, amount)
    return quota({"metadata": {"name": "team"}, "spec": {"hard": hard}})


def ranging(**item: Any) -> Body:
    item.setdefault("type", "Container")
    return {"metadata": {"name": "range"}, "spec": {"limits": [item]}}


def said(subject: Workload, word: Concern, **around: Any) -> str:
    found = world.found(subject, world.around(**around)).get(word)
    assert found is None or found.severity is PreflightSeverity.ERROR
    return "" if found is None else found.sentence


@pytest.mark.parametrize("make", MAKERS)
def test_a_quota_on_limits_wants_one_of_each_container(make: Any) -> None:
    quotas = (counting("limits.cpu", "limits.memory", "requests.cpu"),)
    sentence = said(make(), Concern.LIMITS_REQUIRED, quotas=quotas)
    assert "counts limits.cpu" in sentence
    assert "spark-kubernetes-driver of the driver, rekindle-sidecar of the driver, " in sentence
    assert "spark-kubernetes-executor of the executor" in sentence
    only_sidecar = said(make(limit_cores), Concern.LIMITS_REQUIRED, quotas=quotas)
    assert "limit of cpu: rekindle-sidecar of the driver." in only_sidecar
    classes = {"default": BOUNDED}
    assert not said(make(limit_cores), Concern.LIMITS_REQUIRED, quotas=quotas, classes=classes)


def test_a_range_with_a_default_names_what_nobody_else_does() -> None:
    subject, quotas = world.kubeflow_workload(), (counting("limits.cpu"),)
    for given in ({"default": {"cpu": "2"}}, {"max": {"cpu": "8"}}):
        limit_ranges = (ranging(**given),)
        around = {"quotas": quotas, "limit_ranges": limit_ranges}
        assert not said(subject, Concern.LIMITS_REQUIRED, **around)
        assert not said(subject, Concern.LIMIT_RANGE, **around)


def test_limits_of_cpu_are_added_up() -> None:
    subject = world.kubeflow_workload(limit_cores)
    classes = {"default": BOUNDED}
    enough, little = (counting("limits.cpu", amount=amount) for amount in ("10", "9"))
    assert not said(subject, Concern.QUOTA_EXCEEDED, quotas=(enough,), classes=classes)
    sentence = said(subject, Concern.QUOTA_EXCEEDED, quotas=(little,), classes=classes)
    assert "limits.cpu" in sentence


def test_other_resources_of_a_quota_are_a_note() -> None:
    around = world.around(quotas=(counting("limits.ephemeral-storage"),))
    found = world.found(world.kubeflow_workload(), around)[Concern.NOT_CHECKED]
    assert found.severity is PreflightSeverity.NOTE
    assert "limits.ephemeral-storage" in found.sentence


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("item", "sentence"),
    [
        ({"min": {"cpu": "100m"}}, "rekindle-sidecar of the driver: it requests 20m of cpu"),
        ({"min": {"memory": "128Mi"}}, "it requests 64Mi of memory, and at least 128Mi"),
        ({"max": {"memory": "1Gi"}}, "its limit of memory is"),
        ({"max": {"cpu": "500m"}}, "it requests more than 500m of cpu"),
        ({"maxLimitRequestRatio": {"memory": "1.5"}}, "rekindle-sidecar of the driver: its limit"),
        ({"type": "Pod", "max": {"memory": "1Gi"}}, "making the driver's pod: its limit"),
        ({"type": "Pod", "min": {"cpu": "1100m"}}, "it requests 1 of cpu"),
    ],
)
def test_what_a_range_refuses_is_found(make: Any, item: Body, sentence: str) -> None:
    limit_ranges = (ranging(**item),)
    findings = preflight_checks.application(make(), world.around(limit_ranges=limit_ranges))
    found = [item for item in findings if item.word == Concern.LIMIT_RANGE]
    assert any(sentence in item.sentence for item in found), found


@pytest.mark.parametrize(
    "item",
    [
        {"min": {"cpu": "20m", "memory": "64Mi"}, "max": {"memory": "1Ei"}},
        {"type": "PersistentVolumeClaim", "min": {"storage": "1Ei"}},
        {"type": "Pod", "min": {"cpu": "1"}},
        {"maxLimitRequestRatio": {"memory": "3"}},
    ],
)
def test_what_a_range_allows_is_no_finding(item: Body) -> None:
    subject = world.kubeflow_workload()
    assert not said(subject, Concern.LIMIT_RANGE, limit_ranges=(ranging(**item),))


def test_containers_of_templates_and_manifests_count() -> None:
    def spoil(body: Body) -> None:
        small = {"name": "shipper", "resources": {"requests": {"cpu": "1m"}}}
        body["spec"]["executor"]["sidecars"] = [small]
        main = {"name": "main", "resources": {"limits": {"cpu": "3"}}}
        spec = {"containers": [main, {**small, "name": "metrics"}]}
        body["spec"]["driver"]["template"] = {"spec": spec}

    subject = world.kubeflow_workload(spoil)
    names = {role: [item.name for item in found] for role, found in subject.pods.items()}
    assert names == {
        "driver": ["main", "metrics"],
        "executor": ["spark-kubernetes-executor", "shipper"],
    }
    sentence = said(subject, Concern.LIMITS_REQUIRED, quotas=(counting("limits.cpu"),))
    assert "main" not in sentence
    assert "metrics of the driver" in sentence


def test_pods_that_are_there_have_passed() -> None:
    around = {"quotas": (counting("limits.cpu"),), "limit_ranges": (ranging(min={"cpu": "9"}),)}
    subject = world.plain_workload()
    assert not said(subject, Concern.LIMITS_REQUIRED, **around)
    assert not said(subject, Concern.LIMIT_RANGE, **around)


def test_ranges_that_cannot_be_read_are_a_note() -> None:
    found = world.found(world.kubeflow_workload(), world.around(limit_ranges=None))
    assert found[Concern.NOT_CHECKED].severity is PreflightSeverity.NOTE


@pytest.mark.parametrize(
    ("spoil", "field"),
    [
        (lambda body: body["metadata"].update(labels={"version": 1.1}), "metadata.labels[version]"),
        (
            lambda body: body["spec"]["sparkConf"].update({"spark.ui.enabled": False}),
            "spec.sparkConf[spark.ui.enabled], which is False",
        ),
        (
            lambda body: body["spec"]["driver"]["labels"].update({"rekindle.dev/inject": True}),
            "spec.driver.labels[rekindle.dev/inject], which is True",
        ),
        (
            lambda body: body["spec"]["executor"].update(
                template={"spec": {"nodeSelector": {"pool": 7}}}
            ),
            "spec.executor.template.spec.nodeSelector[pool], which is 7",
        ),
    ],
)
def test_text_without_quotes_is_found(spoil: Any, field: str) -> None:
    assert field in said(world.kubeflow_workload(spoil), Concern.TEXT_UNQUOTED)
    assert not said(world.kubeflow_workload(), Concern.TEXT_UNQUOTED)
