"""States for another parallelism: all of them together give what one partition would."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rekindle_spark.checkpoint import savepoint_upgrade
from rekindle_spark.operators import (
    FINAL_WATERMARK,
    INITIAL_WATERMARK,
    IntervalJoin,
    KeyedOperator,
    KeyedStateful,
    StatefulOperator,
    Top,
    ValueState,
    WindowAggregate,
    row_hash,
)
from rekindle_spark.pipeline.steps import count, total

SECOND = 1_000_000
SCHEMA = pa.schema(
    [("at", pa.timestamp("us")), ("key", pa.string()), ("ratio", pa.float64()), ("n", pa.int64())]
)
KEYS = ("key", "ratio")
Row = tuple[int, str | None, float | None, int]


class Sums(StatefulOperator):
    value_schema = pa.schema([("sum", pa.int64())])

    def handle(
        self, key: tuple[Any, ...], rows: list[dict[str, Any]], value: ValueState
    ) -> Iterator[tuple[Any, ...]]:
        (held,) = value.get() or (0,)
        for row in rows:
            held += row["n"]
            yield (row["at"], key[0], row["ratio"], held)
        value.update((held,))


OPERATORS: dict[str, KeyedOperator] = {
    "window": WindowAggregate(
        "counted", SCHEMA, "at", KEYS, 4, 2, {"rows": count(), "sum": total("n")}
    ),
    "top": Top("largest", SCHEMA, "at", "n", 2, KEYS),
    "join": IntervalJoin("near", SCHEMA, SCHEMA, "at", "at", KEYS, 3),
    "stateful": KeyedStateful("sums", SCHEMA, "at", ["key"], Sums(), SCHEMA, "at"),
}
ROWS = st.lists(
    st.tuples(
        st.integers(0, 20),
        st.sampled_from([None, "a", "b", "c", "d", "e"]),
        st.sampled_from([None, 0.0, -0.0, 1.5, float("nan")]),
        st.integers(-5, 5),
    ),
    max_size=30,
)
EPOCHS = st.lists(st.tuples(ROWS, ROWS, st.integers(0, 20)), min_size=2, max_size=5)


def table(rows: Sequence[Row]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * 4
    arrays = [
        pa.array([value * SECOND for value in values] if name == "at" else values, field.type)
        for (name, field), values in zip(
            ((field.name, field) for field in SCHEMA), columns, strict=True
        )
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


class Stage:
    """An operator in some partitions, and what they have given."""

    def __init__(self, operator: KeyedOperator, parallelism: int) -> None:
        self.operator, self.given = operator, list[str]()
        self.states = [operator.initial()] * parallelism
        self.watermark = INITIAL_WATERMARK
        self.keys = ("key",) if isinstance(operator, KeyedStateful) else KEYS

    def run(self, inputs: Sequence[pa.Table], watermark: int) -> None:
        combine = getattr(self.operator, "combine", lambda rows: rows)
        count = len(self.states)
        parts = [row_hash.split(combine(rows), self.keys, count) for rows in inputs]
        for index, state in enumerate(self.states):
            own = [
                part.get(index, combine(rows.slice(0, 0)))
                for part, rows in zip(parts, inputs, strict=True)
            ]
            state, output = self.operator.process(state, own, self.watermark, watermark)
            self.states[index] = state
            self.given += map(repr, output.to_pylist())
        self.watermark = watermark

    def scale(self, parallelism: int) -> None:
        dumped = [self.operator.dump(state) for state in self.states]
        parts = savepoint_upgrade.redistributed(self.operator.state_keys, dumped, parallelism)
        self.states = [self.operator.load(tables) for tables in parts]

    @property
    def late_rows(self) -> int:
        return sum(state.late_rows for state in self.states)


@pytest.mark.parametrize("kind", OPERATORS)
@settings(max_examples=40, deadline=None)
@given(epochs=EPOCHS, parallelisms=st.lists(st.integers(1, 4), min_size=5, max_size=5))
def test_it_makes_no_difference_to_any_operator(
    kind: str, epochs: list[tuple[list[Row], list[Row], int]], parallelisms: list[int]
) -> None:
    operator = OPERATORS[kind]
    slots = 2 if kind == "join" else 1
    plain, scaled = Stage(operator, 1), Stage(operator, parallelisms[0])
    watermark = INITIAL_WATERMARK
    for (left, right, moment), parallelism in zip(epochs, parallelisms, strict=False):
        watermark = max(watermark, moment * SECOND)
        inputs = [table(left), table(right)][:slots]
        scaled.scale(parallelism)
        plain.run(inputs, watermark)
        scaled.run(inputs, watermark)
        assert sorted(scaled.given) == sorted(plain.given)
    assert scaled.late_rows == plain.late_rows
    for stage in (plain, scaled):
        stage.run([table([])] * slots, FINAL_WATERMARK)
    assert sorted(scaled.given) == sorted(plain.given)


def test_with_the_same_parallelism_every_table_stays_as_it_is() -> None:
    operator = OPERATORS["window"]
    dumped = [operator.dump(operator.initial())] * 2
    assert savepoint_upgrade.redistributed(operator.state_keys, dumped, 2) == dumped
