"""What is kept of pods."""

import gc
import sys
from typing import Any

import pytest
import spark_objects as objects
from spark_objects import Body, container

from rekindle_operator.cluster import pods
from rekindle_operator.cluster.pods import APPLICATION_LABEL, SIDECAR, Occupant, PodSeen, pod_seen

SHARED = (
    "namespace", "node", "phase", "executor_id", "run", "submission", "group", "resource",
    "application", "driver_uid",
)  # fmt: skip


def seen(body: Body) -> PodSeen:
    found = pod_seen(body)
    assert isinstance(found, PodSeen)
    return found


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(
            objects.kubeflow_driver(second=5, **objects.protected()),
            {
                "role": "driver",
                "name": "flights-driver",
                "group": "sparkoperator.k8s.io",
                "resource": "flights",
                "submission": "submission-a",
                "run": "spark-a",
                "driver_uid": "",
                "cpu_millis": 1020,
                "sidecar": "ready",
            },
            id="kubeflow's driver",
        ),
        pytest.param(
            objects.kubeflow_executor(7, node="node-3", ip="10.0.1.7"),
            {
                "role": "executor",
                "group": "sparkoperator.k8s.io",
                "resource": "flights",
                "submission": "submission-a",
                "driver_uid": "driver-a",
                "executor_id": "7",
                "node": "node-3",
                "ip": "10.0.1.7",
                "memory_bytes": 2**30,
                "labels": (),
            },
            id="kubeflow's executor, with two owners",
        ),
        pytest.param(
            objects.apache_driver(),
            {"group": "spark.apache.org", "resource": "flights", "run": "flights-0"},
            id="apache's driver",
        ),
        pytest.param(
            objects.apache_executor(2),
            {"resource": "flights", "driver_uid": "apache-driver-0", "submission": ""},
            id="apache's executor",
        ),
        pytest.param(
            objects.submitted_driver(),
            {"role": "driver", "group": "", "resource": "", "application": "", "run": "spark-s"},
            id="spark-submit's driver",
        ),
        pytest.param(
            objects.submitted_executor(1),
            {"role": "executor", "driver_uid": "submitted-s", "executor_id": "1"},
            id="spark-submit's executor",
        ),
        pytest.param(
            objects.client_driver(),
            {"role": "driver", "application": "flights", "run": "", "resource": ""},
            id="a driver in client mode, known by our label",
        ),
        pytest.param(
            objects.client_driver(labels={}, **objects.protected()),
            {"role": "driver", "application": ""},
            id="a driver in client mode, known by its sidecar",
        ),
        pytest.param(
            objects.client_executor(1, owned=False),
            {"role": "executor", "driver_uid": "", "run": "spark-c"},
            id="an executor that no pod owns",
        ),
        pytest.param(
            objects.set_executor(0),
            {"role": "executor", "driver_uid": "", "executor_id": "", "run": "spark-s"},
            id="an executor of a StatefulSet, without an id yet",
        ),
        pytest.param(
            objects.pod(
                "flights-driver",
                owners=(objects.owner("SparkApplication", "flights", "u", "spark.apache.org/v1"),),
                labels={"spark-role": "driver"},
            ),
            {"group": "spark.apache.org", "resource": "flights"},
            id="a driver whose owner alone names its SparkApplication",
        ),
        pytest.param(
            objects.pod(
                "other-driver",
                owners=(objects.owner("SparkApplication", "flights", "u", "example.com/v1"),),
                labels={"spark-role": "driver"},
            ),
            {"group": "", "resource": ""},
            id="a driver of a third operator",
        ),
    ],
)
def test_of_a_spark_pod_is_kept_who_it_is_and_whose(body: Body, expected: dict[str, Any]) -> None:
    found = seen(body)
    assert {name: getattr(found, name) for name in expected} == expected


def test_moments_are_seconds_since_1970() -> None:
    found = seen(objects.kubeflow_executor(1, second=61, deleting=90))
    assert (found.created_at, found.deleting_at) == (1_795_280_461, 1_795_280_490)
    assert seen(objects.kubeflow_executor(1)).deleting_at == 0


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(objects.pod("web", node=""), id="waits for a node"),
        pytest.param(objects.pod("web", phase="Succeeded"), id="has ended"),
        pytest.param(objects.kubeflow_executor(1, phase="Failed"), id="an executor that has ended"),
    ],
)
def test_nothing_is_kept_of_a_pod_that_matters_to_nobody(body: Body) -> None:
    assert pod_seen(body) is None


@pytest.mark.parametrize("labels", [{}, {"spark-role": "connect-server"}, {"spark-role": "master"}])
def test_of_any_other_pod_only_what_it_takes_is_kept(labels: dict[str, str]) -> None:
    body = objects.pod("web", uid="u", node="node-4", labels=labels)
    assert pod_seen(body) == Occupant("u", "node-4", 1000)


def test_an_executor_with_our_label_is_no_driver() -> None:
    body = objects.client_executor(1, extra={APPLICATION_LABEL: "flights"})
    assert (seen(body).role, seen(body).application) == ("executor", "flights")


def test_a_pod_that_is_being_deleted_holds_its_cpu_and_one_that_has_ended_holds_none() -> None:
    assert seen(objects.kubeflow_executor(1, deleting=40)).held_millis == 1000
    assert seen(objects.kubeflow_driver(phase="Failed")).held_millis == 0


@pytest.mark.parametrize(
    ("more", "state"),
    [
        ({}, "absent"),
        (objects.protected(), "ready"),
        (objects.protected(ready=False), "starting"),
        ({"init": (objects.sidecar(),)}, "starting"),
        ({"init": (container("download"),)}, "absent"),
    ],
)
def test_a_sidecar_is_absent_starting_or_ready(more: Body, state: str) -> None:
    assert seen(objects.kubeflow_driver(**more)).sidecar == state


def test_a_sidecar_beside_spark_is_one_too() -> None:
    statuses = {"containerStatuses": [{"name": SIDECAR, "ready": True}]}
    body = objects.client_driver(
        containers=(container("main"), container(SIDECAR, "20m")), status=statuses
    )
    assert seen(body).sidecar == "ready"


def stopped(exit_code: int) -> Body:
    state = {"terminated": {"exitCode": exit_code}}
    return {"containerStatuses": [{"name": "spark-kubernetes-driver", "state": state}]}


def disrupted(reason: str) -> Body:
    return {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason}]}


@pytest.mark.parametrize(("said", "evicted"), [("True", True), ("False", False), (None, False)])
def test_an_eviction_is_told_from_a_deletion(said: str | None, evicted: bool) -> None:
    """The Eviction API sets the condition before it deletes the pod."""
    body = objects.kubeflow_executor(1, deleting=40)
    if said is not None:
        condition = {"type": "DisruptionTarget", "status": said, "reason": "EvictionByEvictionAPI"}
        body["status"] = {**body.get("status", {}), "conditions": [condition]}
    pod = seen(body)
    assert pod.deleting_at > 0
    assert pod.evicted is evicted


@pytest.mark.parametrize(
    ("body", "ended"),
    [
        pytest.param(objects.kubeflow_driver(), False, id="runs"),
        pytest.param(objects.kubeflow_driver(phase="Succeeded"), True, id="succeeded"),
        pytest.param(objects.kubeflow_driver(phase="Failed"), True, id="failed"),
        pytest.param(
            objects.kubeflow_driver(status=stopped(1)), True, id="ended beside a sidecar that lives"
        ),
        pytest.param(
            objects.kubeflow_driver(status=stopped(1), restart_policy="Always"),
            False,
            id="is started again",
        ),
        pytest.param(
            objects.kubeflow_driver(phase="Failed", status=disrupted("DeletionByPodGC")),
            False,
            id="its Node object is gone, which says nothing of the machine",
        ),
        pytest.param(
            objects.kubeflow_driver(phase="Failed", status=disrupted("TerminationByKubelet")),
            True,
            id="evicted by its kubelet",
        ),
        pytest.param(objects.kubeflow_driver(deleting=90), False, id="is being deleted"),
    ],
)
def test_a_driver_has_ended_only_by_the_word_of_its_kubelet(body: Body, ended: bool) -> None:
    assert seen(body).ended is ended


@pytest.mark.parametrize(
    ("owners", "controlled"),
    [((), False), ((objects.owner("Job", "j", "u"),), True)],
    ids=["nobody", "a Job"],
)
def test_of_a_driver_is_kept_whether_a_controller_owns_it(
    owners: tuple[Body, ...], controlled: bool
) -> None:
    assert seen(objects.submitted_driver(owners=owners)).controlled is controlled


def ended_driver(*, evicted: bool) -> Body:
    """A driver that has ended: in its container, or before its node had anything to say of it."""
    terminated = {"exitCode": 1, "finishedAt": objects.at(42)}
    statuses = [{"name": "spark-kubernetes-driver", "state": {"terminated": terminated}}]
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    status = {
        "conditions": [condition | {"lastTransitionTime": objects.at(60)}],
        "containerStatuses": [] if evicted else statuses,
    }
    return objects.submitted_driver(phase="Failed", status=status)


@pytest.mark.parametrize(("evicted", "second"), [(False, 42), (True, 60)], ids=["exit", "evicted"])
def test_of_a_driver_is_kept_when_it_ended(evicted: bool, second: int) -> None:
    assert seen(ended_driver(evicted=evicted)).ended_at == pods.moment(objects.at(second))
    assert seen(objects.submitted_driver()).ended_at == 0


def test_the_limit_is_that_of_the_spark_container() -> None:
    spark = container("executor")
    spark["resources"]["limits"] = {"cpu": "1500m"}
    proxy = container("proxy", "100m")
    found = seen(objects.kubeflow_executor(1, containers=(proxy, spark)))
    assert (found.cpu_millis, found.cpu_limit_millis) == (1100, 1500)


def test_strings_that_repeat_are_kept_once() -> None:
    one, other = (seen(objects.kubeflow_executor(1, name=name)) for name in ("flights", "flights"))
    for name in SHARED:
        assert getattr(one, name) is getattr(other, name), name
    assert seen(objects.kubeflow_driver()).uid is one.driver_uid


def test_a_hundred_thousand_executors_fit() -> None:
    found = seen(objects.kubeflow_executor(117, uid="3f1c6c80-5b1c-4f0a-9b8e-7a3f0d9c2e11"))
    shared = {id(getattr(found, name)) for name in (*SHARED, "role", "sidecar")}
    own = {
        id(value): sys.getsizeof(value)
        for name in found.__struct_fields__
        if id(value := getattr(found, name)) not in shared
    }
    assert not gc.is_tracked(found)
    assert sys.getsizeof(found) + sum(own.values()) < 700


def test_an_object_without_labels_and_status_can_be_read() -> None:
    metadata: Body = {"name": "p", "uid": "u"}
    body = {"metadata": metadata, "spec": {"nodeName": "n", "containers": [{}]}}
    assert pod_seen(body) == Occupant("u", "n", 0)
    metadata["labels"] = {"spark-role": "driver"}
    assert seen(body).phase == ""
