"""Pipelines as a user writes them: named steps from sources to sinks.

    pipeline = Pipeline("flights")
    flights = pipeline.source("flights", Replay("flights.parquet", event_time="departed"))
    late = flights.filter("late", lambda table: pc.greater(table["dep_delay"], 15))
    late.window("late-by-carrier", keys=["carrier"], size_seconds=3600,
                aggregates={"flights": count()}).sink("late-flights", priority=7)

A step is checked when it is added, what a keyed step is given by its operator; cycles and open
ends when the pipeline is built into a program (see `program`). Nothing here runs anything.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from rekindle.model.errors import refuse
from rekindle.model.topology import (
    LAG_GOAL_REMEDY,
    LAG_GOAL_SECONDS_MAX,
    LAG_GOAL_SECONDS_MIN,
    PARALLELISM_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
)
from rekindle_spark.connectors.kafka_sink import KafkaSink
from rekindle_spark.operators import (
    Aggregate,
    IntervalJoin,
    KeyedOperator,
    KeyedStateful,
    StatefulOperator,
    Top,
    WindowAggregate,
    arrow_columns,
)
from rekindle_spark.pipeline import unbounded_source
from rekindle_spark.pipeline.unbounded_source import UnboundedSource
from rekindle_spark.user_code import argument_checks, dead_letter_sieve

TableFunction = Callable[[pa.Table], pa.Table]
MaskFunction = Callable[[pa.Table], Any]
COST_HINT_MIN, COST_HINT_MAX = 0.01, 10_000
# Reports give these to the rows of every query (see `verification`).
REPORTED_COLUMNS = ("epoch", "committed_at")
# What rows in an output of late rows have behind the step's input (see `late_outputs`).
LATE_COLUMNS = (
    pa.field("late_step", pa.string()),
    pa.field("late_epoch", pa.int64()),
    pa.field("late_watermark", pa.timestamp("us")),
)


@runtime_checkable
class Source(Protocol):
    """Where rows come from that are all known: a replay. `offset` counts rows from its start.

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


SOURCE_MEMBERS = ("schema", "event_time", "check", "read", "rows_at", "event_time_at")
UNBOUNDED_MEMBERS = (
    *("schema", "event_time", "terms", "check", "read"),
    *("initial_offsets", "latest_offsets", "commit"),
)


@dataclass(frozen=True, slots=True)
class Step:
    """One named step: `kind` is source, map, filter, union, keyed or sink.

    With `dead_letters`, rows for which its function raises are left out, and kept beside; with
    `late`, rows that come too late for it. One that is not `deterministic` may give something else
    when it runs again on the same input. The rows of a sink go `to` a topic too, and the time in
    which its lag is above `lag_goal_seconds` is counted.
    """

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
    dead_letters: bool = False
    deterministic: bool = True
    late: bool = False
    to: KafkaSink | None = None
    lag_goal_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Stream:
    """The output of a step, to which further steps are attached."""

    pipeline: "Pipeline"
    name: str
    schema: pa.Schema
    event_time: str

    def map(
        self,
        name: str,
        function: TableFunction,
        *,
        schema: pa.Schema,
        event_time: str = "",
        dead_letters: bool = False,
        deterministic: bool = True,
    ) -> "Stream":
        """Apply `function` to each Arrow table; it returns a table with `schema`."""
        where = argument_checks.place("step", name)
        _check_function(f"{where}: function", function)
        time = self.event_time if event_time == "" else event_time
        arrow_columns.check_schema(where, schema, time)
        step = Step(name, "map", (self.name,), 1, function, schema, time)
        return self._add_function(step, dead_letters, deterministic)

    def filter(
        self,
        name: str,
        predicate: MaskFunction,
        *,
        dead_letters: bool = False,
        deterministic: bool = True,
    ) -> "Stream":
        """Keep the rows for which `predicate(table)`, a boolean array, is true."""
        where = argument_checks.place("step", name)
        _check_function(f"{where}: predicate", predicate)
        step = Step(name, "filter", (self.name,), 1, predicate, self.schema, self.event_time)
        return self._add_function(step, dead_letters, deterministic)

    def window(
        self,
        name: str,
        *,
        keys: Sequence[str],
        size_seconds: float,
        aggregates: Mapping[str, Aggregate],
        slide_seconds: float | None = None,
        parallelism: int = 1,
        late: bool = False,
    ) -> "Stream":
        """Aggregate per keys and event-time window; a window closes behind the watermark. With
        `late`, as of all keyed steps, rows that come too late are kept in an output `NAME.late`.
        """
        operator = WindowAggregate(
            name, self.schema, self.event_time, keys, size_seconds, slide_seconds, aggregates
        )
        return self.pipeline.add(self._keyed(name, operator, keys, parallelism, late))

    def top(
        self,
        name: str,
        *,
        by: str,
        count: int,
        keys: Sequence[str] = (),
        ties: Sequence[str] = (),
        parallelism: int = 1,
        late: bool = False,
    ) -> "Stream":
        """Keep the `count` rows with the largest `by` per event time and keys."""
        operator = Top(name, self.schema, self.event_time, by, count, keys, ties)
        return self.pipeline.add(self._keyed(name, operator, keys, parallelism, late))

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
        dead_letters: bool = False,
        deterministic: bool = True,
        late: bool = False,
    ) -> "Stream":
        """Run a custom operator with value state per key, rows in event-time order."""
        time = self.event_time if event_time == "" else event_time
        keyed = KeyedStateful(
            name, self.schema, self.event_time, keys, operator, schema, time, arrival_order
        )
        step = self._keyed(name, keyed, keys, parallelism, late)
        return self._add_function(step, dead_letters, deterministic)

    def join(
        self,
        name: str,
        other: "Stream",
        *,
        keys: Sequence[str],
        within_seconds: float,
        parallelism: int = 1,
        late: bool = False,
    ) -> "Stream":
        """Join with `other`: equal keys, event times at most `within_seconds` apart. With `late`
        there are outputs `NAME.late-left` and `NAME.late-right`."""
        self.pipeline.check_stream(f"{argument_checks.place('step', name)}: other", other)
        operator = IntervalJoin(
            name,
            self.schema,
            other.schema,
            self.event_time,
            other.event_time,
            keys,
            within_seconds,
        )
        return self.pipeline.add(self._keyed(name, operator, keys, parallelism, late, other))

    def sink(
        self,
        name: str,
        *,
        priority: float = 1,
        to: KafkaSink | None = None,
        lag_goal_seconds: float | None = None,
    ) -> None:
        """End in Parquet files, and in a topic where there is one; the sink is a query with a
        priority from 1 to 10. The time in which its output is further behind its input than
        `lag_goal_seconds` is counted; None: it has no goal."""
        where = argument_checks.place("step", name)
        remedy = f"give a number from {PRIORITY_MIN} (least) to {PRIORITY_MAX} (most important)"
        argument_checks.check_number(
            f"{where}: priority", priority, PRIORITY_MIN, PRIORITY_MAX, remedy
        )
        if lag_goal_seconds is not None:
            argument_checks.check_number(
                f"{where}: lag_goal_seconds",
                lag_goal_seconds,
                LAG_GOAL_SECONDS_MIN,
                LAG_GOAL_SECONDS_MAX,
                LAG_GOAL_REMEDY,
            )
        if name.endswith(dead_letter_sieve.ENDING):
            what = "has the name of an output of dead letters"
            refuse(where, what, f"give it one that does not end in {dead_letter_sieve.ENDING}")
        for column in REPORTED_COLUMNS:
            if column in self.schema.names:
                what = "has the name of a column that reports add to a query's rows"
                refuse(f"{where}: column {column!r}", what, "rename it in a map step")
        if to is not None:
            argument_checks.check_kind(f"{where}: to", to, KafkaSink, "give a KafkaSink")
            to.check(f"{where}: to", self.schema)
        step = Step(name, "sink", (self.name,), 1, None, self.schema, self.event_time, (), priority)
        self.pipeline.add(replace(step, to=to, lag_goal_seconds=lag_goal_seconds))

    def _keyed(
        self,
        name: str,
        operator: KeyedOperator,
        keys: Sequence[str],
        parallelism: int,
        late: bool,
        *others: "Stream",
    ) -> Step:
        where = argument_checks.place("step", name)
        argument_checks.check_kind(f"{where}: late", late, bool, "give True or False")
        for stream in (self, *others) if late else ():
            _check_columns(where, stream.schema, LATE_COLUMNS, "late rows get")
        return Step(
            name,
            "keyed",
            tuple(stream.name for stream in (self, *others)),
            parallelism,
            operator,
            operator.output_schema,
            operator.output_event_time,
            tuple(keys),
            late=late,
        )

    def _add_function(self, step: Step, dead_letters: bool, deterministic: bool) -> "Stream":
        """Add a step with a user's function; refuse dead letters with two columns of one name."""
        where = argument_checks.place("step", step.name)
        argument_checks.check_kind(
            f"{where}: dead_letters", dead_letters, bool, "give True or False"
        )
        argument_checks.check_kind(
            f"{where}: deterministic", deterministic, bool, "give True or False"
        )
        if dead_letters:
            _check_columns(where, self.schema, dead_letter_sieve.COLUMNS, "dead letters get")
        step = replace(step, dead_letters=dead_letters, deterministic=deterministic)
        return self.pipeline.add(step)


@dataclass(slots=True)
class Pipeline:
    """A named set of steps. `program.build` turns it into what runs."""

    name: str
    steps: dict[str, Step] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        argument_checks.place("pipeline", self.name)

    def source(
        self,
        name: str,
        source: Source | UnboundedSource,
        *,
        parallelism: int = 1,
        cost_hint: float = 2.0,
        dead_letters: bool = False,
    ) -> Stream:
        """Read `source` in `parallelism` slices; `cost_hint` weighs it until costs are known. With
        `dead_letters` what a source cannot decode is left out, and kept beside.
        """
        where = argument_checks.place("step", name)
        _check_source(where, source)
        argument_checks.check_kind(
            f"{where}: dead_letters", dead_letters, bool, "give True or False"
        )
        if dead_letters and not hasattr(source, "reject_schema"):
            what = "is True, but the source decodes nothing"
            refuse(f"{where}: dead_letters", what, "leave it out")
        arrow_columns.check_schema(where, source.schema, source.event_time)
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
                dead_letters=dead_letters,
            )
        )

    def union(self, name: str, *streams: Stream) -> Stream:
        """Several streams of one schema as the input of a keyed step, in the order given."""
        where = argument_checks.place("step", name)
        if not streams:
            refuse(where, "unites no streams", "give it at least one")
        for number, stream in enumerate(streams, start=1):
            self.check_stream(f"{where}: input {number}", stream)
        first = streams[0]
        for stream in streams:
            if not stream.schema.equals(first.schema) or stream.event_time != first.event_time:
                refuse(
                    f"{where}: input {stream.name}",
                    f"has another schema or event time than {first.name}",
                    "bring the inputs to one schema with map steps",
                )
        inputs = tuple(stream.name for stream in streams)
        return self.add(Step(name, "union", inputs, 1, None, first.schema, first.event_time))

    def add(self, step: Step) -> Stream:
        """Add a step by value; raises InputError for a name that is taken or unusable, and for a
        parallelism or cost hint out of range.
        """
        where = argument_checks.place("step", step.name)
        if step.name in self.steps:
            what, remedy = "is there twice", "give each source, step and sink a name of its own"
            refuse(where, what, remedy)
        argument_checks.check_whole(f"{where}: parallelism", step.parallelism, PARALLELISM_MAX)
        if step.kind == "keyed" and not step.keys and step.parallelism > 1:
            what = f"is {step.parallelism}, but without keys all rows go to one partition"
            refuse(f"{where}: parallelism", what, "give keys, or leave it at 1")
        remedy = f"give a number from {COST_HINT_MIN} to {COST_HINT_MAX:,}"
        argument_checks.check_number(
            f"{where}: cost_hint", step.cost_hint, COST_HINT_MIN, COST_HINT_MAX, remedy
        )
        self.steps[step.name] = step
        return Stream(self, step.name, step.schema, step.event_time)

    def check_stream(self, where: str, stream: object) -> None:
        """Raise InputError for what is not a stream of this pipeline."""
        remedy = "give a stream, which every step but a sink returns"
        argument_checks.check_kind(where, stream, Stream, remedy)
        assert isinstance(stream, Stream)
        if stream.pipeline is not self:
            what = f"is {stream.name!r} of another pipeline, {stream.pipeline.name!r}"
            refuse(where, what, f"give a stream of this one, {self.name!r}")


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


def _check_columns(where: str, schema: pa.Schema, added: Sequence[pa.Field], whose: str) -> None:
    """Refuse a schema with a column of the same name as one that is added."""
    for column in added:
        if column.name in schema.names:
            what = f"has the name of a column that {whose}"
            refuse(f"{where}: column {column.name!r}", what, "rename it before")


def _check_source(where: str, source: Any) -> None:
    """Refuse what is neither kind of source, one that lacks a part of its kind by that."""
    is_replay = not hasattr(source, "latest_offsets")
    members = SOURCE_MEMBERS if is_replay else UNBOUNDED_MEMBERS
    lacks = [name for name in members if not hasattr(source, name)]
    if 0 < len(lacks) < len(members):
        what = f"is {argument_checks.shown(source)}, which has no {' and no '.join(lacks)}"
        kind = "Source" if is_replay else "UnboundedSource"
        refuse(f"{where}: source", what, f"give it all of the protocol {kind}")
    remedy = "give a Replay(path, event_time), or another object of the protocol Source or "
    remedy += "UnboundedSource"
    argument_checks.check_kind(f"{where}: source", source, Source | UnboundedSource, remedy)
    if not is_replay:
        unbounded_source.check_terms(where, source)


def _check_function(where: str, function: object) -> None:
    argument_checks.check_kind(
        where, function, Callable, "give a function that takes an Arrow table"
    )
    argument_checks.check_not_async(where, function)
