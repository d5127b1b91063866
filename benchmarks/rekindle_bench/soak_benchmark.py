"""Endurance: thousands of small epochs, losses and starts, after which nothing may have grown.

    a life of the driver:  start ── a node is lost and comes back ── epochs ── killed
                                                                  ▲         ▲
                                                                early      late

Files of exchanges, the driver's live heap, the memory of its Python, of hosts and of nodes are
sampled all along. Early and late samples are those of three tenths of a life, 200 epochs at least:
the late ones of the last life are compared with its early ones, and with the late ones of the first
life. With 1,000 epochs or more there are several lives, at most ten, each with a loss; the time of
the last starts and of as many early ones, three at most, and the store that drivers leave, are
compared as well. Files rise between two checkpoints and fall with each, so their peaks are
compared; of all else the medians. What lives on a heap is known after a collection, so `jcmd`,
which is beside `java`, asks for one before each sample. In the end every row of output is compared
with the batch answer (`soak_rows`).
"""

import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from rekindle.model.errors import RunError
from rekindle.verification import batch_check
from rekindle_bench import bar_results, soak_rows, text_runs
from rekindle_bench.bar_results import Bar
from rekindle_local import process_sets, spark_distribution
from rekindle_local.demo.driver_process import DriverProcess
from rekindle_local.flights import flight_data
from rekindle_local.spark_cluster import LocalCluster

PIPELINE = '''"""Two sources, a window, the top of it."""

import pyarrow.compute as pc

from rekindle_local.flights import flight_data as data
from rekindle_spark.pipeline.steps import Pipeline, count, total
from rekindle_spark.pipeline.replay import Replay


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
GROWTH_MAX, STORE_GROWTH_MAX = 1.2, 1.3
LIVES_MAX, LIFE_EPOCHS_MIN = 10, 500
LOSS_AFTER_EPOCHS, AWAY_SECONDS = 50, 3.0
FIRST_EPOCH, WINDOW_EPOCHS_MIN, WINDOW_SHARE = 100, 200, 0.3
STARTS_MAX = 3
SECONDS_PER_EPOCH_MAX, SECONDS_PER_LIFE_MAX = 2.0, 240.0
POLL_SECONDS = 0.2
HOST = b"rekindle_spark.executor.host"
PEAKS = ("shuffle_files",)
MEASURES = (
    "shuffle_files",
    "driver_heap_bytes",
    "driver_python_bytes",
    "host_memory_bytes",
    "node_memory_bytes",
)

Sample = dict[str, float]


@dataclass(slots=True)
class Life:
    """One driver from its start to its end: after which epoch it began, where it ends, how long it
    took until all ran, when all ran again after a loss, what was sampled, and the store in the end:
    {folder: [files, bytes]}."""

    begin: int
    end: int
    start_seconds: float = 0.0
    settled: int = 0
    samples: list[Sample] = field(default_factory=list)
    store: dict[str, list[int]] = field(default_factory=dict)

    @property
    def first(self) -> int:
        """The first epoch after what it began with."""
        return max(self.begin + FIRST_EPOCH, self.settled)

    @property
    def window_epochs(self) -> float:
        """Of how many epochs samples are compared: some checkpoints are among them, where it lives
        long enough, and no sample is early and late."""
        wanted = max(WINDOW_EPOCHS_MIN, WINDOW_SHARE * (self.end - self.begin))
        return min(wanted, (self.end - self.first) / 2)

    def early(self) -> list[Sample]:
        """The samples of the first epochs after what it began with."""
        last = self.first + self.window_epochs
        return [s for s in self.samples if self.first <= s["epoch"] <= last]

    def late(self) -> list[Sample]:
        """The samples of its last epochs."""
        first = self.samples[-1]["epoch"] - self.window_epochs
        return [s for s in self.samples if s["epoch"] >= first]


def lives(epochs: int) -> list[Life]:
    """How so many epochs are shared out among drivers."""
    number = max(1, min(LIVES_MAX, epochs // LIFE_EPOCHS_MIN))
    ends = [epochs * place // number for place in range(number + 1)]
    return [Life(begin, end) for begin, end in pairwise(ends)]


def measure(epochs: int, directory: Path) -> dict[str, Any]:
    """Run `epochs` epochs; returns what `soak.json` holds."""
    flight_data.prepare(directory / "input", year_fraction=0.25)
    source = directory / "input" / flight_data.file_name("flights_ewr")
    pipeline, conf = PIPELINE.format(path=str(source)), {"spark.driver.memory": "1g"}
    with (
        text_runs.cluster(NODES, directory) as cluster,
        text_runs.prepared(pipeline, _runtime(), cluster, directory, conf) as (driver, start),
    ):
        soak = _Soak(driver, cluster, lives(epochs))
        soak.run(start)
    bad = soak_rows.count_bad(driver.store, source, flight_data.repeat_every_seconds(source))
    return _judge(soak.lives, bad, epochs, directory)


def _runtime() -> dict[str, Any]:
    return {
        "nodes_expected": NODES,
        "epoch_seconds": 0.1,
        "checkpoint_seconds": 2,
        "rows_per_second": 2000,
    }


@dataclass(slots=True)
class _Soak:
    """Follows drivers, one after the other, to the end of the last one's epochs."""

    driver: DriverProcess
    cluster: LocalCluster
    lives: list[Life]
    recovered: int = 0
    console: Console = field(default_factory=lambda: Console(highlight=False))

    def run(self, start: Callable[[], None]) -> None:
        """Raises RunError where a driver fails or takes too long."""
        for number, life in enumerate(self.lives):
            began = time.monotonic()
            self.recovered = 0
            (start if number == 0 else self.driver.start_again)()
            self._await("all queries to run", life, lambda: self.recovered > 0)
            life.start_seconds = time.monotonic() - began
            self.console.print(f"all runs after {life.start_seconds:.1f} s")
            if len(self.lives) > 1:
                self._lose(life)
            self._await("its epochs", life, partial(_has_run, life, life.end))
            life.store = store_size(self.driver.store)
            if number < len(self.lives) - 1:
                self.driver.kill()
        self.driver.request_finish()
        self._await("the driver to end", self.lives[-1], lambda: self.driver.ended)

    def _lose(self, life: Life) -> None:
        """Lose a node, and have it back."""
        after = life.begin + LOSS_AFTER_EPOCHS
        self._await("the first epochs", life, partial(_has_run, life, after))
        name = self.cluster.nodes[0].name
        self.cluster.kill([name])
        self.recovered = 0
        end = time.monotonic() + AWAY_SECONDS
        self._await("the node to be missed", life, lambda: time.monotonic() >= end)
        self.cluster.start_worker(name)
        self._await("all queries to run again", life, lambda: self.recovered > 0)
        life.settled = self.recovered

    def _await(self, what: str, life: Life, condition: Callable[[], bool]) -> None:
        limit = SECONDS_PER_LIFE_MAX + (life.end - life.begin) * SECONDS_PER_EPOCH_MAX
        end = time.monotonic() + limit
        while not condition():
            for event in self.driver.fresh_events():
                self._take_in(event, life)
            self.driver.check()
            if time.monotonic() > end:
                raise RunError(
                    where="soak",
                    what=f"waited in vain for {what}",
                    remedy=f"see {self.driver.log}",
                )
            time.sleep(POLL_SECONDS)

    def _take_in(self, event: Mapping[str, Any], life: Life) -> None:
        if event["kind"] == "recovered":
            self.recovered = max(1, event["epoch"])
        if event["kind"] == "statistics" and not _has_run(life, life.end):
            life.samples.append(_sample(event, self.cluster, self.driver.processes))
            _collect(self.driver)
            last = self.lives[-1].end
            self.console.print(f"epoch {event['epoch']} of {last}: {life.samples[-1]}")


def _has_run(life: Life, epoch: int) -> bool:
    """Whether a sample of this epoch, or a later one, has been taken."""
    return bool(life.samples) and life.samples[-1]["epoch"] >= epoch


def store_size(store: Path) -> dict[str, list[int]]:
    """Of each folder of a store how many files it has, and how many bytes they have. A driver may
    be running."""
    found: dict[str, list[int]] = {}
    for path, size in _files(store):
        total = found.setdefault(path.relative_to(store).parts[0], [0, 0])
        total[0] += 1
        total[1] += size
    return dict(sorted(found.items()))


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                yield path, path.stat().st_size
        except FileNotFoundError:  # it went meanwhile
            continue


def _collect(driver: DriverProcess) -> None:
    """Have the driver's JVM collect its heap, for the next event to tell of."""
    java = spark_distribution.find_distribution().java
    for pid in driver.processes:
        if _is_java(pid):
            line = [str(java.with_name("jcmd")), str(pid), "GC.run"]
            subprocess.run(line, check=True, stdout=subprocess.DEVNULL)


def _sample(event: Mapping[str, Any], cluster: LocalCluster, driver: Sequence[int]) -> Sample:
    files = sum(
        1
        for node in cluster.nodes
        for path in (cluster.directory / "scratch" / node.name).rglob("shuffle_*")
        if path.is_file()
    )
    resident = {pid: process_sets.resident_bytes(pid) for pid in cluster.all_processes()}
    return {
        "epoch": event["epoch"],
        "shuffle_files": files,
        "retained_shuffles": event["retained_shuffles"],
        "driver_heap_bytes": event["driver_heap_bytes"],
        "driver_python_bytes": python_bytes(driver),
        "host_memory_bytes": sum(size for pid, size in resident.items() if _is_host(pid)),
        "node_memory_bytes": sum(resident.values()),
    }


def python_bytes(processes: Iterable[int]) -> int:
    """Memory of those of a driver's processes that are no JVM: what it knows is in its Python."""
    return sum(process_sets.resident_bytes(pid) for pid in processes if not _is_java(pid))


def _is_java(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "java"
    except OSError:
        return False


def _is_host(pid: int) -> bool:
    try:
        return HOST in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _judge(
    found: Sequence[Life], bad: Mapping[str, int], epochs: int, directory: Path
) -> dict[str, Any]:
    command = f"rekindle bench soak --epochs {epochs}"
    first, last = found[0], found[-1]
    ratios: dict[str, float] = {}
    bars = []

    def compare(what: str, of: str, before: float, after: float, most: float) -> None:
        ratios[what] = after / max(before, 1e-9)
        value = f"{before:,.5g} -> {after:,.5g} ({ratios[what]:.2f} x)"
        bars.append(Bar(f"{what}: at most {most} x {of}", value, ratios[what] <= most, command))

    for name in MEASURES:
        early, late = _typical(name, last.early()), _typical(name, last.late())
        compare(f"{name} of a driver", "those of its first epochs", early, late, GROWTH_MAX)
    if len(found) > 1:
        then = f"those after {first.end} epochs"
        for name in MEASURES:
            before, after = (_typical(name, life.late()) for life in (first, last))
            compare(f"{name} after {epochs} epochs", then, before, after, GROWTH_MAX)
        # the first start finds class data and libraries in no cache
        starts = [life.start_seconds for life in found[1:]]
        some = min(STARTS_MAX, len(starts) // 2)
        if some:
            early, late = median(starts[:some]), median(starts[-some:])
            compare("the last starts", "the seconds of early ones", early, late, GROWTH_MAX)
        for place, unit in enumerate(("files", "bytes")):
            before, after = (
                sum(size[place] for size in life.store.values()) for life in (first, last)
            )
            what = f"the store's {unit} after {epochs} epochs"
            compare(what, then, before, after, STORE_GROWTH_MAX)
    wrong = ", ".join(f"{bad[kind]} {kind}" for kind in batch_check.KINDS)
    right = bad["expected"] > 0 and not any(bad[kind] for kind in batch_check.KINDS)
    bars.append(Bar("every row right", f"of {bad['expected']:,} rows {wrong}", right, command))
    figures = {
        "ratios": ratios,
        "rows": dict(bad),
        "lives": [
            {
                "first_epoch": life.begin + 1,
                "last_epoch": life.end,
                "start_seconds": life.start_seconds,
                "store": life.store,
                "samples": life.samples,
            }
            for life in found
        ],
    }
    return bar_results.write(directory / "soak.json", figures, bars)


def _typical(name: str, samples: Sequence[Sample]) -> float:
    if not samples:
        what = "has no sample of those epochs"
        raise RunError(where="soak", what=what, remedy="give more epochs")
    values = [sample[name] for sample in samples]
    return max(values) if name in PEAKS else median(values)
