"""A source without a file: rows that are made of their numbers."""

from dataclasses import dataclass

import pyarrow as pa

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string()), ("size", pa.int64())])
SECOND = 1_000_000


@dataclass
class NumberRows:
    """Row `n` has event time n seconds, key n modulo 5, size n."""

    schema: pa.Schema = SCHEMA
    event_time: str = "at"

    def check(self, step: str) -> None: ...
    def rows_at(self, event_time: int) -> int: ...
    def event_time_at(self, offset: int) -> int: ...

    def read(self, begin: int, end: int) -> pa.Table:
        numbers = range(begin, end)
        return pa.table(
            {
                "at": pa.array([n * SECOND for n in numbers], pa.timestamp("us")),
                "key": pa.array([f"key-{n % 5}" for n in numbers], pa.string()),
                "size": pa.array(numbers, pa.int64()),
            }
        )
