"""What the cluster of real nodes decides: addresses, settings, images, who may have one."""

import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import threading
from ipaddress import IPv4Network
from pathlib import Path

import pytest
import yaml

from rekindle.model.errors import InputError, RunError
from rekindle_local import process_sets
from testbed.__main__ import main
from testbed.cluster import (
    cluster_lock,
    cluster_prerequisites,
    containerd_images,
    control_socket,
    machine_cgroups,
    machine_namespaces,
    machine_network,
    node_configuration,
)
from testbed.cluster.cluster_node import ClusterMachine
from testbed.cluster.containerd_images import Content
from testbed.cluster.machine_names import NODES_MAX, PODS, ClusterFolders, MachineNames
from testbed.cluster.machine_namespaces import NamespacedMachine
from testbed.cluster.node_cluster import NodeCluster
from testbed.cluster.node_configuration import NodeSpec

MOUNTS = """tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
"""
NOBODY = 2**22 + 1  # Linux gives no process a number as high
HOLDER = (
    "from testbed.cluster import cluster_lock as seat; import sys, time; from pathlib import Path\n"
)


@pytest.fixture
def place(tmp_path: Path) -> MachineNames:
    return ClusterFolders(tmp_path).place(7)


@pytest.fixture
def free_seat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The seat of a machine on which nobody has a cluster."""
    folder = tmp_path / "seat"
    monkeypatch.setattr(cluster_lock, "FOLDER", folder)
    monkeypatch.setenv("REKINDLE_TESTBED", str(tmp_path / "cache"))
    return folder


def test_every_node_has_addresses_of_its_own(tmp_path: Path) -> None:
    places = [ClusterFolders(tmp_path).place(number) for number in range(1, NODES_MAX + 1)]
    assert len({one.address for one in places}) == NODES_MAX
    assert len({one.pods for one in places}) == NODES_MAX
    assert all(one.pods.subnet_of(PODS) for one in places)
    assert all(len(one.port) <= 15 for one in places), "the kernel's limit on a link's name"


def test_a_kubelet_reserves_what_the_machine_has_beyond_its_node(place: MachineNames) -> None:
    cores = os.cpu_count() or 1
    spec = NodeSpec(cores=0.5, memory_mib=256, taints=[{"key": "a", "effect": "NoSchedule"}])
    told = yaml.safe_load(node_configuration.kubelet(place, spec, Path("authority")))
    kept_mib = int(told["systemReserved"]["memory"].removesuffix("Mi"))
    assert told["systemReserved"]["cpu"] == f"{cores * 1000 - 500}m"
    assert kept_mib + 256 + node_configuration.MEMORY_LEFT_MIB == node_configuration.machine_mib()
    assert told["cgroupRoot"] == "/rekindle-testbed/node-7"
    assert told["registerWithTaints"] == [{"key": "a", "effect": "NoSchedule"}]


def test_a_kubelet_says_the_zone_and_the_labels_of_its_node(place: MachineNames) -> None:
    arguments = node_configuration.kubelet_arguments(
        place, NodeSpec(zone="a", labels={"pool": "b"})
    )
    assert "--node-labels=pool=b,topology.kubernetes.io/zone=a" in arguments
    assert len(node_configuration.kubelet_arguments(place, NodeSpec())) == 2


def test_pods_get_addresses_of_their_node(place: MachineNames) -> None:
    (plugin,) = json.loads(node_configuration.pod_network(place.pods))["plugins"]
    assert plugin["ipam"]["ranges"] == [[{"subnet": "10.124.7.0/24"}]]


@pytest.mark.parametrize(
    ("destination", "is_taken"),
    [
        ("default", False),
        ("10.0.0.0/8", False),
        ("10.124.0.0/16", True),
        ("10.124.3.1", True),
        ("broadcast", False),
        ("192.0.2.0/24", False),
    ],
)
def test_only_a_route_that_takes_addresses_away_is_in_the_way(
    destination: str, is_taken: bool
) -> None:
    found = machine_network.overlapping(IPv4Network("10.124.0.0/16"), ["192.0.2.1", destination])
    assert found == (destination if is_taken else None)


def test_groups_are_made_in_every_hierarchy() -> None:
    roots, controllers = machine_cgroups.parse_roots(MOUNTS)
    assert [root.name for root in roots] == ["cpu,cpuacct", "memory", "unified"]
    assert {"cpu", "cpuacct", "memory"} <= controllers


def test_an_archive_holds_what_its_manifest_names(tmp_path: Path) -> None:
    content = Content({"bin/tool": b"program"}, {"bin/other": "tool"}, command=("/bin/tool",))
    path = containerd_images.write_archive(
        tmp_path / "a.tar", content, "localhost/a:1", "localhost/b:1"
    )
    with tarfile.open(path) as archive:
        (manifest,) = json.load(archive.extractfile("manifest.json"))
        config = json.load(archive.extractfile(manifest["Config"]))
        with tarfile.open(fileobj=archive.extractfile(manifest["Layers"][0])) as layer:
            tool = layer.extractfile("bin/tool")
            assert tool is not None
            assert tool.read() == b"program"
            assert layer.getmember("bin/tool").mode == 0o755
            assert layer.getmember("bin/other").linkname == "tool"
            assert layer.getmember("tmp").mode == 0o1777
    assert manifest["RepoTags"] == ["localhost/a:1", "localhost/b:1"]
    assert config["config"]["Cmd"] == ["/bin/tool"]
    again = containerd_images.write_archive(
        tmp_path / "b.tar", content, "localhost/a:1", "localhost/b:1"
    )
    assert again.read_bytes() == path.read_bytes()


def test_a_busybox_that_needs_libraries_is_refused() -> None:
    with pytest.raises(InputError, match=r"linked dynamically.*busybox-static"):
        containerd_images.read_busybox(Path(sys.executable).resolve())


def test_all_that_is_not_installed_is_named_with_its_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(machine_cgroups, "find_groups", lambda: None)
    monkeypatch.setitem(machine_namespaces.ENVIRONMENT, "PATH", str(tmp_path))
    monkeypatch.setattr(cluster_prerequisites, "_PLUGIN_FOLDERS", (tmp_path,))
    with pytest.raises(InputError) as caught:
        cluster_prerequisites.find_installed()
    packages = "busybox-static containerd containernetworking-plugins iproute2 iptables mount runc"
    assert caught.value.remedy.endswith(f"{packages} util-linux`")
    assert "CNI plugin ptp" in caught.value.what


def test_all_that_is_in_the_way_of_a_cluster_is_said_in_one_message(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setitem(machine_namespaces.ENVIRONMENT, "PATH", str(tmp_path))
    monkeypatch.setattr(machine_cgroups, "find_groups", pytest.fail)
    other = InputError(where="Go", what="is not installed", remedy="install it")
    with pytest.raises(InputError) as caught:
        cluster_prerequisites.find_installed(other, other)
    first, *lines = str(caught.value).splitlines()
    assert first == "prerequisites: 3 are missing or wrong; see to each:"
    assert "needs root; run it as root, or use simulated nodes" in lines[0]
    assert "these are not installed: containerd, " in lines[1]
    assert lines[2:] == ["  Go: is not installed; install it"]


def test_a_folder_that_nodes_do_not_see_is_refused() -> None:
    with pytest.raises(InputError, match="/run/here: is below /run, of which every node has"):
        cluster_prerequisites.check_folder(Path("/run/here"))
    cluster_prerequisites.check_folder(Path("/srv/here"))


def test_groups_that_cannot_be_made_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_cgroups, "_can_write", lambda _: False)
    with pytest.raises(InputError, match=r"^cgroups: .*; "):
        machine_cgroups.find_groups()


def test_a_second_cluster_is_refused_until_the_first_has_ended(free_seat: Path) -> None:
    script = (
        f"{HOLDER}seat.FOLDER = Path(sys.argv[1])\n"
        "with seat.claimed():\n"
        "    seat.write(seat.ClusterRecord(__import__('os').getpid(), Path('/somewhere'), 128))\n"
        "    print('held', flush=True); time.sleep(100)\n"
    )
    path = ":".join(sys.path)
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(free_seat)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert cluster_lock.owner() == holder.pid
        refused = rf"process {holder.pid} \(.*\) has one on .*, in /somewhere; wait for its end; if"
        with pytest.raises(InputError, match=refused), cluster_lock.claimed():
            pass
        with pytest.raises(InputError, match=refused):
            cluster_lock.check_free()
    finally:
        holder.kill()
        holder.wait()
    cluster_lock.check_free()
    with cluster_lock.claimed():
        assert cluster_lock.read() == cluster_lock.ClusterRecord(
            holder.pid, Path("/somewhere"), 128
        ), "of one that was killed"
        cluster_lock.forget()
    assert not free_seat.exists()
    assert cluster_lock.read() is None


@pytest.mark.parametrize(
    ("pid", "ticks"),
    [(NOBODY, None), (NOBODY, 1), (os.getpid(), 1)],
    ids=["of before", "gone", "another's number"],
)
def test_the_record_of_a_killed_cluster_names_nobody_as_the_owner_of_the_next(
    pid: int, ticks: int | None, free_seat: Path
) -> None:
    free_seat.mkdir()
    cluster_lock.write(cluster_lock.ClusterRecord(pid, Path("/somewhere"), 128, ticks))
    with cluster_lock.claimed():
        assert cluster_lock.owner() == 0
        with pytest.raises(InputError, match="another process has one on this machine already; w"):
            cluster_lock.check_free()
    now = process_sets.start_ticks(os.getpid())
    with cluster_lock.claimed():
        cluster_lock.write(cluster_lock.ClusterRecord(os.getpid(), Path("/somewhere"), 128, now))
        assert cluster_lock.owner() == os.getpid()


def serve(desk: control_socket.ControlSocket, orders: int) -> None:
    for _ in range(orders):
        desk.serve()


@pytest.mark.usefixtures("free_seat")
def test_orders_are_carried_out_and_errors_come_back(tmp_path: Path) -> None:
    def carry_out(order: control_socket.Order) -> str:
        if order["order"] == "fail":
            raise InputError(where="node-1", what="is no node", remedy="look")
        return f"done: {order['nodes']}"

    path = tmp_path / "orders"
    with control_socket.ControlSocket(path, carry_out) as desk:
        clerk = threading.Thread(target=serve, args=(desk, 2))
        clerk.start()
        assert control_socket.send(path, {"order": "kill", "nodes": ["a"]}) == "done: ['a']"
        with pytest.raises(InputError, match="node-1: is no node; look"):
            control_socket.send(path, {"order": "fail"})
        clerk.join()
    with pytest.raises(InputError, match="none runs here; start one with"):
        control_socket.send(path, {"order": "kill"})


def test_an_order_to_a_cluster_that_takes_none_tells_who_has_it(
    free_seat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_lock, "owner", os.getpid)
    with pytest.raises(InputError, match=rf"process {os.getpid()} \(.*\) has one that takes no or"):
        control_socket.send(free_seat / "orders", {"order": "kill"})


@pytest.mark.parametrize(
    "record",
    [
        "[]",
        "null",
        "{}",
        '{"version": 1, "owner": -1, "directory": "/a", "instances": 128}',
        '{"version": 1, "owner": "1", "directory": "/a", "instances": 128}',
    ],
)
def test_a_record_that_is_none_is_refused(record: str, free_seat: Path) -> None:
    free_seat.mkdir()
    (free_seat / "record.json").write_text(record)
    with pytest.raises(InputError, match=r"record\.json: is not a record of a cluster; remove it"):
        cluster_lock.read()


def test_a_cluster_outlives_defects_of_orders_and_callers_that_say_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_socket, "CALLER_SECONDS_MAX", 0.05)
    path = tmp_path / "orders"
    with control_socket.ControlSocket(path, lambda order: str(order["nodes"])) as desk:
        clerk = threading.Thread(target=serve, args=(desk, 4))
        clerk.start()
        with socket.socket(socket.AF_UNIX) as gone, socket.socket(socket.AF_UNIX) as silent:
            gone.connect(str(path))
            gone.close()
            silent.connect(str(path))
            with pytest.raises(RunError, match=r"has met KeyError.*; see what it has"):
                control_socket.send(path, {"order": "kill"})
            assert control_socket.send(path, {"nodes": "all"}) == "all"
        clerk.join()


def test_clean_needs_nothing_that_is_installed() -> None:
    root = Path(__file__).parents[4]
    shown = subprocess.run(
        [sys.executable, "-S", "-m", "testbed", "cluster", "clean", "--help"],
        env={"PYTHONPATH": f"{root}/recovery:{root}/e2e"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr


def test_a_call_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_socket, "ANSWER_SECONDS_MAX", 0.05)
    with (
        control_socket.ControlSocket(tmp_path / "orders", str),
        pytest.raises(RunError, match="the cluster's process: has not answered within"),
    ):
        control_socket.send(tmp_path / "orders", {"order": "kill"})


def test_a_machine_that_has_died_by_itself_takes_no_stranger_with_it(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "100"]) as stranger:
        machine = NamespacedMachine("node-1", tmp_path, tmp_path, None, None)
        began = process_sets.start_ticks(stranger.pid)
        assert began is not None
        machine._first, machine._first_ticks = stranger.pid, began - 1
        machine.strike()
        assert process_sets.start_ticks(stranger.pid) == began
        machine._first, machine._first_ticks = stranger.pid, began
        machine.strike()
        assert stranger.wait() == -signal.SIGKILL


def test_a_node_that_never_was_cannot_be_removed(tmp_path: Path) -> None:
    cluster = NodeCluster(directory=tmp_path)
    with pytest.raises(InputError, match="node-1: is no node; there are: none"):
        cluster.remove("node-1")


def test_a_node_that_runs_cannot_be_revived(tmp_path: Path, place: MachineNames) -> None:
    cluster = NodeCluster(directory=tmp_path)
    cluster._nodes["node-7"] = ClusterMachine(place, NodeSpec(), None)
    with pytest.raises(InputError, match="node-7: is no killed machine; there are: none"):
        cluster.revive("node-7")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["up", "--nodes", "1000"], "--nodes: is 1000; give a number from 0 to 250"),
        (["up", "--images", "none.tar"], "image none.tar: is not a file"),
        (["kill", "node-1"], "none runs here; start one with"),
        (["up", "--directory", "/dev/null"], "cannot be made: /dev/null is no folder"),
        (["up", "--shared", "/dev/null"], "/dev/null: is no folder; name another folder by --sha"),
        (["up", "--shared", "/run/x"], "has its own; name another folder by --shared"),
        (["down"], "none runs here"),
    ],
)
@pytest.mark.usefixtures("free_seat")
def test_what_cannot_be_done_with_a_cluster_is_refused_in_a_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
