"""What a node may use of the CPU while it starts, and once it runs."""

from pathlib import Path
from typing import Any, cast

from rekindle_local import local_nodes
from rekindle_local.daemons import Daemon
from rekindle_local.local_nodes import STARTING_WEIGHT, LocalNodes

QUOTA = 0.2


class Group:
    """A cgroup that keeps what it is told, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, float | None]] = []

    def set_weight(self, share: float) -> None:
        self.told.append(("weight", share))

    def set_quota(self, cores: float) -> None:
        self.told.append(("quota", cores))

    def lift_quota(self) -> None:
        self.told.append(("quota", None))

    def quota(self) -> float | None:
        return [value for what, value in self.told if what == "quota"][-1]


class Bare(LocalNodes):
    """Nodes without processes."""

    def _prepare(self) -> None:
        """Nothing is started."""

    def _start_leading(self) -> None:
        """Nothing leads."""

    def _launch_worker(self, worker: Daemon) -> None:
        cast(Group, worker.group).told.append(("launched", None))

    def _await_worker(self, worker: Daemon) -> None:
        cast(Group, worker.group).told.append(("registered", None))


def bare(tmp_path: Path) -> tuple[Bare, Group]:
    found = Bare(directory=tmp_path, nodes=1, cpu_quota=QUOTA, slots=1, leading="master")
    group = Group()
    (node,) = found.nodes
    found._workers = {node.name: Daemon(node.name, tmp_path, cast(Any, group))}
    return found, group


def test_a_node_that_comes_back_starts_with_a_low_weight_until_it_takes_part(
    tmp_path: Path,
) -> None:
    found, group = bare(tmp_path)
    found.start_worker("127.0.0.2")
    assert group.told == [
        ("weight", STARTING_WEIGHT),
        ("quota", None),
        ("launched", None),
        ("registered", None),
    ]
    found.enforce_quota("127.0.0.2")
    assert group.told[4:] == [("weight", 1.0), ("quota", QUOTA)]


def test_nodes_of_the_beginning_start_with_equal_weights(tmp_path: Path) -> None:
    found, group = bare(tmp_path)
    found._start(found._worker("127.0.0.2"))
    assert [what for what, _ in group.told] == ["quota", "launched"]


def test_nodes_without_cgroups_are_never_throttled(tmp_path: Path) -> None:
    found, _ = bare(tmp_path)
    found._workers["127.0.0.2"].group = None
    found.enforce_quota("127.0.0.2")
    assert found.throttled_periods("127.0.0.2") == 0
    assert found.outer_throttled_periods() == 0
    assert local_nodes.STARTING_WEIGHT < 1
