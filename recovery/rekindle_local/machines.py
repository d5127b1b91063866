"""What a benchmark needs of the machines that a system runs on, whoever starts them.

`cluster.LocalCluster` is one such: the nodes of Spark's own cluster. Systems with processes of
their own bring another. `bench.contenders` and `peers` call it.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from rekindle_local.cluster import Node

__all__ = ["Machines"]


class Machines(Protocol):
    """Nodes that are killed and come back one by one; a context manager, after which none is left.

    Calls about different nodes may come from different threads.
    """

    @property
    def nodes(self) -> Sequence[Node]:
        """All nodes, up or down."""

    @property
    def quota_enforced(self) -> bool:
        """Whether nodes have a quota of CPU, put on by `enforce_quota`."""

    def kill(self, names: Iterable[str]) -> None:
        """SIGKILL every process of these nodes; returns when none is left."""

    def start_worker(self, name: str) -> None:
        """Bring a killed node back, with empty disks and no quota yet; waits until it is there."""

    def enforce_quota(self, name: str) -> None:
        """Put the quota on, once what runs the queries has started."""

    def cpu_seconds(self, name: str) -> float:
        """CPU time of the node since the start."""

    def leaders(self) -> Mapping[str, int | None]:
        """By node the id of its first process, None where it was killed."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
