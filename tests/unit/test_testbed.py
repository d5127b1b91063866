"""What the test control plane decides: where programs come from, what nodes say."""

import os
import socket
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from kubernetes import client
from urllib3.exceptions import HTTPError

from rekindle.errors import InputError, RunError
from testbed import access, binaries, bodies, building, components, definitions
from testbed.__main__ import main
from testbed.binaries import API_SERVER, CONTROL_PLANE, CONTROLLER_MANAGER, ETCD, SCHEDULER
from testbed.bodies import NodeShape
from testbed.certificates import Certificate

NOW = datetime(2030, 1, 2, 3, 4, 5, 678900, tzinfo=UTC)
UPSTREAM = """module k8s.io/kubernetes

go 1.24.0

godebug default=go1.24

require (
	k8s.io/api v0.0.0
	k8s.io/utils v0.0.0-20250604170112-4c0f3b243397
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/kubectl => ./staging/src/k8s.io/kubectl
)
"""
# What a test's own `go` does: it makes the file behind -o, or says where a go.mod lies.
GO = """#!/bin/sh
echo "$@" >> "$TESTBED_CALLS"
if [ "$1" = list ]; then echo "$TESTBED_UPSTREAM"; exit; fi
[ -n "$TESTBED_BROKEN" ] && { echo 'package is not in std' >&2; exit 1; }
while [ "$1" != -o ]; do shift; done
printf '#!/bin/sh\\n' > "$2"; chmod +x "$2"
"""


def make_programs(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch(mode=0o755)
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no other folder of programs, and no Go."""
    cache = tmp_path / "cache"
    for name in ("KUBEBUILDER_ASSETS", "REKINDLE_KUBERNETES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("REKINDLE_TESTBED", str(cache))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    return cache


@pytest.fixture
def go(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `go` that builds empty programs; the file with its calls."""
    folder, upstream, calls = (cache.parent / name for name in ("tools", "upstream", "calls"))
    folder.mkdir()
    (folder / "go").write_text(GO)
    (folder / "go").chmod(0o755)
    upstream.write_text(UPSTREAM)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")
    monkeypatch.setenv("TESTBED_UPSTREAM", str(upstream))
    monkeypatch.setenv("TESTBED_CALLS", str(calls))
    return calls


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


def test_programs_come_from_the_named_folder_then_from_the_cache(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assets = make_programs(tmp_path / "assets", ETCD, API_SERVER)
    kept = make_programs(cache / binaries.KUBERNETES_VERSION, *CONTROL_PLANE)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    assert binaries.find() == {
        ETCD: assets / ETCD,
        API_SERVER: assets / API_SERVER,
        CONTROLLER_MANAGER: kept / CONTROLLER_MANAGER,
        SCHEDULER: kept / SCHEDULER,
    }


def test_a_named_folder_without_an_api_server_is_refused(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(make_programs(tmp_path / "assets", ETCD)))
    with pytest.raises(InputError, match=r"KUBEBUILDER_ASSETS=.*holds no program kube-apiserver"):
        binaries.find()
    assert not cache.exists()


@pytest.mark.usefixtures("cache")
def test_without_programs_and_without_go_the_error_says_what_to_install() -> None:
    with pytest.raises(InputError, match=r"Go is not installed.*; install Go .*KUBEBUILDER_ASSETS"):
        binaries.find()


def test_without_go_it_is_said_before_anything_is_built_what_cannot_be(
    monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    make_programs(cache / binaries.KUBERNETES_VERSION, *CONTROL_PLANE)
    assert not binaries.lacking()
    (fault,) = binaries.lacking((*CONTROL_PLANE, "kubelet", "helm"))
    assert "holds no kubelet, helm, and Go is not installed" in fault.what
    monkeypatch.setenv("REKINDLE_KUBERNETES", "latest")
    (fault,) = binaries.lacking()
    assert fault.where == "REKINDLE_KUBERNETES"


def test_neither_a_cache_that_cannot_be_made_nor_missing_go_hides_the_other(cache: Path) -> None:
    cache.touch()
    for faults in (binaries.lacking(), definitions.lacking("spark-operator")):
        assert [("no folder" in fault.what, "Go is not" in fault.what) for fault in faults] == [
            (True, False),
            (False, True),
        ]


@pytest.mark.parametrize("version", ["1.34", "v1.34.4", "latest", "2.0.0", "1.34.4; rm"])
def test_a_version_that_is_none_is_refused(version: str) -> None:
    with pytest.raises(InputError, match=r"REKINDLE_KUBERNETES: is .*; give a whole version"):
        binaries.kubernetes_version({"REKINDLE_KUBERNETES": version})


def test_the_cache_lies_where_the_user_wants_it() -> None:
    assert binaries.cache_folder({"REKINDLE_TESTBED": "/a"}) == Path("/a")
    assert binaries.cache_folder({"XDG_CACHE_HOME": "/b"}) == Path("/b/rekindle/testbed")
    assert binaries.cache_folder({}) == Path.home() / ".cache" / "rekindle" / "testbed"


def test_without_a_home_the_cache_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobodys() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nobodys)
    with pytest.raises(InputError, match=r"HOME: is not set.* let REKINDLE_TESTBED name a folder"):
        binaries.cache_folder({})


def test_a_cache_that_cannot_be_made_is_refused_before_anything_is_built(
    cache: Path, go: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache.touch()
    assert main(["build", ETCD]) == 2
    assert f"cannot be made: {cache} is no folder; let REKINDLE_TESTBED" in capsys.readouterr().err
    assert not go.exists(), "it was not called"
    assert len(binaries.lacking()) == 1


def test_what_is_missing_is_built_once_and_kept(cache: Path, go: Path) -> None:
    make_programs(cache / binaries.KUBERNETES_VERSION, ETCD)
    said: list[str] = []
    found = binaries.find([ETCD, SCHEDULER, "helm"], progress=said.append)
    assert all(os.access(path, os.X_OK) for path in found.values())
    built = [line.split()[-1] for line in go.read_text().splitlines() if line.startswith("build")]
    assert built == ["k8s.io/kubernetes/cmd/kube-scheduler", building.helm().packages["helm"]]
    assert any("kube-scheduler (1 of 1)" in line for line in said)
    assert binaries.find([ETCD, SCHEDULER, "helm"]) == found
    assert len(go.read_text().splitlines()) == 4
    left = {path.name for path in (cache / binaries.KUBERNETES_VERSION).iterdir()}
    assert left == {ETCD, SCHEDULER, "lock"}


def test_two_builders_at_once_do_no_harm_and_the_second_builds_nothing(go: Path) -> None:
    threads = [threading.Thread(target=binaries.find, args=[[SCHEDULER]]) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(line.startswith("build") for line in go.read_text().splitlines()) == 1


@pytest.mark.usefixtures("go")
def test_what_an_ended_builder_has_left_is_removed(cache: Path) -> None:
    folder = make_programs(cache / binaries.KUBERNETES_VERSION)
    make_programs(folder / "building-left", SCHEDULER)
    binaries.find([SCHEDULER])
    assert {path.name for path in folder.iterdir()} == {SCHEDULER, "lock"}


@pytest.mark.usefixtures("go")
def test_a_build_that_fails_says_why_and_leaves_no_program(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESTBED_BROKEN", "yes")
    with pytest.raises(RunError, match=r"go build k8s\.io/.*: package is not in std; see whether"):
        binaries.find([SCHEDULER])
    assert {path.name for path in (cache / binaries.KUBERNETES_VERSION).iterdir()} == {"lock"}


def test_a_request_does_not_wait_for_ever_for_a_server_that_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "ANSWER_SECONDS_MAX", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        kubeconfig = access.write_kubeconfig(
            tmp_path / "kubeconfig",
            server=f"http://127.0.0.1:{port}",
            authority=tmp_path / "none",
            user="a",
            credential=access.token_credential("b"),
        )
        with access.make_client(kubeconfig) as api_client, pytest.raises(HTTPError):
            client.CoreV1Api(api_client).list_node()


def test_replacements_by_folders_become_modules_of_the_same_version() -> None:
    composed = building.compose_module(building.kubernetes("1.34.4"), UPSTREAM)
    assert composed == (
        "module testbed\n\ngo 1.24.0\n\nrequire k8s.io/kubernetes v1.34.4\n\nreplace (\n"
        "\tk8s.io/api => k8s.io/api v0.34.4\n\tk8s.io/kubectl => k8s.io/kubectl v0.34.4\n)\n"
    )


def test_a_module_without_replacements_is_only_required() -> None:
    source = building.helm()
    composed = building.compose_module(source, "module x\n\ngo 1.25.0\n")
    assert composed == (
        f"module testbed\n\ngo 1.25.0\n\nrequire {source.module} {source.version}\n"
    )


def test_a_component_listens_on_loopback_only_and_added_arguments_come_last() -> None:
    ports = {name: 1000 + number for number, name in enumerate((*CONTROL_PLANE, "peers"))}
    plan = components.Plan(
        store=Path("store"),
        programs={name: Path(name) for name in CONTROL_PLANE},
        ports=ports,
        authority=Path("ca"),
        server=Certificate(Path("crt"), Path("key")),
        tokens=(Path("private"), Path("public")),
        kubeconfigs={CONTROLLER_MANAGER: Path("one"), SCHEDULER: Path("two")},
        node_grace_seconds=8.5,
        node_monitor_seconds=1,
        arguments={SCHEDULER: ["--v=4"]},
    )
    commands = {name: components.build_command(name, plan) for name in CONTROL_PLANE}
    assert commands[SCHEDULER][-1] == "--v=4"
    assert "--node-monitor-grace-period=8.5s" in commands[CONTROLLER_MANAGER]
    for name in CONTROL_PLANE:
        assert not any("0.0.0.0" in part for part in commands[name])
        assert any(str(ports[name]) in part for part in commands[name])


def test_a_node_is_registered_as_its_kubelet_does() -> None:
    shape = NodeShape(cpu="2", labels={"rack": "7"})
    labels = {bodies.ZONE: "a"}
    node = bodies.node("n", shape, address="10.64.0.1", labels=labels, version="1.34.4", now=NOW)
    labels = node["metadata"]["labels"]
    assert labels["rack"] == "7"
    assert labels[bodies.ZONE] == "a"
    assert labels[bodies.HOSTNAME] == "n"
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
    lease = bodies.lease("n", "uid", seconds=40, labels={}, now=NOW)
    assert lease["metadata"]["ownerReferences"][0]["uid"] == "uid"
    assert lease["spec"]["leaseDurationSeconds"] == 40
    assert lease["spec"]["renewTime"] == "2030-01-02T03:04:05.678900Z"
    assert bodies.renewal(NOW) == {"spec": {"renewTime": "2030-01-02T03:04:05.678900Z"}}


def test_pods_have_addresses_of_their_own() -> None:
    assert bodies.pod_address(1) == "10.128.0.1"
    assert len({bodies.pod_address(number) for number in range(70_000)}) == 70_000


def test_the_command_line_refuses_a_program_that_it_does_not_know(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["build", "kubeadm"]) == 2
    assert "PROGRAM: is 'kubeadm'; choose etcd or" in capsys.readouterr().err


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
