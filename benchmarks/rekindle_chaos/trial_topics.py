"""The topics of a trial: its rows are written at their pace, and what comes out is read again.

    input/SOURCE.parquet ──plain client──► topic SOURCE ══ the trial ══► topic QUERY
                                                                           │ a consumer of
                              topics/QUERY/N.parquet ◄──committed records──┘ committed records

Row N of a source is in partition N modulo their number; nothing is lost or doubled on the way in,
for the client is idempotent. Nothing of the runtime is imported here.
"""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rekindle.model.errors import RunError
from rekindle_chaos import step_schemas, trial_inputs
from rekindle_chaos.step_schemas import Shape
from rekindle_chaos.trials import ChaosTrial, TrialSource
from rekindle_local.demo import topic_witness

# In the folder of a trial: where its brokers are.
SERVERS = "servers"
FOLDER = "topics"
INTERVAL_SECONDS = 0.05
# A client gives up on a record after that: longer than any harm lasts.
DELIVERY_MS = 600_000
TYPES: dict[str, pa.DataType] = {
    "text": pa.string(),
    "whole": pa.int64(),
    "number": pa.float64(),
    "time": pa.timestamp("us"),
}


def schema_of(shape: Shape) -> pa.Schema:
    """The columns of a step's rows."""
    return pa.schema([(name, TYPES[kind]) for name, kind in shape.columns.items()])


@dataclass(slots=True)
class TopicProducer:
    """A thread that writes the rows of a trial's topics within its seconds; `error` is what it
    ended with."""

    trial: ChaosTrial
    inputs: Path
    servers: str
    error: BaseException | None = None
    _refused: list[str] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to write."""
        self._thread = threading.Thread(target=self._run, name="topic-producer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End, whatever is not yet written."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    @property
    def is_done(self) -> bool:
        """Whether it has ended, by itself or with an error."""
        return self._thread is not None and not self._thread.is_alive()

    def check(self) -> None:
        """Raise RunError where rows could not be written."""
        if self.error is not None:
            what = f"could not be written ({self.error!r:.300})"
            raise RunError(where="rows of topics", what=what, remedy="read the brokers' logs")

    def _run(self) -> None:
        try:
            self._write()
        except BaseException as error:
            self.error = error

    def _write(self) -> None:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "log_level": 2,
                "enable.idempotence": True,
                "linger.ms": 20,
                "delivery.timeout.ms": DELIVERY_MS,
                "delivery.report.only.error": True,
                "on_delivery": lambda error, _: self._refused.append(str(error)),
            }
        )
        begin, left = time.monotonic(), {}
        for source in self.trial.sources:
            if source.topic:
                left[source.name] = _Rows(source, _values(self.inputs, source))
        while any(not one.is_written for one in left.values()) and not self._ended.is_set():
            share = (time.monotonic() - begin) / self.trial.seconds
            for rows in left.values():
                rows.write(producer, share, self._ended)
            producer.poll(INTERVAL_SECONDS)
        while producer.flush(INTERVAL_SECONDS) and not self._ended.is_set():
            pass
        if self._refused and not self._ended.is_set():
            raise RuntimeError(self._refused[0])


@dataclass(slots=True)
class _Rows:
    """Those of one source, of which the first `written` are on their way."""

    source: TrialSource
    values: Iterator[bytes]
    written: int = 0

    @property
    def is_written(self) -> bool:
        """Whether there are no more."""
        return self.written == self.source.rows

    def write(self, producer: Any, share: float, ended: threading.Event) -> None:
        """Write up to a share of all, unless it is ended before."""
        due = min(self.source.rows, int(share * self.source.rows))
        while self.written < due:
            partition = self.written % self.source.topic
            value = next(self.values)
            while True:
                try:
                    producer.produce(self.source.name, value, partition=partition)
                    break
                except BufferError:  # its queue is full
                    if ended.is_set():
                        return
                    producer.poll(INTERVAL_SECONDS)
            self.written += 1


def _values(inputs: Path, source: TrialSource) -> Iterator[bytes]:
    """The rows of a source as JSON, with times in microseconds."""
    table = pq.read_table(trial_inputs.path(inputs, source.name))
    table = table.set_column(0, "at", table["at"].cast(pa.int64()))
    for batch in table.to_batches(max_chunksize=10_000):
        for row in batch.to_pylist():
            yield json.dumps(row).encode()


def read(trial: ChaosTrial, directory: Path, servers: str) -> dict[str, list[tuple[Path, str]]]:
    """Write what the queries' topics have into files; of each query its files, with their topic
    partitions. Raises RunError where a topic cannot be read."""
    found: dict[str, list[tuple[Path, str]]] = {}
    shapes = step_schemas.of_all(trial.steps)
    for sink in trial.sinks:
        schema = schema_of(shapes[sink.input])
        for number in range(sink.topic):
            path = directory / FOLDER / sink.name / f"{number}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(topic_witness.rows(servers, sink.name, number, schema), path)
            found.setdefault(sink.name, []).append((path, f"topic {sink.name}/{number}"))
    return found
