"""Which sinks drivers of a store have written to, as whom: in the record of each driver's start.

    {QUERY: {TOPIC: {"name": ..., "partitions": ...}}}

The name goes into transactional ids, and in the groups of markers (`kafka_transactions`). It is
made once for a query and a topic, by chance, and stands in the store from then on, and in copies of
it. Before a start that has a sink for the first time takes its generation, a marker is set
for each query partition. So a marker that is not there later has been lost, and nobody takes that
for a topic in which nothing is yet. Called by `driver_main`.
"""

import uuid
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from rekindle_spark.connectors import kafka_options
from rekindle_spark.connectors.kafka_sink import KafkaSink
from rekindle_spark.connectors.kafka_transactions import EpochMarker, TransactionalWriter
from rekindle_spark.driver.event_log import EventLog
from rekindle_spark.output.sink_publishing import (
    SinkIdentity,
    SinkPublisher,
    SinkPublishers,
    side_by_side,
)
from rekindle_spark.pipeline.program import Program
from rekindle_spark.store.checkpoint_store import CheckpointStore
from rekindle_store import commit_log
from rekindle_store.store_files import Files

Declared = Mapping[str, Mapping[str, Mapping[str, Any]]]
ID_LENGTH = 12


def declared(plain: Program, store: CheckpointStore) -> Declared:
    """What a driver declares of its sinks, once their topics are prepared. Raises as `prepare`."""
    sinks = of_program(plain)
    if not sinks:
        return {}
    known = store.patience.through(lambda: read(store.files))
    return prepare(plain.name, sinks, known)


def start_fields(store: CheckpointStore, own: Declared) -> dict[str, Any]:
    """The fields that a driver with sinks adds to the record of its start. Raises as `read`."""
    return {"sinks": merged(read(store.files), own)} if own else {}


def publishers(plain: Program, store: CheckpointStore, events: EventLog) -> SinkPublishers:
    """The threads that write committed output to topics, not started. Raises as `read`."""
    sinks = of_program(plain)
    if not sinks:
        return SinkPublishers()
    identities = store.patience.through(lambda: places(store.files, sinks))
    return SinkPublishers(
        tuple(
            SinkPublisher(
                sink,
                identities[query],
                store.files,
                store.check_generation,
                lambda kind, fields: events.write(kind, **fields),
                store.patience,
            )
            for query, (sink, _) in sinks.items()
        )
    )


def of_program(program: Program) -> dict[str, tuple[KafkaSink, int]]:
    """The sinks of a program by query, with the number of query partitions."""
    return {
        step.name: (step.to, chain.parallelism)
        for chain in program.chains
        for step in chain.sinks
        if step.to is not None
    }


def read(files: Files) -> Declared:
    """What the drivers of a store have declared up to now. Raises as `commit_log.generation`."""
    for number in reversed(commit_log.generations(files)):
        found: Declared | None = commit_log.generation(files, number).get("sinks")
        if found is not None:
            return found
    return {}


def prepare(pipeline: str, sinks: Mapping[str, tuple[KafkaSink, int]], known: Declared) -> Declared:
    """Set a marker for each query partition that nobody has written from; what a driver declares.

    What is known is not asked for: a driver starts while Kafka is away. Raises InputError where the
    client is not installed or a topic is not there, SinkAwayError and RunError as the writer does.
    """
    own: dict[str, dict[str, dict[str, Any]]] = {}
    writers: list[TransactionalWriter] = []
    for query, (sink, partitions) in sinks.items():
        kafka_options.library()
        entry = known.get(query, {}).get(sink.topic, {})
        name = entry.get("name", f"rekindle-{pipeline}-{query}-{uuid.uuid4().hex[:ID_LENGTH]}")
        begin = entry.get("partitions", 0)
        at = SinkIdentity(query, name, partitions, begin)
        writers += [at.writer(sink, index) for index in range(begin, partitions)]
        own[query] = {sink.topic: {"name": name, "partitions": max(begin, partitions)}}
    side_by_side([partial(_mark, writer) for writer in writers])
    return own


def _mark(writer: TransactionalWriter) -> None:
    """Set a marker that says that nothing is there yet, unless there is one."""
    if writer.open() is None:
        writer.mark(EpochMarker())
    writer.close()


def merged(known: Declared, own: Declared) -> Declared:
    """What a driver's record says: all that was known, and its own. Where another driver came
    first, its name stands."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {
        query: dict(topics) for query, topics in known.items()
    }
    for query, topics in own.items():
        for topic, entry in topics.items():
            there = found.setdefault(query, {}).get(topic)
            if there is None or there["name"] == entry["name"]:
                found[query][topic] = entry
    return found


def places(files: Files, sinks: Mapping[str, tuple[KafkaSink, int]]) -> dict[str, SinkIdentity]:
    """Of whom the writers are, by query, once the driver's record says so. Raises as `read`."""
    found = read(files)
    store, origins = commit_log.identity(files), commit_log.copied_from(files)
    return {
        query: replace(_place(query, sink, partitions, found), store=store, origins=origins)
        for query, (sink, partitions) in sinks.items()
    }


def _place(query: str, sink: KafkaSink, partitions: int, declared: Declared) -> SinkIdentity:
    entry = declared[query][sink.topic]
    marked = entry["partitions"]
    return SinkIdentity(query, entry["name"], max(partitions, marked), marked)
