"""One driver of the job: submits it, tells of its checkpoints, lets its input end.

    submitted ─► running ─`finish` in the store─► the input ends ─► the job has finished ─► end
                 └─ SIGTERM ─► the job is cancelled ─► end

It writes events as a driver of Rekindle's does, as far as they say something here: `cut` and
`commit` for checkpoints (docs/report.md), `finish`. A checkpoint is an epoch of all queries. Failed
tasks are Flink's to start again. Called by the program `python -m rekindle_peers.flink`.
"""

import json
import math
import re
import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from rekindle.model.errors import RunError
from rekindle_local.flights import flight_data, row_arrivals
from rekindle_local.flights.row_arrivals import RowClock
from rekindle_peers.flink import flink_conversion, flink_installation, flink_outputs
from rekindle_peers.flink.flink_checkpoints import Checkpoint, FollowedStore
from rekindle_spark.driver.event_log import EventLog, open_events

POLL_SECONDS = 0.25
# Rarely, for the JobManager's time is counted.
ASK_SECONDS = 2.0
REQUEST_SECONDS_MAX = 30.0
SUBMIT_SECONDS_MAX = 120.0
# Sources are told within half a second that the input ends, so it ends a little later than that.
END_SECONDS = 3.0
OF_THE_WEATHER = {"windy-hours", "weather-days", "wettest-airports"}
OF_BOTH = {"delays-by-weather", "ewr-bad-weather-delays"}
# What people set for a job of many small queries: state on the heap, which holds all of it, aligned
# checkpoints into a folder, records handed on without copies from an operator to its neighbour.
SETTINGS = {
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "execution.checkpointing.tolerable-failed-checkpoints": "1000000",
    "execution.checkpointing.storage": "filesystem",
    "execution.checkpointing.externalized-checkpoint-retention": "DELETE_ON_CANCELLATION",
    "state.backend.type": "hashmap",
    "pipeline.object-reuse": "true",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000000",
    "restart-strategy.fixed-delay.delay": "1 s",
}
_JOB = re.compile(r"^job=([0-9a-f]{32})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FlinkOptions:
    """What the program is told. `address` is the JobManager's, `names` are the queries that run,
    `rows_per_second` counts rows of all files together."""

    directory: Path
    store: Path
    events: Path
    address: str
    parallelism: int
    rows_per_second: float
    checkpoint_seconds: float = 1.0
    names: Sequence[str] = tuple(flink_outputs.COLUMNS)
    settings: Mapping[str, str] = field(default_factory=dict)


def run(options: FlinkOptions) -> None:
    """Run until asked to finish; raises InputError for bad input, RunError when the job fails."""
    folder = flink_conversion.convert(options.directory)
    begun = row_arrivals.open_arrivals(
        options.directory, options.store, options.rows_per_second, time.time()
    )
    job = _submit(options, folder, begun)
    with open_events(options.events) as file:
        log = EventLog(file, 1)
        log.write("started", rows_per_second=begun.rows_per_second)
        running = _Running(options, begun, log, job)
        try:
            running.follow()
            log.write("finish")
        except RunError as error:
            log.write("failed", text=str(error))
            raise
        finally:
            running.cancel()


def sources(names: Sequence[str]) -> tuple[str, ...]:
    """The sources that the job of some queries has."""
    weather = any(name in OF_THE_WEATHER | OF_BOTH for name in names)
    flights = any(name not in OF_THE_WEATHER for name in names)
    return ("flights",) * flights + ("weather",) * weather


@dataclass(slots=True)
class _Running:
    """The job of one driver; `rows` are those of the checkpoints that events tell of."""

    options: FlinkOptions
    arrivals: RowClock
    log: EventLog
    job: str
    rows: int = 0
    ended: bool = False

    def follow(self) -> None:
        """Tell what is new until the job has finished."""
        options = self.options
        followed = FollowedStore(options.store, options.names, sources(options.names))
        asked_at = -math.inf
        while True:
            if time.monotonic() - asked_at > ASK_SECONDS:
                asked_at = time.monotonic()
                if self._has_finished():
                    break
            time.sleep(POLL_SECONDS)
            if (options.store / "finish").exists():
                row_arrivals.end_input(options.store, self.arrivals, time.time() + END_SECONDS)
            for checkpoint in followed.fresh(time.time()):
                self._tell(checkpoint)
        self.ended = True
        for checkpoint in followed.fresh(math.inf):
            self._tell(checkpoint)

    def cancel(self) -> None:
        """End the job if it still runs, whatever state it is in."""
        if not self.ended:
            with suppress(OSError):
                _request(self.options.address, f"jobs/{self.job}?mode=cancel", "PATCH")

    def _has_finished(self) -> bool:
        try:
            state = _request(self.options.address, f"jobs/{self.job}/status")["status"]
        except OSError as error:
            raise RunError(
                where=f"the JobManager at {self.options.address}",
                what=f"does not answer ({error})",
                remedy="see its log",
            ) from error
        if state in ("FAILED", "CANCELED", "SUSPENDED"):
            raise RunError(
                where="the job", what=f"is {state.lower()}", remedy="see the log of the JobManager"
            )
        return bool(state == "FINISHED")

    def _tell(self, checkpoint: Checkpoint) -> None:
        """A checkpoint is an epoch of all queries. `at` is when it was, not when it is told."""
        self.log.write(
            "cut",
            epoch=checkpoint.number,
            at=checkpoint.at,
            cut_at=self.arrivals.moment_of(checkpoint.rows),
            rows=checkpoint.rows - self.rows,
            final=checkpoint.last,
        )
        self.rows = checkpoint.rows
        for query in self.options.names:
            self.log.write(
                "commit",
                epoch=checkpoint.number,
                at=checkpoint.public_at[query],
                query=query,
                query_partition=f"{query}/0",
                from_epoch=checkpoint.number,
            )


def _submit(options: FlinkOptions, folder: Path, begun: RowClock) -> str:
    """Start the job; returns its id."""
    host, _, port = options.address.partition(":")
    laps = sum(
        pq.read_metadata(options.directory / flight_data.file_name(n)).num_rows
        for n in flight_data.SOURCES
    )
    lap_seconds = flight_data.repeat_every_seconds(
        options.directory / flight_data.file_name(flight_data.SOURCES[0])
    )
    pairs = {
        "job.host": host,
        "job.port": port,
        "job.folder": folder.absolute(),
        "job.store": options.store.absolute(),
        "job.lap-rows": laps,
        "job.lap-millis": round(lap_seconds * 1000),
        "job.started-at": begun.started_at,
        "job.rows-per-second": begun.rows_per_second,
        "job.queries": ",".join(options.names),
        "parallelism.default": options.parallelism,
        "execution.checkpointing.interval": f"{round(options.checkpoint_seconds * 1000)} ms",
        "execution.checkpointing.dir": (options.store / "checkpoints").absolute().as_uri(),
        **SETTINGS,
        **options.settings,
    }
    client = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
    command = flink_installation.find().command("rekindle.flink.Job", client)
    done = subprocess.run(
        [*command, *(f"{key}={value}" for key, value in pairs.items())],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SUBMIT_SECONDS_MAX,
        check=False,
    )
    found = _JOB.search(done.stdout)
    if found is None:
        raise RunError(
            where="the job",
            what=f"could not be submitted: {(done.stdout + done.stderr).strip()[-2000:]}",
            remedy="mend what it names",
        )
    return found[1]


def _request(address: str, path: str, method: str = "GET") -> dict[str, Any]:
    request = urllib.request.Request(f"http://{address}/{path}", method=method)
    with urllib.request.urlopen(request, timeout=REQUEST_SECONDS_MAX) as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found
