"""Totals and means are exact, or say that they do not fit: never another number."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rekindle.model.errors import InputError, StepError
from rekindle_spark.operators import (
    FINAL_WATERMARK,
    INITIAL_WATERMARK,
    Aggregate,
    WindowAggregate,
    grouping,
)

INTEGERS = {
    kind: (-(2 ** (bits - 1)) if signed else 0, 2 ** (bits - signed) - 1)
    for bits, signed, kind in [
        (8, True, pa.int8()),
        (16, True, pa.int16()),
        (32, True, pa.int32()),
        (64, True, pa.int64()),
        (8, False, pa.uint8()),
        (16, False, pa.uint16()),
        (32, False, pa.uint32()),
        (64, False, pa.uint64()),
    ]
}
few = settings(max_examples=25, deadline=None)


def operator(kind: pa.DataType, functions: Sequence[str] = ("sum", "mean")) -> WindowAggregate:
    schema = pa.schema([("t", pa.timestamp("us")), ("k", pa.string()), ("v", kind)])
    wanted = {function: Aggregate(function, "v") for function in functions}
    return WindowAggregate("w", schema, "t", ["k"], 10, None, wanted)


def run(
    window: WindowAggregate, epochs: Sequence[Sequence[tuple[str, Any]]], reload: bool = True
) -> dict[str, dict[str, Any]]:
    """The row of each key, of rows that come in epochs; each state goes through a checkpoint."""
    state = window.initial()
    for rows in epochs:
        times = pa.array([0] * len(rows), pa.timestamp("us"))
        keys = pa.array([key for key, _ in rows], pa.string())
        values = pa.array([value for _, value in rows], window.input_schema.field("v").type)
        combined = window.combine(pa.table([times, keys, values], schema=window.input_schema))
        state, _ = window.process(state, [combined], INITIAL_WATERMARK, INITIAL_WATERMARK)
        state = window.load(window.dump(state)) if reload else state
    _, found = window.process(state, [window.no_panes], INITIAL_WATERMARK, FINAL_WATERMARK)
    return {row["k"]: row for row in found.to_pylist()}


def extremes(low: int, high: int) -> st.SearchStrategy[int]:
    edges = {low, low + 1, high, high - 1, 0, min(1, high), max(low, -1), high // 2, low // 2}
    return st.one_of(st.sampled_from(sorted(edges)), st.integers(low, high))


@st.composite
def cut_rows(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> list[list[tuple[str, Any]]]:
    row = st.tuples(st.sampled_from("ab"), st.one_of(st.none(), values))
    return draw(st.lists(st.lists(row, max_size=8), min_size=1, max_size=4))


@pytest.mark.parametrize("kind", INTEGERS, ids=str)
def test_integers_have_their_exact_total_and_nearest_mean(kind: pa.DataType) -> None:
    is_wide = pa.types.is_int64(kind) or pa.types.is_uint64(kind)
    low, high = INTEGERS[kind] if is_wide else INTEGERS[pa.int64()]

    @few
    @given(cut_rows(extremes(*INTEGERS[kind])))
    def check(epochs: list[list[tuple[str, int | None]]]) -> None:
        numbers: dict[str, list[int]] = {}
        for key, value in (row for rows in epochs for row in rows):
            numbers.setdefault(key, []).extend([] if value is None else [value])
        means = run(operator(kind, ["mean"]), epochs)
        assert {key: row["mean"] for key, row in means.items()} == {
            key: sum(values) / len(values) if values else None for key, values in numbers.items()
        }
        if all(low <= sum(values) <= high for values in numbers.values()):
            totals = {key: row["sum"] for key, row in run(operator(kind), epochs).items()}
            assert totals == {key: sum(v) if v else None for key, v in numbers.items()}
        else:
            with pytest.raises(StepError, match="step w, column 'v': has a total that"):
                run(operator(kind), epochs)

    check()


@few
@given(
    st.sampled_from([pa.decimal32(7, 2), pa.decimal64(16, 5), pa.decimal128(38, 9)]).flatmap(
        lambda kind: st.tuples(
            st.just(kind),
            cut_rows(
                extremes(-(10**kind.precision) + 1, 10**kind.precision - 1).map(
                    lambda number: Decimal(number).scaleb(-kind.scale)
                )
                if kind.precision < 28
                else extremes(-(10**38) + 1, 10**38 - 1).map(
                    lambda number: Decimal((number < 0, Decimal(number).as_tuple().digits, -9))
                )
            ),
        )
    )
)
def test_decimals_have_their_exact_total_and_nearest_mean(
    drawn: tuple[pa.DataType, list[list[tuple[str, Decimal | None]]]],
) -> None:
    kind, epochs = drawn
    shift = 10**kind.scale
    numbers: dict[str, list[int]] = {}
    for key, value in (row for rows in epochs for row in rows):
        whole = [] if value is None else [int(value.as_tuple().digits and _unscaled(value))]
        numbers.setdefault(key, []).extend(whole)
    means = run(operator(kind, ["mean"]), epochs)
    assert {key: row["mean"] for key, row in means.items()} == {
        key: sum(values) / (len(values) * shift) if values else None
        for key, values in numbers.items()
    }
    if all(abs(sum(values)) < 10**38 for values in numbers.values()):
        totals = {key: row["sum"] for key, row in run(operator(kind), epochs).items()}
        assert {k: None if t is None else _unscaled(t) for k, t in totals.items()} == {
            key: sum(values) if values else None for key, values in numbers.items()
        }
    else:
        with pytest.raises(StepError, match="does not fit its type, for k="):
            run(operator(kind), epochs)


def _unscaled(value: Decimal) -> int:
    sign, digits, _ = value.as_tuple()
    number = int("".join(map(str, digits)))
    return -number if sign else number


def test_a_total_that_goes_over_and_comes_back_is_exact() -> None:
    epochs = [[("a", 2**63 - 1)], [("a", 2**63 - 1)], [("a", -(2**63))], [("a", -5)]]
    assert run(operator(pa.int64()), epochs)["a"]["sum"] == 2**63 - 7


def test_the_mean_of_nanoseconds_is_a_moment_among_them() -> None:
    moments = [1_700_000_000_000_000_000 + second for second in range(10)]
    row = run(operator(pa.int64(), ["mean"]), [[("a", moment) for moment in moments]])["a"]
    assert row["mean"] == 1.7e18


def test_a_total_of_unsigned_numbers_is_unsigned() -> None:
    window = operator(pa.uint64())
    assert window.output_schema.field("sum").type == pa.uint64()
    assert run(window, [[("a", 2**64 - 2)], [("a", 1)]])["a"] | {} == {
        **run(window, [[("a", 2**64 - 1)]])["a"],
        "mean": (2**64 - 1) / 2,
    }


def test_a_state_from_before_sums_had_128_bits_goes_on() -> None:
    window = operator(pa.uint64())
    times, keys = pa.array([0], pa.timestamp("us")), pa.array(["a"])
    values = pa.array([2**64 - 1], pa.uint64())
    panes = window.combine(pa.table([times, keys, values], schema=window.input_schema))
    old = panes.drop_columns(["#over"])
    place = old.column_names.index("#sum v")
    old = old.set_column(place, "#sum v", pa.array([-1], pa.int64()))
    state = window.load([window.dump(window.initial())[0], old])
    assert state.panes.equals(panes)


@pytest.mark.parametrize("function", ["sum", "mean"])
@pytest.mark.parametrize("kind", [pa.decimal256(76, 2), pa.date32(), pa.bool_()], ids=str)
def test_what_has_no_exact_total_is_refused_when_it_is_built(
    function: str, kind: pa.DataType
) -> None:
    with pytest.raises(InputError, match=f"step w: aggregates: {function}: column 'v'"):
        operator(kind, [function])


@pytest.mark.parametrize("at_once_max", [4_096, 5])
def test_columns_have_the_same_totals_in_one_call_as_in_a_call_for_each(
    monkeypatch: pytest.MonkeyPatch, at_once_max: int
) -> None:
    monkeypatch.setattr(grouping, "ROWS_AT_ONCE_MAX", at_once_max)
    values = np.array([[1, 2, 3, 4, 5, 6], [2**62, 2**62, -1, -2, -3, -4]])
    groups = grouping.group([np.array([7, 9, 7, 7, 9, 9])], 6)
    assert grouping.add_all(groups, values).tolist() == [[8, 13], [2**62 - 3, 2**62 - 7]]
