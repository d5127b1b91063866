"""One driver of the application: starts all streams, watches them, ends them in order.

    start ─► running ─a query failed─► started again from its checkpoint
                     ─`finish` in the store─► the input ends ─► all is committed ─► end

With a sidecar the streams are protected: after a loss `rekindle.protect` decides which of them run.

It writes events as a driver of Rekindle's does, as far as they say something here: `joined` for
executors, `cut` and `commit` for batches (docs/report.md), `finish`. A driver that is started anew
goes on from the checkpoints. Called by the program `python -m rekindle_peers.structured_streaming`.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rekindle.model.errors import RunError
from rekindle_local.flights import row_arrivals
from rekindle_local.flights.row_arrivals import RowClock
from rekindle_peers.structured_streaming import committed_batches, streaming_queries
from rekindle_peers.structured_streaming.committed_batches import Batch
from rekindle_peers.structured_streaming.replayed_streams import Replays
from rekindle_spark.driver.event_log import EventLog, open_events
from rekindle_spark.protection.protection import Protection, protect

POLL_SECONDS = 0.5
FAILURES_MAX = 100
# Several times what a batch takes on a busy cluster: what waits after a failure is no batch beyond
# all memory, and yet is caught up with in few large ones, which cost the least.
SECONDS_PER_TRIGGER_MAX = 60
# Few partitions are the usual tuning of many small queries, but two slots would hold up a join.
PARTITIONS, JOIN_PARTITIONS = 2, 8
# State in RocksDB with changelogs. Output files stay attributed to batches (`deletion`), and no
# batch is forgotten (otherwise all but a hundred are), so that a whole run can be judged. As files
# of Spark itself lie in a folder here, they are written without a process for each (`PlainFiles`),
# and executors log warnings alone, as the driver does: lines about each task cost small nodes CPU.
SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.streaming.fileSink.log.deletion": "false",
    "spark.sql.streaming.minBatchesToRetain": "1000000",
    "spark.executor.syncLogLevel.enabled": "true",
    "spark.hadoop.fs.file.impl": "rekindle.PlainFiles",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "rekindle.PlainFiles$Plain",
}


@dataclass(frozen=True, slots=True)
class ProtectionOptions:
    """What `rekindle.protect` is given: the sidecar's socket, NAMESPACE/APPLICATION, a file of
    settings, and the priorities of queries."""

    sidecar: Path
    name: str
    settings: Path | None
    priorities: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class StreamingOptions:
    """What the program is told; `names` are the queries that run, some of them in one stream where
    what they have in common is `shared`, and each protected where there is a `protection`.

    `rows_per_second` and `rows_per_trigger_max` count rows of all files together;
    `trigger_seconds` 0 begins a batch as soon as the one before has ended.
    """

    directory: Path
    store: Path
    events: Path
    rows_per_second: float
    rows_per_trigger_max: int | None = None
    trigger_seconds: float = 0.0
    names: Sequence[str] = tuple(streaming_queries.QUERIES)
    shared: bool = False
    protection: ProtectionOptions | None = None


@dataclass(frozen=True, slots=True)
class StreamedQuery:
    """A streaming query of Spark: its rows, and how the queries that share it make theirs of them,
    batch by batch; without any the rows are those of one query."""

    rows: DataFrame
    sharing: Mapping[str, Callable[[DataFrame], DataFrame]] = field(default_factory=dict)


def run(options: StreamingOptions) -> None:
    """Run until asked to finish; raises InputError for bad input, RunError when queries fail on."""
    begun = row_arrivals.open_arrivals(
        options.directory, options.store, options.rows_per_second, time.time()
    )
    groups = _groups(options)
    committed_batches.check_streams(options.store, groups)
    session = open_session()
    streams = _streams(options, groups, session, begun)
    announced, generation = _told(options.events)
    with open_events(options.events) as file:
        log = EventLog(file, generation)
        log.write("started", rows_per_second=begun.rows_per_second)
        running = RunningStreams(options, begun, log, streams, announced)
        try:
            running.start()
            while not running.is_done():
                time.sleep(POLL_SECONDS)
                running.look()
            log.write("finish")
        except RunError as error:
            log.write("failed", text=str(error))
            raise
        finally:
            running.stop()
            session.stop()


@dataclass(slots=True)
class RunningStreams:
    """The streams of one driver, by name, and those that are `started`. `announced`: the newest
    batch of each query that events tell of."""

    options: StreamingOptions
    arrivals: RowClock
    log: EventLog
    streams: Mapping[str, StreamedQuery]
    announced: dict[str, int]
    started: dict[str, StreamingQuery] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    joined: set[str] = field(default_factory=set)
    failures: int = 0
    protection: Protection | None = None

    def start(self) -> None:
        """Start all streams, each from its checkpoint."""
        for name, number in self.announced.items():
            for batch in committed_batches.committed(self.options.store, name, number):
                self.ended |= {name} if batch.last else set()
        wanted = self.options.protection
        if wanted is None:
            for name in self.streams:
                self._start(name)
            return
        self.protection = protect(
            self._session,
            {name: partial(self._start, name) for name in self.streams},
            priorities=wanted.priorities,
            settings=wanted.settings,
            sidecar=wanted.sidecar,
            name=wanted.name,
        )

    def stop(self) -> None:
        """End the protection, if there is one, and with it the streams."""
        if self.protection is not None:
            self.protection.stop()

    def look(self) -> None:
        """Tell what is new, end the input when asked to, start again what has failed."""
        self._tell_executors()
        self._tell_batches()
        if (self.options.store / "finish").exists():
            row_arrivals.end_input(self.options.store, self.arrivals, time.time())
        # what the protection has stopped has not ended
        names = self.started if self.protection is None else self.protection.ended
        for name in tuple(names):
            if not self.started[name].isActive:
                self._restart(name)

    def is_done(self) -> bool:
        """Whether all input is committed, with all rows that it leads to."""
        if len(self.ended) < len(self.options.names):
            return False
        with suppress(StreamingQueryException):  # it is started again by the next look
            for stream in self.started.values():
                stream.processAllAvailable()  # windows close with one batch more
            for stream in self.started.values():
                stream.stop()
            self._tell_batches()
            return True
        return False

    @property
    def _session(self) -> SparkSession:
        return next(iter(self.streams.values())).rows.sparkSession

    def _start(self, name: str) -> StreamingQuery:
        stream, store = self.streams[name], self.options.store
        writer = (
            stream.rows.writeStream.queryName(name)
            .outputMode("append")
            .option("checkpointLocation", str(store / "checkpoints" / name))
        )
        if stream.sharing:
            writer = writer.foreachBatch(_writing(stream, store))
        else:
            writer = writer.format("parquet").option("path", str(store / "outputs" / name))
        if self.options.trigger_seconds > 0:
            writer = writer.trigger(processingTime=f"{self.options.trigger_seconds} seconds")
        partitions = JOIN_PARTITIONS if name in streaming_queries.JOINS else PARTITIONS
        # it takes the settings of now; one that is started again keeps those of its checkpoint
        stream.rows.sparkSession.conf.set("spark.sql.shuffle.partitions", partitions)
        self.started[name] = writer.start()
        return self.started[name]

    def _restart(self, name: str) -> None:
        error = self.started[name].exception()
        self.failures += 1
        self.log.write("query-failed", query=name, text=str(error)[:2000])
        if self.failures > FAILURES_MAX:
            raise RunError(
                where=f"query {name}",
                what=f"has failed, as queries have {FAILURES_MAX} times before: {str(error)[:500]}",
                remedy=f"see {self.options.events} and the driver's log",
            )
        self._start(name)

    def _tell_batches(self) -> None:
        for name in self.options.names:
            first = self.announced.get(name, -1) + 1
            for batch in committed_batches.committed(self.options.store, name, first):
                self._tell_batch(batch)
                self.announced[name] = batch.number

    def _tell_batch(self, batch: Batch) -> None:
        """A batch is an epoch of its own query. `at` is when it was, not when it is told."""
        if batch.last:
            self.ended.add(batch.query)
        epoch = {"query": batch.query, "epoch": batch.number}
        if batch.fresh:
            at, cut_at = batch.planned_at, self.arrivals.moment_of(batch.rows)
            self.log.write("cut", **epoch, at=at, cut_at=cut_at, rows=batch.rows, final=batch.last)
        self.log.write(
            "commit",
            **epoch,
            at=batch.committed_at,
            query_partition=f"{batch.query}/0",
            from_epoch=batch.number,
        )

    def _tell_executors(self) -> None:
        context = self._session.sparkContext
        driver = context.getConf().get("spark.driver.host")
        tracker = context._jsc.sc().statusTracker()
        found = [(info.host(), info.port()) for info in tracker.getExecutorInfos()]
        there = {f"{host}:{port}": host for host, port in found if host != driver}
        for executor in sorted(there.keys() - self.joined):
            self.log.write("joined", executor=executor, node=there[executor])
        for executor in sorted(self.joined - there.keys()):
            self.log.write("left", executor=executor, node=executor.rpartition(":")[0])
        self.joined = set(there)


def open_session() -> SparkSession:
    """The session, with these settings."""
    builder = SparkSession.builder
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session


def _writing(stream: StreamedQuery, store: Path) -> Callable[[DataFrame, int], None]:
    """What writes a batch of a stream that queries share: the same rows, should it come again."""

    def write(batch: DataFrame, number: int) -> None:
        batch.persist()
        try:
            for query, rows_of in stream.sharing.items():
                path = committed_batches.batch_folder(store, query, number)
                streaming_queries.flatten(rows_of(batch)).write.mode("overwrite").parquet(str(path))
        finally:
            batch.unpersist()

    return write


def _groups(options: StreamingOptions) -> Mapping[str, streaming_queries.Shared | None]:
    """The streams by name, with what queries share in them; None where one has its own."""
    found: dict[str, streaming_queries.Shared | None] = {}
    taken: set[str] = set()
    for shared in streaming_queries.SHARED if options.shared else ():
        these = {name: rows for name, rows in shared.queries.items() if name in options.names}
        if len(these) > 1:
            found[committed_batches.stream_name(these)] = replace(shared, queries=these)
            taken |= these.keys()
    return {**found, **dict.fromkeys(name for name in options.names if name not in taken)}


def _streams(
    options: StreamingOptions,
    groups: Mapping[str, streaming_queries.Shared | None],
    session: SparkSession,
    begun: RowClock,
) -> Mapping[str, StreamedQuery]:
    limit = options.rows_per_trigger_max
    if limit is None:
        limit = round(SECONDS_PER_TRIGGER_MAX * begun.rows_per_second)
    replays = Replays(session, options.directory, options.store, begun, limit)
    return {
        name: StreamedQuery(streaming_queries.build(name, replays))
        if shared is None
        else StreamedQuery(shared.rows(replays), shared.queries)
        for name, shared in groups.items()
    }


def _told(events: Path) -> tuple[dict[str, int], int]:
    """The newest batch of each query that earlier drivers told of, and the number of this one."""
    announced: dict[str, int] = {}
    generation = 1
    for line in events.read_text().splitlines() if events.exists() else ():
        with suppress(ValueError):  # a driver that was killed may have left a torn one
            record = json.loads(line)
            if record["kind"] == "commit":
                announced[record["query"]] = record["epoch"]
            generation = max(generation, record["generation"] + 1)
    return announced, generation
