"""Custom operators with a value per key, after PySpark's transformWithState.

    class Landings(StatefulOperator):
        value_schema = pa.schema([("count", pa.int64())])

        def handle(self, key, rows, value):
            count = value.get()[0] if value.exists() else 0
            for row in rows:
                count += 1
                yield {"tailnum": key[0], "landed": row["event_time"], "count": count}
            value.update((count,))

Rows wait until the watermark has reached their event time, so that `handle` sees a key's rows in
event-time order, however they arrived. Called by `partition`.

What a user derives from for a value per key, and the value of one key.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from types import GeneratorType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from rekindle.model.errors import StepError, refuse
from rekindle_spark.operators import (
    arrow_columns,
    column_types,
    grouping,
    python_rows,
    state_tables,
    watermarks,
)
from rekindle_spark.operators.arrow_columns import Integers, Mask
from rekindle_spark.operators.python_rows import Rows, Value
from rekindle_spark.operators.python_rows import places as readable_places
from rekindle_spark.operators.watermarks import FINAL_WATERMARK, INITIAL_WATERMARK
from rekindle_spark.user_code import argument_checks, code_locations
from rekindle_spark.user_code.dead_letter_sieve import KEYS_NOTED, USERS_ERRORS, Sieve, is_passed_on

Emitted = Mapping[str, Any] | tuple[Any, ...]
# What `handle` mostly returns; asked for each key, and an abstract class answers slowly. So values
# and rows are compared with the types that they mostly have before such a class is asked.
ROWS_TYPES = (GeneratorType, list, tuple)
# What would be a tuple of its letters, its keys or in any order.
NO_VALUES = (str, bytes, Mapping, Set)


class ValueState:
    """The value of one key, a tuple in the order of the operator's `value_schema`."""

    __slots__ = ("_value",)

    def __init__(self, value: Value | None) -> None:
        self._value = value

    def exists(self) -> bool:
        """Whether the key has a value."""
        return self._value is not None

    def get(self) -> Value | None:
        """The value, or None."""
        return self._value

    def update(self, value: Sequence[Any]) -> None:
        """Give the key a value: a tuple in the order of `value_schema`."""
        if type(value) is not tuple and (
            isinstance(value, NO_VALUES) or not isinstance(value, Iterable)
        ):
            raise TypeError(
                f"value.update() was given {_kind(value)}, and needs a tuple with a value for each "
                "column of value_schema, also for a single one: value.update((count,))"
            )
        self._value = tuple(value)

    def clear(self) -> None:
        """Take the key's value away."""
        self._value = None


class StatefulOperator:
    """What a user derives from. One instance serves all keys and threads: keep nothing in it.

    A key's value is dropped after `ttl_seconds` of event time without a row of that key.
    """

    value_schema: pa.Schema
    ttl_seconds: float | None = None

    def handle(
        self, key: tuple[Any, ...], rows: list[dict[str, Any]], value: ValueState
    ) -> Iterable[Emitted]:
        """Take a key's next rows; return rows of the output, as dicts or as tuples in its order.

        How many rows come at once depends on the cut of epochs: treat them one by one. No clock
        and no chance in here: a repeat must give the same rows.
        """
        raise NotImplementedError


LAST = "#last"
ABSENT: tuple[Value | None, int] = (None, INITIAL_WATERMARK)


@dataclass(frozen=True, slots=True)
class KeyedValues:
    """Values by key (`python_rows.identities`) with the event time of the key's last row, and the
    rows that wait.

    Microseconds: the earliest row is due at `due_at`, idle values are looked for at `purge_at`.
    """

    values: dict[Value, tuple[Value, int]]
    waiting: pa.Table
    due_at: int
    purge_at: int
    late_rows: int


@dataclass(frozen=True, slots=True)
class _Due:
    """Rows that are to be handed over, those of a key one after the other: `moments` and `cells`
    by row, of which `as_rows` makes what `handle` is given. What it gives goes to `emitted`.
    `watched` is the sieve where something is known of keys beforehand, or each call is noted."""

    table: pa.Table
    moments: list[int]
    cells: list[Value]
    as_rows: Callable[[list[Value]], Rows]
    sieve: Sieve | None
    watched: Sieve | None
    emitted: list[Value]


class KeyedStateful:
    """Runs a StatefulOperator per key.

    With `arrival_order`, rows do not wait and are not sorted.
    """

    def __init__(
        self,
        name: str,
        input_schema: pa.Schema,
        event_time: str,
        keys: Sequence[str],
        operator: StatefulOperator,
        output_schema: pa.Schema,
        output_event_time: str,
        arrival_order: bool = False,
    ) -> None:
        where = argument_checks.place("step", name)
        arrow_columns.check_event_time(where, input_schema, event_time)
        arrow_columns.check_keys(f"{where}: keys", input_schema, keys, floats=False)
        arrow_columns.check_no_nanoseconds(f"{where}: its input", input_schema)
        arrow_columns.check_schema(where, output_schema, output_event_time)
        column_types.check(f"{where}: its input", input_schema)
        column_types.check(where, output_schema)
        argument_checks.check_kind(
            f"{where}: arrival_order", arrival_order, bool, "give True or False"
        )
        schema = _checked_value_schema(where, operator)
        self.ttl = None
        if operator.ttl_seconds is not None:
            self.ttl = watermarks.duration_microseconds(
                f"{where}: ttl_seconds", operator.ttl_seconds
            )
        self.name, self.event_time, self.keys = name, event_time, tuple(keys)
        self.state_keys = (tuple(f"#key {place}" for place in range(len(keys))), self.keys)
        self.input_schema, self.operator = input_schema, operator
        self.output_schema, self.output_event_time = output_schema, output_event_time
        self.no_output = output_schema.empty_table()
        self.output_names, self.output_name_set = output_schema.names, set(output_schema.names)
        self.arrival_order = arrival_order
        self.zoned = any(getattr(input_schema.field(key).type, "tz", None) for key in keys)
        self.nested = any(kinds.is_nested(column.type) for column in schema)
        fields = [pa.field(f"#value {i}", column.type) for i, column in enumerate(schema)]
        self.value_schema = pa.schema(fields)

    def initial(self) -> KeyedValues:
        waiting = self.input_schema.empty_table()
        return KeyedValues({}, waiting, FINAL_WATERMARK, INITIAL_WATERMARK, 0)

    def process(
        self,
        state: KeyedValues,
        inputs: Sequence[pa.Table],
        previous_watermark: int,
        watermark: int,
        sieve: Sieve | None = None,
    ) -> tuple[KeyedValues, pa.Table]:
        """Take new rows; hand over those with event time up to `watermark`, key by key. Where
        `handle` raises for a key's rows, they go one by one, through `sieve`."""
        rows, late = watermarks.in_time(inputs[0], self.event_time, previous_watermark)
        late_rows = state.late_rows + late
        if rows.num_rows == 0 and not self._is_due(state, watermark):
            values, purge_at = self._purge(state.values, state.purge_at, watermark)
            if values is not state.values or late_rows != state.late_rows:
                state = KeyedValues(values, state.waiting, state.due_at, purge_at, late_rows)
            return state, self.no_output
        rows = state_tables.concatenate([state.waiting, rows])
        moments = watermarks.microseconds(rows[self.event_time])
        due = np.ones(len(moments), bool) if self.arrival_order else moments <= watermark
        values, output = self._handle(state.values, rows, moments, np.flatnonzero(due), sieve)
        values, purge_at = self._purge(values, state.purge_at, watermark)
        waiting = state_tables.select_rows(rows, ~due)
        due_at = int(moments[~due].min()) if waiting.num_rows else FINAL_WATERMARK
        return KeyedValues(values, waiting, due_at, purge_at, late_rows), output

    def is_idle(self, state: KeyedValues, watermark: int) -> bool:
        """Whether up to a watermark no row is due and no value is looked for."""
        return not (
            self._is_due(state, watermark)
            or self._is_purged(state.values, state.purge_at, watermark)
        )

    def late(self, slot: int, rows: pa.Table, previous_watermark: int) -> Mask:  # noqa: ARG002
        """Which rows come after later ones may have been handed over."""
        return watermarks.are_late(watermarks.arriving(rows, self.event_time), previous_watermark)

    def dump(self, state: KeyedValues) -> list[pa.Table]:
        scalars = state_tables.dump_scalars(
            due_at=state.due_at, purge_at=state.purge_at, late_rows=state.late_rows
        )
        lasts = pa.array([last for _, last in state.values.values()], pa.int64())
        held = self._value_table([value for value, _ in state.values.values()])
        keys = list(state.values)
        for place, name in reversed(list(enumerate(self.keys))):
            kind = self.input_schema.field(name).type
            array = pa.array([key[place] for key in keys], kind)
            held = held.add_column(0, pa.field(f"#key {place}", kind), [array])
        return [scalars, held.append_column(LAST, lasts), state.waiting]

    def load(self, dumped: Sequence[pa.Table]) -> KeyedValues:
        scalars, held, waiting = state_tables.load_scalars(dumped[0]), dumped[1], dumped[2]
        count = len(self.keys)
        keys = python_rows.identities(held.columns[:count], held.num_rows)
        values = python_rows.tuples(held.columns[count:-1], held.num_rows)
        pairs = zip(values, held[LAST].to_pylist(), strict=True)
        return KeyedValues(dict(zip(keys, pairs, strict=True)), waiting=waiting, **scalars)

    def state_bytes(self, state: KeyedValues) -> int:
        """Estimated: a value in Python counts 64 bytes, and 200 per key."""
        width = 64 * (len(self.keys) + len(self.value_schema)) + 200
        return int(state.waiting.nbytes) + width * len(state.values)

    def _handle(
        self,
        values: dict[Value, tuple[Value, int]],
        rows: pa.Table,
        moments: Integers,
        due: Integers,
        sieve: Sieve | None,
    ) -> tuple[dict[Value, tuple[Value, int]], pa.Table]:
        if len(due) == 0:
            return values, self.no_output
        keys = [arrow_columns.whole(rows[key]).take(pa.array(due)) for key in self.keys]
        groups = grouping.group(keys, len(due))
        levels = (groups.ids,) if self.arrival_order else (moments[due], groups.ids)
        order = np.lexsort(levels)
        ordered = state_tables.select_rows(rows, due[order])
        try:
            cells = python_rows.tuples(ordered.columns, len(due))
        except Exception as error:
            due = readable_places(rows, due, sieve, error)
            return self._handle(values, rows, moments, due, sieve)
        moments, ids = moments[due[order]], groups.ids[order]
        begins = np.flatnonzero(np.diff(ids, prepend=-1))
        newest: list[int] = np.maximum.reduceat(moments, begins).tolist()
        heads = [arrow_columns.take(key, groups.first) for key in keys]
        names = python_rows.tuples(heads, groups.count)
        found_by = python_rows.identities(heads, groups.count) if self.zoned else names
        as_dicts = python_rows.as_dicts(tuple(self.input_schema.names))
        watched = sieve if sieve is not None and sieve.is_watched else None
        given = _Due(ordered, moments.tolist(), cells, as_dicts, sieve, watched, [])
        changed = dict(values)
        spans = pairwise([*begins.tolist(), len(ids)])
        by_key = zip(names, found_by, spans, newest, strict=True)
        for number, (key, identity, span, moment) in enumerate(by_key):
            if sieve is not None and number % KEYS_NOTED == 0:
                sieve.progress()
            value, last = values.get(identity, ABSENT)
            for piece in (span,) if self.ttl is None else self._pieces(given.moments, span, last):
                value = None if piece is None else self._hand_over(key, given, piece, value)
            if value is not None:
                changed[identity] = (value, max(last, moment))
            else:
                changed.pop(identity, None)
        self._settle(found_by, changed)
        return changed, self._output(given.emitted)

    def _hand_over(
        self, key: Value, due: _Due, span: tuple[int, int], value: Value | None
    ) -> Value | None:
        """A key's value after a span of its rows: one by one where they raise together."""
        if due.watched is not None:
            known = due.watched.known
            if known is not None and known.divides(span):
                return self._hand_over_alone(key, due, span, value, None)
            ended = due.watched.known_end()
            if ended is not None:
                return self._hand_over_alone(key, due, span, value, ended)
        emitted, width, before = due.emitted, len(self.output_names), len(due.emitted)
        state = ValueState(deepcopy(value) if self.nested else value)
        rows = due.as_rows(due.cells[slice(*span)])
        try:
            given = self.operator.handle(key, rows, state)
            if type(given) not in ROWS_TYPES:
                given = self._rows_of(given)
            for row in given:
                if isinstance(row, tuple) and len(row) == width:
                    emitted.append(row)
                else:
                    emitted.append(self._emitted(row))
        except USERS_ERRORS as error:
            if is_passed_on(error):
                raise
            del emitted[before:]
            return self._hand_over_alone(key, due, span, value, error)
        return state.get()

    def _hand_over_alone(
        self,
        key: Value,
        due: _Due,
        span: tuple[int, int],
        value: Value | None,
        raised: BaseException | None,
    ) -> Value | None:
        """A key's value after its rows one by one, without those that raise; None: they were taken
        so in an epoch that is committed."""
        if due.sieve is None:
            assert raised is not None, "what is taken one by one has raised"
            raise raised
        if raised is not None and due.sieve.known is not None:
            due.sieve.refuse(raised)
        divided = False
        for place in range(*span):
            row = due.table.slice(place, 1)
            # cells anew for each call: the one before may have changed them
            call = partial(self._called, key, row, due, value)
            result, error = due.sieve.alone(row, call, place=place)
            if error is None:
                value, rows = result
                due.emitted.extend(rows)
            divided = divided or error is not None
        if not divided and raised is not None:
            due.sieve.together(raised)
        return value

    def _called(
        self, key: Value, row: pa.Table, due: _Due, value: Value | None
    ) -> tuple[Value | None, list[Value]]:
        """A key's value after one row, and what is emitted for it."""
        state = ValueState(deepcopy(value) if self.nested else value)
        rows = due.as_rows(python_rows.tuples(row.columns, row.num_rows))
        given = self._rows_of(self.operator.handle(key, rows, state))
        # first all rows, for `handle` may be a generator, which sets the value as it goes on
        emitted = [self._emitted(one) for one in given]
        return state.get(), emitted

    def _rows_of(self, given: Any) -> Iterable[Emitted]:
        """What `handle` has returned, as rows; without any it may return nothing, or False."""
        if given is None or given is False:
            return ()
        if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
            raise self._misfit(f"{_kind(given)} was returned instead of a list of rows")
        return given

    def _pieces(
        self, moments: list[int], span: tuple[int, int], last: int
    ) -> Iterable[tuple[int, int] | None]:
        """A key's span in pieces, None where its value has run out."""
        assert self.ttl is not None
        begin = span[0]
        for place in range(*span):
            if last + self.ttl < moments[place]:
                if place > begin:
                    yield begin, place
                yield None
                begin = place
            last = max(last, moments[place])
        yield begin, span[1]

    def _settle(self, keys: list[Value], values: dict[Value, tuple[Value, int]]) -> None:
        """Give new values the exact form that a checkpoint would give them; `values` changes."""
        written = [key for key in keys if key in values]
        given = [values[key][0] for key in written]
        table = self._value_table(given)
        if python_rows.are_exact(given, table.schema):
            return
        exact = python_rows.tuples(table.columns, len(written))
        for key, value in zip(written, exact, strict=True):
            values[key] = (value, values[key][1])

    def _is_due(self, state: KeyedValues, watermark: int) -> bool:
        return state.waiting.num_rows > 0 and watermark >= state.due_at

    def _is_purged(
        self, values: Mapping[Value, tuple[Value, int]], purge_at: int, watermark: int
    ) -> bool:
        return self.ttl is not None and bool(values) and watermark >= purge_at

    def _purge(
        self, values: dict[Value, tuple[Value, int]], purge_at: int, watermark: int
    ) -> tuple[dict[Value, tuple[Value, int]], int]:
        """Drop idle values, now and then: `_pieces` passes over them in any case."""
        if self.ttl is None or not self._is_purged(values, purge_at, watermark):
            return values, purge_at
        held = {key: pair for key, pair in values.items() if pair[1] + self.ttl > watermark}
        return held, min(watermark + max(1, self.ttl // 4), FINAL_WATERMARK)

    def _value_table(self, values: list[Value]) -> pa.Table:
        width = len(self.value_schema)
        for value in values:
            if len(value) != width:
                raise self._misfit(f"a value has {len(value)} fields instead of {width}")
        lists = zip(*values, strict=True) if values else [()] * width
        return self._table(self.value_schema, list(lists), "the value of a key")

    def _output(self, emitted: list[Value]) -> pa.Table:
        if not emitted:
            return self.no_output
        cells = list(zip(*emitted, strict=True))
        return self._table(self.output_schema, cells, "an emitted row")

    def _emitted(self, row: Emitted) -> Value:
        """A row as a tuple: at once, as the user may go on to fill the same dict again."""
        if isinstance(row, tuple) and len(row) == len(self.output_names):
            return row
        if (
            type(row) is dict or isinstance(row, Mapping)  # the first costs a third of the second
        ) and row.keys() == self.output_name_set:
            return tuple([row[name] for name in self.output_names])
        names = ", ".join(self.output_names)
        found = f"is {_kind(row)} and no dict or tuple"
        if isinstance(row, Mapping):
            found = f"has columns {sorted(map(str, row))} instead of {names}"
        elif isinstance(row, tuple):
            found = f"has {len(row)} values instead of {len(self.output_names)} ({names})"
        raise self._misfit(f"an emitted row {found}")

    def _table(self, schema: pa.Schema, lists: list[Any], what: str) -> pa.Table:
        arrays = []
        for field, values in zip(schema, lists, strict=True):
            try:
                array = python_rows.typed(values, field.type)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise self._misfit(f"{what} does not fit {field}: {error}") from error
            if not field.nullable and array.null_count:
                raise self._misfit(f"{what} has a null where the schema says {field}")
            arrays.append(array)
        return pa.Table.from_arrays(arrays, schema=schema)

    def _misfit(self, what: str) -> StepError:
        function = code_locations.defined_at(self.operator.handle)
        return StepError(
            where=f"step {self.name}",
            what=f"{what}, by {function}" if function else what,
            remedy=f"make {type(self.operator).__name__}.handle keep to the declared schema",
        )


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _checked_value_schema(where: str, operator: object) -> pa.Schema:
    remedy = "derive its class from StatefulOperator"
    if isinstance(operator, type):
        remedy = f"give an instance, {operator.__name__}()"
    argument_checks.check_kind(f"{where}: operator", operator, StatefulOperator, remedy)
    schema = getattr(operator, "value_schema", None)
    if not isinstance(schema, pa.Schema):
        what, remedy = "has no value_schema", "give it the Arrow schema of a key's value"
        refuse(f"{where}: {type(operator).__name__}", what, remedy)
    assert isinstance(operator, StatefulOperator)
    argument_checks.check_not_async(f"{where}: {type(operator).__name__}.handle", operator.handle)
    if type(operator).handle is StatefulOperator.handle:
        remedy = "write handle(self, key, rows, value), which returns a list of rows"
        refuse(f"{where}: {type(operator).__name__}", "has no method handle", remedy)
    arrow_columns.check_no_nanoseconds(f"{where}: value_schema", schema)
    column_types.check(f"{where}: value_schema", schema)
    return schema
