"""Custom operators see each key's rows in event-time order, however the input is cut."""

import pickle
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rekindle.model.errors import InputError, StepError
from rekindle_spark.operators import (
    FINAL_WATERMARK,
    INITIAL_WATERMARK,
    KeyedOperator,
    KeyedStateful,
    StatefulOperator,
    ValueState,
)
from rekindle_spark.operators import stateful as stateful_module
from rekindle_spark.user_code.dead_letter_sieve import Sieve, Tolerance

SECOND = 1_000_000
SCHEMA = pa.schema(
    [
        ("event_time", pa.timestamp("us")),
        ("tailnum", pa.string()),
        ("engine", pa.float64()),
        ("number", pa.int64()),
    ]
)
OUTPUT = pa.schema(
    [
        pa.field("event_time", pa.timestamp("us")),
        pa.field("tailnum", pa.string()),
        pa.field("trail", pa.string(), nullable=False),
        pa.field("total", pa.int64()),
    ]
)
# seconds, tail number, engine, number
Row = tuple[int, str | None, float | None, int | None]


class Trail(StatefulOperator):
    """Emits with each row what its key has seen so far; a negative number clears it."""

    value_schema = pa.schema([("trail", pa.string()), ("total", pa.int64())])

    def handle(
        self, key: tuple[Any, ...], rows: list[dict[str, Any]], value: ValueState
    ) -> Iterator[dict[str, Any]]:
        for row in rows:
            trail, total = value.get() or ("", 0)
            trail, total = f"{trail}{row['number']},", total + 1
            if row["number"] is not None and row["number"] < 0:
                value.clear()
            else:
                value.update((trail, total))
            time = row["event_time"]
            yield {"event_time": time, "tailnum": key[0], "total": total, "trail": trail}


class Total(Trail):
    """The same without the key in the output, so that any keys will do."""

    def handle(
        self, key: tuple[Any, ...], rows: list[dict[str, Any]], value: ValueState
    ) -> Iterator[dict[str, Any]]:
        yield from super().handle((str(key), *key), rows, value)


class ShortTrail(Trail):
    ttl_seconds = 5


def moment(seconds: int) -> datetime:
    return datetime(1970, 1, 1) + timedelta(seconds=seconds)


def table(rows: list[Row]) -> pa.Table:
    lists = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    return pa.table([[moment(row) for row in lists[0]], *lists[1:]], schema=SCHEMA)


def stateful(
    operator: StatefulOperator | None = None,
    keys: tuple[str, ...] = ("tailnum",),
    arrival_order: bool = False,
) -> KeyedStateful:
    custom = operator or Trail()
    return KeyedStateful(
        "trail", SCHEMA, "event_time", keys, custom, OUTPUT, "event_time", arrival_order
    )


def run(operator: KeyedStateful, epochs: list[tuple[list[Row], int]]) -> tuple[list[Any], Any]:
    """All output rows, and the last state. Every version of the state is used twice."""
    state, previous, output = operator.initial(), INITIAL_WATERMARK, []
    kept = []
    for rows, watermark in epochs:
        inputs = [table(rows)]
        after, emitted = operator.process(state, inputs, previous, watermark)
        kept.append((state, inputs, previous, watermark, after, emitted))
        output += [tuple(row.values()) for row in emitted.to_pylist()]
        state, previous = operator.load(operator.dump(after)), watermark
        assert state == after
        assert list(state.values) == list(after.values)
        state = pickle.loads(pickle.dumps(state))
    for state_before, inputs, before, watermark, after, emitted in kept:
        assert operator.process(state_before, inputs, before, watermark) == (after, emitted)
    return output, state


def batch(rows: list[Row], ttl: int | None = None) -> list[tuple[Any, ...]]:
    """The trails in plain Python, one row at a time."""
    output, seen, last = [], dict[Any, list[Row]](), dict[Any, int]()
    for row in sorted(rows, key=lambda row: row[0]):
        key = row[1]
        if ttl is not None and row[0] > last.get(key, row[0]) + ttl:
            seen.pop(key)
        last[key] = row[0]
        history = seen.setdefault(key, [])
        history.append(row)
        trail = "".join(f"{past[3]}," for past in history)
        output.append((moment(row[0]), key, trail, len(history)))
        if row[3] is not None and row[3] < 0:
            history.clear()
    return output


def by_key(output: list[tuple[Any, ...]]) -> dict[Any, list[tuple[Any, ...]]]:
    keys = {row[1] for row in output}
    return {key: [row for row in output if row[1] == key] for key in keys}


ROWS = st.lists(
    st.tuples(
        st.integers(-20, 20),
        st.sampled_from(["N1", "N2", "N3", None]),
        st.none(),
        st.one_of(st.none(), st.integers(-2, 99)),
    ),
    max_size=30,
)


@st.composite
def cut_into_epochs(draw: st.DrawFn, rows: list[Row]) -> list[tuple[list[Row], int]]:
    """Cut rows anywhere, with watermarks that no later row is behind."""
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    epochs, watermark = [], INITIAL_WATERMARK
    for begin, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        rest = [row[0] for row in rows[end:]]
        if rest:
            watermark = max(watermark, min(rest) * SECOND - draw(st.integers(1, 5 * SECOND)))
        epochs.append((rows[begin:end], watermark))
    return [*epochs, ([], FINAL_WATERMARK)]


@pytest.mark.parametrize(("custom", "ttl"), [(Trail(), None), (ShortTrail(), 5)])
@settings(max_examples=60)
@given(data=st.data(), rows=ROWS)
def test_each_key_sees_its_rows_in_event_time_order_however_the_input_is_cut(
    custom: StatefulOperator, ttl: int | None, data: st.DataObject, rows: list[Row]
) -> None:
    epochs = data.draw(cut_into_epochs(rows))
    output, state = run(stateful(custom), epochs)
    assert by_key(output) == by_key(batch(rows, ttl))
    assert (state.waiting.num_rows, state.late_rows) == (0, 0)
    if ttl is not None:
        assert state.values == {}


def test_in_arrival_order_rows_neither_wait_nor_are_sorted() -> None:
    rows: list[Row] = [(9, "N1", None, 1), (3, "N1", None, 2)]
    output, state = run(stateful(arrival_order=True), [(rows, 0)])
    assert [row[2] for row in output] == ["1,", "1,2,"]
    assert state.waiting.num_rows == 0


def test_rows_wait_for_the_watermark_and_late_ones_are_counted() -> None:
    early: list[Row] = [(3, "N1", None, 1), (9, "N1", None, 2)]
    late: list[Row] = [(2, "N1", None, 3), (3, "N1", None, 4)]
    output, state = run(stateful(), [(early, 3 * SECOND), (late, 4 * SECOND)])
    assert [row[2] for row in output] == ["1,"]
    assert (state.waiting.num_rows, state.late_rows) == (1, 2)


def test_a_value_lasts_to_its_last_microsecond_within_an_epoch_and_across_epochs() -> None:
    rows: list[Row] = [(second, "N1", None, second) for second in (0, 5, 10, 16)]
    one_by_one = [([row], row[0] * SECOND) for row in rows]
    two_by_two = [(rows[:2], 5 * SECOND), (rows[2:], 16 * SECOND)]
    for epochs in ([(rows, FINAL_WATERMARK)], one_by_one, two_by_two):
        output, _ = run(stateful(ShortTrail()), epochs)
        assert [row[2] for row in output] == ["0,", "0,5,", "0,5,10,", "16,"]


def test_in_arrival_order_a_row_from_before_does_not_shorten_the_life_of_a_value() -> None:
    operator = stateful(ShortTrail(), arrival_order=True)
    first: list[Row] = [(10, "N1", None, 1), (7, "N1", None, 2)]
    output, _ = run(operator, [(first, 5), ([(15, "N1", None, 3)], 6)])
    assert [row[2] for row in output] == ["1,", "1,2,", "1,2,3,"]
    output, _ = run(operator, [(first[:1], 5), (first[1:], 5), ([(15, "N1", None, 3)], 6)])
    assert [row[2] for row in output] == ["1,", "1,2,", "1,2,3,"]


def test_values_of_idle_keys_are_dropped() -> None:
    epochs = [([(i, f"N{i}", None, i)], i * SECOND) for i in range(100)]
    _, state = run(stateful(ShortTrail()), epochs)
    assert len(state.values) < 10
    _, state = run(stateful(), epochs)
    assert len(state.values) == 100


def test_keys_may_be_null_or_several_columns_or_none_at_all() -> None:
    rows: list[Row] = [(1, "N1", None, 1), (2, None, None, 2), (3, "N1", None, 1)]
    rows += [(4, None, None, 2), (5, "N1", None, None)]
    for keys, trails in {
        ("tailnum", "number"): ["1,", "1,1,", "2,", "2,2,", "None,"],
        (): ["1,", "1,2,", "1,2,1,", "1,2,1,2,", "1,2,1,2,None,"],
    }.items():
        epochs = [(rows[:2], 2 * SECOND), (rows[2:], 9 * SECOND)]
        output, _ = run(stateful(Total(), keys), epochs)
        assert sorted(row[2] for row in output) == sorted(trails)


class Journal(StatefulOperator):
    """Changes its value in place, as it should not, and reuses the dict that it emits."""

    value_schema = pa.schema([("numbers", pa.list_(pa.int64()))])

    def handle(
        self, key: tuple[Any, ...], rows: list[dict[str, Any]], value: ValueState
    ) -> Iterator[dict[str, Any]]:
        (numbers,) = value.get() or ([],)
        emitted = {"tailnum": key[0], "trail": ""}
        for row in rows:
            numbers.append(row["number"])
            emitted |= {"event_time": row["event_time"], "total": row["number"]}
            yield emitted
        value.update((numbers,))


def test_an_operator_that_changes_values_in_place_harms_no_older_state() -> None:
    epochs: list[tuple[list[Row], int]] = [
        ([(1, "N1", None, 1), (2, "N1", None, 2)], 2 * SECOND),
        ([(3, "N1", None, 3)], 3 * SECOND),
    ]
    output, state = run(stateful(Journal()), epochs)
    assert [row[3] for row in output] == [1, 2, 3]
    assert state.values == {("N1",): (([1, 2, 3],), 3 * SECOND)}


class Emitting(StatefulOperator):
    """Emits what it is told, and keeps the value that it is told."""

    value_schema = pa.schema([("number", pa.float32())])

    def __init__(self, rows: Any, value: tuple[Any, ...] = (0.1,)) -> None:
        self.rows, self.value = rows, value

    def handle(self, _key: Any, _rows: Any, value: ValueState) -> Any:
        value.update(self.value)
        return self.rows


ONE: list[tuple[list[Row], int]] = [([(1, "N1", None, 1)], FINAL_WATERMARK)]
GOOD = (moment(1), "N1", "x", 1)


def test_an_operator_may_emit_tuples_or_nothing_and_a_value_is_what_a_checkpoint_holds() -> None:
    output, state = run(stateful(Emitting([GOOD])), ONE)
    assert output == [GOOD]
    ((value, _),) = state.values.values()
    assert value == (0.10000000149011612,)
    assert run(stateful(Emitting(None)), ONE)[0] == []


GOOD_ROW = {"event_time": moment(1), "plane": "N1"}


@pytest.mark.parametrize(
    ("rows", "value", "message"),
    [
        ([GOOD[:3]], (1.0,), "an emitted row has 3 values instead of 4 \\(event_time, "),
        ([GOOD_ROW], (1.0,), "has columns .*'plane'\\] instead of event_time, "),
        ([["list"]], (1.0,), "an emitted row is a list and no dict or tuple"),
        (GOOD_ROW, (1.0,), "a dict was returned instead of a list of rows, by handle \\(.*:[0-9]+"),
        (3, (1.0,), "an int was returned instead of a list of rows, by handle"),
        ("rows", (1.0,), "a str was returned instead of a list of rows"),
        ([(*GOOD[:3], 1.5)], (1.0,), "an emitted row does not fit pyarrow.Field<total: int64>"),
        ([(*GOOD[:3], "12")], (1.0,), "does not fit pyarrow.Field<total: int64>: found '12'"),
        ([(*GOOD[:3], True)], (1.0,), "does not fit pyarrow.Field<total: int64>: found True"),
        ([GOOD, (*GOOD[:3], True)], (1.0,), "does not fit .* found True"),
        ([(1, 2, "x", 1)], (1.0,), "does not fit pyarrow.Field<tailnum: string>"),
        ([(moment(1), "N1", None, 1)], (1.0,), "an emitted row has a null where"),
        ([], ("text",), "the value of a key does not fit"),
        ([], (1.0, 2.0), "a value has 2 fields instead of 1"),
    ],
)
def test_rows_and_values_that_do_not_fit_are_named_with_the_step(
    rows: Any, value: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(StepError, match=message) as caught:
        run(stateful(Emitting(rows, value)), ONE)
    assert str(caught.value).startswith("step trail: ")


@pytest.mark.parametrize("value", ["N1", b"N1", {"number": 1.0}, {1.0}, 1.0, None])
def test_a_value_that_is_no_tuple_is_refused_and_not_taken_apart(value: Any) -> None:
    with pytest.raises(TypeError, match=r"value\.update\(\) was given an? .*needs a tuple"):
        ValueState(None).update(value)


class Asked(type):
    def __instancecheck__(cls, value: object) -> bool:
        raise AssertionError(f"asked about {value!r}")


class Slow(metaclass=Asked):
    """What must not be asked about each value or row."""


def test_no_abstract_class_is_asked_about_usual_values_and_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = stateful(Emitting([dict(zip(OUTPUT.names, GOOD, strict=True))], (1.0,)))
    monkeypatch.setattr(stateful_module, "NO_VALUES", (Slow,))
    monkeypatch.setattr(stateful_module, "Mapping", Slow)
    assert run(operator, ONE)[0] == [GOOD]


class Failing(Trail):
    def handle(self, key: Any, _rows: Any, _value: ValueState) -> Any:
        raise ZeroDivisionError(f"at {key}")


def test_an_error_of_the_user_comes_through_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError, match="at \\('N1',\\)"):
        run(stateful(Failing()), ONE)


class Mute(StatefulOperator):
    value_schema = pa.schema([("seen", pa.int64())])


class Awaited(Mute):
    async def handle(self, _key: Any, rows: Any, _value: ValueState) -> Any:  # type: ignore[override]
        return rows


def test_an_operator_without_a_handle_that_can_be_called_is_refused() -> None:
    with pytest.raises(InputError, match="step trail: Mute: has no method handle; write handle"):
        stateful(Mute())
    with pytest.raises(InputError, match=r"step trail: Awaited.handle: is async, and nothing awai"):
        stateful(Awaited())


def test_an_operator_needs_a_schema_of_its_value_and_keys_that_are_no_floats() -> None:
    with pytest.raises(InputError, match="step trail: StatefulOperator: has no value_schema"):
        stateful(StatefulOperator())
    with pytest.raises(InputError, match="keys: column 'engine' has type double; use integers"):
        stateful(keys=("engine",))
    assert isinstance(stateful(), KeyedOperator)


IN_NANOSECONDS = [
    pa.timestamp("ns"),
    pa.time64("ns"),
    pa.duration("ns"),
    pa.list_(pa.struct([("at", pa.timestamp("ns", "UTC"))])),
]


@pytest.mark.parametrize("kind", IN_NANOSECONDS, ids=str)
def test_nanoseconds_are_refused_where_python_would_cut_them(kind: pa.DataType) -> None:
    """Keys that differ in nanoseconds had one value together."""
    schema = SCHEMA.append(pa.field("at", kind))
    what = rf"input: column 'at' has type {re.escape(str(kind))}, which Python's times cannot hold"
    with pytest.raises(InputError, match=f"{what}; make it microseconds"):
        KeyedStateful("trail", schema, "event_time", ["tailnum"], Trail(), OUTPUT, "event_time")
    operator = Emitting([])
    operator.value_schema = pa.schema([("at", kind)])
    with pytest.raises(InputError, match="value_schema: column 'at' has type"):
        stateful(operator)


def test_a_class_in_place_of_an_operator_is_refused_with_how_to_make_one() -> None:
    with pytest.raises(InputError, match=r"operator: is the class Trail; give an instance, Trail"):
        stateful(Trail)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="operator: is 7; derive its class from StatefulOperator"):
        stateful(7)  # type: ignore[arg-type]


class Counted(StatefulOperator):
    value_schema = pa.schema([("count", pa.int64())])

    def handle(
        self, key: tuple[Any, ...], rows: list[dict[str, Any]], value: ValueState
    ) -> Iterator[tuple[Any, ...]]:
        (count,) = value.get() or (0,)
        for row in rows:
            count += 1
            yield key[0], row["event_time"], count
        value.update((count,))


def test_two_hours_that_a_clock_shows_alike_are_two_keys() -> None:
    before = datetime(2024, 10, 27, 0, 30, tzinfo=UTC)  # 02:30 in Berlin, and an hour later again
    hours = pa.array([before, before + timedelta(hours=1)], pa.timestamp("us", "Europe/Berlin"))
    schema = pa.schema([("hour", hours.type), ("event_time", pa.timestamp("us"))])
    output = pa.schema([*schema, ("count", pa.int64())])
    operator = KeyedStateful(
        "hours", schema, "event_time", ["hour"], Counted(), output, "event_time"
    )
    state, found = operator.initial(), []
    for second in range(2):
        rows = pa.table([hours, [moment(second)] * 2], schema=schema)
        previous = INITIAL_WATERMARK if second == 0 else 0
        state, emitted = operator.process(state, [rows], previous, second * SECOND)
        state = operator.load(operator.dump(state))
        found.append((emitted["hour"].combine_chunks(), emitted["count"].to_pylist()))
    assert found == [(hours, [1, 1]), (hours, [2, 2])]


@pytest.mark.parametrize(
    "keys",
    [
        pa.array([90_000, 3_600], pa.int32()).view(pa.time32("s")),
        pa.array([-1, 86_399_999_999]).view(pa.time64("us")),
        pa.array([86_400_001, 86_400_000]).view(pa.date64()),
    ],
    ids=lambda keys: str(keys.type),
)
def test_a_key_that_is_none_of_its_type_is_told_and_is_no_other_key(keys: pa.Array) -> None:
    schema = pa.schema([("key", keys.type), ("event_time", pa.timestamp("us"))])
    output = pa.schema([*schema, ("count", pa.int64())])
    operator = KeyedStateful("keys", schema, "event_time", ["key"], Counted(), output, "event_time")
    rows = pa.table([keys, [moment(0)] * 2], schema=schema)
    with pytest.raises(pa.ArrowInvalid, match=r"not within|whole number of days"):
        operator.process(operator.initial(), [rows], INITIAL_WATERMARK, SECOND)
    sieve = Sieve("keys", "keys/0", 0, ("key",), Tolerance(1, 1))
    _, found = operator.process(operator.initial(), [rows], INITIAL_WATERMARK, SECOND, sieve)
    assert found["count"].to_pylist() == [1]
