"""What a container would run, made from a pod's body."""

from pathlib import Path
from typing import Any

import pytest

from rekindle.model.errors import InputError
from testbed import spark_image
from testbed.container_commands import ContainerCommand, read_containers

EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@127.0.0.1:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "127.1.0.3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "exec-3",
    "SPARK_EXECUTOR_MEMORY": "512m",
}


def reference(path: str) -> dict[str, Any]:
    return {"name": "GIVEN", "valueFrom": {"fieldRef": {"fieldPath": path}}}


def pod(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "one", "namespace": "team", "uid": "u", "labels": {"a": "b"}}
    return {"metadata": metadata, "spec": {"nodeName": "n7", "containers": [], **spec}}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "one"),
        ("metadata.namespace", "team"),
        ("metadata.uid", "u"),
        ("metadata.labels['a']", "b"),
        ("spec.nodeName", "n7"),
        ("spec.serviceAccountName", "default"),
        ("status.podIP", "127.1.0.3"),
        ("status.hostIP", "10.0.0.1"),
    ],
)
def test_a_reference_to_a_field_of_the_pod_is_resolved(path: str, value: str) -> None:
    body = pod(containers=[{"name": "main", "env": [reference(path)]}])
    (main,) = read_containers(body, address="127.1.0.3", node_address="10.0.0.1")
    assert main.environment == {"GIVEN": value}


def test_sidecars_come_first_and_containers_that_end_at_the_start_are_left_out() -> None:
    initial = [{"name": "first"}, {"name": "sidecar", "restartPolicy": "Always"}]
    body = pod(initContainers=initial, containers=[{"name": "main", "args": ["executor"]}])
    found = read_containers(body, address="", node_address="")
    assert [one.name for one in found] == ["sidecar", "main"]
    assert found[1].arguments == ("executor",)


def test_an_executor_gets_its_java_options_in_their_order(tmp_path: Path) -> None:
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in (10, 2, 0)}
    container = ContainerCommand(
        "main", "", arguments=("executor",), environment={**EXECUTOR, **options}
    )
    launch = spark_image.spark_image()(container, tmp_path)
    given = [part for part in launch.command if part.startswith("-Dn=")]
    assert given == ["-Dn=0", "-Dn=2", "-Dn=10"]
    assert launch.command[-2:] == ["--podName", "exec-3"]
    assert launch.environment["SPARK_LOCAL_DIRS"] == str(tmp_path)
    assert launch.environment["SPARK_LOCAL_IP"] == "127.1.0.3"


def test_an_executor_without_its_variables_is_refused(tmp_path: Path) -> None:
    container = ContainerCommand("main", "", arguments=("executor",), environment={})
    with pytest.raises(InputError, match="SPARK_DRIVER_URL"):
        spark_image.spark_image()(container, tmp_path)


def test_anything_else_is_run_as_it_stands(tmp_path: Path) -> None:
    container = ContainerCommand("main", "", ("python", "-c"), ("pass",), {"SPARK_USER": "me"})
    launch = spark_image.spark_image()(container, tmp_path)
    assert launch.command == ("python", "-c", "pass")
    assert launch.environment["SPARK_USER"] == "me"
