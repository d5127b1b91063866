"""Writes the flights to the topics of the demo's sources, as a process of its own.

    flights ──at a rate──► this process ──► topics      the file `stop` ──► `written.json`, and end

It has the plain client of Kafka, idempotent and without transactions: row N of a partition has
offset N. `demo_streams` starts it, and ends it with the file.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from rekindle_local.flights import row_arrivals
from rekindle_local.flights.flight_topics import FlightRecords
from rekindle_local.flights.row_arrivals import RowClock

STOP, WRITTEN = "stop", "written.json"
INTERVAL_SECONDS = 0.1
FLUSH_SECONDS_MAX = 60.0


def produce(folder: Path, inputs: Path, servers: str, rows_per_second: float) -> None:
    """Write rows until the folder has the file `stop`; then say how many each source has.

    Raises RuntimeError where the broker has not taken all of them.
    """
    from confluent_kafka import Producer  # the demo without Kafka does not need it

    refused: list[str] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            refused.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 20,
            "delivery.report.only.error": True,
            "on_delivery": delivered,
        }
    )
    records, clock, written = FlightRecords(inputs), RowClock(time.time(), rows_per_second), 0
    while not (folder / STOP).exists():
        due = clock.rows_at(time.time()) - written
        for source, partition, value in records.take(due):
            _write(producer, source, partition, value)
        written += due
        producer.poll(INTERVAL_SECONDS)
    left = producer.flush(FLUSH_SECONDS_MAX)
    if left or refused:
        raise RuntimeError(f"{left} rows were not taken: {refused[:1]}")
    row_arrivals.write(folder / WRITTEN, json.dumps(records.written).encode())


def _write(producer: Any, source: str, partition: int, value: str) -> None:
    while True:
        try:
            producer.produce(source, value, partition=partition)
            return
        except BufferError:  # its queue is full
            producer.poll(INTERVAL_SECONDS)


if __name__ == "__main__":
    produce(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], float(sys.argv[4]))
