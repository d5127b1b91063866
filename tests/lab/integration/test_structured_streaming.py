"""The flights as ordinary Structured Streaming: rows and figures that `rekindle verify` holds."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from source_roots import SOURCES

from rekindle import report, verification
from rekindle_cli.jsonl_tail import EventFile
from rekindle_local import spark_distribution
from rekindle_local.demo.driver_process import DriverProcess
from rekindle_local.flights import flight_data, flight_pipeline
from rekindle_peers import peer_evidence
from rekindle_peers.structured_streaming import replay_jar, streaming_queries
from rekindle_peers.structured_streaming.streaming_evidence import tables

PROGRAM = Path(replay_jar.__file__).with_name("submitted.py")
# Three weeks of files, of which some laps are read: windows of weeks, and times that are shifted.
FILE_DAYS = 21
ROWS_PER_SECOND = 2_000.0
LIMIT_SECONDS = 300.0
# Of each kind of state one: a top's of windows, a join's, that of Java.
OF_EACH_KIND = ("late-carriers", "delays-by-weather", "carried-delay-weeks")
# Those that share a stream with one of these.
BESIDE_THEM = ("carrier-weeks", "top-carried-delays")
FACTS = report.RunFacts(
    commit="0000000",
    seed=1,
    machine="any",
    strategy="restart",
    engine="structured-streaming",
    buffering="none",
    ordering="none",
    nodes=1,
    quota_enforced=False,
    cpu_quota=2.0,
)
RIGHT = dict.fromkeys(("expected_rows", "missing", "duplicated", "wrong"), 0)
SQL = Path(flight_pipeline.__file__).with_name("queries.sql")

Begin = Callable[..., "Run"]


@dataclass
class Run:
    """One application in a folder of its own, on local[2]."""

    directory: Path
    names: Sequence[str]
    arguments: Sequence[str] = ()
    files: dict[str, Any] = field(init=False)
    driver: DriverProcess = field(init=False)

    def __post_init__(self) -> None:
        self.driver = DriverProcess(self.directory)
        self.files = flight_data.prepare(
            self.directory / "input", FILE_DAYS / flight_data.DAYS_OF_YEAR
        )

    @property
    def store(self) -> Path:
        return self.driver.store

    def start(self) -> None:
        found = spark_distribution.find_distribution()
        conf = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.driver.extraClassPath": replay_jar.path(),
            "spark.driver.extraJavaOptions": " ".join(spark_distribution.SMALL_NODE_OPTIONS),
            "spark.ui.enabled": "false",
        }
        line = [str(found.spark_home / "bin" / "spark-submit"), "--master", "local[2]"]
        line += [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
        line += [str(PROGRAM), str(self.directory / "input"), "--store", str(self.store)]
        line += ["--events", str(self.driver.events)]
        line += ["--rows-per-second", str(ROWS_PER_SECOND), "--queries", ",".join(self.names)]
        line += self.arguments
        additions = {"PYTHONPATH": SOURCES, "PYSPARK_DRIVER_PYTHON": sys.executable}
        self.driver.launch(line, found.environment(self.directory, additions))

    def records(self) -> list[dict[str, Any]]:
        return EventFile(self.driver.events).fresh()

    def told(self, kind: str) -> Counter[str]:
        """How many batches of each query were told of with a `cut` or a `commit`."""
        return Counter(record["query"] for record in self.records() if record["kind"] == kind)

    def await_that(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + LIMIT_SECONDS
        while not condition():
            self.driver.check()
            assert time.monotonic() < end, self.driver.log.read_text()[-2000:]
            time.sleep(0.2)

    def finish(self) -> None:
        self.store.mkdir(exist_ok=True)
        (self.store / "finish").touch()
        self.await_that(lambda: self.driver.ended)
        self.driver.check()

    def evidence(
        self, records: Sequence[dict[str, Any]], failure_at: float
    ) -> peer_evidence.PeerRun:
        ranks = flight_pipeline.priorities(1)
        return peer_evidence.PeerRun(
            records=records,
            store=self.store,
            failure_at=failure_at,
            files=self.files,
            priorities={name: ranks[name] for name in self.names},
            facts=FACTS,
        )


def partitions(run: Run, stream: str) -> int:
    """Those of the state of a stream's first operator."""
    return sum(1 for path in (run.store / "checkpoints" / stream / "state" / "0").glob("[0-9]*"))


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Starts an application of some queries; it is gone afterwards."""
    runs: list[Run] = []

    def start(names: Sequence[str], *arguments: str) -> Run:
        runs.append(Run(tmp_path, names, arguments))
        runs[-1].start()
        return runs[-1]

    yield start
    for run in runs:
        run.driver.end()


@pytest.mark.parametrize("sharing", [(), ("--shared",)], ids=["alone", "shared"])
def test_every_query_gives_what_the_batch_engine_gives(
    begin: Begin, sharing: Sequence[str]
) -> None:
    run = begin(tuple(streaming_queries.QUERIES), "--rows-per-trigger-max", "0", *sharing)
    run.finish()  # the input ends when all queries are started
    left = run.evidence(run.records(), failure_at=0.0)
    peer_evidence.write_outputs(run.directory, left, tables)
    inputs = report.Inputs.from_record(peer_evidence.input_record(left))
    compared = verification.exactly_once(run.directory, inputs, SQL.read_text())
    assert compared | {"expected_rows": 0} == RIGHT
    assert partitions(run, "delays-by-weather") == 8
    assert partitions(run, "weather-days+wettest-airports" if sharing else "weather-days") == 2
    for query in streaming_queries.QUERIES:
        rows = pq.read_metadata(run.directory / "outputs" / query / "0.parquet").num_rows
        assert rows > 0, query


@pytest.mark.parametrize("sharing", [(), ("--shared",)], ids=["alone", "shared"])
def test_a_driver_that_was_killed_is_followed_by_one_that_goes_on_from_the_checkpoints(
    begin: Begin, sharing: Sequence[str]
) -> None:
    names = (*OF_EACH_KIND, *BESIDE_THEM) if sharing else OF_EACH_KIND
    run = begin(names, *sharing)
    run.await_that(lambda: all(run.told("cut")[name] >= 2 for name in names))
    killed_at = time.time()
    run.driver.kill()
    run.start()
    run.finish()
    told = run.records()
    assert {record["generation"] for record in told} == {1, 2}
    kill = {"version": 1, "at": killed_at, "kind": "kill", "node": "127.0.0.2"}
    warm = {"version": 1, "at": told[0]["at"], "kind": "warm"}
    written = peer_evidence.write(
        run.directory, run.evidence([*told, warm, kill], killed_at), tables
    )
    assert written["exactly_once"] | {"expected_rows": 0} == RIGHT
    assert all(query["normal_worst_lag_seconds"] > 0 for query in written["queries"].values())
    assert verification.verify(run.directory, time.monotonic) == ()
