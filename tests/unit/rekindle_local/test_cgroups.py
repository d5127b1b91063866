"""Cgroups: which hierarchy the mounts tell of, what a plain directory is not, quotas read back."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import loud_skips
import pytest

from rekindle_local import cgroups, process_sets

LIMIT_SECONDS = 30.0
# As on Debian with the hybrid layout, on systemd with v1 joined controllers, and on v2 alone.
SEPARATE = """\
tmpfs /sys/fs/cgroup tmpfs rw,relatime,mode=755 0 0
cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0
cgroup /sys/fs/cgroup/cpuacct cgroup rw,relatime,cpuacct 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0
"""
JOINED = "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,cpu,cpuacct 0 0\n"
UNIFIED = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec,relatime 0 0\n"
NONE = "proc /proc proc rw,relatime 0 0\n"


@pytest.mark.parametrize(
    ("mounts", "version", "roots"),
    [
        pytest.param(SEPARATE, 1, ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpuacct"], id="separate"),
        pytest.param(JOINED, 1, ["/sys/fs/cgroup/cpu,cpuacct"], id="joined"),
        pytest.param(UNIFIED, 2, ["/sys/fs/cgroup"], id="unified"),
    ],
)
def test_the_mounts_tell_where_groups_are_made(mounts: str, version: int, roots: list[str]) -> None:
    hierarchy = cgroups.parse_mounts(mounts)
    assert hierarchy is not None
    assert hierarchy.version == version
    assert hierarchy.roots == tuple(Path(root) for root in roots)


def test_a_machine_without_cgroups_has_no_hierarchy() -> None:
    assert cgroups.parse_mounts(NONE) is None


@pytest.mark.parametrize("version", [1, 2])
def test_a_plain_directory_is_not_taken_for_a_cgroup(tmp_path: Path, version: int) -> None:
    assert not cgroups.holds_quotas(cgroups.Hierarchy(version, tmp_path, tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def group() -> Iterator[cgroups.Group]:
    hierarchy = cgroups.find_hierarchy()
    if hierarchy is None:
        loud_skips.skip("cgroups cannot be written here: needs root on Linux")
    top = f"rekindle-test-{os.getpid()}"
    group = cgroups.Group(hierarchy, f"{top}/node")
    group.create()
    yield group
    tops = cgroups.Group(hierarchy, top).directories
    process_sets.kill_all(lambda: cgroups.tree_processes(tops), limit_seconds=LIMIT_SECONDS)
    for directory in tops:
        cgroups.remove_tree(directory)


def test_a_quota_reads_back_as_it_was_set_and_can_be_lifted(group: cgroups.Group) -> None:
    assert group.quota() is None
    group.set_quota(0.2)
    assert group.quota() == pytest.approx(0.2)
    group.lift_quota()
    assert group.quota() is None


def test_a_weight_reads_back_as_it_was_set(group: cgroups.Group) -> None:
    assert group.weight() == 1.0
    group.set_weight(0.1)
    assert group.weight() == pytest.approx(0.1, abs=0.001)
    group.set_weight(1.0)
    assert group.weight() == 1.0


@pytest.mark.parametrize(("version", "file"), [(1, "cpu.shares"), (2, "cpu.weight")])
def test_a_weight_is_written_in_the_unit_of_each_version(
    tmp_path: Path, version: int, file: str
) -> None:
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / file).write_text("0")
    group = cgroups.Group(cgroups.Hierarchy(version, tmp_path, tmp_path), "node")
    group.set_weight(0.1)
    assert (tmp_path / "node" / file).read_text().strip() == {1: "102", 2: "10"}[version]


def test_periods_in_which_a_quota_was_used_up_are_counted(tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    group = cgroups.Group(cgroups.Hierarchy(2, tmp_path, tmp_path), "node")
    assert group.throttled_periods() == 0
    (tmp_path / "node" / "cpu.stat").write_text("usage_usec 5\nnr_periods 40\nnr_throttled 7\n")
    assert group.throttled_periods() == 7


def test_whatever_a_process_in_a_group_forks_is_found_and_killed_there(
    group: cgroups.Group, tmp_path: Path
) -> None:
    # A session of its own, and a loop of forks: neither leaves the group.
    script = "(while :; do sleep 1 & sleep 0.01; done) & exec setsid sleep 60"
    leader = process_sets.start_gated(
        ["/bin/sh", "-c", script],
        environment=os.environ,
        entrances=group.entrances,
        log=tmp_path / "log",
    )
    assert group.processes() == ()
    process_sets.open_gate(leader)
    assert process_sets.await_condition(
        lambda: len(group.processes()) > 2, limit_seconds=LIMIT_SECONDS
    )
    assert process_sets.kill_all(group.processes, limit_seconds=LIMIT_SECONDS) == ()
    leader.wait()
    assert group.processes() == ()
    assert group.cpu_seconds() > 0


def test_a_process_held_at_the_gate_ends_with_its_parent(tmp_path: Path) -> None:
    started = tmp_path / "started"
    owner = (
        "import os, pathlib; from rekindle_local import process_sets as processes\n"
        f"process = processes.start_gated(['touch', {str(started)!r}], environment=os.environ,\n"
        f"    entrances=(), log=pathlib.Path({str(tmp_path / 'log')!r}))\n"
        "print(process.pid, flush=True); os._exit(1)"
    )
    root = str(Path(cgroups.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", owner],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=False,
    )
    session = int(done.stdout)
    assert process_sets.await_condition(
        lambda: process_sets.session_processes(session) == (), limit_seconds=LIMIT_SECONDS
    )
    assert not started.exists()


def test_stopped_processes_stand_still_until_they_are_continued(tmp_path: Path) -> None:
    leader = process_sets.start_gated(
        ["/bin/sh", "-c", "sleep 60 & sleep 60"],
        environment=os.environ,
        entrances=(),
        log=tmp_path / "log",
    )
    process_sets.open_gate(leader)

    def list_processes() -> tuple[int, ...]:
        return process_sets.session_processes(leader.pid)

    def list_states() -> set[str]:
        stats = [Path(f"/proc/{pid}/stat").read_text() for pid in list_processes()]
        return {stat.rpartition(")")[2].split()[0] for stat in stats}

    try:
        assert process_sets.stop_all(list_processes, limit_seconds=LIMIT_SECONDS) == ()
        assert list_states() <= {"T", "D"}
        process_sets.continue_all(list_processes)
        assert process_sets.await_condition(
            lambda: "T" not in list_states(), limit_seconds=LIMIT_SECONDS
        )
    finally:
        process_sets.kill_all(list_processes, limit_seconds=LIMIT_SECONDS)
        leader.wait()
