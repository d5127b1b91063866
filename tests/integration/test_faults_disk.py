"""A disk of a node that is full: the others go on without it, until there is room again.

The node gets a small file system of its own, which takes root.
"""

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import loud_skips
import pytest
from application import Application, Before

from rekindle_local.spark_cluster import LocalCluster

Prepare = Callable[..., Application]
DISK_MIB = 48
BALLAST = "ballast"
CHUNK = bytes(1 << 16)


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """The disk of a node's executors."""

    node: str
    folder: Path

    def fill(self) -> None:
        """Leave no room, again and again: what is deleted meanwhile makes some."""
        with (self.folder / BALLAST).open("ab", buffering=0) as ballast:
            while True:
                try:
                    ballast.write(CHUNK)
                except OSError:
                    return

    def clear(self) -> None:
        """Leave room again."""
        (self.folder / BALLAST).unlink()


@pytest.fixture
def small_disk(shared_cluster: LocalCluster) -> Iterator[SmallDisk]:
    """Of the first node, which starts anew on it."""
    node = shared_cluster.nodes[0].name
    folder = shared_cluster.disk(node)
    shared_cluster.kill([node])
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        shared_cluster.start_worker(node)
        loud_skips.skip(f"a small file system takes root: {mounted.stderr.strip()}")
    shared_cluster.start_worker(node)
    yield SmallDisk(node, folder)
    shared_cluster.kill([node])
    subprocess.run(["umount", str(folder)], check=True)
    shared_cluster.start_worker(node)


def test_without_room_on_its_disk_a_node_is_left_out_until_there_is_some(
    small_disk: SmallDisk, prepare: Prepare
) -> None:
    application = prepare()
    application.start_and_recover()
    node = small_disk.node
    before = Before.of(application)

    def is_noticed() -> bool:
        small_disk.fill()
        return bool(application.happened("disk-full", after=before.events, node=node))

    application.await_condition("the full disk is noticed", is_noticed)
    (full,) = application.happened("disk-full", after=before.events)
    application.await_event("confirmed", after=before.events, node=node, silent=False)
    application.await_event("recovered", after=before.events)
    small_disk.clear()
    joined = application.await_event("joined", after=before.events, node=node)
    assert joined["at"] - full["at"] >= full["seconds"] > 0
    application.await_condition(
        "it has work again", lambda: node in application.placement().values()
    )
    before.assert_untouched([each.name for each in application.cluster.nodes[1:]])
    application.finish()
