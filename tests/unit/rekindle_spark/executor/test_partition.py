"""One partition, one epoch: the same state and frames give the same results, whoever runs it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from number_rows import SCHEMA, SECOND, NumberRows

from rekindle.model.errors import StepError
from rekindle_spark.executor import frames, partition
from rekindle_spark.executor.frames import Frame, Label
from rekindle_spark.executor.partition import Incomplete, PartitionOutcome, PartitionWork
from rekindle_spark.operators import StatefulOperator
from rekindle_spark.operators.stateful import Emitted, ValueState
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.program import Program
from rekindle_spark.pipeline.steps import Pipeline, largest, mean, total
from rekindle_spark.user_code import code_locations

WIDE = SCHEMA.append(pa.field("double", pa.int64()))
ROWS0, ROWS1, SUMS0, SUMS1 = range(4)


def double(table: pa.Table) -> pa.Table:
    return table.append_column("double", pc.multiply(table["size"], 2))


def built(
    function: Callable[[pa.Table], Any] = double,
    predicate: Callable[[pa.Table], Any] = lambda table: pc.greater(table["size"], 0),
) -> Program:
    """rows x2 (with two stateless steps and a sink) -> sums x2 with a sink."""
    pipeline = Pipeline("numbers")
    rows = pipeline.source("rows", NumberRows(), parallelism=2)
    wide = rows.filter("positive", predicate).map("wide", function, schema=WIDE)
    wide.sink("every-row")
    wide.window(
        "sums", keys=["key"], size_seconds=10, aggregates={"sum": total("double")}, parallelism=2
    ).sink("sums-by-key")
    return program.build(pipeline)


def read(made: Program, number: int, begin: int = 0, end: int = 40) -> PartitionOutcome:
    work = PartitionWork(number, 1, 3, begin, end, end * SECOND)
    return partition.run(made, work, partition.initial(made.owner[number]), [])


def add_up(made: Program, number: int, received: list[Frame]) -> PartitionOutcome:
    state = partition.initial(made.owner[number])
    return partition.run(made, PartitionWork(number, 1, 3), state, received)


def frames_for(made: Program, target: int) -> list[Frame]:
    blocks = [
        block
        for source in (ROWS0, ROWS1)
        for to, block in read(made, source).blocks
        if to == target
    ]
    return list(frames.frames(memoryview(b"".join(blocks))))


@given(begin=st.integers(0, 50), size=st.integers(0, 20))
def test_the_partitions_of_a_source_share_its_rows_without_gap_or_overlap(
    begin: int, size: int
) -> None:
    made = built()
    outcomes = [read(made, number, begin, begin + size) for number in (ROWS0, ROWS1)]
    sunk = [outcome.sinks.get("every-row") for outcome in outcomes]
    sizes = [n for rows in sunk if rows for n in rows.table["size"].to_pylist()]
    assert sizes == [n for n in range(begin, begin + size) if n > 0]


def test_every_target_gets_a_frame_of_every_producer_also_when_it_is_empty() -> None:
    outcome = read(built(), ROWS0, 0, 0)
    assert [target for target, _ in outcome.blocks] == [SUMS0, SUMS1]
    for _, block in outcome.blocks:
        (frame,) = frames.frames(memoryview(block))
        assert (frame.rows, frame.producer, frame.epoch) == (0, ROWS0, 3)


def test_frames_for_some_readers_are_those_that_all_would_get() -> None:
    made = built()
    whole = dict(read(made, ROWS0).blocks)
    for readers in ({SUMS1}, {SUMS0, SUMS1}, set()):
        work = PartitionWork(ROWS0, 1, 3, 0, 40, 40 * SECOND, readers=frozenset(readers))
        outcome = partition.run(made, work, partition.initial(made.owner[ROWS0]), [])
        assert dict(outcome.blocks) == {target: whole[target] for target in readers}


# Of a window of ten seconds by key what another one has otherwise, and the first of the list that
# its edge is like.
OTHERWISE: list[tuple[dict[str, Any], int]] = [
    ({}, 0),
    ({}, 0),
    ({"aggregates": {"mean": mean("size")}}, 0),
    ({"aggregates": {"most": largest("size")}}, 3),
    ({"size_seconds": 20}, 4),
    ({"slide_seconds": 5}, 5),
    ({"keys": ["key", "size"]}, 6),
    ({"parallelism": 2}, 7),
    ({"parallelism": 2}, 7),
]


def windows(*otherwise: Mapping[str, Any]) -> Program:
    pipeline = Pipeline("windows")
    rows = pipeline.source("rows", NumberRows())
    usual = {"keys": ["key"], "size_seconds": 10, "aggregates": {"sum": total("size")}}
    for number, other in enumerate(otherwise):
        window = rows.window(f"window-{number}", **{"parallelism": 3, **usual, **other})
        window.sink(f"sums-{number}")
    return program.build(pipeline)


def test_windows_over_the_same_rows_get_what_each_would_get_alone() -> None:
    together = windows(*(other for other, _ in OTHERWISE))
    assert together.alike == tuple(first for _, first in OTHERWISE)
    got = read(together, 0).blocks
    for chain, (other, _) in zip(together.chains[1:], OTHERWISE, strict=True):
        alone = read(windows(other), 0).blocks
        found = [block for target, block in got if target in chain.partitions]
        assert list(map(rows_of, found)) == [rows_of(block) for _, block in alone]


def rows_of(block: bytes) -> tuple[int, bytes, bytes]:
    (frame,) = frames.frames(memoryview(block))
    return frame.rows, frame.digest, bytes(frame.payload)


def test_the_same_work_twice_gives_the_same_blocks_rows_and_digests() -> None:
    first, again = (read(built(), ROWS1) for _ in range(2))
    assert first.digest == again.digest
    assert first.blocks == again.blocks
    assert first.sinks == again.sinks
    other = read(built(), ROWS1, 1, 41)
    assert other.digest != first.digest


def test_frames_are_taken_in_one_order_however_they_come() -> None:
    made = built()
    received = frames_for(made, SUMS0)
    one, other = (add_up(made, SUMS0, f) for f in (received, received[::-1]))
    assert one.digest == other.digest
    assert one.rows == sum(frame.rows for frame in received)


class Positions(StatefulOperator):
    """Numbers a key's rows as they come."""

    value_schema = pa.schema([("rows", pa.int64())])

    def handle(
        self, key: tuple[Any, ...], rows: list[dict[str, Any]], value: ValueState
    ) -> Iterable[Emitted]:
        (count,) = value.get() if value.exists() else (0,)
        for row in rows:
            count += 1
            yield (row["at"], key[0], row["size"], count)
        value.update((count,))


def numbered(order: int, *, ordered: bool) -> list[tuple[Any, ...]]:
    """What an operator in arrival order makes of its frames, last producer first if `order` < 0."""
    pipeline = Pipeline("positions")
    schema = SCHEMA.append(pa.field("position", pa.int64()))
    pipeline.source("rows", NumberRows(), parallelism=2).stateful(
        "numbered", Positions(), keys=["key"], schema=schema, arrival_order=True
    ).sink("positions")
    made = program.build(pipeline)
    blocks = [block for source in (ROWS0, ROWS1) for _, block in read(made, source).blocks]
    received = list(frames.frames(memoryview(b"".join(blocks))))[::order]
    state = partition.initial(made.owner[2])
    outcome = partition.run(made, PartitionWork(2, 1, 3, ordered=ordered), state, received)
    return sorted(outcome.sinks["positions"].table.to_pylist(), key=str)


def test_an_operator_in_arrival_order_repeats_itself_while_input_is_ordered() -> None:
    assert numbered(1, ordered=True) == numbered(-1, ordered=True)


def test_an_operator_in_arrival_order_follows_the_frames_while_input_is_not_ordered() -> None:
    assert numbered(1, ordered=False) == numbered(1, ordered=False)
    assert numbered(1, ordered=False) != numbered(-1, ordered=False)


def test_files_of_what_a_repeat_may_give_otherwise_tell_attempts_apart() -> None:
    made = built()
    work = PartitionWork(ROWS0, 7, 3, 0, 40, 40 * SECOND, ordered=False, attempt="-7-2")
    outcome = partition.run(made, work, partition.initial(made.owner[ROWS0]), [])
    assert outcome.sinks["every-row"].file == "0-000000003-7-2.parquet"


def test_a_frame_that_comes_twice_counts_once() -> None:
    made = built()
    received = frames_for(made, SUMS0)
    once, twice = (add_up(made, SUMS0, f) for f in (received, received * 2))
    assert once.digest == twice.digest


def test_a_missing_frame_is_noticed_and_named() -> None:
    made = built()
    received = frames_for(made, SUMS0)
    with pytest.raises(Incomplete, match=r"no frame of rows/1 in epoch 3"):
        add_up(made, SUMS0, received[:1])


def test_two_different_frames_of_one_producer_are_noticed() -> None:
    made = built()
    received = frames_for(made, SUMS0)
    (other,) = frames.frames(memoryview(frames.encode(Label(0, ROWS0, SUMS0, 1, 3, 0), None)))
    with pytest.raises(Incomplete, match="two different frames of producer 0"):
        add_up(made, SUMS0, [*received, other])


def test_frames_of_one_producer_that_differ_in_their_rows_alone_are_noticed() -> None:
    made = built()
    first, *received = frames_for(made, SUMS0)
    other = replace(first, digest=bytes(8))
    with pytest.raises(Incomplete, match="two different frames of producer 0"):
        add_up(made, SUMS0, [first, *received, other])


def test_the_watermark_is_the_least_of_all_producers() -> None:
    made = built()
    labels = [Label(0, producer, SUMS0, 1, 3, at) for producer, at in ((ROWS0, 7), (ROWS1, 5))]
    blocks = [frames.encode(label, None) for label in labels]
    received = list(frames.frames(memoryview(b"".join(blocks))))
    assert add_up(made, SUMS0, received).state.watermark == 5


def test_rows_of_a_sink_are_to_go_to_a_file_named_after_partition_and_epoch() -> None:
    sunk = read(built(), ROWS1).sinks["every-row"]
    assert sunk.file == "1-000000003.parquet"
    assert sunk.digest == frames.digest(sunk.table).hex()


def test_a_sink_without_rows_gets_nothing() -> None:
    assert read(built(), ROWS0, 0, 0).sinks == {}


def fail(table: pa.Table) -> pa.Table:
    raise KeyError(f"no column\nof {table.num_columns}")


def leave(table: pa.Table) -> pa.Table:
    raise SystemExit(f"{table.num_rows} rows")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (fail, "step wide: raised KeyError: 'no column"),
        (leave, "step wide: raised SystemExit: "),
        (lambda table: table, "step wide: returned at: timestamp"),
        (lambda table: table.num_rows, "step wide: returned int where at: timestamp"),
        (lambda table: double(table).cast(pa.schema([*SCHEMA, ("double", pa.int32())])), "int32"),
    ],
)
def test_a_wrong_function_is_named_in_one_line(function: Any, words: str) -> None:
    with pytest.raises(StepError, match=words) as raised:
        read(built(function), ROWS0)
    assert "\n" not in str(raised.value)
    assert raised.value.remedy


@pytest.mark.parametrize(
    ("function", "remedy"),
    [
        (lambda table: table.to_pandas(), "Table.from_pandas("),
        (lambda table: polars.from_arrow(table), "to_arrow()"),
    ],
)
def test_a_table_of_another_library_is_refused_with_how_it_becomes_one(
    function: Any, remedy: str
) -> None:
    with pytest.raises(StepError) as raised:
        read(built(function), ROWS0)
    assert remedy in raised.value.remedy


@pytest.mark.parametrize(
    "predicate",
    [
        lambda table: 1 / (table.num_rows * 0),
        lambda _: pc.field("nowhere"),
    ],
)
def test_a_predicate_that_raises_is_named(predicate: Any) -> None:
    with pytest.raises(StepError, match="step positive: raised "):
        read(built(predicate=predicate), ROWS0)


@pytest.mark.parametrize(
    ("predicate", "got"),
    [
        (lambda table: [True] * table.num_rows, "list"),
        (lambda _: None, "NoneType"),
        (lambda _: True, "bool"),
        (lambda table: table["size"], "ChunkedArray of 20 values of type int64"),
        (lambda table: table, "Table"),
        (
            lambda table: pa.array([True] * (table.num_rows - 1)),
            "BooleanArray of 19 values of type bool",
        ),
        (lambda table: np.zeros(table.num_rows), "ndarray of 20 values of type double"),
        (lambda table: pa.nulls(table.num_rows), "NullArray of 20 values of type null"),
    ],
)
def test_a_predicate_that_returns_something_else_is_told_what_it_has_to_return(
    predicate: Any, got: str
) -> None:
    with pytest.raises(StepError) as caught:
        read(built(predicate=predicate), ROWS0)
    line = predicate.__code__.co_firstlineno
    assert caught.value.where == "step positive"
    assert caught.value.what == (
        f"returned {got} where 20 truth values were expected, one for each row, "
        f"by <lambda> ({code_locations.place(__file__, line)})"
    )
    assert "pyarrow array of type bool" in caught.value.remedy


@pytest.mark.parametrize(
    "predicate",
    [
        lambda table: pc.greater(table["size"], 0),
        lambda _: pc.field("size") > 0,
        lambda table: np.asarray(table["size"]) > 0,
    ],
)
def test_truth_values_are_those_of_arrow_and_numpy_and_expressions(predicate: Any) -> None:
    expected = read(built(), ROWS0).sinks["every-row"].digest
    assert read(built(predicate=predicate), ROWS0).sinks["every-row"].digest == expected
