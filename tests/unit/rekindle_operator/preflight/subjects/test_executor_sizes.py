"""Preflight: claims, quotas, and what Spark's settings ask for."""

from typing import Any

import preflight_world as world
import pytest
import spark_objects as objects
from hypothesis import given
from hypothesis import strategies as st
from spark_objects import Body

from rekindle.model.errors import InputError
from rekindle_operator.preflight.preflight_findings import Concern, PreflightSeverity
from rekindle_operator.preflight.subjects import executor_sizes, spark_pods
from rekindle_operator.preflight.subjects.environment import quota
from rekindle_operator.preflight.subjects.executor_sizes import QuotaDemand

EXECUTOR_VOLUME = "spark.kubernetes.executor.volumes.persistentVolumeClaim.data.options.claimName"
DRIVER_VOLUME = "spark.kubernetes.driver.volumes.persistentVolumeClaim.data.options.claimName"
ONCE, MANY = ("ReadWriteOnce",), ("ReadWriteMany", "ReadWriteOnce")
CLAIM_WORDS = {
    Concern.CLAIM_READ_WRITE_ONCE,
    Concern.CLAIM_MISSING,
    Concern.CLAIM_PER_EXECUTOR,
    Concern.NOT_CHECKED,
}


def claims_found(subject: Any, modes: Any) -> list[tuple[Concern, PreflightSeverity]]:
    found = world.found(subject, world.around(claims=modes))
    return [(item.word, item.severity) for item in found.values() if item.word in CLAIM_WORDS]


@pytest.mark.parametrize("make", [world.kubeflow_workload, world.apache_workload])
@pytest.mark.parametrize(
    ("settings", "modes", "expected"),
    [
        ({EXECUTOR_VOLUME: "data"}, {"data": MANY}, []),
        (
            {EXECUTOR_VOLUME: "data"},
            {"data": ONCE},
            [(Concern.CLAIM_READ_WRITE_ONCE, PreflightSeverity.ERROR)],
        ),
        (
            {EXECUTOR_VOLUME: "data"},
            {"data": ("ReadWriteOncePod",)},
            [(Concern.CLAIM_READ_WRITE_ONCE, PreflightSeverity.ERROR)],
        ),
        (
            {DRIVER_VOLUME: "data"},
            {"data": ONCE},
            [(Concern.CLAIM_READ_WRITE_ONCE, PreflightSeverity.WARNING)],
        ),
        ({DRIVER_VOLUME: "data"}, {}, [(Concern.CLAIM_MISSING, PreflightSeverity.ERROR)]),
        ({DRIVER_VOLUME: "data"}, None, [(Concern.NOT_CHECKED, PreflightSeverity.NOTE)]),
        (
            {EXECUTOR_VOLUME: "OnDemand"},
            {},
            [(Concern.CLAIM_PER_EXECUTOR, PreflightSeverity.WARNING)],
        ),
        (
            {
                EXECUTOR_VOLUME: "OnDemand",
                "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
            },
            {},
            [],
        ),
        ({DRIVER_VOLUME: "OnDemand"}, {}, []),
    ],
)
def test_a_claim_that_one_node_has_is_found_by_its_access_mode(
    make: Any, settings: dict[str, str], modes: Any, expected: Any
) -> None:
    subject = make(lambda body: body["spec"]["sparkConf"].update(settings))
    assert claims_found(subject, modes) == expected


def claimed(name: str, claim: str) -> list[Body]:
    return [{"name": name, "persistentVolumeClaim": {"claimName": claim}}]


def test_kubeflows_volumes_count_for_the_role_that_mounts_them() -> None:
    def spoil(body: Body) -> None:
        body["spec"]["volumes"] = claimed("data", "shared")
        body["spec"]["driver"]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]

    subject = world.kubeflow_workload(spoil)
    assert [(claim.role, claim.name) for claim in subject.claims] == [("driver", "shared")]
    assert claims_found(subject, {"shared": ONCE}) == [
        (Concern.CLAIM_READ_WRITE_ONCE, PreflightSeverity.WARNING)
    ]


def test_claims_of_pod_templates_count() -> None:
    def spoil(body: Body) -> None:
        template = body["spec"]["executorSpec"]["podTemplateSpec"]
        template["spec"]["volumes"] = claimed("data", "shared")

    assert claims_found(world.apache_workload(spoil), {"shared": ONCE}) == [
        (Concern.CLAIM_READ_WRITE_ONCE, PreflightSeverity.ERROR)
    ]


def test_claims_of_plain_executors_are_shared_or_each_ones_own() -> None:
    shared = world.plain_executors(
        spoil=lambda body: body["spec"].update(volumes=claimed("data", "shared"))
    )
    assert claims_found(world.plain_workload(executors=shared), {"shared": ONCE}) == [
        (Concern.CLAIM_READ_WRITE_ONCE, PreflightSeverity.ERROR)
    ]
    own = world.plain_executors(
        spoil=lambda body: body["spec"].update(
            volumes=claimed("data", f"{body['metadata']['name']}-pvc-0")
        )
    )
    assert claims_found(world.plain_workload(executors=own), {}) == [
        (Concern.CLAIM_PER_EXECUTOR, PreflightSeverity.WARNING)
    ]


# Four executors and a driver of one CPU each.
@pytest.mark.parametrize(
    ("cpu_millis", "used", "expected"),
    [
        (4_999, 0, (Concern.QUOTA_EXCEEDED, PreflightSeverity.ERROR)),
        (5_999, 0, (Concern.QUOTA_WITHOUT_HEADROOM, PreflightSeverity.WARNING)),
        (6_000, 0, (Concern.QUOTA_WITHOUT_HEADROOM, PreflightSeverity.NOTE)),
        (8_999, 0, (Concern.QUOTA_WITHOUT_HEADROOM, PreflightSeverity.NOTE)),
        (9_000, 0, None),
        (9_000, 1, (Concern.QUOTA_WITHOUT_HEADROOM, PreflightSeverity.NOTE)),
    ],
)
def test_a_quota_must_hold_replacements_beside_what_was_lost(
    cpu_millis: int, used: int, expected: Any
) -> None:
    cluster = world.around(quotas=(world.quota(cpu_millis, used=used),))
    found = world.found(world.kubeflow_workload(), cluster)
    assert [(item.word, item.severity) for item in found.values()] == [expected][: bool(expected)]


def test_pods_that_run_are_counted_once() -> None:
    driver = objects.kubeflow_driver("departures", **objects.protected())
    executors = [objects.kubeflow_executor(number, "departures") for number in range(1, 5)]
    subject = spark_pods.with_pods(world.kubeflow_workload(), driver, executors)
    used = subject.held.cpu_millis
    assert subject.held.pods == 5
    cluster = world.around(quotas=(world.quota(used + 4_000, used=used),))
    assert Concern.QUOTA_WITHOUT_HEADROOM not in world.found(subject, cluster)
    cluster = world.around(quotas=(world.quota(used, used=used),))
    found = world.found(subject, cluster)
    assert found[Concern.QUOTA_WITHOUT_HEADROOM].severity is PreflightSeverity.WARNING


def test_a_quota_for_some_pods_only_is_a_note() -> None:
    body = {
        "metadata": {"name": "best-effort"},
        "spec": {"hard": {"pods": "1"}, "scopes": ["BestEffort"]},
    }
    found = world.found(world.kubeflow_workload(), world.around(quotas=(quota(body),)))
    assert [(item.word, item.severity) for item in found.values()] == [
        (Concern.NOT_CHECKED, PreflightSeverity.NOTE)
    ]


def test_a_quotas_object_is_read_in_kubernetes_own_units() -> None:
    found = quota(
        {
            "metadata": {"name": "team"},
            "spec": {"hard": {"cpu": "9", "memory": "9Gi"}},
            "status": {"hard": {"cpu": "4", "memory": "1Gi"}, "used": {"cpu": "500m"}},
        }
    )
    assert found.hard == {"cpu": 4_000, "memory": 2**30}
    assert found.used == {"cpu": 500}
    assert found.short(QuotaDemand(cpu_millis=3_501), QuotaDemand()) == ("cpu",)
    assert found.short(QuotaDemand(cpu_millis=3_500), QuotaDemand()) == ()


MEBIBYTE = 2**20


@pytest.mark.parametrize(
    ("conf", "python", "cpu_millis", "mebibytes"),
    [
        ({}, False, 1_000, 1_024 + 384),
        ({}, True, 1_000, 1_024 + 409.6),
        ({"spark.executor.memory": "10g"}, False, 1_000, 10_240 + 1_024),
        ({"spark.executor.memory": "2048"}, False, 1_000, 2_048 + 384),
        ({"spark.executor.memoryOverhead": "1g"}, True, 1_000, 2_048),
        ({"spark.executor.memoryOverheadFactor": "0.5"}, False, 1_000, 1_536),
        ({"spark.executor.cores": "4"}, False, 4_000, 1_408),
        (
            {"spark.executor.cores": "4", "spark.kubernetes.executor.request.cores": "500m"},
            False,
            500,
            1_408,
        ),
        ({"spark.executor.pyspark.memory": "1g"}, True, 1_000, 2_048 + 409.6),
    ],
)
def test_an_executor_asks_for_what_spark_says(
    conf: dict[str, str], python: bool, cpu_millis: int, mebibytes: float
) -> None:
    found = executor_sizes.executor_demand(conf, python=python)
    assert found == QuotaDemand(1, cpu_millis, int(mebibytes * MEBIBYTE))


@pytest.mark.parametrize(
    ("conf", "count"),
    [
        ({}, 2),
        ({"spark.executor.instances": "7"}, 7),
        ({"spark.dynamicAllocation.maxExecutors": "9"}, 2),
        (
            {
                "spark.dynamicAllocation.enabled": "true",
                "spark.dynamicAllocation.maxExecutors": "9",
            },
            9,
        ),
    ],
)
def test_the_number_of_executors_is_the_most_that_there_may_be(
    conf: dict[str, str], count: int
) -> None:
    assert executor_sizes.executors_wanted(conf) == count


@pytest.mark.parametrize(
    "conf",
    [
        {"spark.executor.memory": "much"},
        {"spark.executor.memoryOverheadFactor": "a tenth"},
        {"spark.executor.memoryOverheadFactor": "inf"},
        {"spark.executor.memoryOverheadFactor": "-1"},
        {"spark.executor.cores": "few"},
    ],
)
def test_a_setting_that_is_no_number_is_named(conf: dict[str, str]) -> None:
    with pytest.raises(InputError):
        executor_sizes.executor_demand(conf, python=False)


def test_settings_of_a_drivers_config_map_are_read() -> None:
    text = "#Java properties\nspark.app.name=flights\nspark.url=k8s\\://https\\://h\n\nspark.x 7\n"
    assert spark_pods.properties(text) == {
        "spark.app.name": "flights",
        "spark.url": "k8s://https://h",
        "spark.x": "7",
    }


def test_settings_of_a_command_line_are_read_in_each_form() -> None:
    args = ["--conf", "spark.a=1", "--conf=spark.b=2", "-c", "spark.c=x=y", "spark.d=4"]
    spec = {"containers": [{"command": ["bash", "-c", "submit --conf spark.e=5"], "args": args}]}
    found = spark_pods.command_settings(spec)
    assert found == {"spark.a": "1", "spark.b": "2", "spark.c": "x=y", "spark.e": "5"}


@given(hard=st.integers(0, 20_000), used=st.integers(0, 20_000), more=st.integers(0, 5_000))
def test_a_larger_quota_is_never_judged_worse(hard: int, used: int, more: int) -> None:
    levels = [None, PreflightSeverity.NOTE, PreflightSeverity.WARNING, PreflightSeverity.ERROR]

    def badness(cpu_millis: int) -> int:
        cluster = world.around(quotas=(world.quota(cpu_millis, used=used),))
        found = list(world.found(world.kubeflow_workload(), cluster).values())
        return levels.index(found[0].severity if found else None)

    assert badness(hard + more) <= badness(hard)
