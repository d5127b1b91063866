"""The control plane of one application on one machine: ZooKeeper, coordinator and sidecar.

Three processes beside driver and cluster, as they would run apart: they share nothing but the
store, the sidecar's socket, and the folder through which coordinator and cluster know of each
other. Nothing of them is left when it is closed, or when its owner is gone. The demo and the
integration tests start it, and harm its parts.
"""

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from rekindle.model.errors import RunError
from rekindle.protocol.store_paths import Place
from rekindle_cli.jsonl_tail import EventFile
from rekindle_local import process_sets
from rekindle_local.daemons import Daemon, end_daemons
from rekindle_local.local_zookeeper import LocalZookeeper
from rekindle_local.process_reaper import ProcessReaper

START_SECONDS_MAX = 120.0


class LocalControlPlane:
    """A context manager: inside, all three run. `events` are the coordinator's.

    `cluster` is the folder of `local_provisioning`, `socket` where the sidecar listens: a path that
    is short enough for a Unix socket. After `session_seconds` ZooKeeper takes a
    coordinator or a sidecar that does not answer for gone. With `console` the coordinator serves
    its web console on a port that is free; the event of its start names the port.
    """

    def __init__(
        self,
        *,
        directory: Path,
        cluster: Path,
        socket: Path,
        place: Place,
        servers: int = 1,
        session_seconds: float = 10.0,
        console: bool = False,
    ) -> None:
        self.directory = directory.absolute()
        self.place = place
        self.socket = socket
        self.events = EventFile(self.directory / "coordinator.jsonl")
        self.zookeeper = LocalZookeeper(directory=self.directory / "zookeeper", servers=servers)
        self._cluster = cluster
        self._session = ("--session-seconds", str(session_seconds))
        self._console = ("--console-port", "0") if console else ()
        self._stack = ExitStack()
        self._watcher: ProcessReaper | None = None
        self.coordinator = Daemon("coordinator", self.directory, None)
        self.sidecar = Daemon("sidecar", self.directory, None)

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._cluster.mkdir(parents=True, exist_ok=True)
        try:
            self._stack.enter_context(self.zookeeper)
            self._watcher = ProcessReaper((), self.directory / "watcher.log")
            self._stack.callback(self._end)
            self.start_coordinator()
            self.start_sidecar()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start_coordinator(self) -> None:
        """Start a coordinator; one that was killed is replaced."""
        known = self._coordinator_starts()
        self._launch(
            self.coordinator,
            *("coordinator", "--zookeeper", self.zookeeper.connect_string),
            *("--cluster", str(self._cluster), "--log", str(self.events.path), *self._session),
            *self._console,
        )
        self._await(self.coordinator, lambda: self._coordinator_starts() > known)

    def start_sidecar(self) -> None:
        """Start the sidecar; one that was killed is replaced."""
        self.socket.unlink(missing_ok=True)
        self._launch(
            self.sidecar,
            *("sidecar", "--zookeeper", self.zookeeper.connect_string),
            *("--namespace", self.place.namespace, "--application", self.place.application),
            *("--socket", str(self.socket), *self._session),
        )
        self._await(self.sidecar, self.socket.exists)

    def leading_processes(self) -> list[int]:
        """Ids of the processes that lead the sessions of its parts, while they run."""
        leaders = (self.coordinator.leader, self.sidecar.leader)
        own = [leader.pid for leader in leaders if leader is not None]
        return own + self.zookeeper.leading_processes()

    def kill(self, daemon: Daemon) -> None:
        """SIGKILL the coordinator or the sidecar."""
        assert self._watcher is not None
        end_daemons([daemon], self._watcher)

    def stop(self, daemon: Daemon) -> None:
        """SIGSTOP the coordinator or the sidecar: it falls silent, its connections open."""
        process_sets.stop_all(daemon.processes, limit_seconds=START_SECONDS_MAX)

    def proceed(self, daemon: Daemon) -> None:
        """SIGCONT the coordinator or the sidecar."""
        process_sets.continue_all(daemon.processes)

    def _launch(self, daemon: Daemon, *arguments: str) -> None:
        assert self._watcher is not None
        command = [sys.executable, "-m", "rekindle_cli", *arguments]
        daemon.launch(command, os.environ, self._watcher)

    def _await(self, daemon: Daemon, condition: Callable[[], bool]) -> None:
        leader = daemon.leader
        assert leader is not None
        process_sets.await_condition(
            lambda: condition() or leader.poll() is not None, limit_seconds=START_SECONDS_MAX
        )
        if not condition():
            raise RunError(
                where=str(daemon.log), what=f"the {daemon.name} did not start", remedy="read it"
            )

    def _coordinator_starts(self) -> int:
        if not self.events.path.exists():
            return 0
        return self.events.path.read_text().count('"coordinator-started"')

    def _end(self) -> None:
        assert self._watcher is not None
        try:
            end_daemons([self.coordinator, self.sidecar], self._watcher)
        finally:
            self._watcher.close()
            self._watcher = None
