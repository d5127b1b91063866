"""What tests on real nodes share: one cluster for each file, and pods of busybox on it.

Without root, Linux and the packages that such a cluster needs, these tests are skipped, loudly;
under `CI=true` they fail instead. A machine has one cluster at a time, so they run one by one.
"""

import secrets
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from rekindle_local import process_sets
from testbed import test_programs
from testbed.cluster import cluster_prerequisites
from testbed.cluster.node_cluster import NodeCluster

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
import loud_skips
from busybox_pods import WAIT_SECONDS_MAX, Pods

NODE_GRACE_SECONDS = 24.0
NODE_MONITOR_SECONDS = 1.0

LOUD = "NOTHING WAS TESTED ON REAL NODES"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Looks whether this machine can have a cluster, and finds or builds its programs."""
    if "node_programs" in loud_skips.used_fixtures(session):
        loud_skips.keep(session, LOUD, find_programs)


def find_programs(say: Callable[[str], None]) -> dict[str, Path]:
    names = (*test_programs.CONTROL_PLANE, *test_programs.NODE)
    cluster_prerequisites.find_installed(*test_programs.lacking(names))
    return test_programs.find(names, progress=say)


@pytest.fixture(scope="session")
def node_programs(request: pytest.FixtureRequest) -> dict[str, Path]:
    """The paths of the programs by name; without them the tests are skipped."""
    return loud_skips.programs(request, LOUD)


@pytest.fixture(scope="module")
def cluster(
    node_programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NodeCluster]:
    """A cluster without nodes: who adds some need not remove them."""
    with NodeCluster(
        directory=tmp_path_factory.mktemp("cluster"),
        programs=node_programs,
        node_grace_seconds=NODE_GRACE_SECONDS,
        node_monitor_seconds=NODE_MONITOR_SECONDS,
    ) as cluster:
        yield cluster


@pytest.fixture
def core(cluster: NodeCluster) -> Iterator[Any]:
    """An administrator's client. After the test no node is left."""
    with cluster.plane.api_client() as api_client:
        core: Any = client.CoreV1Api(api_client)
        try:
            yield core
        finally:
            cluster.remove(*(node.metadata.name for node in core.list_node().items))


@pytest.fixture
def pods(cluster: NodeCluster, core: Any) -> Iterator[Pods]:
    """Pods in a new namespace; it and all in it go after the test."""
    name = f"test-{secrets.token_hex(4)}"
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=name)))
    there = process_sets.await_condition(
        lambda: bool(core.list_namespaced_service_account(name).items),
        limit_seconds=WAIT_SECONDS_MAX,
    )
    assert there
    try:
        yield Pods(core, name, cluster.shared)
    finally:
        core.delete_namespace(name)
