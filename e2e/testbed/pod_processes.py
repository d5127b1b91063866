"""The machines below simulated nodes: what runs in the pods on them really runs, as processes here.

Each container of a known image is a process with a session of its own; of a container of another
image nothing runs. A machine dies (SIGKILL) or falls silent (SIGSTOP) with all that is on it, and
the API is told nothing: that is the kubelet's business (pod_runner.py, simulated_kubelets.py, the
callers). Nothing is left when it is closed, or when its owner is gone: a watcher process sees to
that.
"""

import itertools
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Self

from rekindle.model.errors import RunError
from rekindle_local import process_sets
from rekindle_local.daemons import Daemon, end_daemons
from rekindle_local.process_reaper import ProcessReaper
from testbed.container_commands import Image, read_containers

STOP_SECONDS_MAX = 10.0
# Every pod has a loopback address of its own; those of rekindle_local's cluster are below.
_ADDRESSES = IPv4Address("127.1.0.0")
_ADDRESSES_MAX = 1 << 16


@dataclass(frozen=True, slots=True)
class _Running:
    """A pod whose containers run: the node below it, its address, its processes."""

    node: str
    address: str
    daemons: Mapping[str, Daemon]
    folder: Path


class PodProcesses:
    """A context manager: inside, pods may be started; after it, no process is left.

    `directory` takes the containers' logs, one file for each start: POD-CONTAINER-1.log. `images`
    (name -> image) are those of which containers run. `scratch`, a short path, is there inside.
    """

    def __init__(self, directory: Path, images: Mapping[str, Image]) -> None:
        self.logs = directory.absolute()
        self._images = dict(images)
        self._pods: dict[str, _Running] = {}
        self._numbers = itertools.count(1)
        self._watcher: ProcessReaper | None = None

    def __enter__(self) -> Self:
        self.logs.mkdir(parents=True, exist_ok=True)
        # Short, for sockets; a folder of a test may have a long name.
        self.scratch = Path(tempfile.mkdtemp(prefix="rekindle-"))
        self._watcher = ProcessReaper((), self.logs / "watcher.log")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, pod: Mapping[str, Any], node: str, node_address: str) -> str:
        """Start the containers of a pod that is not running here; its address.

        Raises `RunError` when the watcher is gone, `InputError` for a container that its image
        cannot run.
        """
        metadata = pod["metadata"]
        if metadata["uid"] in self._pods:
            return self._pods[metadata["uid"]].address
        number = next(self._numbers)
        address = str(_ADDRESSES + number % _ADDRESSES_MAX)
        folder = self.scratch / str(number)
        folder.mkdir()
        daemons: dict[str, Daemon] = {}
        self._pods[metadata["uid"]] = _Running(node, address, daemons, folder)
        for container in read_containers(pod, address=address, node_address=node_address):
            image = self._images.get(container.image)
            if image is None:
                continue
            launch = image(container, folder)
            daemon = Daemon(f"{metadata['name']}-{container.name}", self.logs, None)
            daemons[container.name] = daemon
            daemon.launch(launch.command, launch.environment, self._watching())
        return address

    def ended(self) -> dict[str, dict[str, int]]:
        """Pods with a container that has ended by itself: uid -> container -> exit code."""
        found: dict[str, dict[str, int]] = {}
        for uid, pod in self._pods.items():
            for name, daemon in pod.daemons.items():
                code = None if daemon.leader is None else daemon.leader.poll()
                if code is not None:
                    found.setdefault(uid, {})[name] = code
        return found

    def running(self, *nodes: str) -> frozenset[str]:
        """The uids of the pods that were started on these nodes and not ended."""
        return frozenset(uid for uid, pod in self._pods.items() if pod.node in nodes)

    def processes(self, *nodes: str) -> tuple[int, ...]:
        """Ids of the living processes on these nodes, stopped ones too."""
        return tuple(pid for one in self._daemons(nodes) for pid in one.processes())

    def end(self, *uids: str) -> None:
        """End pods at once, without any grace, and forget them."""
        ending = [self._pods.pop(uid) for uid in uids if uid in self._pods]
        end_daemons([one for pod in ending for one in pod.daemons.values()], self._watching())
        for pod in ending:
            shutil.rmtree(pod.folder, ignore_errors=True)

    def kill(self, *nodes: str) -> None:
        """The machines die: SIGKILL to all processes, as close together as can be."""
        self.end(*self.running(*nodes))

    def stop(self, *nodes: str) -> None:
        """The machines fall silent: SIGSTOP to all processes, their connections stay open."""

        def list_processes() -> tuple[int, ...]:
            return self.processes(*nodes)

        if process_sets.stop_all(list_processes, limit_seconds=STOP_SECONDS_MAX):
            raise RunError(
                where=f"nodes {', '.join(nodes)}",
                what=f"processes did not stop within {STOP_SECONDS_MAX:.0f} s",
                remedy="see whether something else continues them",
            )

    def proceed(self, *nodes: str) -> None:
        """SIGCONT to all processes on these nodes."""
        process_sets.continue_all(lambda: self.processes(*nodes))

    def close(self) -> None:
        """End all processes and remove their folders; logs stay. Safe to repeat."""
        if self._watcher is None:
            return
        try:
            self.end(*self._pods)
        finally:
            self._watcher.close()
            self._watcher = None
            shutil.rmtree(self.scratch, ignore_errors=True)

    def _daemons(self, nodes: Iterable[str]) -> list[Daemon]:
        wanted = frozenset(nodes)
        pods = [pod for pod in self._pods.values() if pod.node in wanted]
        return [one for pod in pods for one in pod.daemons.values()]

    def _watching(self) -> ProcessReaper:
        if self._watcher is None:
            raise RunError(
                where="machines", what="are not there", remedy="use them inside their context"
            )
        return self._watcher
