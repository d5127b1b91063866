"""Which container of a pod runs Spark: whatever it is called, and whatever stands beside it."""

from itertools import permutations

import pytest
import spark_objects as objects
from injection_world import driver, patched, terms
from spark_objects import Body, container

from rekindle_operator.cluster.pods import SIDECAR, PodSeen, pod_seen, spark_container
from rekindle_operator.provisioning.node_demand import executor_of

LIMIT = {"limits": {"cpu": "2"}}
MESH = container("istio-proxy", args=["proxy", "sidecar", "--domain", "flights.svc"])
SHIPPER = container(
    "log-shipper",
    env=[{"name": "SPARK_APPLICATION_ID", "value": "spark-1"}],
    args=["--label", "driver", "--tag", "executor"],
)
BESIDE = (MESH, SHIPPER, container("metrics"))
SPARKS = {
    "a driver of a template": container("main", args=["driver", "--class", "X"], resources=LIMIT),
    "an executor of a template": container("work", args=["executor"], resources=LIMIT),
    "an entry point that is named": container(
        "main", command=["/opt/entrypoint.sh", "driver"], resources=LIMIT
    ),
    "an entry point in a shell": container(
        "main",
        command=["sh", "-c", "exec /opt/entrypoint.sh driver --class X"],
        env=[{"name": "SPARK_APPLICATION_ID"}, {"name": "SPARK_DRIVER_BIND_ADDRESS"}],
        ports=[{"name": "driver-rpc-port", "containerPort": 7078}],
        resources=LIMIT,
    ),
    "Spark's own name": container("spark-kubernetes-driver", resources=LIMIT),
    "a submission in client mode": container(
        "main", command=["/opt/spark/bin/spark-submit"], resources=LIMIT
    ),
    "our command line": container(
        "main", args=["rekindle run /pipelines/x.py --store s3://x/y"], resources=LIMIT
    ),
}


@pytest.mark.parametrize("spark", SPARKS.values(), ids=SPARKS)
def test_the_container_with_spark_is_found_wherever_it_stands(spark: Body) -> None:
    for containers in permutations((*BESIDE, spark)):
        found = containers[spark_container({"containers": containers}, {})]
        assert found is spark


def test_without_a_trace_of_spark_the_authors_main_container_is_taken_else_the_first() -> None:
    spec = {"containers": [container(SIDECAR), MESH, container("main")]}
    annotations = {"kubectl.kubernetes.io/default-container": "main"}
    assert spark_container(spec, {"annotations": annotations}) == 2
    assert spark_container(spec, {}) == 1
    assert spark_container({}, {}) == 0


def test_a_log_shipper_that_has_ended_ends_no_driver() -> None:
    spark = SPARKS["a driver of a template"]
    statuses = [
        {"name": "log-shipper", "state": {"terminated": {"exitCode": 1}}},
        {"name": "main", "state": {"running": {}}},
    ]
    body = objects.submitted_driver(status={"containerStatuses": statuses})
    body["spec"]["containers"] = [SHIPPER, spark]
    found = pod_seen(body)
    assert isinstance(found, PodSeen)
    assert (found.ended, found.cpu_limit_millis) == (False, 2000)


def test_the_sidecars_socket_goes_to_the_container_with_spark() -> None:
    spark = container("main", args=["driver"], securityContext={"runAsUser": 1234})
    pod = patched(driver(containers=[SHIPPER, spark, MESH]), terms())
    mounted = [bool(item.get("volumeMounts")) for item in pod["spec"]["containers"]]
    assert mounted == [False, True, False]
    assert pod["spec"]["initContainers"][0]["securityContext"]["runAsUser"] == 1234


def test_the_image_of_executors_is_that_of_spark() -> None:
    spark = container("main", args=["executor"], image="spark:4.3")
    pod = objects.submitted_executor(1)
    pod["spec"]["containers"] = [{**MESH, "image": "proxy:1"}, spark]
    assert executor_of(pod).image == "spark:4.3"
