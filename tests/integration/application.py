"""The pipeline of `readings` on a local cluster: started, followed, disturbed, and checked.

A test starts it, waits for conditions, does its harm, and asks whether the committed output is
exactly right. It reads what any reader of a store may: events, the commit log, output files that
a commit record names. Nothing here decides what is harmed, or when.
"""

import math
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pyarrow as pa
import readings

import rekindle
from rekindle import protocol
from rekindle.protocol import ProgressReport, store_paths
from rekindle_cli import coordination_access
from rekindle_local import process_sets, stored_records
from rekindle_local.demo.driver_process import DriverProcess
from rekindle_local.local_control_plane import LocalControlPlane
from rekindle_local.spark_cluster import LocalCluster
from rekindle_spark.store.checkpoint_store import DRAIN_REQUEST
from rekindle_store import store_files

LIMIT_SECONDS = 180.0
POLL_SECONDS = 0.05
SOURCES = str(Path(rekindle.__file__).parents[1])
PIPELINE = Path(readings.__file__)
# At this rate the input lasts for more than four minutes, for a failure on a slow machine. `finish`
# has the rest of it drained.
RUNTIME = {
    "node_cpu_percent": 100,
    "epoch_seconds": 1.0,
    "checkpoint_seconds": 3,
    "rows_per_second": 250,
    # whole files of tests can be run over links: REKINDLE_EXCHANGE=links
    "exchange": os.environ.get("REKINDLE_EXCHANGE", "jobs"),
}
# For an application that meets several failures: the input lasts for more than seven minutes.
LASTING = {"rows_per_second": 150}
POLICY = {"silent_seconds": 15, "uneven_seconds": 3}

Event = Mapping[str, Any]


def restore(cluster: LocalCluster) -> None:
    """Bring back every node that is down or stopped."""
    for node in cluster.nodes:
        cluster.continue_processes(node.name)
        if not cluster.processes(node.name):
            cluster.start_worker(node.name)


@dataclass(slots=True)
class Application:
    """One application: the driver that runs, and the store that outlives it. `socket` is of a
    sidecar that is not the control plane's own. `pipeline` is the module that is run, with
    `expected` like that of `readings`, and `INPUT_ROWS` where it reads something else."""

    cluster: LocalCluster
    directory: Path
    inputs: Path
    policy: Mapping[str, Any] = field(default_factory=dict)
    runtime: Mapping[str, Any] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)
    store_of: Path | None = None
    control: LocalControlPlane | None = None
    socket: Path | None = None
    pipeline: ModuleType = readings
    on_start: Callable[[], None] = lambda: None
    events: list[Event] = field(default_factory=list)
    driver: DriverProcess = field(init=False)

    def __post_init__(self) -> None:
        self.traps.mkdir(parents=True)
        self.driver = DriverProcess(self.directory)
        if self.store_of is not None:
            self.driver.store.symlink_to(self.store_of)
        self.write_settings()

    @property
    def traps(self) -> Path:
        """The folder of traps (see `readings`)."""
        return self.directory / "traps"

    @property
    def store(self) -> Path:
        """The checkpoint store."""
        return self.driver.store

    def start(self) -> None:
        """Start a driver; a second start goes on from the store."""
        paths = [SOURCES, *filter(None, [os.environ.get("PYTHONPATH")])]
        self.driver.start(
            Path(str(self.pipeline.__file__)),
            self.cluster.master_url,
            self.directory / "settings.yaml",
            {**self.cluster.spark_options(), **self.spark},
            {
                "PYTHONPATH": os.pathsep.join(paths),
                "REKINDLE_TEST_INPUT": str(self.inputs),
                "REKINDLE_TEST_TRAPS": str(self.traps),
            },
            None
            if self.control is None
            else (self.socket or self.control.socket, self.control.place),
        )
        self.on_start()

    def change(self, *, policy: Mapping[str, Any] | None = None, **runtime: Any) -> None:
        """Other settings for the next driver."""
        self.policy, self.runtime = policy or {}, runtime
        self.write_settings()

    def start_and_recover(self) -> None:
        """Start a driver and wait until every query is live and a checkpoint is there."""
        begin = self.seen
        self.start()
        self.await_event("recovered", after=begin)
        self.await_event("checkpoint", after=begin)

    @property
    def seen(self) -> int:
        """Number of events up to now."""
        self.poll()
        return len(self.events)

    def poll(self) -> None:
        """Take in new events."""
        self.events += self.driver.fresh_events()
        if self.control is not None:
            self.events += self.control.events.fresh()

    def happened(self, kind: str, *, after: int = 0, **values: Any) -> list[Event]:
        """Events of a kind since `after`, with these values."""
        return [
            event
            for event in self.events[after:]
            if event["kind"] == kind and all(event.get(k) == v for k, v in values.items())
        ]

    def await_event(
        self, kind: str, *, after: int = 0, limit_seconds: float = LIMIT_SECONDS, **values: Any
    ) -> Event:
        """The first event of a kind since `after`, with these values."""
        self.await_condition(
            f"event {kind} {values or ''}",
            lambda: bool(self.happened(kind, after=after, **values)),
            limit_seconds,
        )
        return self.happened(kind, after=after, **values)[0]

    def await_condition(
        self, what: str, condition: Callable[[], bool], limit_seconds: float = LIMIT_SECONDS
    ) -> None:
        """Follow the driver until a condition holds; it must not end with an error before."""
        print(f"  {time.strftime('%H:%M:%S')} waiting: {what}", flush=True)
        end = time.monotonic() + limit_seconds
        self.poll()
        while not condition():
            self.driver.check()
            time.sleep(POLL_SECONDS)
            self.poll()
            assert time.monotonic() < end, f"waited {limit_seconds:.0f} s for {what}\n{self.tail()}"

    def await_end(self) -> int:
        """The driver's exit code, when it has ended by itself."""
        print(f"  {time.strftime('%H:%M:%S')} waiting: the driver's end", flush=True)
        assert self.driver.process is not None
        end = time.monotonic() + LIMIT_SECONDS
        while not self.driver.ended:
            time.sleep(POLL_SECONDS)
            assert time.monotonic() < end, f"the driver does not end\n{self.tail()}"
        self.poll()
        return int(self.driver.process.returncode)

    def drain(self) -> None:
        """Ask for the rest of the input at once. What a test does has to be done while rows come,
        so some must be left."""
        assert not self.is_all_read, "the input has ended too soon: give a smaller rows_per_second"
        store_files.at(self.driver.place or self.store).put({DRAIN_REQUEST: b""})

    def finish(self) -> None:
        """Drain the input, ask for the end, and check all output."""
        self.come_to_an_end()
        self.assert_exactly_right()

    def come_to_an_end(self) -> None:
        """Drain the input, and ask for the end, which comes when all of it has been read."""
        self.drain()
        self.driver.request_finish()
        code = self.await_end()
        assert code == 0, f"exit code {code}\n{self.tail()}"
        assert self.is_all_read

    def tail(self) -> str:
        """What driver and events said last."""
        log = self.driver.log.read_text(errors="replace").splitlines()[-20:]
        told = [str({k: str(v)[:200] for k, v in event.items()}) for event in self.events[-25:]]
        return "\n".join(["--- log", *log, "--- events", *told])

    def last_words(self) -> str:
        """The last line of the driver's log."""
        return self.driver.log.read_text(errors="replace").strip().splitlines()[-1]

    def placement(self) -> dict[str, str]:
        """Node of each partition after all plans and moves so far. What a coordinator that was
        killed has ordered may not be in its log: then this is what the driver reports."""
        self.poll()
        logged = {event["plan_epoch"] for event in self.happened("plan")}
        if all(event["plan_epoch"] in logged for event in self.happened("ack")):
            return placement_after(self.events)
        return self._reported_placement()

    def _reported_placement(self) -> dict[str, str]:
        assert self.control is not None
        with coordination_access.opened(self.control.zookeeper.connect_string, None) as connection:
            path = self.control.place.path(store_paths.PROGRESS)
            found = connection.get(path)
        assert found is not None
        return dict(protocol.decode(found[0], ProgressReport, path).placement)

    def nodes_of(self, operator: str) -> set[str]:
        """Nodes that run partitions of an operator."""
        return {node for name, node in self.placement().items() if name.split("/")[0] == operator}

    def commits(self) -> Sequence[Event]:
        """The commit log."""
        return stored_records.commits(self.store)

    def assert_exactly_right(self) -> None:
        """All committed rows, and no others, are those of the batch computation."""
        wanted, committed = self.pipeline.expected(self.inputs), self.outputs()
        assert set(committed) == set(wanted)
        for query, rows in wanted.items():
            compare(query, committed[query], rows)

    def outputs(self) -> dict[str, pl.DataFrame]:
        """All committed rows by query; none is committed twice."""
        tables: dict[str, list[pa.Table]] = {}
        committed: set[tuple[str, int]] = set()
        for output, table in stored_records.tables(self.store):
            assert (output.query_partition, output.epoch) not in committed, "committed twice"
            committed.add((output.query_partition, output.epoch))
            query = output.query_partition.split("/")[0]
            tables.setdefault(query, []).append(table)
        return {query: _frame(pa.concat_tables(parts)) for query, parts in tables.items()}

    def executors(self) -> dict[str, frozenset[int]]:
        """Process ids of each node's executor JVM and host."""
        return {
            node.name: frozenset(filter(is_executor, self.cluster.processes(node.name)))
            for node in self.cluster.nodes
        }

    @property
    def is_all_read(self) -> bool:
        """Whether all rows of the input belong to an epoch."""
        offsets = self.newest_cut()["offsets"]
        rows = getattr(self.pipeline, "INPUT_ROWS", readings.INPUT_ROWS)
        return bool(sum(end for _, end in offsets.values()) == rows)

    def newest_cut(self) -> Event:
        """The newest record of the offset log."""
        newest = stored_records.newest_cut(self.store)
        assert newest is not None
        return newest

    def write_settings(self) -> None:
        """For the next start."""
        lines = ["version: 1"]
        runtime = {"nodes_expected": len(self.cluster.nodes), **RUNTIME, **self.runtime}
        for section, values in (("policy", {**POLICY, **self.policy}), ("runtime", runtime)):
            lines += [f"{section}:", *(f"  {name}: {value}" for name, value in values.items())]
        (self.directory / "settings.yaml").write_text("\n".join(lines) + "\n")


@dataclass(frozen=True, slots=True)
class Before:
    """What there was before the harm: compared with what is there afterwards."""

    application: Application
    executors: Mapping[str, frozenset[int]]
    placement: Mapping[str, str]
    commits: int
    events: int

    @staticmethod
    def of(application: Application) -> "Before":
        """Look around."""
        return Before(
            application,
            application.executors(),
            application.placement(),
            len(application.commits()),
            application.seen,
        )

    def assert_untouched(self, nodes: Iterable[str]) -> None:
        """These nodes kept processes and state: what ran there ran no epoch a second time
        before a plan or a move put it elsewhere."""
        now = self.application.executors()
        for node in nodes:
            assert len(self.executors[node]) == 2, "an executor JVM and a host"
            assert now[node] == self.executors[node]
            for kind in ("joined", "confirmed", "state-lost"):
                assert not self.application.happened(kind, after=self.events, node=node)
        here = {name for name, node in self.placement.items() if node in nodes}
        assert here
        assert not here & self._partitions_run_again()

    def _left(self) -> dict[str, float]:
        """When a plan or a move first put partitions elsewhere since the harm."""
        left: dict[str, float] = {}
        for event in self.application.events[self.events :]:
            if event["kind"] in ("plan", "moved"):
                for name, node in event["placement"].items():
                    if node != self.placement[name]:
                        left.setdefault(name, event["at"])
        return left

    def _partitions_run_again(self) -> set[str]:
        """Partitions that went back where they were, by the commit log, since the harm."""
        left, reached = self._left(), dict[str, int]()
        again = set()
        for number, record in enumerate(self.application.commits()):
            for name, (first, last, _) in record["finished"].items():
                is_here = record["at"] < left.get(name, math.inf)
                if number >= self.commits and is_here and first <= reached.get(name, 0):
                    again.add(name)
                reached[name] = last
        return again


def _frame(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def placement_after(events: Iterable[Event]) -> dict[str, str]:
    """Node of each partition after all plans and moves among these events."""
    placed: dict[str, str] = {}
    for event in events:
        if event["kind"] in ("plan", "moved"):
            placed |= event["placement"]
    return placed


def compare(query: str, got: pl.DataFrame, wanted: pl.DataFrame) -> None:
    """Equal as bags of rows over all columns."""
    assert set(got.columns) == set(wanted.columns), query
    columns = sorted(wanted.columns)
    wanted = wanted.select(columns).cast({name: got.schema[name] for name in columns})
    missing, surplus = _only(wanted, got), _only(got, wanted)
    text = f"{query}: {missing.height} rows missing, {surplus.height} too many or wrong"
    assert missing.is_empty(), f"{text}\n{missing}"
    assert surplus.is_empty(), f"{text}\n{surplus}"


def _only(left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
    """Rows that `left` has more often than `right`."""
    columns = sorted(left.columns)
    counted = (
        left.group_by(columns)
        .len()
        .join(
            right.group_by(columns).len(), on=columns, how="left", nulls_equal=True, suffix="_right"
        )
    )
    return counted.filter(pl.col("len") > pl.col("len_right").fill_null(0))


def is_executor(pid: int) -> bool:
    """Whether a process is an executor's JVM or its host."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"CoarseGrainedExecutorBackend" in command or b"rekindle_spark.executor.host" in command


def kill_host(application: Application, node: str) -> None:
    """SIGKILL a node's host, if it has one at the moment; its JVM lives on.

    Not right after a checkpoint: the next host would go on from that, and nothing would be lost.
    """
    application.await_condition("state ahead of the checkpoint", lambda: is_ahead(application))
    hosts = list(filter(is_host, application.executors()[node]))
    process_sets.signal_all(hosts, signal.SIGKILL)


def host_of(application: Application, node: str) -> int:
    """The process id of a node's host."""
    (host,) = filter(is_host, application.executors()[node])
    return host


def jvm_of(application: Application, node: str) -> int:
    """The process id of a node's executor JVM."""
    (jvm,) = (pid for pid in application.executors()[node] if not is_host(pid))
    return jvm


def is_host(pid: int) -> bool:
    """Whether an executor's process is its host."""
    return b"rekindle_spark.executor.host" in Path(f"/proc/{pid}/cmdline").read_bytes()


def is_ahead(application: Application) -> bool:
    """Whether epochs have run since the newest checkpoint."""
    newest = {kind: application.happened(kind)[-1:] for kind in ("checkpoint", "ran")}
    if not newest["checkpoint"] or not newest["ran"]:
        return bool(newest["ran"])
    return bool(newest["ran"][0]["epoch"] > newest["checkpoint"][0]["epoch"])
