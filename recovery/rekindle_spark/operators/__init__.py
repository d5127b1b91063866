"""Keyed operators on Arrow data: one call per operator partition and epoch.

    windows          event-time windows, aggregated before the exchange and merged behind it
    aggregates       aggregates of windows, in two halves
    top_rows         the largest rows per event time
    joins            rows of two inputs whose event times lie close together
    stateful         custom operators with a value per key
    row_hash         which partition a row belongs to
    column_types     which types columns have, and layouts of the same values
    arrow_columns    Arrow columns as numpy and Python values, checks of columns
    python_rows      Arrow columns as rows of Python values, and back
    grouping         rows with equal keys, rows in order
    state_tables     states as tables and back
    watermarks       watermarks and event times in microseconds

Pure: no clock, no chance, no I/O. The same state and the same input, rows in the same order, give
the same state and the same output on every machine. A state is never changed: any older one may
be used again, and several threads may use one operator at a time. Called by `partition`.
"""

from collections.abc import Hashable, Sequence
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from rekindle_spark.operators.aggregates import Aggregate
from rekindle_spark.operators.arrow_columns import Mask
from rekindle_spark.operators.joins import IntervalJoin
from rekindle_spark.operators.stateful import KeyedStateful, StatefulOperator, ValueState
from rekindle_spark.operators.top_rows import Top
from rekindle_spark.operators.watermarks import FINAL_WATERMARK, INITIAL_WATERMARK
from rekindle_spark.operators.windows import WindowAggregate

__all__ = [
    "FINAL_WATERMARK",
    "INITIAL_WATERMARK",
    "Aggregate",
    "CombiningOperator",
    "IntervalJoin",
    "KeyedOperator",
    "KeyedStateful",
    "StatefulOperator",
    "Top",
    "ValueState",
    "WindowAggregate",
]


@runtime_checkable
class KeyedOperator(Protocol):
    """An operator whose rows come partitioned by key. States are picklable values.

    `process` takes one table per input slot, rows in the order (source operator, source
    partition, sequence). Watermarks are in microseconds since 1970: no row with event time at
    most `watermark` comes in later epochs, and rows at most `previous_watermark`, or without
    event time, are late: dropped and counted in the state's `late_rows`. `late` finds them among
    an input's rows, as they were before `combine`. FINAL_WATERMARK closes everything.

    `is_idle` says whether an epoch without rows that ends at a watermark changes nothing: `process`
    would return the very state and no rows, and call no user's function.

    `dump` and `load` turn a state into tables for a checkpoint and back: whole numbers, then rows,
    whose keys are in the columns that `state_keys` names for each of these tables.
    """

    output_schema: pa.Schema
    output_event_time: str

    @property
    def state_keys(self) -> tuple[tuple[str, ...], ...]: ...

    def initial(self) -> Any: ...
    def process(
        self, state: Any, inputs: Sequence[pa.Table], previous_watermark: int, watermark: int
    ) -> tuple[Any, pa.Table]: ...
    def is_idle(self, state: Any, watermark: int) -> bool: ...
    def late(self, slot: int, rows: pa.Table, previous_watermark: int) -> Mask: ...
    def dump(self, state: Any) -> list[pa.Table]: ...
    def load(self, tables: Sequence[pa.Table]) -> Any: ...
    def state_bytes(self, state: Any) -> int: ...


@runtime_checkable
class CombiningOperator(KeyedOperator, Protocol):
    """A keyed operator whose rows can be reduced at the producer, before the exchange.

    `combine` takes one producer's rows of one epoch; `process` then takes what it returns, in
    `combined_schema`. Operators with equal `combining` make the same of the same rows.
    """

    combined_schema: pa.Schema

    @property
    def combining(self) -> Hashable: ...

    def combine(self, table: pa.Table) -> pa.Table: ...
