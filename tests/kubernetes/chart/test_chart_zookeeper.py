"""The chart's ZooKeeper, with its rendered scripts and configuration, as processes of this machine.

Paths and addresses are changed into those of a test: pods have a network and files of their own.
"""

import os
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from chart_commands import Helm, Object, pick

from rekindle_local import process_sets, spark_distribution
from rekindle_local.daemons import Daemon, end_daemons
from rekindle_local.port_reservation import hold_port
from rekindle_local.process_reaper import ProcessReaper
from rekindle_operator.controller import store_certificate
from rekindle_operator.webhook.certificate_rotation import Issued
from rekindle_zookeeper import Connection, Encryption, StoreUnreachable, connect

WAIT_SECONDS_MAX = 180.0
ASK_SECONDS_MAX = 30
ELECTION_PORT = 3888
# So long the port waits for the first word without an end: ZooKeeper gives 5 s, some of which the
# handshake may take.
SILENT_SECONDS = 3.0
NAME = "rekindle-zookeeper"
HOSTS = tuple(f"127.0.1.{number}" for number in range(1, 6))
CERTIFICATE, RENEWED = (store_certificate.ISSUE(HOSTS, datetime.now(UTC)) for _ in range(2))
TRUSTED = CERTIFICATE.authority + RENEWED.authority


@dataclass(frozen=True, slots=True)
class Pod:
    """What would be a pod: `folder` has its configuration, and its data."""

    ordinal: int
    host: str
    port: int
    secure_port: int
    folder: Path
    workload: Object

    @property
    def environment(self) -> dict[str, str]:
        (container,) = self.workload["spec"]["template"]["spec"]["containers"]
        found = spark_distribution.find_distribution()
        told = {item["name"]: item.get("value", "") for item in container["env"]}
        return {
            **os.environ,
            **told,
            **({"TLS_FOLDER": str(self.secret)} if "TLS_FOLDER" in told else {}),
            "POD_NAME": f"{NAME}-{self.ordinal}",
            "SPARK_HOME": str(found.spark_home),
            "JAVA": str(found.java),
        }

    @property
    def secret(self) -> Path:
        """Where the Secret with the certificate is mounted."""
        return self.folder / "secret"

    def mount(self, issued: Issued) -> None:
        """As the kubelet does: all files at once, by a link."""
        new = self.folder / f"secret-{issued.starts:%Y%m%d%H%M%S}-{time.monotonic_ns()}"
        new.mkdir()
        for name, content in (
            ("tls.crt", issued.pair.certificate),
            ("tls.key", issued.pair.key),
            ("ca.crt", issued.authority),
        ):
            (new / name).write_bytes(content)
        link = self.folder / "secret-link"
        link.symlink_to(new)
        link.rename(self.secret)

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
        port, secure_port = (held.enter_context(hold_port(host)).getsockname()[1] for _ in range(2))
        pod = Pod(ordinal, host, port, secure_port, folder / str(ordinal), workload)
        (pod.folder / "data").mkdir(parents=True)
        pod.mount(CERTIFICATE)
        for name, text in files.items():
            (pod.folder / name).write_text(moved(text, pod))
        pods.append(pod)
    return pods


def moved(text: str, pod: Pod) -> str:
    """A file of the ConfigMap for this machine, on which servers differ by their address alone."""
    secure = f"secureClientPort={pod.secure_port}\nsecureClientPortAddress={pod.host}"
    for number in range(5):
        name = f"{NAME}-{number}.{NAME}.rekindle.svc"
        text = text.replace(f"={name}:", f"=127.0.1.{number + 1}:")
    for old, new in (
        ("/tmp/tls", f"{pod.folder}/tls"),
        ("dataDir=/data", f"dataDir={pod.folder}/data"),
        ("> /data/myid", f"> {pod.folder}/data/myid"),
        ("/etc/rekindle/zoo.cfg", f"{pod.folder}/zoo.cfg"),
        ("\nclientPortAddress=127.0.0.1", ""),
        ("clientPort=2181", f"clientPort={pod.port}\nclientPortAddress={pod.host}"),
        ("secureClientPort=2281", secure),
        ("quorumListenOnAllIPs=true", "quorumListenOnAllIPs=false"),
        ("/dev/tcp/127.0.0.1/2181", f"/dev/tcp/{pod.host}/{pod.port}"),
    ):
        text = text.replace(old, new)
    assert "2181" not in text
    assert "2281" not in text
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

    def connect(self, held: ExitStack) -> Connection:
        """By TLS, as all do."""
        servers = ",".join(f"{pod.host}:{pod.secure_port}" for pod in self.pods)
        found = connect(servers, encryption=Encryption(lambda: TRUSTED.decode(), "TRUSTED"))
        held.callback(found.close)
        assert process_sets.await_condition(lambda: found.reachable, limit_seconds=WAIT_SECONDS_MAX)
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
    store.put("/rekindle", b"kept")
    assert store.get("/rekindle") == (b"kept", 0)
    before = presented(ensemble.pods[0])
    ensemble.pods[0].mount(RENEWED)
    renewed = process_sets.await_condition(
        lambda: presented(ensemble.pods[0]) != before, limit_seconds=WAIT_SECONDS_MAX
    )
    assert renewed, "it presents the old certificate"
    assert store.get("/rekindle") == (b"kept", 0)
    assert ensemble.connect(held).get("/rekindle") == (b"kept", 0)


def presented(pod: Pod) -> str:
    """The certificate of a server, of any authority."""
    return ssl.get_server_certificate((pod.host, pod.secure_port), timeout=ASK_SECONDS_MAX)


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
    store.put("/rekindle", b"kept")
    ensemble.launch(2)
    assert await_probe(third, "readinessProbe")
    strangers = store_certificate.ISSUE(HOSTS, datetime.now(UTC))
    assert is_let_in(first, tmp_path, CERTIFICATE), "servers cannot reach each other so"
    assert not is_let_in(first, tmp_path, strangers), "a certificate of any authority is enough"
    assert not is_let_in(first, tmp_path, None), "no certificate is needed"
    end_daemons(ensemble.daemons[:1], ensemble.watcher)
    assert process_sets.await_condition(lambda: is_kept(store), limit_seconds=WAIT_SECONDS_MAX)


def is_let_in(pod: Pod, folder: Path, shown: Issued | None) -> bool:
    """Whether the port of the servers' election hears somebody out who shows this certificate: it
    waits for what is said, or ends the connection."""
    context = ssl.create_default_context(cadata=TRUSTED.decode())
    if shown is not None:
        file = folder / "shown.pem"
        file.write_bytes(shown.pair.key + shown.pair.certificate)
        context.load_cert_chain(file)
    try:
        with (
            socket.create_connection((pod.host, ELECTION_PORT), ASK_SECONDS_MAX) as raw,
            context.wrap_socket(raw, server_hostname=pod.host) as connection,
        ):
            connection.settimeout(SILENT_SECONDS)
            return bool(connection.recv(1))
    except TimeoutError:
        return True
    except OSError:  # by TLS, or by an end without a word
        return False


def is_kept(store: Connection) -> bool:
    try:
        return store.get("/rekindle") == (b"kept", 0)
    except StoreUnreachable:
        return False


@pytest.mark.parametrize("setting", ["store.plaintext=true", "store.open=true"])
def test_without_tls_servers_are_reached_in_plain_text(
    renderer: Helm, tmp_path: Path, held: ExitStack, setting: str
) -> None:
    objects = renderer.objects("--set", f"zookeeper.replicas=1,{setting}")
    ensemble = make_ensemble(objects, tmp_path, held)
    ensemble.launch(0)
    (pod,) = ensemble.pods
    store = connect(f"{pod.host}:{pod.port}")
    held.callback(store.close)
    store.put("/rekindle", b"kept")
    assert is_kept(store)


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
