"""A Spark cluster of local processes: one master, and N workers on loopback hosts of their own.

Each node is a worker with all that it starts: executors, their Python workers, the resident host.
How nodes are killed, stopped, bounded and measured is in local_nodes.py.

It runs no application and knows nothing of queries. The demo, the benchmarks and the integration
tests call it. Calls about different nodes may come from different threads.
"""

import os
import re
import secrets
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from rekindle.model.errors import RunError
from rekindle_cli import cli_options
from rekindle_local import cached_files, class_archives, spark_distribution
from rekindle_local.daemons import Daemon
from rekindle_local.local_nodes import CPU_QUOTA, LocalNodes

MASTER_HOST = "127.0.0.1"
# A host's socket lies there (HostFolder.java), and the path of a Unix socket ends at 107 bytes.
TEMPORARY_BYTES_MAX = 107 - len("/rekindle-abcdefghij/s")
_MASTER_ELECTED = re.compile(r"Starting Spark master at (spark://\S+)[\s\S]*New state: ALIVE")
_WORKER_REGISTERED = re.compile("Successfully registered with master")


class LocalCluster(LocalNodes):
    """Master and workers of Spark as `LocalNodes`.

    `slots` is what a worker declares with `-c`, `worker_memory_megabytes` what it declares with
    `-m`. `java_options` go to master and workers, `environment` is added to their variables and so
    to the executors', `class_path` is appended to the class path of workers and executors. (An
    application that sets `spark.executor.extraClassPath` instead loses the speed of the class-data
    archives, which hold for one beginning of the class path.) `class_data_cache` is where those
    archives are looked for. `temporary` is where sockets and unpacked libraries lie: among the
    scratch files, or, where sockets need a shorter path, in the system's folder for them.
    """

    def __init__(
        self,
        *,
        directory: Path,
        nodes: int = 10,
        cpu_quota: float | None = CPU_QUOTA,
        slots: int = 4,
        worker_memory_megabytes: int = 2048,
        java_options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        class_path: Sequence[Path] = (),
        class_data_cache: Path | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(
            directory=directory,
            nodes=nodes,
            cpu_quota=cpu_quota,
            slots=slots,
            leading="master",
            on_change=on_change,
        )
        cli_options.check_range("worker_memory_megabytes", worker_memory_megabytes, 512, 1 << 20)
        self._capacity = ("-c", str(slots), "-m", f"{worker_memory_megabytes}m")
        self._java_options = tuple(java_options)
        self._additions = dict(environment or {})
        self._additions["SPARK_DIST_CLASSPATH"] = ":".join(map(str, class_path))
        self._class_data_cache = class_data_cache or class_archives.default_cache()
        name = f"rekindle-{self._owner}-{secrets.token_hex(4)}"
        self.temporary = _short_enough(
            self._scratch / "temporary", Path(tempfile.gettempdir(), name), Path("/tmp", name)
        )
        self._master_url = ""
        self._held = ExitStack()

    def close(self) -> None:
        """End every process and remove what they leave, as `LocalNodes` does."""
        super().close()
        self._held.close()

    @property
    def master_url(self) -> str:
        """`spark://HOST:PORT` of the running master."""
        return self._master_url

    def executor_java_options(self) -> str:
        """What an application should put into `spark.executor.extraJavaOptions`, or begin it with.

        The same settings for small nodes as the workers have, and the class-data archive.
        """
        archive = class_archives.archive_option(self._archives.executor)
        return shlex.join(
            (*spark_distribution.SMALL_NODE_OPTIONS, *archive, self._temporary_option)
        )

    def spark_options(self, executor_megabytes: int = 512) -> dict[str, str]:
        """Options of Spark for an application on this cluster whose driver runs on this machine."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": shlex.join(spark_distribution.SMALL_NODE_OPTIONS),
            "spark.executor.memory": f"{executor_megabytes}m",
            "spark.executor.extraJavaOptions": self.executor_java_options(),
        }

    @property
    def _temporaries(self) -> tuple[Path, ...]:
        """Spark's own may lie elsewhere, where paths are short enough for sockets."""
        return (*super()._temporaries, self.temporary)

    @property
    def _temporary_option(self) -> str:
        """For the hosts' sockets, and for native libraries that JVMs unpack: a killed one removes
        neither."""
        return f"-Djava.io.tmpdir={self.temporary}"

    def _prepare(self) -> None:
        installed = spark_distribution.find_distribution()
        self._archives = class_archives.find_class_archives(self._class_data_cache, installed)
        # The daemons and executors load classes from there until they end.
        self._held.enter_context(cached_files.in_use(self._archives.directory))
        found = self._archives.distribution
        self._environment = found.environment(self._configuration(), self._additions)
        archive = class_archives.archive_option(self._archives.daemon)
        java_options = (*archive, self._temporary_option, *self._java_options)
        self._command = spark_distribution.build_command(found, self._environment, java_options)

    def _configuration(self) -> Path:
        """An empty configuration directory: settings from outside would hide our log lines."""
        for directory in (self._archives.configuration, self._scratch / "configuration"):
            with suppress(OSError):
                directory.mkdir(parents=True, exist_ok=True)
                return directory
        raise RunError(
            where=str(self._scratch), what="cannot be written", remedy="choose another directory"
        )

    def _start_leading(self) -> None:
        self.temporary.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Port 0 and the log line instead of a port chosen before: no one can take it in between.
        arguments = ("--host", MASTER_HOST, "--port", "0", "--webui-port", "0")
        entry = "org.apache.spark.deploy.master.Master"
        self._launch(self._leading, (entry, *arguments), {"SPARK_LOCAL_IP": MASTER_HOST})
        self._master_url = self._leading.await_line(_MASTER_ELECTED)[1]

    def _launch_worker(self, worker: Daemon) -> None:
        name = worker.name
        address = ("-h", name, "--webui-port", "0", "-d", str(self.logs / name))
        entry = "org.apache.spark.deploy.worker.Worker"
        self._launch(
            worker,
            (entry, *address, *self._capacity, self._master_url),
            {
                "SPARK_LOCAL_IP": name,
                "SPARK_LOCAL_DIRS": str(self.disk(name)),
                "REKINDLE_NODE": name,
            },
        )

    def _await_worker(self, worker: Daemon) -> None:
        worker.await_line(_WORKER_REGISTERED)

    def _launch(
        self, daemon: Daemon, arguments: Sequence[str], variables: Mapping[str, str]
    ) -> None:
        assert self._watcher is not None
        environment = {**self._environment, **variables}
        daemon.launch([*self._command_of(daemon), *arguments], environment, self._watcher)

    def _command_of(self, _: Daemon) -> Sequence[str]:
        """What starts a daemon of Spark; who sets nodes apart from each other puts more before."""
        return self._command


def _short_enough(*folders: Path) -> Path:
    """Return the first folder whose path leaves room for the name of a socket, or the last."""
    for folder in folders[:-1]:
        if len(os.fsencode(folder)) <= TEMPORARY_BYTES_MAX:
            return folder
    return folders[-1]
