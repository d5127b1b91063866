"""Makes the class-data archives of one Java and one Spark, once per machine, in a minute or less.

A cluster of one worker runs a small application whose JVMs write at their end which classes they
loaded. `make setup` and the demo call `make_class_archives`; without the archives everything works
too, only slower. As a program this module is that small application.
"""

import fcntl
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from rekindle.errors import RunError
from rekindle_local import class_archives, processes
from rekindle_local.class_archives import ClassArchives
from rekindle_local.cluster import LocalCluster
from rekindle_local.distribution import find_distribution

__all__ = ["make_class_archives"]

APPLICATION_SECONDS_MAX = 180.0
DUMP_SECONDS_MAX = 60.0
EXECUTOR_MEGABYTES = 512


def make_class_archives(cache: Path | None = None) -> ClassArchives:
    """Make the archives unless they are there; who comes second waits for the first.

    Raises `InputError` without java or pyspark, `RunError` when the training run fails, `OSError`
    when the cache cannot be written.
    """
    cache = cache or class_archives.default_cache()
    archives = class_archives.find_class_archives(cache, find_distribution())
    archives.directory.mkdir(parents=True, exist_ok=True)
    with (archives.directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archives.complete:
            with tempfile.TemporaryDirectory(dir=archives.directory) as directory:
                _train(archives, cache, Path(directory))
    return archives


def _train(archives: ClassArchives, cache: Path, directory: Path) -> None:
    daemon, executor = directory / "daemon.jsa", directory / "executor.jsa"
    found = find_distribution()
    with LocalCluster(
        nodes=1,
        cpu_quota=None,
        directory=directory,
        java_options=(_dump_option(daemon),),
        class_data_cache=cache,
    ) as cluster:
        options = f"{cluster.executor_java_options()} {shlex.quote(_dump_option(executor))}"
        _run_application(cluster.master_url, options, executor)
        _end_worker(cluster)
    for made, place in ((daemon, archives.daemon), (_whole(executor), archives.executor)):
        if not _is_usable(made, found.java):
            raise RunError(
                where=str(place),
                what="the JVM wrote no class-data archive that it can use",
                remedy="try again, or go on without; this JDK must know -XX:ArchiveClassesAtExit",
            )
        made.replace(place)


def _whole(executor: Path) -> Path:
    """The name of an executor's archive once it has been written: the worker starts the executor
    again, which is killed while it writes another one."""
    return executor.with_suffix(".whole")


def _is_usable(archive: Path, java: Path) -> bool:
    """A JVM that is given an archive that was cut short dies."""
    if not archive.exists():
        return False
    command = [str(java), f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-version"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _dump_option(archive: Path) -> str:
    return f"-XX:ArchiveClassesAtExit={archive}"


def _run_application(master_url: str, options: str, archive: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", __name__, master_url, options, str(archive)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=APPLICATION_SECONDS_MAX,
        check=False,
    )
    if done.returncode != 0:
        raise RunError(
            where="training application",
            what=done.stderr.strip()[-500:],
            remedy="see whether a plain PySpark application runs on this machine",
        )


def _end_worker(cluster: LocalCluster) -> None:
    """Ask the worker to end, so that its JVM dumps; its executor is gone already."""
    node = cluster.nodes[0].name
    processes.signal_all(cluster.processes(node), signal.SIGTERM)
    processes.await_condition(
        lambda: not cluster.processes(node),
        limit_seconds=DUMP_SECONDS_MAX,
        interval_seconds=0.1,
    )


def _application(master_url: str, options: str, archive: str) -> None:
    """A shuffle and a Python worker, then SIGTERM for the executor: it dumps while nobody hurries
    it, whereas the worker would kill it 10 s after the application's end."""
    from pyspark import SparkConf, SparkContext  # slow to import, and needed only here

    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.extraJavaOptions": options,
        "spark.executor.memory": f"{EXECUTOR_MEGABYTES}m",
        "spark.ui.enabled": "false",
    }
    configuration = SparkConf().setMaster(master_url).setAppName("rekindle training")
    context = SparkContext(conf=configuration.setAll(list(settings.items())))
    pairs = context.parallelize(range(100), 3).map(lambda number: (number % 7, number))
    pairs.reduceByKey(lambda left, right: left + right).collect()
    executor = context.parallelize([0], 1).map(lambda _: _find_executor()).collect()[0]
    os.kill(executor, signal.SIGTERM)
    processes.await_condition(
        lambda: not Path(f"/proc/{executor}").exists(),
        limit_seconds=DUMP_SECONDS_MAX,
        interval_seconds=0.1,
    )
    if Path(archive).exists():
        Path(archive).rename(_whole(Path(archive)))
    os._exit(0)  # the context would wait for the executor that the worker starts again


def _find_executor() -> int:
    """In a task: the JVM is the parent of PySpark's daemon, which is our parent."""
    daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
    return int(daemon.rpartition(")")[2].split()[1])


if __name__ == "__main__":
    _application(*sys.argv[1:])
