"""What one driver carries: the time and CPU of an epoch as a pipeline has more partitions.

The same executors run pipelines of a growing number of queries, each a window over one of a few
sources; rows are few, so that what is left is the cost of partitions themselves: the driver's
books, Spark's scheduling, and frames between every pair. Epochs that are cut once every query runs
and costs are known are counted, `ran` says how long their jobs took.
"""

import math
import time
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from rekindle.model.errors import RunError
from rekindle_bench import bar_results, text_runs
from rekindle_bench.bar_results import Bar
from rekindle_bench.thread_cpu import PYTHON, cpu_by_kind
from rekindle_local.demo.driver_process import DriverProcess
from rekindle_local.spark_cluster import LocalCluster

PIPELINE = '''"""Windows over a few sources, as many as make up the partitions that are wanted."""

from rekindle_spark.pipeline.steps import Pipeline, count
from rekindle_spark.pipeline.replay import Replay


def pipeline():
    built = Pipeline("scale")
    sources = [
        built.source(
            f"source-{{n}}",
            Replay({path!r}, "event_time", repeat_every_seconds={lap_seconds}),
            parallelism={source_partitions},
        )
        for n in range({sources})
    ]
    for n in range({queries}):
        window = sources[n % len(sources)].window(
            f"window-{{n}}",
            keys=["key"],
            size_seconds=60,
            aggregates={{"rows": count()}},
            parallelism={window_partitions},
        )
        window.sink(f"query-{{n}}", priority=1 + n % 10)
    return built
'''
# of 2,000 partitions 200 are of sources and 1,800 of the windows of 200 queries
SOURCES_MAX, WINDOW_PARTITIONS = 20, 9
PARTITIONS_OF_QUERY = 10
# Event time goes as fast as the clock does: a window gives its rows once a minute.
ROWS_PER_SECOND, LAP_SECONDS, KEYS = 20_000, 60, 500
ROWS = ROWS_PER_SECOND * LAP_SECONDS
EPOCHS_COUNTED, WARM_EPOCHS = 20, 10
SECONDS_MAX = 900.0
EPOCH_SECONDS_MAX = 1.0
# Epochs are cut a second apart, and a little later than they are due.
APART_SECONDS_MAX = 1.05
# CPU per epoch at the most partitions over that at half of them
LINEAR_MAX = 2.2
POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class ScaleSize:
    """Of one pipeline, per epoch: the median seconds of its job, the mean seconds from one job's
    end to the next, and CPU seconds, of which Python's are the driver's own and the hosts'; what is
    left of each is of their JVMs."""

    queries: int
    partitions: int
    job_seconds: float
    epoch_seconds: float
    driver_cpu_seconds: float
    driver_python_cpu_seconds: float
    node_cpu_seconds: float
    host_cpu_seconds: float


@dataclass(frozen=True, slots=True)
class _Spent:
    """CPU seconds: so far, or of an epoch."""

    driver: float
    driver_python: float
    nodes: float
    hosts: float

    def each(self, before: "_Spent", epochs: int) -> "_Spent":
        """Of one of so many epochs since `before`."""
        return _Spent(
            (self.driver - before.driver) / epochs,
            (self.driver_python - before.driver_python) / epochs,
            (self.nodes - before.nodes) / epochs,
            (self.hosts - before.hosts) / epochs,
        )


def measure(partitions: int, executors: int, directory: Path) -> dict[str, Any]:
    """Run pipelines of a quarter, of half, and of all `partitions`; returns what `scale.json`
    holds."""
    rows = directory / "rows.parquet"
    _prepare(rows)
    with text_runs.cluster(executors, directory, slots=1, worker_memory_megabytes=1024) as cluster:
        sizes = [
            _size(max(1, part // PARTITIONS_OF_QUERY), rows, cluster, directory / f"run-{part}")
            for part in (partitions // 4, partitions // 2, partitions)
        ]
    return _judge(sizes, partitions, executors, directory)


def _prepare(path: Path) -> None:
    """A lap of rows, evenly spread."""
    rng = np.random.default_rng(1)
    step = LAP_SECONDS * 1_000_000 // ROWS
    table = {
        "event_time": pa.array(np.arange(ROWS) * step, pa.timestamp("us")),
        "key": pa.array(rng.integers(0, KEYS, ROWS)),
    }
    pq.write_table(pa.table(table), path)


def _size(queries: int, rows: Path, cluster: LocalCluster, directory: Path) -> ScaleSize:
    sources = min(SOURCES_MAX, queries)
    directory.mkdir()
    pipeline = PIPELINE.format(
        path=str(rows),
        lap_seconds=LAP_SECONDS,
        sources=sources,
        queries=queries,
        source_partitions=max(1, queries // sources),
        window_partitions=WINDOW_PARTITIONS,
    )
    runtime = {"nodes_expected": len(cluster.nodes), "rows_per_second": ROWS_PER_SECOND}
    conf = {"spark.driver.memory": "2g"}
    with text_runs.started(pipeline, runtime, cluster, directory, conf) as driver:
        job_seconds, epoch_seconds, spent = _epochs(driver, cluster)
    return ScaleSize(
        queries,
        sources * max(1, queries // sources) + queries * WINDOW_PARTITIONS,
        job_seconds,
        epoch_seconds,
        driver_cpu_seconds=spent.driver,
        driver_python_cpu_seconds=spent.driver_python,
        node_cpu_seconds=spent.nodes,
        host_cpu_seconds=spent.hosts,
    )


def _epochs(driver: DriverProcess, cluster: LocalCluster) -> tuple[float, float, _Spent]:
    """Of the epochs that count: the median job's seconds, the seconds from one to the next, and CPU
    of each."""
    limit, recovered = time.monotonic() + SECONDS_MAX, False
    jobs: list[float] = []
    ends: list[float] = []
    before = _cpu_seconds(driver, cluster)
    while len(jobs) < WARM_EPOCHS + EPOCHS_COUNTED:
        time.sleep(POLL_SECONDS)
        driver.check()
        for event in driver.fresh_events():
            recovered = recovered or event["kind"] == "recovered"
            if event["kind"] == "ran" and recovered:
                jobs.append(event["seconds"])
                ends.append(event["at"])
                if len(jobs) == WARM_EPOCHS:
                    before = _cpu_seconds(driver, cluster)
        if time.monotonic() > limit:
            raise RunError(
                where="bench scale",
                what=f"{len(jobs)} epochs have run in {SECONDS_MAX:.0f} s",
                remedy=f"see {driver.log}, and measure fewer --partitions",
            )
    counted = len(jobs) - WARM_EPOCHS
    apart = (ends[-1] - ends[WARM_EPOCHS - 1]) / counted
    spent = _cpu_seconds(driver, cluster).each(before, counted)
    return median(jobs[WARM_EPOCHS:]), apart, spent


def _cpu_seconds(driver: DriverProcess, cluster: LocalCluster) -> _Spent:
    own, nodes = cpu_by_kind(driver.processes), cpu_by_kind(cluster.all_processes())
    return _Spent(
        sum(own.values()),
        own.get(("driver", PYTHON), 0.0),
        sum(nodes.values()),
        nodes.get(("host", PYTHON), 0.0),
    )


def _judge(
    sizes: list[ScaleSize], partitions: int, executors: int, directory: Path
) -> dict[str, Any]:
    command = f"rekindle bench scale --partitions {partitions} --executors {executors}"
    table = Table(
        *("queries", "partitions", "job, s", "epoch, s", "driver CPU, s", "of it Python"),
        *("nodes CPU, s", "of it hosts"),
    )
    for size in sizes:
        queries, partitions_, *seconds = astuple(size)
        table.add_row(str(queries), str(partitions_), *(f"{one:.2f}" for one in seconds))
    Console(highlight=False).print(table)
    half, whole = sizes[-2:]
    doublings = math.log2(whole.partitions / half.partitions)  # one, but for rounding
    growth = (whole.driver_cpu_seconds / half.driver_cpu_seconds) ** (1 / doublings)
    bars = [
        Bar(
            f"an epoch of {whole.partitions} partitions takes less than {EPOCH_SECONDS_MAX:g} s, "
            f"and there is one every {APART_SECONDS_MAX:g} s",
            f"{whole.job_seconds:.2f} s, one every {whole.epoch_seconds:.2f} s",
            whole.job_seconds < EPOCH_SECONDS_MAX and whole.epoch_seconds <= APART_SECONDS_MAX,
            command,
        ),
        Bar(
            f"twice the partitions cost the driver at most {LINEAR_MAX} x the CPU",
            f"{growth:.2f}",
            growth <= LINEAR_MAX,
            command,
        ),
    ]
    figures = {"executors": executors, "sizes": [asdict(size) for size in sizes]}
    return bar_results.write(directory / "scale.json", figures, bars)
