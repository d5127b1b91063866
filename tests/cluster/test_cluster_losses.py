"""Real nodes are lost as nodes are: dead at once, cut off, without a kubelet, removed."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from busybox_pods import Pods

from rekindle.model.errors import InputError
from rekindle_local import process_sets
from testbed.cluster.node_cluster import NodeCluster

WAIT_SECONDS_MAX = 120.0
SILENT_SECONDS = 3.0
# Appends to a file of the shared folder five times a second, so that others see it live.
BEATING = "while :; do echo beat >> /shared/{name}; sleep 0.2; done"


def await_true(condition: Callable[[], bool], what: str) -> None:
    met = process_sets.await_condition(
        condition, limit_seconds=WAIT_SECONDS_MAX, interval_seconds=0.2
    )
    assert met, what


def readiness(core: Any, name: str) -> str:
    conditions = core.read_node(name).status.conditions
    return next(one.status for one in conditions if one.type == "Ready")


def beats(file: Path, seconds: float = WAIT_SECONDS_MAX) -> bool:
    """Whether the pod behind a file of the shared folder is alive; a dead one writes nothing for
    `seconds`."""
    before = file.stat().st_size
    return process_sets.await_condition(lambda: file.stat().st_size > before, limit_seconds=seconds)


def test_all_that_ran_on_a_killed_node_is_gone_while_its_node_turns_unknown(
    cluster: NodeCluster, core: Any, pods: Pods
) -> None:
    lost, kept = cluster.add(2)
    for node in (lost, kept):
        pods.start(f"beating-{node}", BEATING.format(name=node), node=node)
        pods.await_phase(f"beating-{node}", "Running")
    await_true(lambda: (cluster.shared / lost).exists(), "the shared folder is not seen")
    before = {pid: process_sets.start_ticks(pid) for pid in cluster.processes(lost)}
    assert len(before) >= 5, "containerd, kubelet, kube-proxy, a shim and two containers"
    cluster.kill(lost)
    assert not cluster.processes(lost)
    assert not [pid for pid, ticks in before.items() if process_sets.start_ticks(pid) == ticks]
    assert not beats(cluster.shared / lost, SILENT_SECONDS)
    assert cluster.names == (kept,)
    await_true(lambda: readiness(core, lost) == "Unknown", "the node is still Ready")
    assert pods.read(f"beating-{lost}").status.phase == "Running", "nobody has said otherwise"
    assert readiness(core, kept) == "True"
    assert beats(cluster.shared / kept)
    with pytest.raises(InputError, match=f"{lost}: is no node; there are: {kept}"):
        cluster.kill(lost)


def test_a_killed_machine_that_is_on_again_takes_pods_again_under_its_old_name(
    cluster: NodeCluster, core: Any, pods: Pods
) -> None:
    (name,) = cluster.add(1)
    uid = core.read_node(name).metadata.uid
    cluster.kill(name)
    await_true(lambda: readiness(core, name) == "Unknown", "the node is still Ready")
    with pytest.raises(InputError, match="other: is no killed machine; there are: "):
        cluster.revive("other")
    cluster.revive(name)
    cluster.await_ready(name)
    assert name in cluster.names
    assert core.read_node(name).metadata.uid == uid
    pods.start("beating", BEATING.format(name=name), node=name)
    pods.await_phase("beating", "Running")
    assert beats(cluster.shared / name)
    cluster.kill(name)
    assert not cluster.processes(name)


def test_a_node_that_was_cut_off_lives_and_comes_back_with_its_pods(
    cluster: NodeCluster, core: Any, pods: Pods
) -> None:
    (name,) = cluster.add(1)
    pods.start("beating", BEATING.format(name=name), node=name)
    pods.await_phase("beating", "Running")
    cluster.cut(name)
    await_true(lambda: readiness(core, name) == "Unknown", "the node is still Ready")
    assert beats(cluster.shared / name)
    cluster.heal(name)
    cluster.await_ready(name)
    status = pods.await_phase("beating", "Running").status.container_statuses[0]
    assert status.restart_count == 0
    assert beats(cluster.shared / name)


def test_pods_run_on_without_their_kubelet(cluster: NodeCluster, core: Any, pods: Pods) -> None:
    (name,) = cluster.add(1)
    pods.start("beating", BEATING.format(name=name), node=name)
    pods.await_phase("beating", "Running")
    cluster.stop_kubelet(name)
    with pytest.raises(InputError, match="has no kubelet that runs"):
        cluster.stop_kubelet(name)
    await_true(lambda: readiness(core, name) == "Unknown", "the node is still Ready")
    assert beats(cluster.shared / name)
    cluster.start_kubelet(name)
    cluster.await_ready(name)
    time.sleep(1)
    status = pods.await_phase("beating", "Running").status.container_statuses[0]
    assert status.restart_count == 0


def test_a_removed_node_is_gone_and_its_name_is_given_to_nobody_else(
    cluster: NodeCluster, core: Any
) -> None:
    (first,) = cluster.add(1)
    cluster.remove(first)
    assert first not in {node.metadata.name for node in core.list_node().items}
    assert not cluster.processes(first)
    (second,) = cluster.add(1)
    assert second != first
