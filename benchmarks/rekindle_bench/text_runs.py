"""A pipeline that is text, run on a cluster of this machine by a driver of its own.

Called by the benchmarks that need no flights and no failures of nodes: `soak_benchmark`,
`scale_benchmark`, `harmful_functions`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from rekindle_local.demo.driver_process import DriverProcess
from rekindle_local.spark_cluster import LocalCluster
from rekindle_spark.spark import jvm_build


def cluster(nodes: int, directory: Path, **options: Any) -> LocalCluster:
    """Make a cluster of so many nodes without quotas, below `directory`; it starts on entry."""
    return LocalCluster(
        nodes=nodes,
        cpu_quota=None,
        directory=directory / "cluster",
        class_path=[Path(jvm_build.path())],
        **options,
    )


@contextmanager
def started(
    pipeline: str,
    runtime: Mapping[str, Any],
    nodes: LocalCluster,
    directory: Path,
    conf: Mapping[str, str] | None = None,
) -> Iterator[DriverProcess]:
    """Have a driver run a pipeline on `nodes` until the block ends, as `prepared` does."""
    with prepared(pipeline, runtime, nodes, directory, conf) as (driver, start):
        start()
        yield driver


@contextmanager
def prepared(
    pipeline: str,
    runtime: Mapping[str, Any],
    nodes: LocalCluster,
    directory: Path,
    conf: Mapping[str, str] | None = None,
) -> Iterator[tuple[DriverProcess, Callable[[], None]]]:
    """Write a pipeline and its settings into a directory; give a driver, which ends with the block,
    and what starts it on `nodes`. `conf` are more options of Spark."""
    file, settings = directory / "pipeline.py", directory / "settings.yaml"
    file.write_text(pipeline)
    settings.write_text(yaml.safe_dump({"version": 1, "runtime": dict(runtime)}))
    driver = DriverProcess(directory)
    options = {**nodes.spark_options(), **(conf or {})}
    try:
        yield driver, partial(driver.start, file, nodes.master_url, settings, options)
    finally:
        driver.end()
