"""The flights as a job of Flink: rows that the batch engine gives, with nodes that die too."""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from source_roots import SOURCES

from rekindle import report, verification
from rekindle_cli.jsonl_tail import EventFile
from rekindle_local.demo.driver_process import DriverProcess
from rekindle_local.flights import flight_data, flight_pipeline
from rekindle_peers import peer_evidence
from rekindle_peers.flink import flink_installation, flink_outputs
from rekindle_peers.flink.flink_cluster import FlinkCluster
from rekindle_peers.flink.flink_evidence import tables

# Three weeks of files, of which some laps are read: windows of weeks, and times that are shifted.
FILE_DAYS = 21
ROWS_PER_SECOND = 10_000.0
LIMIT_SECONDS = 400.0
# A test waits three times at most, and starts a cluster before.
WAITS_MAX = 3
START_SECONDS_MAX = 300.0
FACTS = report.RunFacts(
    commit="0000000",
    seed=1,
    machine="any",
    strategy="restart",
    engine="flink",
    buffering="none",
    ordering="none",
    nodes=2,
    quota_enforced=False,
    cpu_quota=2.0,
)
RIGHT = dict.fromkeys(("missing", "duplicated", "wrong"), 0)
SQL = Path(flight_pipeline.__file__).with_name("queries.sql")

pytestmark = [
    pytest.mark.skipif(
        not flink_installation.is_installed(), reason="Flink is not installed: run `make flink`"
    ),
    pytest.mark.timeout(WAITS_MAX * LIMIT_SECONDS + START_SECONDS_MAX),
]


@dataclass
class Run:
    """One job in a folder of its own, on two nodes without a quota."""

    directory: Path
    cluster: FlinkCluster
    driver: DriverProcess
    files: dict[str, Any]

    def records(self) -> list[dict[str, Any]]:
        return EventFile(self.driver.events).fresh()

    def commits(self) -> int:
        return sum(record["kind"] == "cut" for record in self.records())

    def await_that(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + LIMIT_SECONDS
        while not condition():
            self.driver.check()
            assert time.monotonic() < end, self.driver.log.read_text()[-2000:]
            time.sleep(0.2)

    def finish(self) -> None:
        self.driver.store.mkdir(exist_ok=True)
        (self.driver.store / "finish").touch()
        self.await_that(lambda: self.driver.ended)
        self.driver.check()

    def compared(self) -> dict[str, int]:
        """The rows beside those of the batch engine."""
        left = peer_evidence.PeerRun(
            records=self.records(),
            store=self.driver.store,
            failure_at=0.0,
            files=self.files,
            priorities=flight_pipeline.priorities(1),
            facts=FACTS,
        )
        peer_evidence.write_outputs(self.directory, left, tables)
        inputs = report.Inputs.from_record(peer_evidence.input_record(left))
        return verification.exactly_once(self.directory, inputs, SQL.read_text())


@pytest.fixture(params=["default", "adaptive"])
def run(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Run]:
    """A job of all queries that has begun; it is gone afterwards."""
    files = flight_data.prepare(tmp_path / "input", FILE_DAYS / flight_data.DAYS_OF_YEAR)
    with FlinkCluster(
        directory=tmp_path / "cluster",
        nodes=2,
        cpu_quota=None,
        slots=1,
        scheduler=request.param,
        # A node that was killed is given up soon, not after most of a minute.
        settings={"heartbeat.timeout": "10 s", "heartbeat.interval": "2 s"},
    ) as cluster:
        driver = DriverProcess(tmp_path)
        line = [sys.executable, "-m", "rekindle_peers.flink", str(tmp_path / "input")]
        line += ["--store", str(driver.store), "--events", str(driver.events)]
        line += ["--jobmanager", cluster.address, "--parallelism", "2"]
        line += ["--rows-per-second", str(ROWS_PER_SECOND)]
        driver.launch(line, {"PYTHONPATH": SOURCES})
        try:
            yield Run(tmp_path, cluster, driver, files)
        finally:
            driver.end()


@pytest.mark.parametrize("run", ["default"], indirect=True)
def test_every_query_gives_what_the_batch_engine_gives(run: Run) -> None:
    run.finish()
    compared = run.compared()
    expected = compared.pop("expected_rows")
    assert compared == RIGHT
    assert expected > 0
    for query in flink_outputs.COLUMNS:
        rows = pq.read_metadata(run.directory / "outputs" / query / "0.parquet").num_rows
        assert rows > 0, query


def test_a_node_that_dies_and_returns_loses_and_doubles_no_row(run: Run) -> None:
    run.await_that(lambda: run.commits() >= 3)
    victim = run.cluster.nodes[0].name
    run.cluster.kill([victim])
    before = run.commits()
    run.cluster.start_worker(victim)
    run.await_that(lambda: run.commits() >= before + 3)
    run.finish()
    compared = run.compared()
    assert {kind: compared[kind] for kind in RIGHT} == RIGHT
