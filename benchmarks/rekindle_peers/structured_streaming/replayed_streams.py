"""The prepared files as streams of Spark: rows arrive as the clock goes on, whoever reads them.

When rows come in is told by `row_arrivals`: an offset is a number of rows of all files
together. The reading itself is Java (`ReplaySource`). Called by `streaming_driver` and
`streaming_queries`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from rekindle_local.flights import flight_data
from rekindle_local.flights.row_arrivals import RowClock

# The time of the row behind all others, as in `ReplayRows`: watermarks pass everything, no query
# shows it. It is no full hour, or what Spark infers of the hours of a join would drop it too early.
END = "2200-01-01 00:20:00"
TYPES = {pa.timestamp("us"): "TIMESTAMP", pa.string(): "STRING", pa.int64(): "BIGINT"}


@dataclass(frozen=True, slots=True)
class Replays:
    """Makes streams of a session. `rows_per_trigger_max` is of all files together."""

    session: SparkSession
    directory: Path
    store: Path
    arrivals: RowClock
    rows_per_trigger_max: int

    def flights(self, origins: Sequence[str], columns: Sequence[str]) -> DataFrame:
        """Flights of some origins, by `event_time` and `columns`; the row behind all is there."""
        return self._read([f"flights_{origin.lower()}" for origin in origins], columns)

    def weather(self, columns: Sequence[str]) -> DataFrame:
        """The hours of all origins, as `flights`."""
        return self._read(["weather"], columns)

    def _read(self, names: Sequence[str], columns: Sequence[str]) -> DataFrame:
        paths = [self.directory / flight_data.file_name(name) for name in flight_data.SOURCES]
        reads = [flight_data.SOURCES.index(name) for name in names]
        schema = pq.read_schema(paths[reads[0]])
        options: dict[str, Any] = {
            "paths": "\n".join(map(str, paths)),
            "arrivals": str(self.store / "arrivals"),
            "reads": ",".join(map(str, reads)),
            "eventTime": "event_time",
            "lapSeconds": flight_data.repeat_every_seconds(paths[0]),
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
