"""The local cluster, with real Spark daemons: nodes die whole, come back, and leave nothing."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import loud_skips
import pytest

from rekindle.model.errors import InputError, RunError
from rekindle_local import cgroups, class_data_training, process_sets
from rekindle_local.spark_cluster import LocalCluster

SOURCES = str(Path(cgroups.__file__).parents[1])
MODES = [pytest.param(0.2, id="cgroups"), pytest.param(None, id="sessions")]

# Prints the ids of the executor's JVM, of its Python worker and of a process forked below that,
# as the resident host is; then it keeps the application alive.
APPLICATION = """
import os, subprocess, sys
from pyspark import SparkConf, SparkContext

def parent(pid):
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])

def look(_):
    child = subprocess.Popen(["sleep", "600"])
    return parent(os.getppid()), os.getppid(), child.pid, os.environ["REKINDLE_NODE"]

master, options = sys.argv[1:]
configuration = SparkConf().setMaster(master).setAppName("test")
for key, value in {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.extraJavaOptions": options,
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
}.items():
    configuration.set(key, value)
context = SparkContext(conf=configuration)
print(*context.parallelize([0], 1).map(look).collect()[0], flush=True)
sys.stdin.read()
os._exit(0)
"""

OWNER = """
import sys
from pathlib import Path
from rekindle_local.spark_cluster import LocalCluster

quota = float(sys.argv[2]) if len(sys.argv) == 3 else None
with LocalCluster(nodes=1, cpu_quota=quota, directory=Path(sys.argv[1])) as cluster:
    print(*cluster.processes(cluster.nodes[0].name), flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module", params=MODES)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    quota = request.param
    if quota is not None and cgroups.find_hierarchy() is None:
        loud_skips.skip("cgroups cannot be written here: needs root on Linux")
    directory = tmp_path_factory.mktemp("cluster")
    with LocalCluster(nodes=2, cpu_quota=quota, directory=directory) as cluster:
        yield cluster


@pytest.fixture
def node(cluster: LocalCluster) -> Iterator[str]:
    """A node that runs when the test begins, whatever the one before has done to it."""
    name = cluster.nodes[0].name
    if not cluster.processes(name):
        cluster.start_worker(name)
    yield name
    cluster.continue_processes(name)


def test_a_killed_node_leaves_no_process_and_its_neighbour_runs_on(
    cluster: LocalCluster, node: str
) -> None:
    neighbour = cluster.nodes[1].name
    victims, bystanders = cluster.processes(node), cluster.processes(neighbour)
    assert len(victims) >= 1
    cluster.kill([node])
    assert cluster.processes(node) == ()
    assert not any(is_alive(pid) for pid in victims)
    assert cluster.processes(neighbour) == bystanders


def test_a_returned_node_registers_again_as_a_fresh_worker(
    cluster: LocalCluster, node: str
) -> None:
    before = cluster.processes(node)
    cluster.kill([node])
    cluster.start_worker(node)
    assert not set(before) & set(cluster.processes(node))
    registered = re.findall(
        rf"Registering worker {re.escape(node)}:", (cluster.logs / "master-1.log").read_text()
    )
    assert len(registered) >= 2


def test_a_running_node_is_not_started_twice(cluster: LocalCluster, node: str) -> None:
    with pytest.raises(RunError, match="kill the node first"):
        cluster.start_worker(node)


def test_the_quota_holds_from_being_enforced_until_the_node_returns(
    cluster: LocalCluster, node: str
) -> None:
    if not cluster.quota_enforced:
        cluster.enforce_quota(node)
        assert cluster.quota(node) is None
        return
    cluster.enforce_quota(node)
    assert cluster.quota(node) == pytest.approx(0.2)
    cluster.kill([node])
    cluster.start_worker(node)
    assert cluster.quota(node) is None


def test_a_stopped_node_falls_silent_and_goes_on_when_continued(
    cluster: LocalCluster, node: str
) -> None:
    cluster.stop_processes(node)
    assert {read_state(pid) for pid in cluster.processes(node)} <= {"T", "D"}
    cluster.continue_processes(node)
    assert process_sets.await_condition(
        lambda: "T" not in {read_state(pid) for pid in cluster.processes(node)}, limit_seconds=60
    )


def test_the_cpu_time_of_a_node_is_counted(cluster: LocalCluster, node: str) -> None:
    assert cluster.cpu_seconds(node) > 0.1


def test_an_unknown_node_is_refused(cluster: LocalCluster) -> None:
    with pytest.raises(InputError, match=r"name one of 127\.0\.0\.2 to 127\.0\.0\.3"):
        cluster.kill(["127.0.0.99"])


@pytest.mark.usefixtures("node")
def test_executors_and_what_they_fork_die_with_their_node(cluster: LocalCluster) -> None:
    with run_application(cluster) as words:
        *pids, host = next(words).split()
        below = [int(pid) for pid in pids]
        assert set(below) < set(cluster.processes(host))
        cluster.stop_processes(host)  # the silent die like all others
        cluster.kill([host])
        assert cluster.processes(host) == ()
        assert not any(is_alive(pid) for pid in below)


@pytest.mark.parametrize("quota", MODES)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_when_the_owner_is_ended_by(
    number: signal.Signals, quota: float | None, tmp_path: Path
) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path), *([] if quota is None else [str(quota)])],
        env={**os.environ, "PYTHONPATH": SOURCES},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert owner.stdout is not None
    try:
        workers = [int(word) for word in owner.stdout.readline().split()]
        started = find_children(owner.pid)
        assert set(workers) <= set(started)
        assert bool(find_groups(owner.pid)) == (quota is not None and is_quota_possible())
    finally:
        owner.send_signal(number)
        owner.wait()
    assert process_sets.await_condition(
        lambda: not any(is_alive(pid) for pid in started), limit_seconds=120
    )
    assert find_groups(owner.pid) == []


def test_a_cluster_that_cannot_start_names_the_log_and_leaves_nothing(tmp_path: Path) -> None:
    cluster = LocalCluster(nodes=1, directory=tmp_path, java_options=("-javaagent:missing.jar",))
    with pytest.raises(RunError, match=r"master-1\.log.*read this log"):
        cluster.start()
    assert find_groups(os.getpid()) == []


def test_without_java_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="install a JDK 17 or newer"):
        LocalCluster(nodes=1, directory=tmp_path).start()


def test_settings_out_of_range_are_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nodes: is 0; give a number from 1"):
        LocalCluster(nodes=0, directory=tmp_path)


def test_archives_made_once_are_used_by_workers_and_offered_to_executors(tmp_path: Path) -> None:
    archives = (
        class_data_training.make_class_archives()
    )  # set-up has made them, where they could be made
    with LocalCluster(nodes=1, directory=tmp_path) as cluster:
        (worker,) = cluster.processes(cluster.nodes[0].name)
        assert str(archives.daemon) in Path(f"/proc/{worker}/maps").read_text()
        assert str(archives.executor) in cluster.executor_java_options()
        with run_application(cluster) as words:
            executor = next(words).split()[0]
            assert str(archives.executor) in Path(f"/proc/{executor}/maps").read_text()


@contextmanager
def run_application(cluster: LocalCluster) -> Iterator[Iterator[str]]:
    """Run APPLICATION on the cluster; gives what it prints, line by line. Its temporary files,
    which it does not remove when it is killed, go with the cluster's."""
    temporary = str(cluster.temporary)
    here = {
        "SPARK_LOCAL_DIRS": temporary,
        "SPARK_SUBMIT_OPTS": shlex.join([f"-Djava.io.tmpdir={temporary}"]),
    }
    application = subprocess.Popen(
        [sys.executable, "-c", APPLICATION, cluster.master_url, cluster.executor_java_options()],
        env={**os.environ, **here},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert application.stdout is not None
    try:
        yield iter(application.stdout.readline, "")
    finally:
        process_sets.kill_all(
            lambda: process_sets.session_processes(application.pid), limit_seconds=120
        )
        application.wait()


def read_state(pid: int) -> str:
    """The state letter of a process; X when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def is_alive(pid: int) -> bool:
    return read_state(pid) not in "XZ"


def is_quota_possible() -> bool:
    return cgroups.find_hierarchy() is not None


def find_groups(owner: int) -> list[Path]:
    """The top groups of clusters of this owner."""
    hierarchy = cgroups.find_hierarchy()
    roots = () if hierarchy is None else hierarchy.roots
    return [group for root in roots for group in root.glob(f"rekindle-{owner}-*")]


def find_children(pid: int) -> list[int]:
    """Of an owner: watcher, master and workers."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in children.split()]
