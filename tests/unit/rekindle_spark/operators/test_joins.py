"""Pairs of rows close in time, however the input is cut into epochs."""

import pickle
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rekindle.model.errors import InputError
from rekindle_spark.operators import FINAL_WATERMARK, INITIAL_WATERMARK, IntervalJoin, row_hash

SECOND = 1_000_000
LEFT = pa.schema(
    [
        ("event_time", pa.timestamp("us")),
        ("origin", pa.string()),
        ("runway", pa.float64()),
        ("id", pa.int64()),
    ]
)
RIGHT = pa.schema(
    [
        ("runway", pa.float64()),
        ("id", pa.int64()),
        ("observed", pa.timestamp("us")),
        ("origin", pa.string()),
    ]
)
# seconds, origin, runway; a row's number becomes its id
Row = tuple[int, str | None, float | None]


def moment(seconds: int) -> datetime:
    return datetime(1970, 1, 1) + timedelta(seconds=seconds)


def table(schema: pa.Schema, rows: list[tuple[int, Row]]) -> pa.Table:
    values = {
        "id": [number for number, _ in rows],
        "origin": [row[1] for _, row in rows],
        "runway": [row[2] for _, row in rows],
    }
    times = [moment(row[0]) for _, row in rows]
    return pa.table([values.get(name, times) for name in schema.names], schema=schema)


def join(within: float = 10) -> IntervalJoin:
    keys = ["origin", "runway"]
    return IntervalJoin("weather", LEFT, RIGHT, "event_time", "observed", keys, within)


Epoch = tuple[list[tuple[int, Row]], list[tuple[int, Row]], int]


def run(operator: IntervalJoin, epochs: list[Epoch]) -> tuple[list[pa.Table], Any]:
    """Output per epoch, and the last state. Every version of the state is used twice."""
    state, previous, output = operator.initial(), INITIAL_WATERMARK, []
    kept = []
    for left, right, watermark in epochs:
        inputs = [table(LEFT, left), table(RIGHT, right)]
        after, pairs = operator.process(state, inputs, previous, watermark)
        kept.append((state, inputs, previous, watermark, after, pairs))
        output.append(pairs)
        state, previous = operator.load(operator.dump(after)), watermark
        assert pickle.loads(pickle.dumps(state)) == after
        assert np.array_equal(state.left.hashes, after.left.hashes)
        assert np.array_equal(state.right.moments, after.right.moments)
    for state_before, inputs, before, watermark, after, pairs in kept:
        assert operator.process(state_before, inputs, before, watermark) == (after, pairs)
    return output, state


def pairs_of(left: list[Row], right: list[Row], within: int) -> list[tuple[int, int, datetime]]:
    """The same pairs by trying each with each."""
    return [
        (i, j, moment(max(one[0], other[0])))
        for i, one in enumerate(left)
        for j, other in enumerate(right)
        if None not in one[1:] and one[1:] == other[1:] and abs(one[0] - other[0]) <= within
    ]


def found(output: list[pa.Table]) -> list[tuple[int, int, datetime]]:
    rows = pa.concat_tables(output).select(["id", "id_right", "event_time"]).to_pylist()
    return [tuple(row.values()) for row in rows]


SIDE = st.lists(
    st.tuples(
        st.integers(-40, 40),
        st.sampled_from(["EWR", "JFK", None]),
        st.sampled_from([0.0, -0.0, 4.0, None]),
    ),
    max_size=25,
)


@st.composite
def cut_into_epochs(draw: st.DrawFn, left: list[Row], right: list[Row]) -> list[Epoch]:
    """Cut both sides anywhere, with watermarks that no later row is behind."""
    count = draw(st.integers(0, 3))
    cuts = [
        sorted(draw(st.lists(st.integers(0, len(side)), min_size=count, max_size=count)))
        for side in (left, right)
    ]
    ends = [*zip(*cuts, strict=True), (len(left), len(right))]
    epochs, (i, j), watermark = list[Epoch](), (0, 0), INITIAL_WATERMARK
    for left_end, right_end in ends:
        rest = [row[0] for row in left[left_end:] + right[right_end:]]
        if rest:
            watermark = max(watermark, min(rest) * SECOND - draw(st.integers(1, 10 * SECOND)))
        new_left = list(enumerate(left))[i:left_end]
        epochs.append((new_left, list(enumerate(right))[j:right_end], watermark))
        i, j = left_end, right_end
    return [*epochs, ([], [], FINAL_WATERMARK)]


@settings(max_examples=80)
@given(data=st.data(), left=SIDE, right=SIDE, within=st.sampled_from([0, 1, 10]))
def test_pairs_equal_a_nested_loop_however_the_input_is_cut(
    data: st.DataObject, left: list[Row], right: list[Row], within: int
) -> None:
    epochs = data.draw(cut_into_epochs(left, right))
    output, state = run(join(within), epochs)
    assert sorted(found(output)) == pairs_of(left, right, within)
    whole = (list(enumerate(left)), list(enumerate(right)), FINAL_WATERMARK)
    assert found(run(join(within), [whole])[0]) == pairs_of(left, right, within)
    assert (state.left.rows.num_rows, state.right.rows.num_rows, state.late_rows) == (0, 0, 0)


def test_pairs_survive_keys_whose_hashes_are_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    left = [(0, "EWR", 4.0), (1, "JFK", 4.0)]
    right = [(2, "JFK", 4.0), (0, "EWR", 4.0)]

    def colliding(rows: pa.Table, _keys: list[str]) -> np.ndarray:
        return np.zeros(rows.num_rows, np.uint64)

    monkeypatch.setattr(row_hash, "hashes", colliding)
    epoch = (list(enumerate(left)), list(enumerate(right)), 0)
    output, _ = run(join(), [epoch])
    assert found(output) == [(0, 1, moment(0)), (1, 0, moment(2))]


def test_a_nan_is_equal_to_a_nan() -> None:
    operator = join()
    left = table(LEFT, [(0, (2, "EWR", float("nan")))])
    right = table(RIGHT, [(0, (3, "EWR", -float("nan"))), (1, (3, "EWR", 0.0))])
    _, output = operator.process(operator.initial(), [left, right], INITIAL_WATERMARK, 0)
    assert found([output]) == [(0, 0, moment(3))]


def test_a_pair_comes_in_the_epoch_of_the_later_row_with_the_later_time() -> None:
    early, late = (0, (100, "EWR", 4.0)), (0, (95, "EWR", 4.0))
    output, state = run(
        join(), [([early], [], 90 * SECOND), ([], [late], 94 * SECOND), ([], [], 110 * SECOND)]
    )
    assert [pairs.num_rows for pairs in output] == [0, 1, 0]
    assert output[1].to_pylist() == [
        {
            "event_time_left": moment(100),
            "origin": "EWR",
            "runway": 4.0,
            "id": 0,
            "id_right": 0,
            "observed": moment(95),
            "event_time": moment(100),
        }
    ]
    assert state.left.rows.num_rows == 0


def test_a_row_is_kept_up_to_the_last_microsecond_at_which_a_partner_may_come() -> None:
    early, late = (0, (0, "EWR", 4.0)), (0, (10, "EWR", 4.0))
    for one, other in [([early], []), ([], [early])]:
        late_one, late_other = ([], [late]) if one else ([late], [])
        epochs = [(one, other, 10 * SECOND - 1), (late_one, late_other, 10 * SECOND)]
        output, _ = run(join(10), epochs)
        assert [pairs.num_rows for pairs in output] == [0, 1]


def test_late_rows_are_dropped_and_counted_on_both_sides() -> None:
    late = (0, (5, "EWR", 4.0))
    _, state = run(join(), [([], [], 10 * SECOND), ([late], [late, late], 11 * SECOND)])
    assert state.late_rows == 3
    assert state.left.rows.num_rows == 0


def test_many_small_epochs_leave_few_chunks() -> None:
    operator = join(1000)
    epochs = [([(i, (i, "EWR", 4.0))], [], i * SECOND) for i in range(30)]
    state, previous = operator.initial(), INITIAL_WATERMARK
    for left, right, watermark in epochs:
        inputs = [table(LEFT, left), table(RIGHT, right)]
        state, _ = operator.process(state, inputs, previous, watermark)
        previous = watermark
    assert state.left.rows.num_rows == 30
    assert state.left.rows["id"].num_chunks <= 8


def test_names_that_are_taken_get_a_suffix_until_they_are_free() -> None:
    left = pa.schema(
        [
            ("event_time", pa.timestamp("us")),
            ("event_time_left", pa.timestamp("us")),
            ("key", pa.int64()),
            ("value", pa.int64()),
        ]
    )
    right = pa.schema(
        [("key", pa.int64()), ("event_time", pa.timestamp("us")), ("value", pa.int64())]
    )
    operator = IntervalJoin("j", left, right, "event_time", "event_time", ["key"], 1)
    assert operator.output_schema.names == [
        "event_time_left_left",
        "event_time_left",
        "key",
        "value",
        "event_time_right",
        "value_right",
        "event_time",
    ]
    assert operator.output_event_time == "event_time"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"keys": ["id", "plane"]}, "there is no column 'plane'"),
        ({"within_seconds": -1}, "step weather: within_seconds: is -1"),
        ({"suffix": ""}, "suffix: is empty"),
        ({"right_event_time": "id"}, "event time 'id': has type int64"),
        (
            {"right_schema": RIGHT.set(1, pa.field("id", pa.string())), "keys": ["id"]},
            "key 'id': has type int64 left and string right",
        ),
    ],
)
def test_wrong_arguments_are_named_with_the_step(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {
        "name": "weather",
        "left_schema": LEFT,
        "right_schema": RIGHT,
        "left_event_time": "event_time",
        "right_event_time": "observed",
        "keys": ["origin"],
        "within_seconds": 10,
    }
    with pytest.raises(InputError, match=message):
        IntervalJoin(**{**arguments, **change})
