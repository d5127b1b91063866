"""Rows that come too late for a keyed step: counted, and in an output beside where asked for."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from rekindle.model.errors import InputError
from rekindle_spark.executor import frames, partition
from rekindle_spark.executor.frames import Label
from rekindle_spark.executor.partition import PartitionOutcome, PartitionState, PartitionWork
from rekindle_spark.operators import StatefulOperator, arrow_columns
from rekindle_spark.operators.stateful import ValueState
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.program import Program
from rekindle_spark.pipeline.steps import Pipeline, Stream, count
from rekindle_testing.runtime_builders import UnreadSource

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string()), ("size", pa.int64())])
SECOND = 1_000_000
KEYS = ["key"]
ADDED = ["late_step", "late_epoch", "late_watermark"]


class Last(StatefulOperator):
    """Emits each row."""

    value_schema = pa.schema([("size", pa.int64())])

    def handle(self, key: Any, rows: Any, value: ValueState) -> Any:
        for row in rows:
            yield row["at"], key[0], row["size"]
            value.update((row["size"],))


def keyed(rows: Stream, kind: str, **options: Any) -> Stream:
    if kind == "window":
        return rows.window("step", keys=KEYS, size_seconds=10, aggregates={"n": count()}, **options)
    if kind == "top":
        return rows.top("step", by="size", count=1, keys=KEYS, **options)
    if kind == "stateful":
        return rows.stateful("step", Last(), keys=KEYS, schema=SCHEMA, **options)
    other = rows.pipeline.source("others", UnreadSource(SCHEMA, "at"))
    return rows.join("step", other, keys=KEYS, within_seconds=5, **options)


def built(kind: str, **options: Any) -> Program:
    pipeline = Pipeline("late")
    rows = pipeline.source("rows", UnreadSource(SCHEMA, "at"))
    keyed(rows, kind, **options).sink("out")
    return program.build(pipeline)


def table(*rows: tuple[int | None, int]) -> pa.Table:
    """Rows of one key by their second and size."""
    seconds = [None if second is None else second * SECOND for second, _ in rows]
    return pa.table(
        [pa.array(seconds, pa.timestamp("us")), ["a"] * len(rows), [size for _, size in rows]],
        schema=SCHEMA,
    )


def run(
    made: Program, state: PartitionState, epoch: int, watermark: int, *inputs: pa.Table
) -> PartitionOutcome:
    """An epoch of the keyed step, whose input producers send as they do."""
    chain = made.chains[-1]
    received = []
    for edge, rows in zip(made.inputs[chain.index], inputs, strict=True):
        sent = chain.root.function.combine(rows) if edge.combine else rows
        packed = frames.pack(arrow_columns.batch(sent))
        producer = made.chains[edge.producer].first
        label = Label(edge.index, producer, 0, 1, epoch, watermark * SECOND)
        (block,) = frames.encode_each(label, [(chain.first, packed)])
        received += frames.frames(memoryview(block))
    return partition.run(made, PartitionWork(chain.first, 1, epoch), state, received)


def second_epoch(made: Program, *late: tuple[int | None, int]) -> PartitionOutcome:
    """What comes of rows behind a watermark of 30 s, among them late ones; a join has them left."""
    nothing = [table()] * (len(made.chains[-1].root.inputs) - 1)
    begun = partition.initial(made.chains[-1])
    first = run(made, begun, 1, 30, table((5, 1), (29, 2)), *nothing)
    assert first.late == 0
    return run(made, first.state, 2, 60, table((45, 3), *late), *nothing)


LATE: list[tuple[int | None, int]] = [(12, 7), (None, 8), (30, 9)]


@pytest.mark.parametrize(
    ("kind", "expected"), [("window", 2), ("top", 3), ("stateful", 3), ("join", 3)]
)
def test_late_rows_are_counted_by_epoch_and_kept_where_that_is_asked_for(
    kind: str, expected: int
) -> None:
    plain, kept = built(kind), built(kind, late=True)
    without, beside = second_epoch(plain, *LATE), second_epoch(kept, *LATE)
    assert (without.late, beside.late) == (expected, expected)
    assert beside.state.operator.late_rows == without.state.operator.late_rows == expected
    output = "step.late-left" if kind == "join" else "step.late"
    assert without.sinks.keys() == beside.sinks.keys() - {output}
    for name, sunk in without.sinks.items():
        assert sunk.table.equals(beside.sinks[name].table)
    rows = beside.sinks[output].table
    # the window of the last row ends at 40 s
    wanted = [row for row in LATE if kind != "window" or row[0] != 30]
    assert rows["size"].to_pylist() == [size for _, size in wanted]
    assert rows.column_names == [*SCHEMA.names, *ADDED]
    reached = datetime(1970, 1, 1) + timedelta(seconds=30)
    marks = rows.select(ADDED).to_pylist()
    assert marks == [dict(zip(ADDED, ("step", 2, reached), strict=True))] * len(wanted)
    assert beside.sinks[output].file == "0-000000002.parquet"
    assert beside.digest != without.digest


def test_a_row_that_nobody_can_place_in_time_is_late_before_any_watermark() -> None:
    made = built("window", late=True)
    outcome = run(made, partition.initial(made.chains[-1]), 1, 30, table((None, 4)))
    rows = outcome.sinks["step.late"].table
    assert (outcome.late, rows["late_watermark"].to_pylist()) == (1, [None])


def test_each_side_of_a_join_has_an_output_of_its_own() -> None:
    made = built("join", late=True)
    assert made.chains[-1].outputs == ("out", "step.late-left", "step.late-right")
    begun = run(made, partition.initial(made.chains[-1]), 1, 30, table(), table())
    outcome = run(made, begun.state, 2, 40, table((31, 1)), table((1, 2), (2, 3)))
    assert outcome.late == 2
    assert outcome.sinks["step.late-right"].table["size"].to_pylist() == [2, 3]
    assert "step.late-left" not in outcome.sinks


def test_without_late_rows_nothing_is_written_and_producers_send_whole_rows() -> None:
    made = built("window", late=True)
    assert made.edges[0].schema == SCHEMA
    outcome = second_epoch(made)
    assert (outcome.late, outcome.sinks.keys()) == (0, {"out"})


@pytest.mark.parametrize("kind", ["window", "top", "stateful", "join"])
def test_a_savepoint_may_lie_between_a_step_with_late_rows_and_one_without(kind: str) -> None:
    plain, kept = built(kind), built(kind, late=True)
    assert plain.hash != kept.hash
    assert plain.steps == kept.steps


def refused(build: Any, words: Sequence[str]) -> None:
    with pytest.raises(InputError) as raised:
        build()
    assert all(word in str(raised.value) for word in words)


def test_what_late_rows_cannot_be_kept_with_is_refused() -> None:
    pipeline = Pipeline("late")
    schema = SCHEMA.append(pa.field("late_epoch", pa.int64()))
    rows = pipeline.source("rows", UnreadSource(schema, "at"))
    refused(lambda: keyed(rows, "top", late=True), ["step step: column 'late_epoch'", "rename it"])
    refused(lambda: keyed(rows, "top", late="yes"), ["step step: late", "give True or False"])
    plain = pipeline.source("plain", UnreadSource(SCHEMA, "at"))
    keyed(plain, "window", late=True).sink("step.late")
    alike = SCHEMA.append(pa.field("Late_Epoch", pa.int64()))
    other = Pipeline("alike")
    keyed(other.source("alike", UnreadSource(alike, "at")), "window", late=True).sink("out")
    refused(lambda: program.build(other), ["step step: late rows: ", "'Late_Epoch'"])
    rows.sink("all")
    refused(lambda: program.build(pipeline), ["step step.late: has the name of an output of late"])
