"""What tests with a real Spark driver share: input files, and an application on real nodes."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest
from kubernetes import client

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "integration"))

import readings
from application import LASTING, Application
from spark_on_kubernetes import (
    Cluster,
    await_start,
    make_driver_pod,
    make_namespace,
    place,
    spark_options,
)

from rekindle_local import local_control_plane as rekindle_control_plane
from rekindle_local.spark_cluster import LocalCluster
from testbed import spark_image
from testbed.control_plane import ControlPlane
from testbed.pod_processes import PodProcesses
from testbed.simulated_kubelets import SimulatedKubelets

LEASE_SECONDS = 1.0

Start = Callable[..., tuple[Cluster, Application]]


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the input files."""
    directory = tmp_path_factory.mktemp("input")
    readings.prepare(directory)
    return directory


@pytest.fixture
def start(
    control_plane: ControlPlane,
    audit: Path,
    api_client: client.ApiClient,
    inputs: Path,
    tmp_path: Path,
) -> Iterator[Start]:
    """Starts an application whose queries are live when it returns; `led` by a coordinator or not,
    `in_pod`: with a pod of its own that the driver is taken to run in.

    After `silent_seconds` its driver drops an executor by itself. Nothing of it is left afterwards,
    its namespace included.
    """
    control_plane.restore()
    core: Any = client.CoreV1Api(api_client)
    rbac: Any = client.RbacAuthorizationV1Api(api_client)
    with ExitStack() as stack:

        def start_one(
            *, led: bool = False, silent_seconds: float = 15, in_pod: bool = False
        ) -> tuple[Cluster, Application]:
            namespace = make_namespace(core, rbac)
            stack.callback(core.delete_namespace, namespace)
            stack.callback(control_plane.restore)
            images = {spark_image.NAME: spark_image.spark_image()}
            machines = stack.enter_context(PodProcesses(tmp_path / "pods", images))
            simulated = stack.enter_context(
                SimulatedKubelets(control_plane, lease_seconds=LEASE_SECONDS, machines=machines)
            )
            told = tmp_path / "told" if led else None
            cluster = Cluster(control_plane, simulated, machines, core, namespace, audit, told)
            options = spark_options(control_plane, namespace, tmp_path / "executor.json")
            if in_pod:
                options |= make_driver_pod(cluster)
            control = None
            if told is not None:
                control = stack.enter_context(
                    rekindle_control_plane.LocalControlPlane(
                        directory=tmp_path / "control",
                        cluster=told,
                        socket=machines.scratch / "sidecar.sock",
                        place=place(namespace),
                    )
                )
            application = Application(
                cast(LocalCluster, cluster),
                tmp_path / "application",
                inputs,
                runtime=LASTING,
                policy={"silent_seconds": silent_seconds},
                spark=options,
                control=control,
            )
            stack.callback(lambda: print(application.tail()))  # shown where the test fails
            stack.callback(application.driver.end)
            await_start(application)
            return cluster, application

        yield start_one
