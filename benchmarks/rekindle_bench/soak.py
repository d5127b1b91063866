"""Endurance: thousands of small epochs, after which nothing may have grown.

Files of exchanges, the driver's live heap and the nodes' memory are sampled all along; the last
samples are compared with those after the first hundred epochs, each of 200 epochs, so there are 500
at least. Files rise between two checkpoints and fall with each, so their peaks are compared; of the
others the medians. What lives on a heap is known after a collection, so `jcmd`, which is beside
`java`, asks for one before each sample.
"""

import subprocess
import time
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from rich.console import Console

from rekindle.errors import RunError
from rekindle_bench import results
from rekindle_bench.results import Bar
from rekindle_local import distribution, processes
from rekindle_local.cluster import LocalCluster
from rekindle_local.demo.driving import DriverProcess
from rekindle_local.flights import data
from rekindle_spark import jar

__all__ = ["measure"]

PIPELINE = '''"""Two sources, a window, the top of it."""

import pyarrow.compute as pc

from rekindle_local.flights import data
from rekindle_spark.pipeline import Pipeline, count, total
from rekindle_spark.replay import Replay


def pipeline():
    built = Pipeline("soak")
    path = {path!r}
    replay = Replay(path, "event_time", repeat_every_seconds=data.repeat_every_seconds(path))
    flights = built.source("flights", replay, parallelism=2)
    late = flights.filter("late", lambda table: pc.greater(table["dep_delay"], 15))
    days = late.window(
        "by-day",
        keys=["carrier"],
        size_seconds=86_400,
        aggregates={{"flights": count(), "minutes": total("dep_delay")}},
        parallelism=2,
    )
    days.sink("late-by-day", priority=5)
    days.top("most", by="minutes", count=3, ties=["carrier"]).sink("latest-carriers", priority=8)
    return built
'''
NODES = 2
GROWTH_MAX = 1.2
FIRST_EPOCH, WINDOW_EPOCHS = 100, 200
SECONDS_PER_EPOCH_MAX = 2.0


def measure(epochs: int, directory: Path) -> dict[str, Any]:
    """Run `epochs` epochs; returns what `soak.json` holds."""
    data.prepare(directory / "input", year_fraction=0.25)
    pipeline = directory / "pipeline.py"
    pipeline.write_text(
        PIPELINE.format(path=str(directory / "input" / data.file_name("flights_ewr")))
    )
    settings = directory / "settings.yaml"
    settings.write_text(yaml.safe_dump({"version": 1, "runtime": _runtime()}))
    driver = DriverProcess(directory)
    cluster = LocalCluster(
        nodes=NODES, cpu_quota=None, directory=directory / "cluster", class_path=[Path(jar.path())]
    )
    with cluster:
        conf = {**cluster.spark_options(), "spark.driver.memory": "1g"}
        driver.start(pipeline, cluster.master_url, settings, conf)
        try:
            samples = _follow(driver, cluster, epochs)
        finally:
            driver.end()
    return _judge(samples, epochs, directory)


def _runtime() -> dict[str, Any]:
    return {
        "nodes_expected": NODES,
        "epoch_seconds": 0.1,
        "checkpoint_seconds": 2,
        "rows_per_second": 2000,
    }


def _follow(driver: DriverProcess, cluster: LocalCluster, epochs: int) -> list[dict[str, float]]:
    """Samples at every statistics event until the last epoch has run."""
    console = Console(highlight=False)
    samples: list[dict[str, float]] = []
    end = time.monotonic() + 120 + epochs * SECONDS_PER_EPOCH_MAX
    while not samples or samples[-1]["epoch"] < epochs:
        for event in driver.fresh_events():
            if event["kind"] == "statistics":
                samples.append(_sample(event, cluster))
                _collect(driver)
                console.print(f"epoch {event['epoch']} of {epochs}: {samples[-1]}")
        driver.check()
        if time.monotonic() > end:
            raise RunError(
                where="soak", what="the epochs took too long", remedy=f"see {driver.log}"
            )
        time.sleep(0.2)
    return samples


def _collect(driver: DriverProcess) -> None:
    """Have the driver's JVM collect its heap, for the next event to tell of."""
    java = distribution.find_distribution().java
    for pid in driver.processes:
        if Path(f"/proc/{pid}/comm").read_text().strip() == "java":
            line = [str(java.with_name("jcmd")), str(pid), "GC.run"]
            subprocess.run(line, check=True, stdout=subprocess.DEVNULL)


def _sample(event: dict[str, Any], cluster: LocalCluster) -> dict[str, float]:
    files = sum(
        1
        for node in cluster.nodes
        for path in (cluster.directory / "scratch" / node.name).rglob("shuffle_*")
        if path.is_file()
    )
    resident = sum(processes.resident_bytes(pid) for pid in cluster.all_processes())
    return {
        "epoch": event["epoch"],
        "shuffle_files": files,
        "retained_shuffles": event["retained_shuffles"],
        "driver_heap_bytes": event["driver_heap_bytes"],
        "node_memory_bytes": resident,
    }


def _judge(samples: list[dict[str, float]], epochs: int, directory: Path) -> dict[str, Any]:
    command = f"rekindle bench soak --epochs {epochs}"
    last = samples[-1]["epoch"]
    early = [s for s in samples if FIRST_EPOCH <= s["epoch"] <= FIRST_EPOCH + WINDOW_EPOCHS]
    late = [s for s in samples if s["epoch"] >= last - WINDOW_EPOCHS]
    ratios, bars = {}, []
    for name in ("shuffle_files", "driver_heap_bytes", "node_memory_bytes"):
        typical = max if name == "shuffle_files" else median
        before, after = (typical([s[name] for s in part]) for part in (early, late))
        ratios[name] = after / max(before, 1)
        bars.append(
            Bar(
                f"{name} after {epochs} epochs: at most {GROWTH_MAX} x those after 100",
                f"{before:,.0f} -> {after:,.0f} ({ratios[name]:.2f} x)",
                ratios[name] <= GROWTH_MAX,
                command,
            )
        )
    figures = {"ratios": ratios, "samples": samples}
    return results.write(directory / "soak.json", figures, bars)
