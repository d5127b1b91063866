"""What integration tests share: one cluster for all applications, the input files, a ZooKeeper.

Without the server of stores on S3, and without Go to build it, tests of it are skipped, loudly;
under `CI=true` they fail instead.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import loud_skips
import readings
from application import Application, restore
from object_server import LOUD, ObjectServer, set_environment
from surroundings import Surroundings

from rekindle_local.local_zookeeper import LocalZookeeper
from rekindle_local.spark_cluster import LocalCluster
from rekindle_spark.spark import jvm_build
from testbed import test_programs

NODES = 3

Start = Callable[..., Application]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Finds or builds the server before the first test begins: a test has a limit of minutes."""
    if "server" in loud_skips.used_fixtures(session):
        wanted = [test_programs.VERSITYGW]
        loud_skips.keep(session, LOUD, lambda say: test_programs.find(wanted, progress=say))


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes without a quota, used by one application after the other."""
    directory = tmp_path_factory.mktemp("nodes")
    with LocalCluster(
        nodes=NODES, directory=directory, cpu_quota=None, class_path=[Path(jvm_build.path())]
    ) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the input files."""
    directory = tmp_path_factory.mktemp("input")
    readings.prepare(directory)
    return directory


@pytest.fixture
def prepare(shared_cluster: LocalCluster, inputs: Path, tmp_path: Path) -> Iterator[Start]:
    """Makes applications, not started yet; ends their drivers and restores the cluster."""
    made: list[Application] = []

    def make(**options: object) -> Application:
        directory = tmp_path / f"application-{len(made)}"
        made.append(Application(shared_cluster, directory, inputs, **options))
        return made[-1]

    restore(shared_cluster)
    yield make
    for application in made:
        application.driver.end()
    restore(shared_cluster)


@pytest.fixture
def server(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ObjectServer]:
    """A server of S3 that runs, and that this process knows how to reach."""
    server = ObjectServer(
        program=loud_skips.programs(request, LOUD)[test_programs.VERSITYGW],
        folder=tmp_path / "server",
    )
    set_environment(monkeypatch, server.environment())
    server.start()
    yield server
    server.close()


@pytest.fixture
def surroundings(
    shared_cluster: LocalCluster, inputs: Path, tmp_path: Path
) -> Iterator[Surroundings]:
    """For one application whose orders come from a coordinator of its own."""
    restore(shared_cluster)
    with ExitStack() as stack:
        stack.callback(restore, shared_cluster)
        yield Surroundings(shared_cluster, inputs, tmp_path, stack)


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalZookeeper]:
    """One server, used by one test after the other: who needs it to run starts it again."""
    with LocalZookeeper(directory=tmp_path_factory.mktemp("zookeeper")) as started:
        yield started
