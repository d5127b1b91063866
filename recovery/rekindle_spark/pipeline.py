"""Pipelines as a user writes them: named steps from sources to sinks.

    pipeline = Pipeline("flights")
    flights = pipeline.source("flights", Replay("flights.parquet", event_time="departed"))
    late = flights.filter("late", lambda table: pc.greater(table["dep_delay"], 15))
    late.window("late-by-carrier", keys=["carrier"], size_seconds=3600,
                aggregates={"flights": count()}).sink("late-flights", priority=7)

A step is checked when it is added; cycles and open ends when the pipeline is built into a
program (see `program`). Nothing here runs anything.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from rekindle.errors import InputError
from rekindle_spark.operators import (
    Aggregate,
    IntervalJoin,
    KeyedOperator,
    KeyedStateful,
    StatefulOperator,
    Top,
    WindowAggregate,
)

__all__ = ["Pipeline", "Source", "Step", "Stream", "count", "largest", "mean", "smallest", "total"]

TableFunction = Callable[[pa.Table], pa.Table]
MaskFunction = Callable[[pa.Table], Any]


class Source(Protocol):
    """Where rows come from. `offset` counts rows from the start of the source.

    `schema` has a timestamp("us") column named `event_time`; `read` gives rows
    [begin, end) in the one order that never changes; `rows_at` tells how many rows there are
    up to an event time in microseconds; `event_time_at` the event time of row `offset`.
    """

    schema: pa.Schema
    event_time: str

    def check(self, step: str) -> None: ...
    def read(self, begin: int, end: int) -> pa.Table: ...
    def rows_at(self, event_time: int) -> int: ...
    def event_time_at(self, offset: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Step:
    """One named step: `kind` is source, map, filter, union, keyed or sink."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    parallelism: int = 1
    function: Any = None
    schema: pa.Schema | None = None
    event_time: str = ""
    keys: tuple[str, ...] = ()
    priority: float = 1.0
    cost_hint: float = 1.0


@dataclass(frozen=True, slots=True)
class Stream:
    """The output of a step, to which further steps are attached."""

    pipeline: "Pipeline"
    name: str
    schema: pa.Schema
    event_time: str

    def map(
        self, name: str, function: TableFunction, *, schema: pa.Schema, event_time: str = ""
    ) -> "Stream":
        """Apply `function` to each Arrow table; it returns a table with `schema`."""
        time = event_time or self.event_time
        _check_event_time(name, schema, time)
        return self.pipeline.add(Step(name, "map", (self.name,), 1, function, schema, time))

    def filter(self, name: str, predicate: MaskFunction) -> "Stream":
        """Keep the rows for which `predicate(table)`, a boolean array, is true."""
        step = Step(name, "filter", (self.name,), 1, predicate, self.schema, self.event_time)
        return self.pipeline.add(step)

    def window(
        self,
        name: str,
        *,
        keys: Sequence[str],
        size_seconds: float,
        aggregates: Mapping[str, Aggregate],
        slide_seconds: float | None = None,
        parallelism: int = 1,
    ) -> "Stream":
        """Aggregate per keys and event-time window; a window closes behind the watermark."""
        _check_columns(name, self.schema, keys)
        operator = WindowAggregate(
            name, self.schema, self.event_time, keys, size_seconds, slide_seconds, aggregates
        )
        return self._keyed(name, operator, keys, parallelism)

    def top(
        self,
        name: str,
        *,
        by: str,
        count: int,
        keys: Sequence[str] = (),
        ties: Sequence[str] = (),
        parallelism: int = 1,
    ) -> "Stream":
        """Keep the `count` rows with the largest `by` per event time and keys."""
        _check_columns(name, self.schema, [by, *keys, *ties])
        operator = Top(name, self.schema, self.event_time, by, count, keys, ties)
        return self._keyed(name, operator, keys, parallelism)

    def stateful(
        self,
        name: str,
        operator: StatefulOperator,
        *,
        keys: Sequence[str],
        schema: pa.Schema,
        event_time: str = "",
        parallelism: int = 1,
        arrival_order: bool = False,
    ) -> "Stream":
        """Run a custom operator with value state per key, rows in event-time order."""
        _check_columns(name, self.schema, keys)
        time = event_time or self.event_time
        _check_event_time(name, schema, time)
        keyed = KeyedStateful(
            name, self.schema, self.event_time, keys, operator, schema, time, arrival_order
        )
        return self._keyed(name, keyed, keys, parallelism)

    def join(
        self,
        name: str,
        other: "Stream",
        *,
        keys: Sequence[str],
        within_seconds: float,
        parallelism: int = 1,
    ) -> "Stream":
        """Join with `other`: equal keys, event times at most `within_seconds` apart."""
        _check_columns(name, self.schema, keys)
        _check_columns(name, other.schema, keys)
        operator = IntervalJoin(
            name,
            self.schema,
            other.schema,
            self.event_time,
            other.event_time,
            keys,
            within_seconds,
        )
        return self._keyed(name, operator, keys, parallelism, (self.name, other.name))

    def sink(self, name: str, *, priority: float = 1) -> None:
        """End in Parquet files; the sink is a query with a priority from 1 to 10."""
        if not isinstance(priority, int | float) or not 1 <= priority <= 10:
            raise InputError(
                where=f"step {name}: priority",
                what=f"is {priority!r}",
                remedy="give a number from 1 (least) to 10 (most important)",
            )
        self.pipeline.add(
            Step(name, "sink", (self.name,), 1, None, self.schema, self.event_time, (), priority)
        )

    def _keyed(
        self,
        name: str,
        operator: KeyedOperator,
        keys: Sequence[str],
        parallelism: int,
        inputs: tuple[str, ...] = (),
    ) -> "Stream":
        return self.pipeline.add(
            Step(
                name,
                "keyed",
                inputs or (self.name,),
                parallelism,
                operator,
                operator.output_schema,
                operator.output_event_time,
                tuple(keys),
            )
        )


@dataclass(slots=True)
class Pipeline:
    """A named set of steps. `program.build` turns it into what runs."""

    name: str
    steps: dict[str, Step] = field(default_factory=dict)

    def source(
        self, name: str, source: Source, *, parallelism: int = 1, cost_hint: float = 2.0
    ) -> Stream:
        """Read `source` in `parallelism` slices; `cost_hint` weighs it until costs are known."""
        _check_event_time(name, source.schema, source.event_time)
        source.check(name)
        return self.add(
            Step(
                name,
                "source",
                (),
                parallelism,
                source,
                source.schema,
                source.event_time,
                cost_hint=cost_hint,
            )
        )

    def union(self, name: str, *streams: Stream) -> Stream:
        """Several streams of one schema as the input of a keyed step, in the order given."""
        first = streams[0]
        for stream in streams:
            if not stream.schema.equals(first.schema) or stream.event_time != first.event_time:
                raise InputError(
                    where=f"step {name}: input {stream.name}",
                    what=f"has another schema or event time than {first.name}",
                    remedy="bring the inputs to one schema with map steps",
                )
        inputs = tuple(stream.name for stream in streams)
        return self.add(Step(name, "union", inputs, 1, None, first.schema, first.event_time))

    def add(self, step: Step) -> Stream:
        """Add a step by value; raises InputError for a second step of the same name."""
        if step.name in self.steps:
            raise InputError(
                where=f"step {step.name}",
                what="is there twice",
                remedy="give each step of the pipeline a name of its own",
            )
        if not step.name or "/" in step.name or step.name.startswith("."):
            raise InputError(
                where=f"step {step.name!r}",
                what="is no usable name",
                remedy="use letters, digits, '-' and '_'",
            )
        if step.parallelism < 1:
            raise InputError(
                where=f"step {step.name}: parallelism",
                what=f"is {step.parallelism}",
                remedy="give a whole number from 1",
            )
        self.steps[step.name] = step
        return Stream(self, step.name, step.schema, step.event_time)


def count() -> Aggregate:
    """Number of rows."""
    return Aggregate("count", None)


def total(column: str) -> Aggregate:
    """Sum of a column."""
    return Aggregate("sum", column)


def mean(column: str) -> Aggregate:
    """Mean of a column."""
    return Aggregate("mean", column)


def smallest(column: str) -> Aggregate:
    """Minimum of a column."""
    return Aggregate("min", column)


def largest(column: str) -> Aggregate:
    """Maximum of a column."""
    return Aggregate("max", column)


def _check_columns(step: str, schema: pa.Schema, columns: Sequence[str]) -> None:
    for column in columns:
        if column not in schema.names:
            raise InputError(
                where=f"step {step}",
                what=f"there is no column {column!r}",
                remedy=f"name one of its input's columns: {', '.join(schema.names)}",
            )


def _check_event_time(step: str, schema: pa.Schema, column: str) -> None:
    _check_columns(step, schema, [column])
    if schema.field(column).type != pa.timestamp("us"):
        raise InputError(
            where=f"step {step}: event time {column!r}",
            what=f"has type {schema.field(column).type}",
            remedy="make it timestamp[us]",
        )
