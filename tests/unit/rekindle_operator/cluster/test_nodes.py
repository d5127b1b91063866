"""What is kept of nodes and of SparkApplications."""

import pytest
import spark_objects as objects
from spark_objects import Body

from rekindle.model.errors import InputError
from rekindle_operator.cluster.nodes import node_seen
from rekindle_operator.cluster.spark_applications import application_seen


def test_of_a_node_is_kept_what_pods_may_have_and_what_detection_judges_by() -> None:
    taints = [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]
    found = node_seen(
        objects.node("node-1", "3920m", spec={"taints": taints, "unschedulable": True})
    )
    assert (found.name, found.cpu_millis) == ("node-1", 3920)
    assert found.addresses == ("192.168.0.6",)
    assert (found.judged.uid, found.judged.ready) == ("uid-of-node-1", "True")
    assert found.judged.reason == "KubeletReady"
    assert found.judged.labels["topology.kubernetes.io/zone"] == "zone-a"
    assert found.judged.taints == ("karpenter.sh/disrupted",)
    assert found.judged.unschedulable


def test_a_node_that_has_just_been_registered_is_not_ready_and_has_no_cpu() -> None:
    found = node_seen({"metadata": {"name": "n", "uid": "u"}, "spec": {}})
    assert (found.judged.ready, found.cpu_millis) == ("Unknown", 0)


@pytest.mark.parametrize(
    ("body", "state", "policy", "ended"),
    [
        (objects.kubeflow_application(), "RUNNING", "Always", False),
        (objects.kubeflow_application(state="PENDING_RERUN"), "PENDING_RERUN", "Always", False),
        (objects.kubeflow_application(state="COMPLETED"), "COMPLETED", "Always", True),
        (objects.apache_application(), "RunningHealthy", "OnInfrastructureFailure", False),
        (
            objects.apache_application(state="ResourceReleased"),
            "ResourceReleased",
            "OnInfrastructureFailure",
            True,
        ),
        (
            {"apiVersion": "spark.apache.org/v1", "metadata": {"name": "n", "uid": "u"}},
            "",
            "Never",
            False,
        ),
    ],
)
def test_a_spark_application_of_either_group_can_be_read(
    body: Body, state: str, policy: str, ended: bool
) -> None:
    found = application_seen(body)
    assert (found.state, found.restart_policy, found.ended) == (state, policy, ended)


def test_labels_of_a_spark_application_are_kept() -> None:
    found = application_seen(objects.kubeflow_application(labels={"b": "2", "a": "1"}))
    assert found.labels == (("a", "1"), ("b", "2"))


def test_a_spark_application_of_a_third_group_is_refused() -> None:
    body = objects.kubeflow_application() | {"apiVersion": "wave.spot.io/v1alpha1"}
    with pytest.raises(InputError, match=r"flights/flights: is of the API group wave\.spot\.io"):
        application_seen(body)
