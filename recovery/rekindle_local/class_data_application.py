"""The small application whose executor writes a class-data archive; class_data_training.py runs it.

python -m rekindle_local.class_data_application MASTER-URL JAVA-OPTIONS ARCHIVE
"""

import os
import signal
import sys
from pathlib import Path

from rekindle_local import process_sets

DUMP_SECONDS_MAX = 120.0
EXECUTOR_MEGABYTES = 512


def finished_archive(executor: Path) -> Path:
    """Returns the name that the executor's archive gets once it has been written.

    The worker starts the executor again, which is killed while it writes another archive.
    """
    return executor.with_suffix(".whole")


def main(master_url: str, options: str, archive: str) -> None:
    """Runs a shuffle and a Python worker, then sends SIGTERM to the executor.

    It writes its archive before this application ends: the worker would kill it 10 s after that.
    """
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
    process_sets.await_condition(
        lambda: not Path(f"/proc/{executor}").exists(),
        limit_seconds=DUMP_SECONDS_MAX,
        interval_seconds=0.1,
    )
    if Path(archive).exists():
        Path(archive).rename(finished_archive(Path(archive)))
    os._exit(0)  # the context would wait for the executor that the worker starts again


def _find_executor() -> int:
    """In a task: the JVM is the parent of PySpark's daemon, which is our parent."""
    daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
    return int(daemon.rpartition(")")[2].split()[1])


if __name__ == "__main__":
    main(*sys.argv[1:])
