"""The provider of a local cluster: processes of this machine, through the cluster's folder.

The cluster lives in another process, the demo's; local_provisioning.py is its half. What the folder
says runs is checked against the kernel's own list each time.
"""

import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rekindle.coordination import LossNotice
from rekindle.coordination.directives import NodeRequestOrder
from rekindle.protocol import Heartbeat
from rekindle.protocol.store_paths import Place
from rekindle_local import cluster_folder, process_sets
from rekindle_local.cluster_folder import DriverFile, NodesFile, RequestFile

# a process that started so much later than a heartbeat was written is another one
SINCE_SECONDS = 2.0
# nodes of one failure die one after another: a plan made in between would count on some of them
SETTLE_SECONDS = 0.5


@dataclass(slots=True)
class LocalProvider:
    """The cluster of one folder."""

    directory: Path
    _asked: set[Path] = field(default_factory=set)
    _nodes: NodesFile | None = None
    _read: tuple[int, int] | None = None
    _gone: frozenset[str] = frozenset()
    _gone_since: float = 0.0
    _told: frozenset[str] = frozenset()

    def news(self) -> None:
        """Nothing tells of processes that end."""

    def request(self, place: Place, identity: str, request: NodeRequestOrder) -> None:
        """Leave a request in the folder, once."""
        path = cluster_folder.request_path(self.directory, place, identity)
        if path in self._asked:
            return
        content = RequestFile(
            identity=identity,
            application=str(place),
            what="driver" if request.what == "driver" else "nodes",
            count=request.count,
            outside_domains=tuple(request.outside_domains),
            reason=str(request.reason),
        )
        cluster_folder.create(path, content)
        self._asked.add(path)

    def gone_nodes(self, place: Place) -> frozenset[str]:
        """Nodes whose worker has ended, once no other has for a moment."""
        del place  # every application of the cluster has the same nodes
        nodes, now = self._present().nodes, time.monotonic()
        gone = frozenset(name for name, known in nodes.items() if cluster_folder.is_gone(known))
        if gone != self._gone:
            self._gone, self._gone_since = gone, now
        if now - self._gone_since >= SETTLE_SECONDS:
            self._told = gone
        return self._told & gone

    def domains(self, place: Place) -> Mapping[str, str]:
        """As the folder says; every application of the cluster has the same nodes."""
        del place
        return self._present().domains

    def notices(self, place: Place, recorded: Mapping[str, LossNotice]) -> Mapping[str, LossNotice]:
        """None: workers of a local cluster go unannounced."""
        del place, recorded
        return {}

    def driver_gone(self, place: Place, heartbeat: Heartbeat | None, generation: int) -> bool:
        """Whether no process that could be the newest driver is left, and one was known."""
        found = [self._published_gone(place)]
        if heartbeat is not None and heartbeat.generation >= generation:
            found.append(_is_gone(heartbeat))
        known = [gone for gone in found if gone is not None]
        return bool(known) and all(known)

    def _present(self) -> NodesFile:
        """What `nodes.json` says, read again when it was written since."""
        path = self.directory / cluster_folder.NODES
        try:
            stat = path.stat()
        except FileNotFoundError:
            return NodesFile(nodes={})
        version = (stat.st_mtime_ns, stat.st_ino)
        if self._nodes is None or version != self._read:
            self._nodes = cluster_folder.read(path, NodesFile) or NodesFile(nodes={})
            self._read = version
        return self._nodes

    def _published_gone(self, place: Place) -> bool | None:
        driver = cluster_folder.read(self.directory / cluster_folder.DRIVER, DriverFile)
        if driver is None or driver.application != str(place):
            return None
        return cluster_folder.is_gone(driver.process)


def _is_gone(heartbeat: Heartbeat) -> bool | None:
    """Whether the driver of a heartbeat has ended; None where that cannot be known from here."""
    if not heartbeat.process_id:
        return None
    if heartbeat.host not in (socket.gethostname(), "localhost", "127.0.0.1"):
        return False
    started_at = process_sets.started_at(heartbeat.process_id)
    return started_at is None or started_at > heartbeat.since + SINCE_SECONDS
