"""What the test control plane decides: what is refused, what nodes say."""

import socket
from datetime import UTC, datetime
from pathlib import Path

import pytest
from kubernetes import client
from urllib3.exceptions import HTTPError

from testbed import kubeconfigs, node_objects, plane_components
from testbed.__main__ import main
from testbed.node_objects import NodeShape
from testbed.test_authority import TestCertificate
from testbed.test_programs import CONTROL_PLANE, CONTROLLER_MANAGER, SCHEDULER

NOW = datetime(2030, 1, 2, 3, 4, 5, 678900, tzinfo=UTC)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no other folder of programs, and no Go."""
    cache = tmp_path / "cache"
    for name in ("KUBEBUILDER_ASSETS", "REKINDLE_KUBERNETES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("REKINDLE_TESTBED", str(cache))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    return cache


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["up", "--grace", "-1"], "--grace: is -1.0; give a number from 1"),
        (["up", "--directory", "/dev/null/x"], "/dev/null/x: cannot be made: /dev/null is no fo"),
        (["lose", "node-1"], "no control plane runs there; start one with `up`"),
        (["return", "node-1"], "no control plane runs there; start one with `up`"),
        (["down"], "no control plane runs there; start one with `up`"),
    ],
)
@pytest.mark.usefixtures("cache")
def test_what_cannot_be_done_by_hand_is_refused_in_a_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_a_request_does_not_wait_for_ever_for_a_server_that_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubeconfigs, "ANSWER_SECONDS_MAX", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        kubeconfig = kubeconfigs.write_kubeconfig(
            tmp_path / "kubeconfig",
            server=f"http://127.0.0.1:{port}",
            authority=tmp_path / "none",
            user="a",
            credential=kubeconfigs.token_credential("b"),
        )
        with kubeconfigs.make_client(kubeconfig) as api_client, pytest.raises(HTTPError):
            client.CoreV1Api(api_client).list_node()


def test_a_component_listens_on_loopback_only_and_added_arguments_come_last() -> None:
    ports = {name: 1000 + number for number, name in enumerate((*CONTROL_PLANE, "peers"))}
    plan = plane_components.ComponentPlan(
        store=Path("store"),
        programs={name: Path(name) for name in CONTROL_PLANE},
        ports=ports,
        authority=Path("ca"),
        server=TestCertificate(Path("crt"), Path("key")),
        tokens=(Path("private"), Path("public")),
        kubeconfigs={CONTROLLER_MANAGER: Path("one"), SCHEDULER: Path("two")},
        node_grace_seconds=8.5,
        node_monitor_seconds=1,
        arguments={SCHEDULER: ["--v=4"]},
    )
    commands = {name: plane_components.build_command(name, plan) for name in CONTROL_PLANE}
    assert commands[SCHEDULER][-1] == "--v=4"
    assert "--node-monitor-grace-period=8.5s" in commands[CONTROLLER_MANAGER]
    for name in CONTROL_PLANE:
        assert not any("0.0.0.0" in part for part in commands[name])
        assert any(str(ports[name]) in part for part in commands[name])


def test_a_node_is_registered_as_its_kubelet_does() -> None:
    shape = NodeShape(cpu="2", labels={"rack": "7"})
    labels = {node_objects.ZONE: "a"}
    node = node_objects.node(
        "n", shape, address="10.64.0.1", labels=labels, version="1.34.4", now=NOW
    )
    labels = node["metadata"]["labels"]
    assert labels["rack"] == "7"
    assert labels[node_objects.ZONE] == "a"
    assert labels[node_objects.HOSTNAME] == "n"
    statuses = {one["type"]: one["status"] for one in node["status"]["conditions"]}
    assert statuses == {
        "MemoryPressure": "False",
        "DiskPressure": "False",
        "PIDPressure": "False",
        "Ready": "True",
    }
    assert node["status"]["allocatable"]["cpu"] == "2"
    assert node["status"]["nodeInfo"]["kubeletVersion"] == "v1.34.4"


def test_a_lease_belongs_to_its_node_and_is_renewed_to_the_microsecond() -> None:
    lease = node_objects.lease("n", "uid", seconds=40, labels={}, now=NOW)
    assert lease["metadata"]["ownerReferences"][0]["uid"] == "uid"
    assert lease["spec"]["leaseDurationSeconds"] == 40
    assert lease["spec"]["renewTime"] == "2030-01-02T03:04:05.678900Z"
    assert node_objects.renewal(NOW) == {"spec": {"renewTime": "2030-01-02T03:04:05.678900Z"}}


def test_pods_have_addresses_of_their_own() -> None:
    assert node_objects.pod_address(1) == "10.128.0.1"
    assert len({node_objects.pod_address(number) for number in range(70_000)}) == 70_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--directory", "/dev/null"], "/dev/null: is no folder; name another directory, by"),
        (["--grace", "-1"], "--grace: is -1.0"),
    ],
)
def test_the_command_line_names_the_option_that_cannot_be_followed(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", *arguments]) == 2
    assert capsys.readouterr().err.startswith(message)
