"""A Flink cluster of local processes: a JobManager without a quota, and a TaskManager per node.

How nodes are killed, stopped, bounded and measured is in machines.py. It runs no job and knows
nothing of queries. The benchmarks and the integration test call it.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from rekindle.model.errors import RunError
from rekindle_cli import cli_options
from rekindle_local.daemons import Daemon
from rekindle_local.local_nodes import CPU_QUOTA, LocalNodes
from rekindle_peers.flink import flink_installation

HOST = "127.0.0.1"
JOB_MANAGER_MEGABYTES = 512
# Beside the tasks' own heap: what Flink itself takes, and buffers between tasks.
FRAMEWORK_MEGABYTES, NETWORK_MEGABYTES, METASPACE_MEGABYTES = 128, 96, 256
OVERHEAD_MEGABYTES = 192
_JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
_TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
_SERVING = re.compile(r"Rest endpoint listening at 127\.0\.0\.1:(\d+)")
_REACHED = re.compile(r"Actor system started at pekko\.tcp://flink@127\.0\.0\.1:(\d+)")
_REGISTERED = re.compile("Successful registration at resource manager")
# One thread collects garbage on nodes of half a core. TaskManagers keep both compilers: at full
# speed rows cost half of what they cost with the first alone. The JobManager has the first alone.
_JAVA_OPTIONS = ("-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xshare:auto")
_LOGGING = """\
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
appender.console.name = console
appender.console.type = Console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %-5p %c{1} %m%n
logger.pekko.name = org.apache.pekko
logger.pekko.level = WARN
"""

Scheduler = Literal["default", "adaptive"]


class FlinkCluster(LocalNodes):
    """JobManager and TaskManagers as `LocalNodes`, with the jar of the job on their class path.

    `scheduler` is Flink's, `task_megabytes` the heap that a TaskManager has for tasks; `settings`
    are further ones of Flink.
    """

    def __init__(
        self,
        *,
        directory: Path,
        nodes: int = 10,
        cpu_quota: float | None = CPU_QUOTA,
        slots: int = 3,
        task_megabytes: int = 640,
        scheduler: Scheduler = "default",
        settings: Mapping[str, str] | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(
            directory=directory,
            nodes=nodes,
            cpu_quota=cpu_quota,
            slots=slots,
            leading="jobmanager",
            on_change=on_change,
        )
        cli_options.check_range("task_megabytes", task_megabytes, 64, 1 << 20)
        self._task_megabytes = task_megabytes
        self._settings = {"jobmanager.scheduler": scheduler, **(settings or {})}
        self._rest_port, self._port = 0, 0

    @property
    def address(self) -> str:
        """`HOST:PORT` at which the running JobManager takes jobs."""
        return f"{HOST}:{self._rest_port}"

    def _prepare(self) -> None:
        self._installation = flink_installation.find()
        configuration = self._scratch / "configuration"
        try:
            configuration.mkdir(parents=True, exist_ok=True)
            (configuration / "config.yaml").write_text("")
            (configuration / "log4j.properties").write_text(_LOGGING)
        except OSError as error:
            raise RunError(
                where=str(configuration),
                what=f"cannot be written ({error.strerror})",
                remedy="choose another directory",
            ) from error
        self._configuration = configuration

    def _start_leading(self) -> None:
        # Port 0 and log lines instead of ports chosen before: no one can take them in between.
        settings = {
            "jobmanager.bind-host": HOST,
            "jobmanager.rpc.port": "0",
            "rest.address": HOST,
            "rest.bind-address": HOST,
            "rest.port": "0",
            "rest.bind-port": "0",
            "web.submit.enable": "false",
            # By default the first nodes get tasks until their slots are full.
            "taskmanager.load-balance.mode": "SLOTS",
        }
        java_options = (f"-Xmx{JOB_MANAGER_MEGABYTES}m", "-XX:TieredStopAtLevel=1")
        self._launch(self._leading, _JOB_MANAGER, java_options, settings)
        self._rest_port = int(self._leading.await_line(_SERVING)[1])
        self._port = int(self._leading.await_line(_REACHED)[1])

    def _launch_worker(self, worker: Daemon) -> None:
        heap = FRAMEWORK_MEGABYTES + self._task_megabytes
        direct = FRAMEWORK_MEGABYTES + NETWORK_MEGABYTES
        settings = {
            "jobmanager.rpc.port": str(self._port),
            "taskmanager.host": worker.name,
            "taskmanager.bind-host": worker.name,
            "taskmanager.numberOfTaskSlots": str(self.slots),
            "taskmanager.cpu.cores": str(float(self.slots)),
            "taskmanager.memory.task.heap.size": f"{self._task_megabytes}m",
            "taskmanager.memory.task.off-heap.size": "0m",
            "taskmanager.memory.network.min": f"{NETWORK_MEGABYTES}m",
            "taskmanager.memory.network.max": f"{NETWORK_MEGABYTES}m",
            # Buffers between tasks shrink under load, so that barriers pass in time.
            "taskmanager.network.memory.buffer-debloat.enabled": "true",
            # No RocksDB, so nothing is managed.
            "taskmanager.memory.managed.size": "0m",
            # What Flink's scripts would work out, which would start a JVM for it.
            "taskmanager.memory.framework.heap.size": f"{FRAMEWORK_MEGABYTES}m",
            "taskmanager.memory.framework.off-heap.size": f"{FRAMEWORK_MEGABYTES}m",
            "taskmanager.memory.jvm-metaspace.size": f"{METASPACE_MEGABYTES}m",
            "taskmanager.memory.jvm-overhead.min": f"{OVERHEAD_MEGABYTES}m",
            "taskmanager.memory.jvm-overhead.max": f"{OVERHEAD_MEGABYTES}m",
        }
        java_options = (
            f"-Xms{heap}m",
            f"-Xmx{heap}m",
            f"-XX:MaxDirectMemorySize={direct}m",
            f"-XX:MaxMetaspaceSize={METASPACE_MEGABYTES}m",
        )
        self._launch(worker, _TASK_MANAGER, java_options, settings)

    def _await_worker(self, worker: Daemon) -> None:
        worker.await_line(_REGISTERED)

    def _launch(
        self,
        daemon: Daemon,
        main: str,
        java_options: tuple[str, ...],
        settings: Mapping[str, str],
    ) -> None:
        assert self._watcher is not None
        disk = self._scratch / daemon.name
        disk.mkdir(parents=True)
        logging = f"-Dlog4j.configurationFile={self._configuration / 'log4j.properties'}"
        temporary = f"-Djava.io.tmpdir={disk}"
        command = self._installation.command(
            main, (*_JAVA_OPTIONS, *java_options, logging, temporary)
        )
        every = {
            "jobmanager.rpc.address": HOST,
            "io.tmp.dirs": str(disk),
            **self._settings,
            **settings,
        }
        pairs = [part for pair in every.items() for part in ("-D", "=".join(pair))]
        variables = {"PATH": "/usr/bin:/bin", "TMPDIR": str(disk)}
        arguments = ["--configDir", str(self._configuration), *pairs]
        daemon.launch([*command, *arguments], variables, self._watcher)
