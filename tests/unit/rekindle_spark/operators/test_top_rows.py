"""The largest rows per event time, however the input is cut into epochs."""

import pickle
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rekindle.model.errors import InputError
from rekindle_spark.operators import FINAL_WATERMARK, INITIAL_WATERMARK, CombiningOperator, Top

SECOND = 1_000_000
SCHEMA = pa.schema(
    [
        ("window_end", pa.timestamp("us")),
        ("origin", pa.string()),
        ("carrier", pa.string()),
        ("flights", pa.float64()),
    ]
)
Row = tuple[int, str | None, str | None, float | None]


def moment(seconds: int) -> datetime:
    return datetime(1970, 1, 1) + timedelta(seconds=seconds)


def table(rows: list[Row]) -> pa.Table:
    lists = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    return pa.table([[moment(row) for row in lists[0]], *lists[1:]], schema=SCHEMA)


def top(count: int = 2, keys: tuple[str, ...] = ("origin",), ties: tuple[str, ...] = ()) -> Top:
    return Top("busiest", SCHEMA, "window_end", "flights", count, keys, ties)


def run(operator: Top, epochs: list[tuple[list[list[Row]], int]]) -> tuple[list[Any], Any]:
    """All output rows, and the last state. Epochs: rows of each producer, watermark."""
    state, previous, output = operator.initial(), INITIAL_WATERMARK, []
    kept = []
    for producers, watermark in epochs:
        rows = pa.concat_tables([operator.combine(table(rows)) for rows in producers])
        after, emitted = operator.process(state, [rows], previous, watermark)
        kept.append((state, rows, previous, watermark, after, emitted))
        output += [tuple(row.values()) for row in emitted.to_pylist()]
        state, previous = operator.load(operator.dump(after)), watermark
        assert pickle.loads(pickle.dumps(state)) == after
    for state_before, rows, before, watermark, after, emitted in kept:
        assert operator.process(state_before, [rows], before, watermark) == (after, emitted)
    return output, state


def batch(rows: list[Row], count: int) -> list[tuple[Any, ...]]:
    """The same rows in plain Python: nulls last, the largest first, then by carrier."""

    def last(value: Any) -> tuple[bool, Any]:
        return value is None, "" if value is None else value

    def order(row: Row) -> tuple[Any, ...]:
        size = (1, 0.0) if row[3] is None else (0, -row[3])
        return row[0], last(row[1]), size, last(row[2])

    best, taken = [], dict[tuple[Any, ...], int]()
    for row in sorted(rows, key=order):
        rank = taken[row[:2]] = taken.get(row[:2], 0) + 1
        if rank <= count:
            best.append((moment(row[0]), *row[1:], rank))
    return best


NAMES = st.sampled_from(["EWR", "JFK", "", None])
SIZES = st.one_of(st.none(), st.sampled_from([-1.5, 0.0, 2.0, float("inf")]))
ROWS = st.lists(st.tuples(st.integers(-3, 4), NAMES, NAMES, SIZES), max_size=30)


@settings(max_examples=60)
@given(data=st.data(), rows=ROWS, count=st.integers(1, 3))
def test_the_top_equals_a_batch_computation_however_the_input_is_cut(
    data: st.DataObject, rows: list[Row], count: int
) -> None:
    epochs, previous = [], INITIAL_WATERMARK
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    for begin, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        safe = min((row[0] for row in rows[end:]), default=FINAL_WATERMARK)
        watermark = safe if safe == FINAL_WATERMARK else safe * SECOND - 1
        watermark = max(previous, watermark - data.draw(st.integers(0, 2)) * SECOND)
        middle = data.draw(st.integers(begin, end))
        epochs.append(([rows[begin:middle], rows[middle:end]], watermark))
        previous = watermark
    epochs.append(([[]], FINAL_WATERMARK))
    output, state = run(top(count), epochs)
    assert output == batch(rows, count)
    assert (state.rows.num_rows, state.late_rows) == (0, 0)


def test_rows_come_when_the_watermark_reaches_their_event_time_and_not_before() -> None:
    rows: list[Row] = [(60, "EWR", "UA", 7.0), (120, "EWR", "UA", 8.0)]
    too_soon = ([rows], 60 * SECOND - 1)
    in_time, late = ([[]], 60 * SECOND), ([[(60, "EWR", "B6", 9.0)]], FINAL_WATERMARK)
    first = (moment(60), "EWR", "UA", 7.0, 1)
    assert run(top(), [too_soon])[0] == []
    assert run(top(), [too_soon, in_time])[0] == [first]
    output, state = run(top(), [too_soon, in_time, late])
    assert output == [first, (moment(120), "EWR", "UA", 8.0, 1)]
    assert state.late_rows == 1


def test_the_state_holds_no_more_than_the_best_rows() -> None:
    operator = top(2)
    rows = table([(60, "EWR", f"{i:03d}", float(i)) for i in range(100)])
    assert operator.combine(rows)["flights"].to_pylist() == [99.0, 98.0]
    state, _ = operator.process(operator.initial(), [rows], INITIAL_WATERMARK, 0)
    assert state.rows["flights"].to_pylist() == [99.0, 98.0]
    assert isinstance(operator, CombiningOperator)


def test_without_keys_the_best_of_all_are_kept() -> None:
    rows: list[Row] = [(60, "EWR", "UA", 7.0), (60, "JFK", "B6", 9.0), (60, "LGA", "DL", 8.0)]
    output, _ = run(top(1, keys=()), [([rows], FINAL_WATERMARK)])
    assert output == [(moment(60), "JFK", "B6", 9.0, 1)]


def test_ties_go_by_the_columns_named() -> None:
    rows: list[Row] = [(60, "EWR", "UA", 7.0), (60, "JFK", "B6", 7.0)]
    by_carrier, _ = run(top(1, (), ("carrier",)), [([rows], FINAL_WATERMARK)])
    by_origin, _ = run(top(1, (), ("origin",)), [([rows], FINAL_WATERMARK)])
    assert [row[2] for row in by_carrier + by_origin] == ["B6", "UA"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": 0}, "step busiest: count: is 0"),
        ({"count": True}, "step busiest: count: is True; give a whole number from 1 to 1,000,000"),
        ({"keys": "carrier"}, r"keys: is 'carrier', not a list; write \['carrier'\]"),
        ({"by": "delay"}, "there is no column 'delay'"),
        ({"ties": ["plane"]}, "there is no column 'plane'"),
        ({"event_time": "carrier"}, "event time 'carrier': has type string"),
        (
            {"input_schema": SCHEMA.append(pa.field("rank", pa.int64()))},
            "more than one column 'rank'",
        ),
        (
            {"input_schema": SCHEMA.append(pa.field("legs", pa.list_(pa.int64())))},
            "step busiest: ties: column 'legs' has type list",
        ),
    ],
)
def test_wrong_arguments_are_named_with_the_step(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {
        "name": "busiest",
        "input_schema": SCHEMA,
        "event_time": "window_end",
        "by": "flights",
        "count": 2,
    }
    with pytest.raises(InputError, match=message):
        Top(**{**arguments, **change})
