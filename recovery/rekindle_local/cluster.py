"""A Spark cluster of local processes: one master, and N workers on loopback hosts of their own.

Each node is a worker with all that it starts: executors, their Python workers, the resident host.
It has a cgroup with a CPU quota where cgroups can be written (root on Linux), else a session; so it
is killed, stopped and measured whole. The quota holds from `enforce_quota` on, for an executor that
starts under it would take half a minute.

It runs no application and knows nothing of queries. The demo, the benchmarks and the integration
tests call it. Calls about different nodes may come from different threads.
"""

import atexit
import os
import re
import secrets
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from rekindle.errors import InputError, RunError
from rekindle_local import cgroups, class_archives, distribution, options, processes
from rekindle_local.daemons import Daemon, end_daemons
from rekindle_local.watcher import Watcher, end_processes

__all__ = ["LocalCluster", "Node"]

NODES_MAX = 250
STOP_SECONDS_MAX = 10.0
MASTER_HOST = "127.0.0.1"
# A host's socket lies there (HostProcess.java), and the path of a Unix socket ends at 107 bytes.
TEMPORARY_BYTES_MAX = 107 - len("/rekindle-4194304.sock")
_MASTER_ELECTED = re.compile(r"Starting Spark master at (spark://\S+)[\s\S]*New state: ALIVE")
_WORKER_REGISTERED = re.compile("Successfully registered with master")


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster; its id is its loopback host."""

    index: int

    @property
    def name(self) -> str:
        return f"127.0.0.{self.index + 2}"

    @property
    def host(self) -> str:
        return self.name


class LocalCluster:
    """A context manager: inside, the master and all workers run; after it, nothing is left.

    Nothing is left either when the owner ends otherwise, killed by a signal included: a watcher
    process sees to that (watcher.py).

    `cpu_quota` is in cores (None: no quota, sessions instead of cgroups), `slots` what a worker
    declares with `-c`, `worker_memory_megabytes` what it declares with `-m`. `directory` takes logs
    and scratch files, `java_options` go to master and workers, `environment` is added to their
    variables and so to the executors', `class_path` is appended to the class path of workers and
    executors. (An application that sets `spark.executor.extraClassPath` instead loses the speed of
    the class-data archives, which hold for one beginning of the class path.) `class_data_cache` is
    where those archives are looked for. `temporary` is where sockets and unpacked libraries lie:
    among the scratch files, or, where sockets need a shorter path, in the system's folder for them.
    `on_change` is called after a worker's process has been started (it has not registered yet) or
    killed, from the thread that did it. Raises `InputError` for a setting out of range.
    """

    def __init__(
        self,
        *,
        directory: Path,
        nodes: int = 10,
        cpu_quota: float | None = 0.2,
        slots: int = 3,
        worker_memory_megabytes: int = 2048,
        java_options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        class_path: Sequence[Path] = (),
        class_data_cache: Path | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        options.check_range("nodes", nodes, 1, NODES_MAX)
        options.check_range("slots", slots, 1, 1024)
        options.check_range("worker_memory_megabytes", worker_memory_megabytes, 512, 1 << 20)
        if cpu_quota is not None:
            options.check_range("cpu_quota", cpu_quota, 0.01, os.cpu_count() or 1)
        self.nodes = tuple(Node(index) for index in range(nodes))
        self.directory = directory.absolute()
        self._cpu_quota = cpu_quota
        self._capacity = ("-c", str(slots), "-m", f"{worker_memory_megabytes}m")
        self._java_options = tuple(java_options)
        self._additions = dict(environment or {})
        self._additions["SPARK_DIST_CLASSPATH"] = ":".join(map(str, class_path))
        self._class_data_cache = class_data_cache or class_archives.default_cache()
        self._on_change = on_change
        self._owner = os.getpid()
        self.temporary = self._scratch / "temporary"
        if len(os.fsencode(self.temporary)) > TEMPORARY_BYTES_MAX:
            name = f"rekindle-{self._owner}-{secrets.token_hex(4)}"
            self.temporary = Path(tempfile.gettempdir(), name)
        self._hierarchy: cgroups.Hierarchy | None = None
        self._watcher: Watcher | None = None
        self._tops: tuple[Path, ...] = ()
        self._master = Daemon("master", self.logs, None)
        self._workers: dict[str, Daemon] = {}
        self._master_url = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def logs(self) -> Path:
        """Logs of master, workers and watcher; below `logs/NODE` the executors' own."""
        return self.directory / "logs"

    @property
    def master_url(self) -> str:
        """`spark://HOST:PORT` of the running master."""
        return self._master_url

    @property
    def quota_enforced(self) -> bool:
        """Whether nodes have a quota, put on by `enforce_quota`; else they only declare one."""
        return self._hierarchy is not None

    def start(self) -> None:
        """Start the master, then all workers at once, and wait until they have registered.

        Raises `InputError` when java or pyspark is missing, `RunError` when a process does not
        come up; then nothing is left running.
        """
        found = distribution.find_distribution()
        self._archives = class_archives.find_class_archives(self._class_data_cache, found)
        self._environment = found.environment(self._configuration(), self._additions)
        archive = class_archives.archive_option(self._archives.daemon)
        java_options = (*archive, self._temporary_option, *self._java_options)
        self._command = distribution.build_command(found, self._environment, java_options)
        atexit.register(self.close)
        try:
            self._prepare_directories()
            self._prepare_groups()
            self._start_master()
            for worker in self._workers.values():
                self._launch_worker(worker)
            for worker in self._workers.values():
                worker.await_line(_WORKER_REGISTERED)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End every process and remove cgroups and scratch files; logs stay. Safe to repeat."""
        if self._watcher is None or os.getpid() != self._owner:
            return
        try:
            end_daemons([self._master, *self._workers.values()], self._watcher)
        finally:
            if not self._watcher.close():
                end_processes(self._tops, ())
            self._watcher = None
            for scratch in (self._scratch, self.temporary):
                shutil.rmtree(scratch, ignore_errors=True)
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
        """Bring a killed node back: a fresh worker, empty disks, no quota. Waits until it is
        registered with the master."""
        worker = self._worker(name)
        if worker.leader is not None:
            raise RunError(
                where=f"node {name}", what="its worker is running", remedy="kill the node first"
            )
        self._launch_worker(worker)
        worker.await_line(_WORKER_REGISTERED)

    def enforce_quota(self, name: str) -> None:
        """Put the quota on, to be called once the node's executor has registered.

        Does nothing where quotas are not enforced. Raises `RunError` when the kernel reads back
        another quota than was set.
        """
        group = self._worker(name).group
        if group is None or self._cpu_quota is None:
            return
        group.set_quota(self._cpu_quota)
        held = group.quota()
        if held is None or abs(held - self._cpu_quota) > 1e-4:
            raise RunError(
                where=f"node {name}",
                what=f"its quota reads back as {held} instead of {self._cpu_quota} cores",
                remedy="see whether something else writes to the rekindle cgroups",
            )

    def quota(self, name: str) -> float | None:
        """The node's quota in cores as the kernel holds it now; None while there is none."""
        group = self._worker(name).group
        return None if group is None else group.quota()

    def stop_processes(self, name: str) -> None:
        """SIGSTOP every process of the node: it falls silent, with its connections open."""
        worker = self._worker(name)
        left = processes.stop_all(worker.processes, limit_seconds=STOP_SECONDS_MAX)
        if left:
            raise RunError(
                where=f"node {name}",
                what=f"processes {list(left)} did not stop within {STOP_SECONDS_MAX:.0f} s",
                remedy="see whether something else continues them",
            )

    def continue_processes(self, name: str) -> None:
        """SIGCONT every process of the node."""
        processes.continue_all(self._worker(name).processes)

    def processes(self, name: str) -> tuple[int, ...]:
        """Ids of the node's living processes: worker, executors, and all below them."""
        return self._worker(name).processes()

    def leaders(self) -> dict[str, int | None]:
        """By node the id of its worker's process, None where it was killed."""
        return {
            name: None if worker.leader is None else worker.leader.pid
            for name, worker in self._workers.items()
        }

    def disk(self, name: str) -> Path:
        """Where the node's executors keep what they write; empty when the node is brought back."""
        return self._scratch / self._worker(name).name

    def cpu_seconds(self, name: str) -> float:
        """CPU time of the node since the cluster's start; without cgroups, of living processes."""
        worker = self._worker(name)
        if worker.group is not None:
            return worker.group.cpu_seconds()
        return processes.cpu_seconds(worker.processes())

    def executor_java_options(self) -> str:
        """What an application should put into `spark.executor.extraJavaOptions`, or begin it with.

        The same settings for small nodes as the workers have, and the class-data archive.
        """
        archive = class_archives.archive_option(self._archives.executor)
        return shlex.join((*distribution.SMALL_NODE_OPTIONS, *archive, self._temporary_option))

    def spark_options(self, executor_megabytes: int = 512) -> dict[str, str]:
        """Options of Spark for an application on this cluster whose driver runs on this machine."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": shlex.join(distribution.SMALL_NODE_OPTIONS),
            "spark.executor.memory": f"{executor_megabytes}m",
            "spark.executor.extraJavaOptions": self.executor_java_options(),
        }

    @property
    def _scratch(self) -> Path:
        return self.directory / "scratch"

    @property
    def _temporary_option(self) -> str:
        """For the hosts' sockets, and for native libraries that JVMs unpack: a killed one removes
        neither."""
        return f"-Djava.io.tmpdir={self.temporary}"

    def _prepare_directories(self) -> None:
        self.logs.mkdir(parents=True, exist_ok=True)
        self.temporary.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _configuration(self) -> Path:
        """An empty configuration directory: settings from outside would hide our log lines."""
        for directory in (self._archives.configuration, self._scratch / "configuration"):
            with suppress(OSError):
                directory.mkdir(parents=True, exist_ok=True)
                return directory
        raise RunError(
            where=str(self._scratch), what="cannot be written", remedy="choose another directory"
        )

    def _prepare_groups(self) -> None:
        """Find out whether quotas can be set; the watcher comes before the first group."""
        if self._cpu_quota is not None:
            self._hierarchy = cgroups.find_hierarchy()
        top = f"rekindle-{self._owner}-{secrets.token_hex(4)}"
        if self._hierarchy is not None:
            self._tops = cgroups.Group(self._hierarchy, top).directories
        self._watcher = Watcher(self._tops, self.logs / "watcher.log")
        self._master = self._make_daemon("master", top)
        self._workers = {node.name: self._make_daemon(node.name, top) for node in self.nodes}

    def _make_daemon(self, name: str, top: str) -> Daemon:
        group = None
        if self._hierarchy is not None:
            group = cgroups.Group(self._hierarchy, f"{top}/{name}")
            group.create()
        return Daemon(name, self.logs, group)

    def _start_master(self) -> None:
        # Port 0 and the log line instead of a port chosen before: no one can take it in between.
        arguments = ("--host", MASTER_HOST, "--port", "0", "--webui-port", "0")
        entry = "org.apache.spark.deploy.master.Master"
        self._launch(self._master, (entry, *arguments), {"SPARK_LOCAL_IP": MASTER_HOST})
        self._master_url = self._master.await_line(_MASTER_ELECTED)[1]

    def _launch_worker(self, worker: Daemon) -> None:
        name = worker.name
        disks = self.disk(name)
        shutil.rmtree(disks, ignore_errors=True)
        if worker.group is not None:
            worker.group.lift_quota()
        address = ("-h", name, "--webui-port", "0", "-d", str(self.logs / name))
        entry = "org.apache.spark.deploy.worker.Worker"
        self._launch(
            worker,
            (entry, *address, *self._capacity, self._master_url),
            {"SPARK_LOCAL_IP": name, "SPARK_LOCAL_DIRS": str(disks), "REKINDLE_NODE": name},
        )
        self._on_change()

    def _launch(
        self, daemon: Daemon, arguments: Sequence[str], variables: Mapping[str, str]
    ) -> None:
        assert self._watcher is not None
        environment = {**self._environment, **variables}
        daemon.launch([*self._command, *arguments], environment, self._watcher)

    def _worker(self, name: str) -> Daemon:
        worker = self._workers.get(name)
        if worker is None:
            raise InputError(
                where=f"node {name!r}",
                what="is not a node of the running cluster",
                remedy=f"name one of {self.nodes[0].name} to {self.nodes[-1].name}",
            )
        return worker
