"""The prepared files as streams of Spark: rows arrive as the clock goes on, whoever reads them.

All streams of a run share one order of arrival, one begin and one rate, which lie in the store. So
what came in while nobody read is waiting afterwards, and an offset, a number of rows of all files
together, says when its newest row came in. The reading itself is Java (`ReplaySource`). Called by
`application` and `queries`.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from rekindle.errors import InputError
from rekindle_local.flights import data

__all__ = [
    "END",
    "Arrivals",
    "Replays",
    "arrivals",
    "in_time",
    "open_arrivals",
    "rows_read",
    "write",
]

VERSION = 1
# The time of the row behind all others, as in `ReplayRows`: watermarks pass everything, no query
# shows it. It is no full hour, or what Spark infers of the hours of a join would drop it too early.
END = "2200-01-01 00:20:00"
TYPES = {pa.timestamp("us"): "TIMESTAMP", pa.string(): "STRING", pa.int64(): "BIGINT"}


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When rows come in: the first at `started_at` (seconds since 1970), then at this rate."""

    started_at: float
    rows_per_second: float

    def rows_at(self, moment: float) -> int:
        """How many rows have come in."""
        return max(0, int((moment - self.started_at) * self.rows_per_second))

    def moment_of(self, rows: int) -> float:
        """When so many rows had come in."""
        return self.started_at + rows / self.rows_per_second


@dataclass(frozen=True, slots=True)
class Replays:
    """Makes streams of a session. `rows_per_trigger_max` is of all files together."""

    session: SparkSession
    directory: Path
    store: Path
    arrivals: Arrivals
    rows_per_trigger_max: int

    def flights(self, origins: Sequence[str], columns: Sequence[str]) -> DataFrame:
        """Flights of some origins, by `event_time` and `columns`; the row behind all is there."""
        return self._read([f"flights_{origin.lower()}" for origin in origins], columns)

    def weather(self, columns: Sequence[str]) -> DataFrame:
        """The hours of all origins, as `flights`."""
        return self._read(["weather"], columns)

    def _read(self, names: Sequence[str], columns: Sequence[str]) -> DataFrame:
        paths = [self.directory / data.file_name(name) for name in data.SOURCES]
        reads = [data.SOURCES.index(name) for name in names]
        schema = pq.read_schema(paths[reads[0]])
        options: dict[str, Any] = {
            "paths": "\n".join(map(str, paths)),
            "arrivals": str(self.store / "arrivals"),
            "reads": ",".join(map(str, reads)),
            "eventTime": "event_time",
            "lapSeconds": data.repeat_every_seconds(paths[0]),
            "startedAtMillis": round(self.arrivals.started_at * 1000),
            "rowsPerSecond": self.arrivals.rows_per_second,
            "rowsPerTriggerMax": self.rows_per_trigger_max,
            "end": str(self.store / "end"),
        }
        wanted = [f"{name} {TYPES[schema.field(name).type]}" for name in ("event_time", *columns)]
        reader = self.session.readStream.format("rekindle.ReplaySource").schema(", ".join(wanted))
        return reader.options(**options).load()


def in_time(rows: DataFrame, delay: str = "1 second") -> DataFrame:
    """Rows with a watermark, without the row behind all others.

    Rows of one moment may come in two batches, so a watermark stays a little behind. Spark moves a
    filter below the watermark unless it asks for the time; this one has to stay above.
    """
    marked = rows.withWatermark("event_time", delay)
    return marked.where(sql.col("event_time") < sql.lit(END).cast("timestamp"))


def open_arrivals(directory: Path, store: Path, rows_per_second: float, now: float) -> Arrivals:
    """The arrivals of a run, which begin now unless the store has them already.

    Raises InputError when an input file is missing or was not prepared.
    """
    path = store / "start.json"
    if not path.exists():
        order = _order(directory)
        record = {"version": VERSION, "started_at": now, "rows_per_second": rows_per_second}
        try:
            store.mkdir(parents=True, exist_ok=True)
            write(store / "arrivals", order)
            write(path, json.dumps(record).encode())
        except OSError as error:
            raise InputError(
                where=f"--store {store}",
                what=f"cannot be written ({error.strerror})",
                remedy="name a folder that may be written",
            ) from error
    return arrivals(store)


def arrivals(store: Path) -> Arrivals:
    """The arrivals of a run that has begun."""
    record = json.loads((store / "start.json").read_text())
    return Arrivals(record["started_at"], record["rows_per_second"])


def rows_read(store: Path) -> dict[str, int]:
    """The rows of each source before the end of the input, which has been reached."""
    order = np.frombuffer((store / "arrivals").read_bytes(), dtype=np.uint8)
    laps, rest = divmod(int((store / "end").read_text()), len(order))
    sizes, counts = (
        np.bincount(part, minlength=len(data.SOURCES)) for part in (order, order[:rest])
    )
    return {
        name: int(laps * size + count)
        for name, size, count in zip(data.SOURCES, sizes, counts, strict=True)
    }


def _order(directory: Path) -> bytes:
    """For each row of a lap, in order of event time, the number of its file."""
    times = []
    for name in data.SOURCES:
        path = directory / data.file_name(name)
        data.repeat_every_seconds(path)
        times.append(pq.read_table(path, columns=["event_time"])["event_time"].to_numpy())
    files = np.repeat(np.arange(len(times), dtype=np.uint8), [len(part) for part in times])
    return files[np.argsort(np.concatenate(times), kind="stable")].tobytes()


def write(path: Path, content: bytes) -> None:
    """In one step: who finds the file finds all of it."""
    fresh = path.with_suffix(f".{os.getpid()}.tmp")
    fresh.write_bytes(content)
    fresh.replace(path)
