"""What Kafka costs at both ends of a pipeline, beside a plain client on the same broker.

    reading   records of one partition as rows of Arrow: rows for each second of CPU
    writing   rows of Arrow as records, epoch by epoch: rows a second

The ways take turns, each in a process of its own (`kafka_measurement`), and another one begins in
each round. Ratios are those of one round, the bars are about their medians. Nodes and Spark take no
part: what they cost is in `overhead` and `steady`.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from rich.console import Console

from rekindle.model.errors import RunError
from rekindle_bench import bar_results, kafka_measurement
from rekindle_bench.bar_results import Bar
from rekindle_bench.kafka_measurement import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    OURS,
    KafkaMeasurement,
    KafkaWorkload,
)
from rekindle_local import kafka_broker
from rekindle_local.kafka_broker import KafkaBroker

READ_SHARE_MIN, WRITE_SHARE_MIN = 0.6, 0.9
INPUT = "read"

Result = TypeVar("Result")


def measure(rounds: int, rows: int, directory: Path) -> dict[str, Any]:
    """Read and write so many rows by each way, `rounds` times; what `kafka.json` holds."""
    console = Console(highlight=False)
    broker = KafkaBroker(directory=directory / "broker", jars=kafka_broker.find_jars())
    readings, writings = list[dict[str, KafkaMeasurement]](), list[dict[str, KafkaMeasurement]]()
    with broker:
        broker.make_topics({INPUT: 1})
        there = rows + kafka_measurement.EPOCH_ROWS  # the first are not measured
        alone(kafka_measurement.fill, KafkaWorkload("", broker.servers, INPUT, there))
        for number in range(rounds):
            reads = {
                way: KafkaWorkload(way, broker.servers, INPUT, there)
                for way in in_turn(tuple(kafka_measurement.READERS), number)
            }
            readings.append(
                {way: alone(kafka_measurement.read, work) for way, work in reads.items()}
            )
            writes = {
                way: KafkaWorkload(way, broker.servers, f"written-{number}-{way}", rows)
                for way in in_turn((EXACTLY_ONCE, AT_LEAST_ONCE), number)
            }
            broker.make_topics(
                dict.fromkeys(
                    (work.topic for work in writes.values()), kafka_measurement.PARTITIONS
                )
            )
            writings.append(
                {way: alone(kafka_measurement.write, work) for way, work in writes.items()}
            )
            for way, result in (*readings[-1].items(), *writings[-1].items()):
                console.print(
                    f"round {number + 1}, {way}: {rows / result.seconds:,.0f} rows a second, "
                    f"{rows / result.cpu_seconds:,.0f} for each second of CPU"
                )
    command = f"rekindle bench kafka --rounds {rounds} --rows {rows}"
    return judge(readings, writings, rows, command, directory)


def in_turn(ways: Sequence[str], number: int) -> tuple[str, ...]:
    """The ways, with another one first in each round."""
    begin = number % len(ways)
    return (*ways[begin:], *ways[:begin])


def judge(
    readings: Sequence[Mapping[str, KafkaMeasurement]],
    writings: Sequence[Mapping[str, KafkaMeasurement]],
    rows: int,
    command: str,
    directory: Path,
) -> dict[str, Any]:
    """Write figures and bars. Raises RunError where ways have not read or written the same."""
    for one in (*readings, *writings):
        check_same(one)
    read = [
        min(found.cpu_seconds for way, found in one.items() if way != OURS) / one[OURS].cpu_seconds
        for one in readings
    ]
    written = [one[AT_LEAST_ONCE].seconds / one[EXACTLY_ONCE].seconds for one in writings]
    bars = [
        Bar(
            "JSON from Kafka, rows for each second of CPU: at least "
            f"{READ_SHARE_MIN:g} of a plain client with the fastest decoder",
            f"{median(read):.2f}",
            median(read) >= READ_SHARE_MIN,
            command,
        ),
        Bar(
            f"exactly once to Kafka, rows a second: at least {WRITE_SHARE_MIN:g} of at least once",
            f"{median(written):.2f}",
            median(written) >= WRITE_SHARE_MIN,
            command,
        ),
    ]
    figures = {
        "rows": rows,
        "read_ratios": read,
        "write_ratios": written,
        "reading": [{way: asdict(found) for way, found in one.items()} for one in readings],
        "writing": [{way: asdict(found) for way, found in one.items()} for one in writings],
    }
    bars = [bar_results.of_median(bar, len(readings)) for bar in bars]
    return bar_results.write(directory / "kafka.json", figures, bars)


def check_same(results: Mapping[str, KafkaMeasurement]) -> None:
    """Raise RunError where not all have the same rows."""
    if len({result.checksum for result in results.values()}) > 1:
        found = ", ".join(f"{way} {result.checksum}" for way, result in results.items())
        raise RunError(
            where="bench kafka",
            what=f"ways have not the same rows: {found}",
            remedy="a ratio of these says nothing: find the way that is wrong",
        )


def alone(function: Callable[[KafkaWorkload], Result], work: KafkaWorkload) -> Result:
    """Call it in a process that does nothing else."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, work).result()
