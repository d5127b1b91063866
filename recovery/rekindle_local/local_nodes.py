"""Nodes of one machine: a cgroup for each with all its processes, and a daemon that leads them.

Each node is a worker with all that it starts. It has a cgroup with a CPU quota where cgroups can be
written (root on Linux), else a session; so it is killed, stopped and measured whole. The quota
holds from `enforce_quota` on, for a JVM that starts under it would take half a minute. So a node
that comes back starts without a quota, but with a low weight: where the machine has no CPU to
spare, nodes that run keep theirs.

Which daemons these are is up to the kinds of clusters: spark_cluster.py for Spark,
flink_cluster.py for Flink. Calls about different nodes may come from different threads.
"""

import atexit
import os
import secrets
import shutil
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from rekindle.model.errors import InputError, RunError
from rekindle_cli import cli_options
from rekindle_local import cgroups, process_sets
from rekindle_local.daemons import Daemon, DaemonGroup, end_daemons
from rekindle_local.process_reaper import ProcessReaper, end_processes

NODES_MAX = 250
# Cores of a node: ten of them are two cores.
CPU_QUOTA = 0.2
CPU_QUOTA_MIN = 0.01
STOP_SECONDS_MAX = 10.0
# Of the usual weight, what a node has that starts beside others that run.
STARTING_WEIGHT = 0.1


@dataclass(frozen=True, slots=True)
class LocalNode:
    """A node of the cluster; its id is its loopback host."""

    index: int

    @property
    def name(self) -> str:
        return f"127.0.0.{self.index + 2}"

    @property
    def host(self) -> str:
        return self.name


class LocalNodes(DaemonGroup):
    """A context manager: inside, the leading daemon and all workers run; after it, nothing is left.

    Nothing is left either when the owner ends otherwise, killed by a signal included: a watcher
    process sees to that (process_reaper.py).

    `cpu_quota` is in cores (None: no quota, sessions instead of cgroups), `slots` how many tasks of
    a kind a worker takes at once. `directory` takes logs and scratch files. `leading` names the
    leading daemon, which has no quota. `on_change` is called after a worker's process has been
    started (it has not registered yet) or killed, from the thread that did it. Raises `InputError`
    for a setting out of range.
    """

    def __init__(
        self,
        *,
        directory: Path,
        nodes: int,
        cpu_quota: float | None,
        slots: int,
        leading: str,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        cli_options.check_range("nodes", nodes, 1, NODES_MAX)
        cli_options.check_range("slots", slots, 1, 1024)
        if cpu_quota is not None:
            cli_options.check_range("cpu_quota", cpu_quota, CPU_QUOTA_MIN, os.cpu_count() or 1)
        self.nodes = tuple(LocalNode(index) for index in range(nodes))
        self.directory = directory.absolute()
        self.slots = slots
        self._cpu_quota = cpu_quota
        self._on_change = on_change
        self._owner = os.getpid()
        self._hierarchy: cgroups.Hierarchy | None = None
        self._watcher: ProcessReaper | None = None
        self._tops: tuple[Path, ...] = ()
        self._leading = Daemon(leading, self.logs, None)
        self._workers: dict[str, Daemon] = {}

    @abstractmethod
    def _prepare(self) -> None:
        """Find what is to be started, before anything is."""

    @abstractmethod
    def _start_leading(self) -> None:
        """Start the leading daemon and wait until it serves."""

    @abstractmethod
    def _launch_worker(self, worker: Daemon) -> None:
        """Start a node's worker on an empty disk."""

    @abstractmethod
    def _await_worker(self, worker: Daemon) -> None:
        """Wait until the worker has registered."""

    @property
    def _temporaries(self) -> tuple[Path, ...]:
        """Directories that are gone in the end, however it comes."""
        return (self._scratch,)

    @property
    def logs(self) -> Path:
        """Logs of all daemons and of the watcher."""
        return self.directory / "logs"

    @property
    def quota_enforced(self) -> bool:
        """Whether nodes have a quota, put on by `enforce_quota`; else they only declare one."""
        return self._hierarchy is not None

    def start(self) -> None:
        """Start the leading daemon, then all workers at once, and wait until they have registered.

        Raises `InputError` when something is not installed, `RunError` when a process does not
        come up; then nothing is left running.
        """
        self._prepare()
        atexit.register(self.close)
        try:
            self._prepare_groups()
            self._start_leading()
            for worker in self._workers.values():
                self._start(worker)
            for worker in self._workers.values():
                self._await_worker(worker)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End every process and remove cgroups and scratch files; logs stay. Safe to repeat."""
        if self._watcher is None or os.getpid() != self._owner:
            return
        try:
            end_daemons([self._leading, *self._workers.values()], self._watcher)
        finally:
            if not self._watcher.close():
                end_processes(self._tops, ())
            self._watcher = None
            for directory in self._temporaries:
                shutil.rmtree(directory, ignore_errors=True)
            atexit.unregister(self.close)

    def kill(self, names: Iterable[str]) -> None:
        """SIGKILL every process of these nodes, all as close together as can be.

        Returns when none is left. A node that is down already stays down.
        """
        victims = [self._worker(name) for name in names]
        assert self._watcher is not None
        end_daemons(victims, self._watcher)
        self._on_change()

    def start_worker(self, name: str) -> None:
        """Bring a killed node back: a fresh worker, empty disks, no quota, a low weight.

        Waits until it is registered.
        """
        worker = self._worker(name)
        if worker.leader is not None:
            raise RunError(
                where=f"node {name}", what="its worker is running", remedy="kill the node first"
            )
        if worker.group is not None:
            worker.group.set_weight(STARTING_WEIGHT)
        self._start(worker)
        self._await_worker(worker)

    def enforce_quota(self, name: str) -> None:
        """Put the quota on, and the usual weight, to be called once the node's processes are there.

        Does nothing where quotas are not enforced. Raises `RunError` when the kernel reads back
        another quota than was set.
        """
        group = self._worker(name).group
        if group is None or self._cpu_quota is None:
            return
        group.set_weight(1.0)
        group.set_quota(self._cpu_quota)
        held = group.quota()
        if held is None or abs(held - self._cpu_quota) > 1e-4:
            raise RunError(
                where=f"node {name}",
                what=f"its quota reads back as {held} instead of {self._cpu_quota} cores",
                remedy="see whether something else writes to the rekindle cgroups",
            )

    def lift_quota(self, name: str) -> None:
        """Let the node use all the CPU there is, until the quota is put on again."""
        group = self._worker(name).group
        if group is not None:
            group.lift_quota()

    def quota(self, name: str) -> float | None:
        """The node's quota in cores as the kernel holds it now; None while there is none."""
        group = self._worker(name).group
        return None if group is None else group.quota()

    def throttled_periods(self, name: str) -> int:
        """In how many periods of 100 ms the node has used up its quota; 0 without cgroups."""
        group = self._worker(name).group
        return 0 if group is None else group.throttled_periods()

    def outer_throttled_periods(self) -> int:
        """The same for the group that holds the whole cluster and more, a container's for one."""
        if self._hierarchy is None:
            return 0
        return cgroups.Group(self._hierarchy, "").throttled_periods()

    def stop_processes(self, name: str) -> None:
        """SIGSTOP every process of the node: it falls silent, with its connections open."""
        worker = self._worker(name)
        left = process_sets.stop_all(worker.processes, limit_seconds=STOP_SECONDS_MAX)
        if left:
            raise RunError(
                where=f"node {name}",
                what=f"processes {list(left)} did not stop within {STOP_SECONDS_MAX:.0f} s",
                remedy="see whether something else continues them",
            )

    def continue_processes(self, name: str) -> None:
        """SIGCONT every process of the node."""
        process_sets.continue_all(self._worker(name).processes)

    def processes(self, name: str) -> tuple[int, ...]:
        """Ids of the node's living processes: its worker, and all below it."""
        return self._worker(name).processes()

    def all_processes(self) -> list[int]:
        """Ids of the living processes of all nodes."""
        return [pid for node in self.nodes for pid in self.processes(node.name)]

    def leaders(self) -> dict[str, int | None]:
        """By node the id of its worker's process, None where it was killed."""
        return {
            name: None if worker.leader is None else worker.leader.pid
            for name, worker in self._workers.items()
        }

    def leading_process(self) -> int | None:
        """Id of the leading daemon's process; None while it does not run."""
        return None if self._leading.leader is None else self._leading.leader.pid

    def disk(self, name: str) -> Path:
        """Where the node keeps what it writes; empty when it is brought back."""
        return self._scratch / self._worker(name).name

    def cpu_seconds(self, name: str) -> float:
        """CPU time of the node since the cluster's start; without cgroups, of living processes."""
        return _cpu_seconds(self._worker(name))

    def all_cpu_seconds(self) -> float:
        """CPU time of all nodes, as `cpu_seconds` has it."""
        return sum(self.cpu_seconds(node.name) for node in self.nodes)

    def leading_cpu_seconds(self) -> float:
        """CPU time of the leading daemon since the cluster's start."""
        return _cpu_seconds(self._leading)

    @property
    def _scratch(self) -> Path:
        return self.directory / "scratch"

    def _prepare_groups(self) -> None:
        """Find out whether quotas can be set; the watcher comes before the first group."""
        self.logs.mkdir(parents=True, exist_ok=True)
        if self._cpu_quota is not None:
            self._hierarchy = cgroups.find_hierarchy()
        top = f"rekindle-{self._owner}-{secrets.token_hex(4)}"
        if self._hierarchy is not None:
            self._tops = cgroups.Group(self._hierarchy, top).directories
        self._watcher = ProcessReaper(self._tops, self.logs / "watcher.log", self._temporaries)
        self._leading = self._make_daemon(self._leading.name, top)
        self._workers = {node.name: self._make_daemon(node.name, top) for node in self.nodes}

    def _make_daemon(self, name: str, top: str) -> Daemon:
        group = None
        if self._hierarchy is not None:
            group = cgroups.Group(self._hierarchy, f"{top}/{name}")
            group.create()
        return Daemon(name, self.logs, group)

    def _start(self, worker: Daemon) -> None:
        shutil.rmtree(self.disk(worker.name), ignore_errors=True)
        if worker.group is not None:
            worker.group.lift_quota()
        self._launch_worker(worker)
        self._on_change()

    def _worker(self, name: str) -> Daemon:
        worker = self._workers.get(name)
        if worker is None:
            raise InputError(
                where=f"node {name!r}",
                what="is not a node of the running cluster",
                remedy=f"name one of {self.nodes[0].name} to {self.nodes[-1].name}",
            )
        return worker


def _cpu_seconds(daemon: Daemon) -> float:
    if daemon.group is not None:
        return daemon.group.cpu_seconds()
    return process_sets.cpu_seconds(daemon.processes())
