"""From Kafka through a window to Kafka: Rekindle and Structured Streaming on the same topic.

    topic `in`, rows of JSON ══ a system, one query ══► a topic of its own: windows
                                this process, as a consumer of committed records ◄──┘

The systems take turns, each on two nodes of its own, and another one begins in each round. All rows
are in the topic before. A window's record says how many rows are in it, so the records that are
visible say how many rows have been worked off. What counts is from a quarter of the rows to three
quarters: rows a second, and CPU seconds of driver and nodes. Records that are not right end it.
Nodes, broker and this process share the machine.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from rekindle.model.errors import RunError
from rekindle_bench import bar_results, kafka_benchmark, kafka_measurement, text_runs
from rekindle_bench.bar_results import Bar
from rekindle_bench.kafka_measurement import KafkaWorkload
from rekindle_local import kafka_broker, process_sets
from rekindle_local.demo.driver_process import DriverProcess
from rekindle_local.kafka_broker import KafkaBroker
from rekindle_local.spark_cluster import LocalCluster
from rekindle_peers import peer_starters
from rekindle_peers.peer_starters import ROWS_PER_BATCH
from rekindle_peers.structured_streaming import kafka_connector, replay_jar

OURS, THEIRS = "rekindle", "structured-streaming"
INPUT = "in"
NODES, SLOTS, PARTITIONS = 2, 2, 2
WINDOW_SECONDS, LATENESS_SECONDS = 10, 1
# As `kafka_measurement.rows` has them.
FIRST_SECOND, ROWS_PER_SECOND, CARRIERS = 1_600_000_000, 1_000, 17
# Batches of the peer between which progress is seen, at least.
BATCHES_MIN = 10
RATIO_MIN = 1.5
SILENT_SECONDS_MAX = 180.0
POLL_SECONDS = 0.05
PIPELINE = '''"""Windows over a topic, into a topic."""

import pyarrow as pa

from rekindle_spark.connectors.decoding import Json
from rekindle_spark.connectors.kafka import Kafka
from rekindle_spark.connectors.kafka_sink import KafkaSink
from rekindle_spark.pipeline.steps import Pipeline, count, total
from rekindle_spark.pipeline.unbounded_source import SourceTerms

ROW = pa.schema(
    [
        ("at", pa.timestamp("us")),
        ("flight", pa.int64()),
        ("carrier", pa.string()),
        ("airport", pa.string()),
        ("delay", pa.float64()),
        ("cancelled", pa.bool_()),
    ]
)


def pipeline():
    built = Pipeline("windows")
    source = Kafka(
        {servers!r},
        [{source!r}],
        value=Json(ROW, units={{"at": "us"}}),
        event_time="at",
        columns=(),
        terms=SourceTerms(lateness_seconds={lateness_seconds}),
    )
    rows = built.source("rows", source, parallelism={partitions})
    rows.window(
        "windows-of-carriers",
        keys=["carrier"],
        size_seconds={window_seconds},
        aggregates={{"rows": count(), "total": total("flight")}},
        parallelism={partitions},
    ).sink("windows", priority=5, to=KafkaSink({servers!r}, {sink!r}))
    return built
'''


@dataclass(frozen=True, slots=True)
class WindowWork:
    """Brokers, the topic that is read, the one that is written, and how many rows there are."""

    servers: str
    source: str
    sink: str
    rows: int


@dataclass(frozen=True, slots=True)
class Progress:
    """So many rows were in visible windows at a time, for so many CPU seconds up to then."""

    at: float
    rows: int
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class KafkaPeerSample:
    """What one system came to in one turn."""

    rows_per_second: float
    cpu_seconds_per_million_rows: float


@dataclass(slots=True)
class SeenWindows:
    """The windows whose records have come, and the rows in them."""

    rows: int = 0
    seen: set[tuple[str, int]] = field(default_factory=set)

    def add(self, system: str, value: bytes) -> None:
        """Enter a record. Raises RunError where it is not right, or comes twice."""
        row = json.loads(value)
        start = datetime.fromisoformat(row["window_start"])
        number = int((start.replace(tzinfo=UTC).timestamp() - FIRST_SECOND) // WINDOW_SECONDS)
        found = (row["carrier"], number)
        if found in self.seen or (row["rows"], row["total"]) != expected(*found):
            raise RunError(
                where=f"bench kafka-peers: {system}",
                what=f"a window is wrong, or there twice: {value.decode()}",
                remedy="a ratio of these says nothing: find what is wrong",
            )
        self.seen.add(found)
        self.rows += row["rows"]


def expected(carrier: str, window: int) -> tuple[int, int]:
    """How many rows a carrier has in a window, and the sum of their numbers."""
    length = WINDOW_SECONDS * ROWS_PER_SECOND
    begin, remainder = window * length, int(carrier[1:])
    first = begin + (remainder - begin) % CARRIERS
    numbers = range(first, begin + length, CARRIERS)
    return len(numbers), sum(numbers)


def measure(rounds: int, rows: int, directory: Path) -> dict[str, Any]:
    """Have each system work off so many rows, `rounds` times; what `kafka_peers.json` holds."""
    console = Console(highlight=False)
    kafka_connector.paths()  # fetched before anything is started
    broker = KafkaBroker(directory=directory / "broker", jars=kafka_broker.find_jars())
    found: list[dict[str, KafkaPeerSample]] = []
    with broker:
        broker.make_topics({INPUT: PARTITIONS})
        fill = partial(kafka_measurement.fill, partitions=PARTITIONS)
        kafka_benchmark.alone(fill, KafkaWorkload("", broker.servers, INPUT, rows))
        for number in range(rounds):
            found.append({})
            for system in kafka_benchmark.in_turn((OURS, THEIRS), number):
                place = f"{system}-{number + 1}"
                broker.make_topics({place: PARTITIONS})
                work = WindowWork(broker.servers, INPUT, place, rows)
                sample = found[-1][system] = _sample(system, work, directory / place)
                console.print(
                    f"round {number + 1}, {system}: {sample.rows_per_second:,.0f} rows a second, "
                    f"{sample.cpu_seconds_per_million_rows:.1f} s of CPU per million"
                )
    command = f"rekindle bench kafka-peers --rounds {rounds} --rows {rows}"
    return judge(found, rows, command, directory)


def judge(
    found: Sequence[Mapping[str, KafkaPeerSample]], rows: int, command: str, directory: Path
) -> dict[str, Any]:
    """Write figures and bars, about the medians of the rounds' ratios."""
    rates = [one[OURS].rows_per_second / one[THEIRS].rows_per_second for one in found]
    cpu = [
        one[THEIRS].cpu_seconds_per_million_rows / one[OURS].cpu_seconds_per_million_rows
        for one in found
    ]
    bars = [
        Bar(
            f"Kafka to a window to Kafka, {what}: at least {RATIO_MIN:g} x Structured Streaming",
            f"{median(ratios):.2f}",
            median(ratios) >= RATIO_MIN,
            command,
        )
        for what, ratios in (("rows a second", rates), ("rows for each second of CPU", cpu))
    ]
    figures = {
        "rows": rows,
        "rate_ratios": rates,
        "cpu_ratios": cpu,
        "rounds": [{system: asdict(one) for system, one in each.items()} for each in found],
    }
    bars = [bar_results.of_median(bar, len(found)) for bar in bars]
    return bar_results.write(directory / "kafka_peers.json", figures, bars)


def middle(points: Sequence[Progress], rows: int) -> KafkaPeerSample:
    """What it took between a quarter and three quarters of all rows."""
    began = next(one for one in points if one.rows >= rows / 4)
    ended = next(one for one in points if one.rows >= rows * 3 / 4)
    done = ended.rows - began.rows
    if not done:
        raise RunError(
            where="bench kafka-peers",
            what="half of the rows came out at once, so there is no rate",
            remedy="give more --rows",
        )
    cpu_seconds = ended.cpu_seconds - began.cpu_seconds
    return KafkaPeerSample(done / (ended.at - began.at), 1e6 * cpu_seconds / done)


def _sample(system: str, work: WindowWork, place: Path) -> KafkaPeerSample:
    place.mkdir(parents=True)
    with _started(system, work, place) as (driver, nodes), _consumer(work) as consumer:

        def cpu_seconds() -> float:
            own = process_sets.cpu_seconds(driver.processes)
            return own + nodes.leading_cpu_seconds() + nodes.all_cpu_seconds()

        points = list(_progress(system, work, driver, consumer, cpu_seconds))
    return middle(points, work.rows)


def _progress(
    system: str,
    work: WindowWork,
    driver: DriverProcess,
    consumer: Any,
    cpu_seconds: Callable[[], float],
) -> Iterator[Progress]:
    """What had come each time that nothing more came at once, up to three quarters of the rows.

    Raises RunError where nothing comes, or what is not right.
    """
    windows, reported, came_at = SeenWindows(), 0, time.monotonic()
    while reported < work.rows * 3 / 4:
        values = [one.value() for one in consumer.consume(1_000, POLL_SECONDS) if not one.error()]
        for value in values:
            windows.add(system, value)
        if values:
            came_at = time.monotonic()
        elif windows.rows > reported:
            reported = windows.rows
            yield Progress(came_at, reported, cpu_seconds())
        driver.check()
        if time.monotonic() - came_at > SILENT_SECONDS_MAX:
            what = f"no window has come for {SILENT_SECONDS_MAX:.0f} s, after {reported:,} rows"
            raise RunError(where=f"bench kafka-peers: {system}", what=what, remedy=f"{driver.log}")


@contextmanager
def _started(
    system: str, work: WindowWork, place: Path
) -> Iterator[tuple[DriverProcess, LocalCluster]]:
    """A system at work, on nodes of its own."""
    if system == OURS:
        pipeline = PIPELINE.format(
            servers=work.servers,
            source=work.source,
            sink=work.sink,
            partitions=PARTITIONS,
            window_seconds=WINDOW_SECONDS,
            lateness_seconds=LATENESS_SECONDS,
        )
        runtime = {"nodes_expected": NODES, "node_cpu_percent": 100}
        with (
            text_runs.cluster(NODES, place, slots=SLOTS) as cluster,
            text_runs.started(pipeline, runtime, cluster, place) as driver,
        ):
            yield driver, cluster
        return
    jars = [Path(replay_jar.path()), *kafka_connector.paths()]
    driver = DriverProcess(place)
    nodes = LocalCluster(
        nodes=NODES, cpu_quota=None, slots=SLOTS, directory=place / "cluster", class_path=jars
    )
    with nodes as cluster:
        arguments = [sys.executable, "-m", "rekindle_peers.structured_streaming.kafka_windows"]
        arguments += [work.servers, work.source, work.sink, "--store", str(driver.store)]
        arguments += ["--window-seconds", str(WINDOW_SECONDS)]
        arguments += ["--lateness-seconds", str(LATENESS_SECONDS)]
        rows = min(ROWS_PER_BATCH, max(1, work.rows // BATCHES_MIN))
        arguments += ["--rows-per-trigger-max", str(rows)]
        try:
            driver.launch(arguments, peer_starters.spark_variables(cluster, jars, {}))
            yield driver, cluster
        finally:
            driver.end()


@contextmanager
def _consumer(work: WindowWork) -> Iterator[Any]:
    from confluent_kafka import Consumer, TopicPartition

    settings = {
        "bootstrap.servers": work.servers,
        "group.id": "windows",
        "log_level": 2,
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(work.sink, number, 0) for number in range(PARTITIONS)])
    try:
        yield consumer
    finally:
        consumer.close()
