"""Pods, nodes and SparkApplications as an API server has them, for tests.

Labels, owners, names and containers are those that Spark 4.3, kubeflow's and apache's operator
write; what no code of ours looks at is left out.
"""

from typing import Any

from rekindle_operator.cluster.pods import APPLICATION_LABEL, SIDECAR

Body = dict[str, Any]

KUBEFLOW_UID, APACHE_UID = "uid-of-kubeflow-resource", "uid-of-apache-resource"


def at(second: int) -> str:
    """A timestamp of the API server."""
    return f"2026-11-21T17:{second // 60:02}:{second % 60:02}Z"


def owner(kind: str, name: str, uid: str, version: str = "v1", *, controls: bool = True) -> Body:
    return {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": controls}


def container(name: str, cpu: str = "1", memory: str = "1Gi", **more: Any) -> Body:
    return {"name": name, "resources": {"requests": {"cpu": cpu, "memory": memory}}, **more}


def sidecar() -> Body:
    return container(SIDECAR, cpu="20m", memory="64Mi", restartPolicy="Always")


def pod(
    name: str,
    *,
    namespace: str = "flights",
    uid: str = "",
    labels: dict[str, str] | None = None,
    owners: tuple[Body, ...] = (),
    second: int = 0,
    node: str = "node-1",
    ip: str = "10.0.0.1",
    phase: str = "Running",
    deleting: int | None = None,
    containers: tuple[Body, ...] = (container("main"),),
    init: tuple[Body, ...] = (),
    restart_policy: str = "Never",
    status: Body | None = None,
) -> Body:
    """Any pod; `uid` is made of its name unless it is given."""
    metadata: Body = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-of-{namespace}-{name}",
        "creationTimestamp": at(second),
        "labels": labels or {},
        "ownerReferences": list(owners),
    }
    if deleting is not None:
        metadata["deletionTimestamp"] = at(deleting)
    spec: Body = {"containers": list(containers), "restartPolicy": restart_policy}
    if init:
        spec["initContainers"] = list(init)
    if node:
        spec["nodeName"] = node
    standing: Body = {"phase": phase, **({"podIP": ip} if ip else {}), **(status or {})}
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": standing}


def protected(ready: bool = True) -> Body:
    """Arguments of a driver's pod that has the sidecar."""
    statuses = [{"name": SIDECAR, "ready": ready, "restartCount": 0}]
    return {"init": (sidecar(),), "status": {"initContainerStatuses": statuses}}


def driver_labels(run: str, app_name: str) -> dict[str, str]:
    """What Spark puts onto a driver's pod in cluster mode."""
    return {
        "spark-app-name": app_name,
        "spark-app-selector": run,
        "spark-role": "driver",
        "spark-version": "4.3.0",
    }


def executor_labels(run: str, number: str, app_name: str = "flights-from-code") -> dict[str, str]:
    """What Spark puts onto an executor's pod, by itself and as our runtime tells it to; its name is
    the one that the program has set."""
    return {
        "rekindle.dev/executor": "true",
        "spark-app-name": app_name,
        "spark-app-selector": run,
        "spark-exec-id": number,
        "spark-exec-resourceprofile-id": "0",
        "spark-role": "executor",
        "spark-version": "4.3.0",
    }


def kubeflow_labels(name: str, submission: str) -> dict[str, str]:
    return {
        "sparkoperator.k8s.io/app-name": name,
        "sparkoperator.k8s.io/launched-by-spark-operator": "true",
        "sparkoperator.k8s.io/submission-id": submission,
    }


def kubeflow_driver(name: str = "flights", *, start: str = "a", uid: str = "", **more: Any) -> Body:
    """A driver of kubeflow's operator; `start` tells one start of it from another."""
    labels = driver_labels(f"spark-{start}", name) | kubeflow_labels(name, f"submission-{start}")
    resource = owner("SparkApplication", name, KUBEFLOW_UID, "sparkoperator.k8s.io/v1beta2")
    return pod(
        f"{name}-driver",
        uid=uid or f"driver-{start}",
        labels=labels,
        owners=(resource,),
        containers=(container("spark-kubernetes-driver"),),
        **more,
    )


def kubeflow_executor(
    number: int,
    name: str = "flights",
    *,
    start: str = "a",
    driver_uid: str = "",
    run: str = "",
    owned: bool = True,
    **more: Any,
) -> Body:
    """One of its executors, with both owners that version 2.5 gives it; not `owned` by the driver's
    pod where it is of a StatefulSet. Old Spark gives it a `run` of its own."""
    labels = executor_labels(run or f"spark-{start}", str(number))
    labels |= kubeflow_labels(name, f"submission-{start}")
    resource = owner(
        "SparkApplication", name, KUBEFLOW_UID, "sparkoperator.k8s.io/v1beta2", controls=False
    )
    its = owner("Pod", f"{name}-driver", driver_uid or f"driver-{start}")
    owners = (resource, its) if owned else (resource,)
    return _executor(f"{name}-{start}-exec-{number}", number, labels, owners, more)


def apache_driver(name: str = "flights", *, attempt: int = 0, uid: str = "", **more: Any) -> Body:
    """A driver of apache's operator, which counts its application ids from 0."""
    labels = driver_labels(f"{name}-{attempt}", name) | apache_labels(name)
    return pod(
        f"{name}-{attempt}-driver",
        uid=uid or f"apache-driver-{attempt}",
        labels=labels,
        owners=(owner("SparkApplication", name, APACHE_UID, "spark.apache.org/v1"),),
        containers=(container("spark-kubernetes-driver"),),
        **more,
    )


def apache_executor(
    number: int,
    name: str = "flights",
    *,
    attempt: int = 0,
    driver_uid: str = "",
    **more: Any,
) -> Body:
    labels = executor_labels(f"{name}-{attempt}", str(number)) | apache_labels(name)
    its = owner("Pod", f"{name}-{attempt}-driver", driver_uid or f"apache-driver-{attempt}")
    return _executor(f"{name}-{attempt}-exec-{number}", number, labels, (its,), more)


def apache_labels(name: str) -> dict[str, str]:
    return {
        "spark.operator/name": "spark-kubernetes-operator",
        "spark.operator/spark-app-name": name,
    }


def submitted_driver(
    app_name: str = "flights", *, start: str = "s", extra: dict[str, str] | None = None, **more: Any
) -> Body:
    """A driver of plain spark-submit in cluster mode."""
    return pod(
        f"{app_name or 'app'}-{start}-driver",
        uid=f"submitted-{start}",
        labels=driver_labels(f"spark-{start}", app_name) | (extra or {}),
        containers=(container("spark-kubernetes-driver"),),
        **more,
    )


def submitted_executor(number: int, *, start: str = "s", **more: Any) -> Body:
    labels = executor_labels(f"spark-{start}", str(number))
    its = owner("Pod", f"flights-{start}-driver", f"submitted-{start}")
    return _executor(f"flights-{start}-exec-{number}", number, labels, (its,), more)


def client_driver(start: str = "c", labels: dict[str, str] | None = None, **more: Any) -> Body:
    """A driver in client mode, in the pod of a Deployment: Spark has put nothing onto it."""
    replicas = owner("ReplicaSet", "flights-6d4cf56db6", "uid-of-replica-set", "apps/v1")
    return pod(
        f"flights-6d4cf56db6-{start}",
        uid=f"client-{start}",
        labels={
            "app": "flights",
            **(labels if labels is not None else {APPLICATION_LABEL: "flights"}),
        },
        owners=(replicas,),
        restart_policy="Always",
        **more,
    )


def client_executor(
    number: int,
    *,
    start: str = "c",
    owned: bool = True,
    extra: dict[str, str] | None = None,
    **more: Any,
) -> Body:
    """Owned by the driver's pod where `spark.kubernetes.driver.pod.name` is set."""
    labels = executor_labels(f"spark-{start}", str(number)) | (extra or {})
    its = (owner("Pod", f"flights-6d4cf56db6-{start}", f"client-{start}"),) if owned else ()
    return _executor(f"flights-{start}-exec-{number}", number, labels, its, more)


def set_executor(number: int, *, start: str = "s", known: str = "", **more: Any) -> Body:
    """An executor of a StatefulSet, which alone owns it; Spark labels its id later, or never."""
    labels = executor_labels(f"spark-{start}", known or "EXECID")
    its = (owner("StatefulSet", f"spark-s-spark-{start}-0", f"uid-of-set-{start}", "apps/v1"),)
    return _executor(f"spark-s-spark-{start}-0-{number}", number, labels, its, more)


def node(name: str, cpu: str = "4", **more: Any) -> Body:
    """A node that is Ready."""
    conditions = [
        {"type": "MemoryPressure", "status": "False"},
        {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"},
    ]
    return {
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"uid-of-{name}",
            "labels": {"topology.kubernetes.io/zone": "zone-a", "kubernetes.io/hostname": name},
        },
        "spec": more.pop("spec", {}),
        "status": {
            "allocatable": {"cpu": cpu, "memory": "16Gi"},
            "capacity": {"cpu": "8"},
            "addresses": [{"type": "InternalIP", "address": f"192.168.0.{len(name)}"}],
            "conditions": conditions,
            **more,
        },
    }


def kubeflow_application(name: str = "flights", *, state: str = "RUNNING", **more: Any) -> Body:
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": _resource_metadata(name, KUBEFLOW_UID, more),
        "spec": {"mode": "cluster", "restartPolicy": {"type": "Always"}, **more},
        "status": {"applicationState": {"state": state}, "submissionID": "submission-a"},
    }


def apache_application(
    name: str = "flights", *, state: str = "RunningHealthy", **more: Any
) -> Body:
    restart = {"restartConfig": {"restartPolicy": "OnInfrastructureFailure"}}
    return {
        "apiVersion": "spark.apache.org/v1",
        "kind": "SparkApplication",
        "metadata": _resource_metadata(name, APACHE_UID, more),
        "spec": {"deploymentMode": "ClusterMode", "applicationTolerations": restart, **more},
        "status": {"currentState": {"currentStateSummary": state}},
    }


def _resource_metadata(name: str, uid: str, more: dict[str, Any]) -> Body:
    return {
        "name": name,
        "namespace": more.pop("namespace", "flights"),
        "uid": uid,
        "creationTimestamp": at(0),
        "labels": more.pop("labels", {"team": "flights"}),
    }


def _executor(
    name: str, number: int, labels: dict[str, str], owners: tuple[Body, ...], more: dict[str, Any]
) -> Body:
    return pod(
        name,
        uid=more.pop("uid", "") or f"uid-of-{name}",
        labels=labels,
        owners=owners,
        second=more.pop("second", 30),
        node=more.pop("node", f"node-{number}"),
        ip=more.pop("ip", f"10.0.1.{number}"),
        containers=more.pop("containers", (container("spark-kubernetes-executor"),)),
        **more,
    )
