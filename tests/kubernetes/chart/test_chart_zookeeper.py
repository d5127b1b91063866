"""The chart's ZooKeeper, with its rendered scripts and configuration, as processes of this machine.

Paths and addresses are changed into those of a test: pods have a network and files of their own.
"""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from chart_commands import Helm, Object, pick
from kazoo.client import KazooClient

from rekindle_local import process_sets, spark_distribution
from rekindle_local.daemons import Daemon, end_daemons
from rekindle_local.port_reservation import hold_port
from rekindle_local.process_reaper import ProcessReaper

WAIT_SECONDS_MAX = 180.0
ASK_SECONDS_MAX = 30
NAME = "rekindle-zookeeper"


@dataclass(frozen=True, slots=True)
class Pod:
    """What would be a pod: `folder` has its configuration, and its data."""

    ordinal: int
    host: str
    port: int
    folder: Path
    workload: Object

    @property
    def environment(self) -> dict[str, str]:
        (container,) = self.workload["spec"]["template"]["spec"]["containers"]
        found = spark_distribution.find_distribution()
        return {
            **os.environ,
            **{item["name"]: item.get("value", "") for item in container["env"]},
            "POD_NAME": f"{NAME}-{self.ordinal}",
            "SPARK_HOME": str(found.spark_home),
            "JAVA": str(found.java),
        }

    def command(self, probe: str = "") -> list[str]:
        """That of the container, or of one of its probes."""
        (container,) = self.workload["spec"]["template"]["spec"]["containers"]
        command = container[probe]["exec"]["command"] if probe else container["command"]
        return [word.replace("/etc/rekindle", str(self.folder)) for word in command]

    def passes(self, probe: str) -> bool:
        done = subprocess.run(
            self.command(probe), env=self.environment, capture_output=True, timeout=ASK_SECONDS_MAX
        )
        return done.returncode == 0


def make_pods(objects: list[Object], folder: Path, held: ExitStack) -> list[Pod]:
    workload = pick(objects, "StatefulSet", NAME)
    files = pick(objects, "ConfigMap", NAME)["data"]
    pods = []
    for ordinal in range(workload["spec"]["replicas"]):
        host = f"127.0.1.{ordinal + 1}"
        port = held.enter_context(hold_port(host)).getsockname()[1]
        pod = Pod(ordinal, host, port, folder / str(ordinal), workload)
        (pod.folder / "data").mkdir(parents=True)
        for name, text in files.items():
            (pod.folder / name).write_text(moved(text, pod))
        pods.append(pod)
    return pods


def moved(text: str, pod: Pod) -> str:
    """A file of the ConfigMap for this machine, on which servers differ by their address alone."""
    for number in range(5):
        name = f"{NAME}-{number}.{NAME}.rekindle.svc"
        text = text.replace(f"={name}:", f"=127.0.1.{number + 1}:")
    for old, new in (
        ("dataDir=/data", f"dataDir={pod.folder}/data"),
        ("> /data/myid", f"> {pod.folder}/data/myid"),
        ("/etc/rekindle/zoo.cfg", f"{pod.folder}/zoo.cfg"),
        ("clientPort=2181", f"clientPort={pod.port}\nclientPortAddress={pod.host}"),
        ("quorumListenOnAllIPs=true", "quorumListenOnAllIPs=false"),
        ("/dev/tcp/127.0.0.1/2181", f"/dev/tcp/{pod.host}/{pod.port}"),
    ):
        text = text.replace(old, new)
    assert "2181" not in text
    return text


@dataclass(frozen=True, slots=True)
class Ensemble:
    """The pods, and the processes that stand for them."""

    pods: list[Pod]
    daemons: list[Daemon]
    watcher: ProcessReaper

    def launch(self, ordinal: int) -> None:
        """Starts one server, and waits until it answers."""
        pod = self.pods[ordinal]
        self.daemons[ordinal].launch(pod.command(), pod.environment, self.watcher)
        assert await_probe(pod, "livenessProbe")

    def connect(self, held: ExitStack) -> KazooClient:
        found = KazooClient(",".join(f"{pod.host}:{pod.port}" for pod in self.pods))
        found.start(timeout=WAIT_SECONDS_MAX)
        held.callback(found.stop)
        return found


@pytest.fixture
def held() -> Iterator[ExitStack]:
    """What is given up after the test, the last first."""
    with ExitStack() as held:
        yield held


def make_ensemble(objects: list[Object], folder: Path, held: ExitStack) -> Ensemble:
    pods = make_pods(objects, folder, held)
    logs = folder / "logs"
    logs.mkdir()
    watcher = ProcessReaper((), logs / "watcher.log")
    held.callback(watcher.close)
    daemons = [Daemon(f"server-{pod.ordinal}", logs, None) for pod in pods]
    held.callback(end_daemons, daemons, watcher)
    return Ensemble(pods, daemons, watcher)


def test_a_single_server_keeps_what_it_is_told(
    renderer: Helm, tmp_path: Path, held: ExitStack
) -> None:
    objects = renderer.objects("--set", "zookeeper.replicas=1")
    ensemble = make_ensemble(objects, tmp_path, held)
    ensemble.launch(0)
    assert await_probe(ensemble.pods[0], "readinessProbe")
    store = ensemble.connect(held)
    store.create("/rekindle", b"kept")
    assert store.get("/rekindle")[0] == b"kept"


def test_servers_are_ready_once_they_are_a_majority_and_one_may_be_lost(
    renderer: Helm, tmp_path: Path, held: ExitStack
) -> None:
    ensemble = make_ensemble(renderer.objects(), tmp_path, held)
    first, second, third = ensemble.pods
    ensemble.launch(0)
    assert not first.passes("readinessProbe"), "ready without a majority"
    ensemble.launch(1)
    assert await_probe(first, "readinessProbe")
    assert await_probe(second, "readinessProbe")
    store = ensemble.connect(held)
    store.create("/rekindle", b"kept")
    ensemble.launch(2)
    assert await_probe(third, "readinessProbe")
    end_daemons(ensemble.daemons[:1], ensemble.watcher)
    kept = store.retry(store.get, "/rekindle")
    assert kept[0] == b"kept"


def test_a_server_that_does_not_hang_up_fails_its_probe(
    renderer: Helm, tmp_path: Path, held: ExitStack
) -> None:
    objects = renderer.objects("--set", "zookeeper.replicas=1")
    (pod,) = make_pods(objects, tmp_path, held)
    server = held.enter_context(socket.create_server((pod.host, pod.port)))
    assert not pod.passes("livenessProbe")
    with server.accept()[0] as asked:
        assert asked.recv(16) == b"ruok"


def await_probe(pod: Pod, probe: str) -> bool:
    return process_sets.await_condition(lambda: pod.passes(probe), limit_seconds=WAIT_SECONDS_MAX)


def test_an_image_without_sparks_jars_says_what_is_wrong(
    renderer: Helm, tmp_path: Path, held: ExitStack
) -> None:
    objects = renderer.objects("--set", "zookeeper.replicas=1")
    (pod,) = make_pods(objects, tmp_path, held)
    environment = pod.environment | {"SPARK_HOME": str(tmp_path)}
    done = subprocess.run(pod.command(), env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert "holds no zookeeper-*.jar: zookeeper.image must be a Spark image" in done.stderr
