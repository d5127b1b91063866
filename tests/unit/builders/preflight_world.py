"""Applications that nothing is wrong with, each kind of them, and what is around them, for tests.

A test spoils one thing and says what preflight must find.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import spark_objects as objects
from spark_objects import Body

from rekindle_operator.preflight import preflight_checks
from rekindle_operator.preflight.preflight_findings import Concern, PreflightFinding
from rekindle_operator.preflight.subjects import apache_operator, kubeflow_operator, spark_pods
from rekindle_operator.preflight.subjects.environment import PreflightEnvironment, Quota
from rekindle_operator.preflight.subjects.workloads import Workload
from rekindle_testing.operator_builders import make_class, make_policy

INJECT = {"rekindle.dev/inject": "true"}
ANTI_AFFINITY: Body = {
    "podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 1,
                "podAffinityTerm": {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"spark-role": "executor"}},
                },
            }
        ]
    }
}
CONF = {
    "spark.executor.maxNumFailures": "100",
    "spark.executor.failuresValidityInterval": "1h",
}
GIBIBYTE = 2**30
ZONES = ("a", "b", "c")
WITH_SECRET = {
    "store": {
        "addresses": ["zookeeper:2281"],
        "secretRef": {"name": "rekindle-store"},
        "caSecretRef": {"name": "rekindle-credential"},
    }
}
FENCING = {"mode": "OutOfServiceTaint", "certainty": ["ShutdownTaint"]}

Spoil = Callable[[Body], object]


def kubeflow_body(spoil: Spoil | None = None) -> Body:
    """A SparkApplication of kubeflow's operator with four executors of 1 CPU."""
    body: Body = {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": "departures", "namespace": "flights", "uid": "u-1"},
        "spec": {
            "type": "Python",
            "mode": "cluster",
            "sparkVersion": "4.3.0",
            "mainApplicationFile": "local:///opt/departures.py",
            "sparkConf": dict(CONF),
            "restartPolicy": {"type": "Always"},
            "driver": {"cores": 1, "memory": "1g", "labels": dict(INJECT)},
            "executor": {
                "cores": 1,
                "instances": 4,
                "memory": "1g",
                "memoryOverhead": "512m",
                "affinity": deepcopy(ANTI_AFFINITY),
            },
        },
    }
    if spoil is not None:
        spoil(body)
    return body


def apache_body(spoil: Spoil | None = None) -> Body:
    """A SparkApplication of apache's operator with four executors."""
    body: Body = {
        "apiVersion": "spark.apache.org/v1",
        "kind": "SparkApplication",
        "metadata": {"name": "departures", "namespace": "flights", "uid": "u-2"},
        "spec": {
            "mainClass": "com.example.Departures",
            "runtimeVersions": {"sparkVersion": "4.3.0"},
            "sparkConf": {**CONF, "spark.executor.instances": "4"},
            "driverSpec": {"podTemplateSpec": {"metadata": {"labels": dict(INJECT)}}},
            "executorSpec": {
                "podTemplateSpec": {"spec": {"affinity": deepcopy(ANTI_AFFINITY)}},
            },
            "applicationTolerations": {
                "restartConfig": {
                    "restartPolicy": "Always",
                    "restartCounterResetMillis": 3_600_000,
                }
            },
        },
    }
    if spoil is not None:
        spoil(body)
    return body


def plain_driver(spoil: Spoil | None = None) -> Body:
    """A driver in client mode that a ReplicaSet owns, with its sidecar."""
    labels = {"rekindle.dev/application": "departures", **INJECT}
    args = ["--conf", "spark.executor.instances=2"]
    args += [word for name, value in CONF.items() for word in ("--conf", f"{name}={value}")]
    spark = objects.container("spark", command=["spark-submit"], args=args)
    body = objects.pod(
        "departures-0",
        labels=labels,
        owners=(objects.owner("ReplicaSet", "departures", "r-1", "apps/v1"),),
        containers=(spark,),
        restart_policy="Always",
        **objects.protected(),
    )
    if spoil is not None:
        spoil(body)
    return body


def plain_executors(count: int = 2, spoil: Spoil | None = None) -> list[Body]:
    """Executors of that driver, each with anti-affinity."""
    found = []
    for number in range(1, count + 1):
        labels = objects.executor_labels("spark-1", str(number))
        body = objects.pod(f"departures-exec-{number}", labels=labels)
        body["spec"]["affinity"] = deepcopy(ANTI_AFFINITY)
        if spoil is not None:
            spoil(body)
        found.append(body)
    return found


def plain_workload(
    spoil: Spoil | None = None, executors: list[Body] | None = None, **known: Any
) -> Workload:
    pods = plain_executors() if executors is None else executors
    return spark_pods.workload("departures", plain_driver(spoil), pods, known.get("conf"))


def kubeflow_workload(spoil: Spoil | None = None) -> Workload:
    return kubeflow_operator.workload(kubeflow_body(spoil))


def apache_workload(spoil: Spoil | None = None) -> Workload:
    return apache_operator.workload(apache_body(spoil))


KINDS: dict[str, Callable[..., Workload]] = {
    "kubeflow": kubeflow_workload,
    "apache": apache_workload,
    "plain": plain_workload,
}


def around(**changed: Any) -> PreflightEnvironment:
    """A cluster in which nothing is wrong; a field that is given replaces its own."""
    drivers = {"labelSelector": {"matchLabels": {"rekindle.dev/application": "departures"}}}
    selector = {"sparkApplications": {"labelSelector": {}}, "drivers": drivers}
    fields: dict[str, Any] = {
        "claims": {},
        "quotas": (),
        "limit_ranges": (),
        "nodes": tuple({"topology.kubernetes.io/zone": zone} for zone in ZONES),
        "policies": (make_policy("all", selector=selector),),
        "classes": {"default": make_class(fencing=FENCING, sidecar=WITH_SECRET)},
    }
    return PreflightEnvironment(**(fields | changed))


def quota(cpu_millis: int, *, used: int = 0, pods: int = 1_000) -> Quota:
    """A quota on CPU and pods."""
    return Quota("team", {"requests.cpu": cpu_millis, "pods": pods}, {"requests.cpu": used})


def found(
    subject: Workload, cluster: PreflightEnvironment | None = None
) -> dict[Concern, PreflightFinding]:
    """Findings of an application by their words; of several of a word the worst."""
    findings = preflight_checks.application(subject, cluster or around())
    return {finding.word: finding for finding in reversed(findings)}


def words(subject: Workload, cluster: PreflightEnvironment | None = None) -> list[str]:
    return [str(word) for word in found(subject, cluster)]
