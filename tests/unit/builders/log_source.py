"""A source in memory whose future is unknown: rows are appended, and it may be away."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from rekindle.model.errors import SourceAwayError
from rekindle_spark.pipeline.unbounded_source import PartitionOffsets, SourceTerms

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string())])
SECOND = 1_000_000


@dataclass
class Log:
    """Row `n` of a source partition has event time n seconds; `ends` says how many there are."""

    ends: dict[str, int]
    is_away: bool = False
    terms: SourceTerms = field(default_factory=lambda: SourceTerms(patience_seconds=60))
    committed: dict[str, int] = field(default_factory=dict)
    schema: pa.Schema = field(default_factory=lambda: SCHEMA)
    event_time: str = "at"

    def check(self, step: str) -> None: ...

    def initial_offsets(self) -> Mapping[str, int]:
        self._reach()
        return dict.fromkeys(self.ends, 0)

    def latest_offsets(self) -> Mapping[str, PartitionOffsets]:
        self._reach()
        return {name: PartitionOffsets(0, end) for name, end in self.ends.items()}

    def read(self, partition: str, start: int, end: int) -> pa.Table:
        self._reach()
        times = pa.array([n * SECOND for n in range(start, end)], pa.timestamp("us"))
        return pa.table({"at": times, "key": [partition] * (end - start)}, SCHEMA)

    def commit(self, offsets: Mapping[str, int]) -> None:
        self.committed.update(offsets)

    def _reach(self) -> None:
        if self.is_away:
            raise SourceAwayError(where="log", what="is cut off", remedy="wait")
