"""Flights in topics of Kafka: the topics, sources and sinks of the pipeline, and records of rows.

    row N of a source's file ──► partition N modulo the partitions of the topic SOURCE
    rows of a query          ──► the topic QUERY

A row is one JSON object with its columns, event times in microseconds. So each partition has the
rows that a partition of a replay has, in the same order. Called by the demo.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from rekindle_local.flights import flight_data, row_arrivals
from rekindle_spark.connectors.decoding import Json
from rekindle_spark.connectors.kafka import Kafka
from rekindle_spark.connectors.kafka_sink import KafkaSink
from rekindle_spark.pipeline.program import Program
from rekindle_spark.pipeline.steps import Pipeline
from rekindle_spark.pipeline.unbounded_source import SourceTerms

# Partitions of a source's topic, and of the source: as those of a replay.
PARTITIONS = {"flights_ewr": 3, "flights_jfk": 3, "flights_lga": 3, "weather": 1}
# Rows of one minute may come in two epochs.
LATENESS_SECONDS = 1.0
# The sources have rows for as long as the demo runs.
IDLE_SECONDS = 3_600.0
MICROSECONDS = 1_000_000


def source(servers: str, name: str, directory: Path) -> Kafka:
    """A source of the pipeline; `directory` has the file from which its topic gets its rows."""
    schema = pq.read_schema(directory / flight_data.file_name(name)).remove_metadata()
    return Kafka(
        servers,
        topics=[name],
        value=Json(schema, units={"event_time": "us"}),
        event_time="event_time",
        columns=(),
        terms=SourceTerms(lateness_seconds=LATENESS_SECONDS, idle_seconds=IDLE_SECONDS),
    )


def add_sinks(pipeline: Pipeline, servers: str) -> None:
    """Give each query a topic of its name."""
    for name, step in pipeline.steps.items():
        if step.kind == "sink":
            pipeline.steps[name] = replace(step, to=KafkaSink(servers, name))


def topics(built: Program) -> dict[str, int]:
    """All topics of a pipeline with how many partitions they have."""
    queries = {sink.name: chain.parallelism for chain in built.chains for sink in chain.sinks}
    return {**PARTITIONS, **queries}


class FlightRecords:
    """The records of all sources in order of event time, lap after lap, as a replay has them."""

    def __init__(self, directory: Path) -> None:
        self._order = row_arrivals.order(directory)
        paths = {name: directory / flight_data.file_name(name) for name in flight_data.SOURCES}
        self._files = {name: pl.read_parquet(path) for name, path in paths.items()}
        seconds = flight_data.repeat_every_seconds(next(iter(paths.values())))
        self._period = round(seconds * MICROSECONDS)
        self._taken = 0
        self.written = dict.fromkeys(flight_data.SOURCES, 0)

    def take(self, rows: int) -> Iterator[tuple[str, int, str]]:
        """Yield the next rows of all sources together: source, partition and value."""
        while rows > 0:
            at = self._taken % len(self._order)
            numbers = self._order[at : at + rows]
            values = {
                name: self._values(name, int((numbers == index).sum()))
                for index, name in enumerate(flight_data.SOURCES)
            }
            for number in numbers:
                name = flight_data.SOURCES[number]
                yield name, self.written[name] % PARTITIONS[name], next(values[name])
                self.written[name] += 1
            self._taken += len(numbers)
            rows -= len(numbers)

    def _values(self, name: str, rows: int) -> Iterator[str]:
        """The values of the next rows of a source, all of one lap."""
        table = self._files[name]
        lap, first = divmod(self.written[name], table.height)
        part = table.slice(first, rows).with_columns(
            pl.col("event_time").cast(pl.Int64) + lap * self._period
        )
        return iter(part.select(pl.struct(pl.all()).struct.json_encode()).to_series().to_list())
