"""Windows give what a batch computation gives, however the input is cut into epochs."""

import pickle
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rekindle.model.errors import InputError
from rekindle_spark.operators import (
    FINAL_WATERMARK,
    INITIAL_WATERMARK,
    Aggregate,
    CombiningOperator,
    WindowAggregate,
)

SECOND = 1_000_000
BEGIN = datetime(1970, 1, 1)
SCHEMA = pa.schema(
    [
        ("event_time", pa.timestamp("us")),
        ("carrier", pa.string()),
        ("delay", pa.int32()),
        ("distance", pa.float64()),
        ("number", pa.uint64()),
    ]
)
AGGREGATES = {
    "flights": Aggregate("count", None),
    "delayed": Aggregate("count", "delay"),
    "total": Aggregate("sum", "delay"),
    "mean": Aggregate("mean", "delay"),
    "nearest": Aggregate("min", "distance"),
    "farthest": Aggregate("max", "distance"),
    "far": Aggregate("sum", "distance"),
    "first": Aggregate("min", "carrier"),
    "highest": Aggregate("max", "number"),
    "latest": Aggregate("max", "event_time"),
}
Row = tuple[int, str | None, int | None, float | None, int | None]


@dataclass
class Epoch:
    """Rows of each producer, and the watermark behind them in seconds."""

    producers: list[list[Row]]
    watermark: int


def moment(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def table(rows: list[Row]) -> pa.Table:
    lists = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    times = [moment(seconds) for seconds in lists[0]]
    return pa.table([times, *lists[1:]], schema=SCHEMA)


def windows(size: float = 60, slide: float | None = None, keys: tuple[str, ...] = ("carrier",)):
    return WindowAggregate("late", SCHEMA, "event_time", keys, size, slide, AGGREGATES)


def run(
    operator: WindowAggregate, epochs: list[Epoch], begun: Any = None, *, reload: bool = True
) -> tuple[list, Any]:
    """All output rows in order, and the last state. Every version of the state is used twice."""
    state, previous, output = begun or operator.initial(), INITIAL_WATERMARK, []
    kept = []
    for epoch in epochs:
        combined = pa.concat_tables([operator.combine(table(rows)) for rows in epoch.producers])
        watermark = min(epoch.watermark * SECOND, FINAL_WATERMARK)
        after, rows = operator.process(state, [combined], previous, watermark)
        kept.append((state, combined, previous, watermark, after, rows))
        output += rows.to_pylist()
        state, previous = after, watermark
        if reload:
            state = operator.load(operator.dump(pickle.loads(pickle.dumps(state))))
            assert state == after
    for state_before, combined, before, watermark, after, rows in kept:
        assert operator.process(state_before, [combined], before, watermark) == (after, rows)
    return output, state


def batch(rows: list[Row], size: int, slide: int) -> list[dict[str, Any]]:
    """The same windows in plain Python."""
    groups = defaultdict(list)
    for row in rows:
        start = row[0] // slide * slide
        while start + size > row[0]:
            groups[start, row[1]].append(row)
            start -= slide
    order = sorted(groups, key=lambda window: (window[0], window[1] is None, window[1] or ""))
    return [answer(start, size, carrier, groups[start, carrier]) for start, carrier in order]


def answer(start: int, size: int, carrier: str | None, rows: list[Row]) -> dict[str, Any]:
    delays = [row[2] for row in rows if row[2] is not None]
    distances = [row[3] for row in rows if row[3] is not None]
    return {
        "carrier": carrier,
        "window_start": moment(start),
        "window_end": moment(start + size),
        "flights": len(rows),
        "delayed": len(delays),
        "total": sum(delays) if delays else None,
        "mean": sum(delays) / len(delays) if delays else None,
        "nearest": min(distances, default=None),
        "farthest": max(distances, default=None),
        "far": sum(distances) if distances else None,
        "first": carrier,
        "highest": max((row[4] for row in rows if row[4] is not None), default=None),
        "latest": moment(max(row[0] for row in rows)),
    }


ROWS = st.lists(
    st.tuples(
        st.integers(-300, 600),
        st.sampled_from(["UA", "B6", "", None]),
        st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
        st.one_of(st.none(), st.integers(-2000, 2000).map(lambda number: number / 4)),
        st.one_of(st.none(), st.integers(0, 2**64 - 1)),
    ),
    max_size=30,
)


@st.composite
def cut_into_epochs(draw: st.DrawFn, rows: list[Row]) -> list[Epoch]:
    """Cut rows anywhere, with watermarks that no later row is behind."""
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    epochs, watermark = [], -(10**9)
    for begin, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        safe = min((row[0] for row in rows[end:]), default=10**13 * 10)
        if safe < 10**12:
            watermark = max(watermark, safe - draw(st.integers(1, 100)))
        else:
            watermark = 10**13
        middle = draw(st.integers(begin, end))
        epochs.append(Epoch([rows[begin:middle], rows[middle:end]], watermark))
    return epochs


@pytest.mark.parametrize(("size", "slide"), [(60, None), (60, 20), (60, 25), (90, 60), (1, 1)])
@settings(max_examples=30)
@given(data=st.data(), rows=ROWS)
def test_windows_equal_a_batch_computation_however_the_input_is_cut(
    size: int, slide: int | None, data: st.DataObject, rows: list[Row]
) -> None:
    epochs = data.draw(cut_into_epochs(rows))
    output, state = run(windows(size, slide), epochs)
    assert output == batch(rows, size, slide or size)
    assert state.panes.num_rows == 0
    assert state.late_rows == 0


def test_a_window_is_emitted_when_the_watermark_reaches_its_last_microsecond() -> None:
    operator = windows()
    rows = operator.combine(table([(59, "UA", 1, 1.0, 1)]))
    state, output = operator.process(operator.initial(), [rows], INITIAL_WATERMARK, 60 * SECOND - 2)
    assert output.num_rows == 0
    state, output = operator.process(state, [rows.slice(0, 0)], 60 * SECOND - 2, 60 * SECOND - 1)
    assert output["window_end"].to_pylist() == [moment(60)]
    assert state.panes.num_rows == 0
    state, output = operator.process(state, [rows.slice(0, 0)], 60 * SECOND - 1, FINAL_WATERMARK)
    assert output.num_rows == 0
    assert output.schema == operator.output_schema


def test_rows_whose_windows_have_all_closed_are_dropped_and_counted() -> None:
    row = ("UA", 1, 1.0, 1)
    epochs = [Epoch([[(10, *row)]], 60), Epoch([[(20, *row), (30, *row), (61, *row)]], 10**13)]
    output, state = run(windows(), epochs)
    assert [line["flights"] for line in output] == [1, 1]
    assert state.late_rows == 2


def test_a_late_row_still_counts_in_sliding_windows_that_are_open() -> None:
    row = ("UA", 1, 1.0, 1)
    epochs = [Epoch([[(10, *row)]], 60), Epoch([[(50, *row)]], 10**13)]
    output, state = run(windows(60, 30), epochs)
    assert [(line["window_start"], line["flights"]) for line in output] == [
        (moment(-30), 1),
        (moment(0), 1),
        (moment(30), 1),
    ]
    assert state.late_rows == 0


@pytest.mark.parametrize(("size", "slide"), [(60, None), (60, 20), (60, 25), (90, 60)])
@settings(max_examples=30)
@given(data=st.data(), rows=ROWS, begin=st.integers(-5, 300))
def test_windows_of_a_new_step_are_those_that_start_with_its_rows_or_later(
    size: int, slide: int | None, data: st.DataObject, rows: list[Row], begin: int
) -> None:
    epochs = data.draw(cut_into_epochs(rows))
    operator = windows(size, slide)
    output, state = run(operator, epochs, operator.initial_from(begin * SECOND))
    whole = batch(rows, size, slide or size)
    assert output == [line for line in whole if line["window_start"] >= moment(begin)]
    assert (state.panes.num_rows, state.late_rows) == (0, 0)
    reloaded = operator.load(operator.dump(state))
    assert reloaded.begins_at == state.begins_at


def test_a_state_that_begins_nowhere_is_written_as_it_always_was() -> None:
    operator = windows()
    assert operator.dump(operator.initial())[0].column_names == ["closes_at", "late_rows"]


def test_a_row_without_event_time_is_late() -> None:
    operator = windows()
    rows = table([(10, "UA", 1, 1.0, 1)])
    rows = rows.set_column(0, SCHEMA.field(0), pa.array([None], pa.timestamp("us")))
    inputs = [operator.combine(rows)]
    state, output = operator.process(operator.initial(), inputs, INITIAL_WATERMARK, FINAL_WATERMARK)
    assert (output.num_rows, state.late_rows) == (0, 1)


def test_float_keys_and_extremes_know_one_zero_and_one_nan_above_all_numbers() -> None:
    schema = pa.schema([("event_time", pa.timestamp("us")), ("key", pa.float64())])
    keys = [0.0, -0.0, float("nan"), -float("nan"), 1.0]
    rows = pa.table([[moment(1)] * 5, keys], schema=schema)
    counts = {"rows": Aggregate("count", None), "most": Aggregate("max", "key")}
    operator = WindowAggregate("late", schema, "event_time", ["key"], 60, None, counts)
    combined = operator.combine(rows)
    _, output = operator.process(operator.initial(), [combined], INITIAL_WATERMARK, FINAL_WATERMARK)
    assert output["rows"].to_pylist() == [2, 1, 2]
    assert str(output["key"].to_pylist()) == "[0.0, 1.0, nan]"
    whole = WindowAggregate("late", schema, "event_time", [], 60, None, counts)
    combined = whole.combine(rows)
    _, output = whole.process(whole.initial(), [combined], INITIAL_WATERMARK, FINAL_WATERMARK)
    assert str(output["most"].to_pylist()) == "[nan]"


def test_a_sliding_window_keeps_and_sends_one_row_per_pane_not_per_window() -> None:
    operator = windows(3600, 1)
    assert isinstance(operator, CombiningOperator)
    combined = operator.combine(table([(second, "UA", 1, 1.0, 1) for second in range(10)]))
    assert combined.num_rows == 10
    assert combined.schema == operator.combined_schema


def test_an_epoch_without_rows_and_without_a_window_to_close_keeps_the_very_state() -> None:
    operator = windows()
    combined = operator.combine(table([(10, "UA", 1, 1.0, 1)]))
    state, _ = operator.process(operator.initial(), [combined], INITIAL_WATERMARK, 0)
    assert operator.process(state, [combined.slice(0, 0)], 0, SECOND)[0] is state


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"keys": ["plane"]}, "step late: keys: there is no column 'plane'"),
        ({"aggregates": {}}, "step late: aggregates: is empty; give at least one by its name"),
        ({"aggregates": {"x": "sum"}}, r"step late: aggregates: x: is 'sum'; use count\(\), or"),
        ({"aggregates": {"x": Aggregate}}, "aggregates: x: is the class Aggregate; use count"),
        ({"aggregates": {"x": Aggregate("sum", "age")}}, "aggregates: x: there is no column 'age'"),
        ({"aggregates": {7: AGGREGATES["far"]}}, "step late: aggregates: has the name 7; use text"),
        ({"event_time": "delay"}, "step late: event time 'delay': has type int32"),
        ({"size_seconds": 0}, "step late: size_seconds: is 0"),
        ({"slide_seconds": 61}, "step late: slide_seconds: is 61, more than the size"),
        ({"aggregates": {"x": Aggregate("median", "delay")}}, "has the function 'median'"),
        ({"aggregates": {"x": Aggregate("sum", "carrier")}}, "column 'carrier' has type string"),
        ({"aggregates": {"x": Aggregate("sum", None)}}, "sum has no column"),
        ({"aggregates": {"carrier": Aggregate("count", None)}}, "more than one column 'carrier'"),
    ],
)
def test_wrong_arguments_are_named_with_the_step(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {
        "name": "late",
        "input_schema": SCHEMA,
        "event_time": "event_time",
        "keys": ["carrier"],
        "size_seconds": 60,
        "slide_seconds": None,
        "aggregates": AGGREGATES,
    }
    with pytest.raises(InputError, match=message):
        WindowAggregate(**{**arguments, **change})


def test_a_column_without_a_name_is_aggregated_as_any_other() -> None:
    schema = pa.schema([("event_time", pa.timestamp("us")), ("", pa.int64())])
    rows = pa.table([[moment(1)] * 3, [5, None, 7]], schema=schema)
    sought = {name: Aggregate(name, "") for name in ("count", "sum", "min", "max", "mean")}
    operator = WindowAggregate("late", schema, "event_time", [], 60, None, sought)
    combined = operator.combine(rows)
    _, output = operator.process(operator.initial(), [combined], INITIAL_WATERMARK, FINAL_WATERMARK)
    (row,) = output.drop_columns(["window_start", "window_end"]).to_pylist()
    assert row == {"count": 2, "sum": 12, "min": 5, "max": 7, "mean": 6.0}
