"""The flights with more input than the nodes can take: started, followed for a while, read.

A few nodes without a quota, so CPU is what bounds them, unless a way has a rate. What is counted
are the epochs that are cut once every query runs and compilers have had their time; with the first
of them and with the newest a reading is taken of whatever is measured. `overhead` and `cpu_profile`
call it.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from rekindle.model.errors import RunError
from rekindle_local import process_sets
from rekindle_local.demo import run_inputs
from rekindle_local.demo.driver_process import DriverProcess
from rekindle_local.spark_cluster import LocalCluster
from rekindle_spark.spark import jvm_build

NODES = 2
SEED = 1
ROWS_PER_EPOCH = 100_000
FLOOD_ROWS_PER_SECOND = 1e9
CHECKPOINT_SECONDS = 10
START_SECONDS_MAX = 300.0
# for which a run is left alone before it counts: compilers are at work, costs are yet to be known
WARM_SECONDS = 15.0
POLL_SECONDS = 0.1

Event = Mapping[str, Any]
Reading = TypeVar("Reading")


@dataclass(frozen=True, slots=True)
class Way:
    """A way of running: what is on, how often states are kept, how large epochs are, and how much
    input there is, by default more than any of them can take. `queries` are the demo's, by default
    all; further settings of the runtime are in `runtime`."""

    name: str
    buffering: str
    ordering: str
    checkpoint_seconds: int
    rows_per_epoch: int = ROWS_PER_EPOCH
    rows_per_second: float = FLOOD_ROWS_PER_SECOND
    queries: tuple[str, ...] | None = None
    runtime: tuple[tuple[str, Any], ...] = ()


@dataclass(slots=True)
class SaturatedRun(Generic[Reading]):
    """A driver that is followed: `cuts` are those that count, `events` all since the first of them,
    `readings` what `read` gave at the first of them and at the last."""

    driver: DriverProcess
    cluster: LocalCluster
    read: Callable[["SaturatedRun[Reading]"], Reading]
    live_at: float = math.inf
    cuts: list[Event] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    _readings: list[Reading] = field(default_factory=list)

    def look(self, begin: float, seconds: float) -> None:
        """Take in what has happened; epochs count from `begin`, for so many seconds."""
        self.driver.check()
        for event in self.driver.fresh_events():
            if event["kind"] == "recovered":
                self.live_at = min(self.live_at, event["at"])
            if event["kind"] == "cut" and event["at"] > begin and self.seconds < seconds:
                self._readings = [*self._readings[:1], self.read(self)]
                self.cuts.append(event)
            if self.cuts and self.seconds < seconds:
                self.events.append(event)

    @property
    def seconds(self) -> float:
        """For how long epochs have been counted."""
        return float(self.cuts[-1]["at"] - self.cuts[0]["at"]) if self.cuts else 0.0

    @property
    def rows(self) -> int:
        """Of the epochs that were counted; each is cut when the last has, or nearly has, run."""
        return sum(cut["rows"] for cut in self.cuts[:-1])

    @property
    def readings(self) -> tuple[Reading, Reading]:
        """At the first cut that counts, and at the last."""
        first, last = self._readings
        return first, last

    def cpu_seconds(self) -> float:
        """CPU time so far of the driver and of all nodes."""
        return process_sets.cpu_seconds(self.driver.processes) + self.cluster.all_cpu_seconds()


def cluster(
    directory: Path, nodes: int = NODES, environment: Mapping[str, str] | None = None
) -> LocalCluster:
    """The nodes, not started yet; `environment` are variables of their processes."""
    return LocalCluster(
        nodes=nodes,
        cpu_quota=None,
        directory=directory,
        class_path=[Path(jvm_build.path())],
        environment=environment,
    )


def start(
    way: Way,
    directory: Path,
    flights: Path,
    nodes: LocalCluster,
    *,
    conf: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> DriverProcess:
    """Start a driver in a new `directory`; `flights` has the input. `conf` are settings of Spark,
    `environment` are variables of the driver."""
    directory.mkdir(parents=True)
    pipeline, settings = run_inputs.write(
        directory,
        flights,
        SEED,
        policy={"buffering": way.buffering, "ordering": way.ordering},
        runtime={
            "nodes_expected": len(nodes.nodes),
            "checkpoint_seconds": way.checkpoint_seconds,
            "rows_per_second": way.rows_per_second,
            "rows_per_epoch_max": way.rows_per_epoch,
            **dict(way.runtime),
        },
        names=way.queries,
    )
    driver = DriverProcess(directory)
    options = {**nodes.spark_options(), **(conf or {})}
    driver.start(pipeline, nodes.master_url, settings, options, environment)
    return driver


def run_together(
    ways: Sequence[Way],
    directory: Path,
    flights: Path,
    clusters: Sequence[LocalCluster],
    seconds: float,
    benchmark: str,
) -> list[SaturatedRun[float]]:
    """Run all ways at the same time for so long, each on a cluster of its own, and end them; their
    readings are CPU seconds. `flights` has the input."""
    with ExitStack() as stack:
        runs = []
        for number, (way, nodes) in enumerate(zip(ways, clusters, strict=False), start=1):
            driver = start(way, directory / str(number), flights, nodes)
            stack.callback(driver.end)
            runs.append(SaturatedRun(driver, nodes, SaturatedRun.cpu_seconds))
        follow(runs, seconds, benchmark)
    return runs


def follow(runs: Sequence[SaturatedRun[Reading]], seconds: float, benchmark: str) -> None:
    """Count epochs for so long, once every query of all of them runs and is warm."""
    limit = time.monotonic() + START_SECONDS_MAX + WARM_SECONDS + seconds
    while any(run.seconds < seconds for run in runs):
        begin = max(run.live_at for run in runs) + WARM_SECONDS
        for run in runs:
            run.look(begin, seconds)
        if time.monotonic() > limit:
            raise RunError(
                where=benchmark,
                what="queries did not come to run in time",
                remedy=f"see {runs[0].driver.log.parent.parent}",
            )
        time.sleep(POLL_SECONDS)
