"""How long after a record is in its topic it is visible in the topic behind a pipeline.

    producer ──records with the time of writing──► topic `in` ══ the pipeline ══► topic `out`
                                                    this process, as a consumer of ◄──┘
                                                    committed records

First a backlog comes out as quickly as the nodes can. Then, in each round, the producer writes at
LOAD of that rate, in a process of its own. A record's lag is the time of its arrival here less the
time that it has, which is a little before Kafka had it. All share the machine: nodes, broker,
producer and this process.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from rich.console import Console

from rekindle.model.errors import RunError
from rekindle_bench import bar_results, text_runs
from rekindle_bench.bar_results import Bar
from rekindle_local import kafka_broker
from rekindle_local.demo.driver_process import DriverProcess
from rekindle_local.kafka_broker import KafkaBroker

PIPELINE = '''"""From a topic to a topic."""

import pyarrow as pa

from rekindle_spark.connectors.decoding import Json
from rekindle_spark.connectors.kafka import Kafka
from rekindle_spark.connectors.kafka_sink import KafkaSink
from rekindle_spark.pipeline.steps import Pipeline


def pipeline():
    built = Pipeline("lag")
    value = Json(pa.schema([("at", pa.int64()), ("number", pa.int64()), ("text", pa.string())]))
    rows = built.source("in", Kafka({servers!r}, ["in"], value=value), parallelism={partitions})
    rows.sink("out", priority=5, to=KafkaSink({servers!r}, "out"))
    return built
'''
NODES, PARTITIONS = 2, 2
EPOCH_SECONDS = 1.0
LOAD, EPOCHS_MAX = 0.6, 3.0
TEXT = "x" * 40
SETTLING = 0.2  # the share of a round in which nothing is measured
INTERVAL_SECONDS = 0.01
# Of so many records one is measured: the consumer must not be what is slow.
SAMPLED = 10
SILENT_SECONDS_MAX = 120.0


def measure(rounds: int, seconds: float, backlog: int, directory: Path) -> dict[str, Any]:
    """Find the highest rate by a backlog of so many rows, and run rounds of so many seconds below
    it; what `kafka_lag.json` holds."""
    console = Console(highlight=False)
    broker = KafkaBroker(directory=directory / "broker", jars=kafka_broker.find_jars())
    runtime = {
        "nodes_expected": NODES,
        "epoch_seconds": EPOCH_SECONDS,
        "node_cpu_percent": 100,
    }
    with broker, text_runs.cluster(NODES, directory) as cluster:
        broker.make_topics({"in": PARTITIONS, "out": PARTITIONS})
        produce(broker.servers, 0, backlog, None)
        pipeline = PIPELINE.format(servers=broker.servers, partitions=PARTITIONS)
        with (
            text_runs.started(pipeline, runtime, cluster, directory) as driver,
            _consumer(broker.servers) as consumer,
        ):
            arrivals = _Arrivals(driver, consumer)
            rate = arrivals.rate_of(backlog)
            console.print(f"{rate:,.0f} rows a second come out of a backlog")
            lags, rows = list[float](), round(LOAD * rate * seconds)
            for number in range(rounds):
                first = backlog + number * rows
                with _elsewhere(broker.servers, first, rows, LOAD * rate):
                    found = arrivals.lags_of(rows)
                lags.append(quantiles(found, n=100)[98])
                console.print(
                    f"round {number + 1}: median {median(found):.2f} s, p99 {lags[-1]:.2f} s"
                )
            driver.request_finish()
            arrivals.await_end()
    command = (
        f"rekindle bench kafka-lag --rounds {rounds} --seconds {seconds:g} --backlog {backlog}"
    )
    return judge(rate, lags, command, directory)


def judge(rate: float, lags: Sequence[float], command: str, directory: Path) -> dict[str, Any]:
    """Write figures and the bar, of each round's p99 in seconds."""
    epochs = median(lags) / EPOCH_SECONDS
    bar = Bar(
        f"Kafka to Kafka at {LOAD:.0%} load, p99 of the lag until a record is visible: at most "
        f"{EPOCHS_MAX:g} epochs",
        f"{epochs:.2f}",
        epochs <= EPOCHS_MAX,
        command,
    )
    figures = {"rows_per_second": rate, "epoch_seconds": EPOCH_SECONDS, "lag_seconds_p99": [*lags]}
    return bar_results.write(
        directory / "kafka_lag.json", figures, [bar_results.of_median(bar, len(lags))]
    )


def middle_rate(points: Sequence[tuple[float, int]]) -> float:
    """Rows a second between a quarter and three quarters of all rows; `points` are how many had
    come at which times."""
    rows = points[-1][1]
    began, low = next(one for one in points if one[1] >= rows / 4)
    ended, high = next(one for one in points if one[1] >= rows * 3 / 4)
    return (high - low) / max(ended - began, INTERVAL_SECONDS)


def produce(servers: str, first: int, rows: int, rate: float | None) -> None:
    """Write rows with these numbers, so many a second, or as quickly as Kafka takes them. Raises
    RunError where it does not."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "log_level": 2, "linger.ms": 5})
    began, written = time.monotonic(), 0
    while written < rows:
        due = rows if rate is None else min(rows, int((time.monotonic() - began) * rate))
        for number in range(first + written, first + due):
            _write(producer, number)
        written = due
        producer.poll(INTERVAL_SECONDS)
    if producer.flush(SILENT_SECONDS_MAX):
        raise RunError(where="topic in", what="does not take records", remedy="read broker's log")


def _write(producer: Any, number: int) -> None:
    value = f'{{"at":{time.time_ns() // 1_000},"number":{number},"text":"{TEXT}"}}'
    while True:
        try:
            producer.produce("in", value, partition=number % PARTITIONS)
            return
        except BufferError:  # its queue is full
            producer.poll(INTERVAL_SECONDS)


@contextmanager
def _elsewhere(servers: str, first: int, rows: int, rate: float) -> Iterator[None]:
    """Produce in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        made = pool.submit(produce, servers, first, rows, rate)
        yield
        made.result()


@contextmanager
def _consumer(servers: str) -> Iterator[Any]:
    from confluent_kafka import Consumer, TopicPartition

    settings = {
        "bootstrap.servers": servers,
        "group.id": "lag",
        "log_level": 2,
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 10,
        "fetch.queue.backoff.ms": 10,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition("out", number, 0) for number in range(PARTITIONS)])
    try:
        yield consumer
    finally:
        consumer.close()


@dataclass(slots=True)
class _Arrivals:
    """Records of the topic `out`, as a consumer gets them."""

    driver: DriverProcess
    consumer: Any

    def rate_of(self, rows: int) -> float:
        """Rows a second of the next rows."""
        seen, points = 0, list[tuple[float, int]]()
        for now, values in self._next(rows):
            seen += len(values)
            points.append((now, seen))
        return middle_rate(points)

    def lags_of(self, rows: int) -> list[float]:
        """Seconds from a record's time until it is here, of the next rows but the first ones."""
        found, seen = list[float](), 0
        for now, values in self._next(rows):
            seen += len(values)
            if seen > SETTLING * rows:
                found += [now - json.loads(value)["at"] / 1e6 for value in values[::SAMPLED]]
        return found

    def await_end(self) -> None:
        """Wait until the driver has ended."""
        self._await(lambda: self.driver.ended)

    def _next(self, rows: int) -> Iterator[tuple[float, list[bytes]]]:
        """The next rows as they come, with when. Raises RunError where none come."""
        while rows:
            values = list[bytes]()

            def take(values: list[bytes] = values, most: int = min(rows, 1_000)) -> bool:
                found = self.consumer.consume(most, INTERVAL_SECONDS)
                values += [one.value() for one in found if one.error() is None]
                return bool(values)

            self._await(take)
            rows -= len(values)
            yield time.time(), values

    def _await(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + SILENT_SECONDS_MAX
        while not condition():
            self.driver.check()
            if time.monotonic() > end:
                what = f"nothing has come for {SILENT_SECONDS_MAX:.0f} s"
                raise RunError(where="kafka-lag", what=what, remedy=f"see {self.driver.log}")
