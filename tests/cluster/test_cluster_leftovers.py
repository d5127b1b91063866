"""A cluster leaves nothing behind, however it ends, and what is not its own is left alone."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle_local import cgroups, process_sets
from testbed.cluster import cluster_cleanup, cluster_lock
from testbed.cluster.machine_cgroups import find_groups
from testbed.cluster.machine_names import LINK, ClusterFolders

ROOT = Path(__file__).parents[2]
START_SECONDS_MAX = 240.0
STRANGER = "stranger0"
SETTINGS = (
    *("net/ipv4/ip_forward", "vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic"),
    *("kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"),
)
# Where programs of a node leave something on a host that is one.
FOLDERS = ("/run", "/var/lib", "/var/log", "/opt", "/etc/cni", "/run/containerd", "/run/netns")

OURS = re.compile(r"kube|containerd|runc|cni|netns|rekindle-testbed|machines")

pytestmark = pytest.mark.usefixtures("node_programs")


def command_line(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "testbed", "cluster", *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'recovery'}:{ROOT / 'e2e'}"}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command_line(*arguments), env=environment(), capture_output=True, text=True, timeout=300
    )


def observe() -> dict[str, object]:
    """What a cluster could have changed on this host, without what others do meanwhile."""
    lists = {name: os.listdir(name) for name in FOLDERS if Path(name).is_dir()}
    groups = [path.name for root in find_groups().roots for path in root.iterdir()]
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    told = {name: listed(name) for name in ("ip -o -4 address", "ip route", "iptables-save")}
    return {
        **told,
        **{name: sorted(filter(OURS.search, entries)) for name, entries in lists.items()},
        **{name: (Path("/proc/sys") / name).read_text() for name in SETTINGS},
        "mounts": sorted(filter(OURS.search, mounts)),
        "groups": sorted(filter(OURS.search, groups)),
    }


def listed(command: str) -> list[str]:
    """The lines that a command prints, without comments, which have the time."""
    done = subprocess.run(command.split(), capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if not line.startswith("#")]


class Owner:
    """A process that has a cluster with a node, and its watchers."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.said = (directory.parent / "said").open("w+")
        self.process = subprocess.Popen(
            command_line("up", "--nodes", "1", "--directory", str(directory)),
            env=environment(),
            stdout=self.said,
            stderr=self.said,
        )

    def await_up(self) -> None:
        def has_settled() -> bool:
            return "export KUBECONFIG" in self.read() or self.process.poll() is not None

        assert process_sets.await_condition(has_settled, limit_seconds=START_SECONDS_MAX)
        assert self.process.poll() is None, self.read()

    def read(self) -> str:
        return Path(self.said.name).read_text()

    def watchers(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        lines = {int(pid): Path(f"/proc/{pid}/cmdline").read_text() for pid in children.split()}
        return [pid for pid, line in lines.items() if "rekindle_local.process_reaper" in line]


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    """One that has just begun; whatever the test does with it, nothing is left after it."""
    owner = Owner(tmp_path / "cluster")
    try:
        yield owner
    finally:
        owner.process.kill()
        owner.process.wait()
        run("clean")


@pytest.fixture
def stranger() -> Iterator[cgroups.Group]:
    """A link, and a cgroup with a process, that are somebody else's."""
    hierarchy = cgroups.find_hierarchy()
    assert hierarchy is not None
    group = cgroups.Group(hierarchy, "stranger")
    group.create()
    subprocess.run(["ip", "link", "add", STRANGER, "type", "veth"], check=True)
    sleeping = subprocess.Popen(["sleep", "1000"])
    for entrance in group.entrances:
        entrance.write_text(str(sleeping.pid))
    try:
        yield group
    finally:
        sleeping.kill()
        sleeping.wait()
        subprocess.run(["ip", "link", "del", STRANGER], check=True)
        for directory in group.directories:
            cgroups.remove_tree(directory)


def test_an_end_by_order_leaves_this_host_as_it_was(tmp_path: Path) -> None:
    before = observe()
    owner = Owner(tmp_path / "cluster")
    owner.await_up()
    assert observe() != before
    second = run("up", "--directory", str(tmp_path / "second"))
    assert second.returncode == 2
    assert "has one on this machine already; end it with" in second.stderr
    assert run("clean").returncode == 2, "while it runs"
    assert run("cut", "node-9").returncode == 2
    assert run("add", "1").stdout == "Ready: node-2\n"
    assert run("kill", "node-1").stdout == "kill: node-1\n"
    down = run("down")
    assert down.returncode == 0, down.stderr
    assert owner.process.wait() == 0, owner.read()
    assert observe() == before
    assert not cluster_cleanup.find([ClusterFolders(owner.directory)], logs=False)
    assert run("down").returncode == 2


def test_a_killed_owners_watchers_leave_folders_only_and_the_next_cluster_removes_them(
    owner: Owner,
) -> None:
    owner.await_up()
    owner.process.send_signal(signal.SIGKILL)
    owner.process.wait()

    def left() -> cluster_cleanup.Leftovers:
        return cluster_cleanup.find([ClusterFolders(owner.directory)], logs=False)

    settled = process_sets.await_condition(
        lambda: not left().processes and not left().groups and not left().link,
        limit_seconds=60,
        interval_seconds=0.2,
    )
    assert settled, left()
    assert left().folders
    second = Owner(owner.directory.parent / "second")
    try:
        second.await_up()
        assert f"removing what process {owner.process.pid} has left" in second.read()
        assert not left().folders
    finally:
        second.process.terminate()
        second.process.wait()


def test_clean_removes_all_that_is_left_when_the_watchers_were_killed_too(
    owner: Owner, stranger: cgroups.Group
) -> None:
    before_link = Path("/sys/class/net", LINK).exists()
    owner.await_up()
    watchers = owner.watchers()
    assert len(watchers) == 2, "the control plane's and the nodes'"
    process_sets.signal_all([owner.process.pid, *watchers], signal.SIGKILL)
    owner.process.wait()
    left = cluster_cleanup.find([ClusterFolders(owner.directory)], logs=True)
    started = {pid: process_sets.start_ticks(pid) for pid in left.processes}
    assert started, "nobody was there to end them"
    assert left.link
    cleaned = run("clean")
    assert cleaned.returncode == 0, cleaned.stderr
    assert str(owner.directory / "machines") in cleaned.stdout
    assert not cluster_cleanup.find([ClusterFolders(owner.directory)], logs=True)

    def are_gone() -> bool:
        return not any(
            ticks and process_sets.start_ticks(pid) == ticks for pid, ticks in started.items()
        )

    assert process_sets.await_condition(are_gone, limit_seconds=60)
    assert not cluster_lock.FOLDER.exists()
    assert not owner.directory.exists()
    assert not before_link
    assert len(stranger.processes()) == 1
    assert Path("/sys/class/net", STRANGER).exists()
    assert run("clean").stdout == "removed: nothing, there was nothing left\n"
