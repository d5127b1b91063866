"""An epoch in which nothing happens gives the same whether it is skipped or run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rekindle_spark.executor import frames, partition
from rekindle_spark.executor.frames import Frame
from rekindle_spark.executor.partition import (
    Incomplete,
    PartitionOutcome,
    PartitionState,
    PartitionWork,
    QuietSteps,
)
from rekindle_spark.operators import StatefulOperator
from rekindle_spark.operators.stateful import Emitted, ValueState
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.program import Program
from rekindle_spark.pipeline.steps import Pipeline, Stream, count, total
from rekindle_spark.testing import TableSource

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string()), ("size", pa.int64())])
SECOND = 1_000_000

Row = tuple[int, str, int]


class Steps(StatefulOperator):
    """Numbers a key's rows; a value is dropped after three seconds without one."""

    value_schema = pa.schema([("n", pa.int64())])
    ttl_seconds = 3.0

    def handle(
        self, key: tuple[Any, ...], rows: list[dict[str, Any]], value: ValueState
    ) -> Iterable[Emitted]:
        known = value.get()
        n = known[0] if known else 0
        for row in rows:
            n += 1
            yield {**row, "key": key[0], "size": n}
        value.update((n,))


class UnsortedRows(TableSource):
    """Rows in any order, so that some come late."""

    def check(self, step: str) -> None: ...


@dataclass(frozen=True)
class Epoch:
    """Rows of both sources, and the watermark behind them, in seconds."""

    lefts: list[Row]
    rights: list[Row]
    watermark: int


def table(rows: Sequence[Row]) -> pa.Table:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    return pa.table(
        [pa.array(v, f.type) for v, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def every_kind(lefts: pa.Table, rights: pa.Table) -> Program:
    """Each operator, and steps without keys before and behind."""
    pipeline = Pipeline("kinds")
    left = pipeline.source("lefts", UnsortedRows(lefts, "at"), parallelism=2)
    right = pipeline.source("rights", UnsortedRows(rights, "at"))
    right = right.filter("large", lambda rows: pc.greater(rows["size"], 0))
    sums = left.window(
        "sums", keys=["key"], size_seconds=4, slide_seconds=2, aggregates={"n": count()}
    )
    sums.map("halves", lambda rows: rows, schema=sums.schema, event_time="window_end").top(
        "best", by="n", count=1, ties=["key"]
    ).sink("tops")
    left.join("near", right, keys=["key"], within_seconds=2, parallelism=2).sink("pairs")
    steps = pipeline.union("both", left, right).stateful(
        "steps", Steps(), keys=["key"], schema=SCHEMA, parallelism=2, late=True
    )
    steps.sink("numbers")
    steps.window("totals", keys=["key"], size_seconds=3, aggregates={"t": total("size")}).sink("t")
    return program.build(pipeline)


@dataclass
class Runner:
    """Runs epochs of a program one after the other; with `quiet` those that may be are skipped."""

    made: Program
    quiet: QuietSteps | None
    skipped: int = 0
    begun: dict[str, int] = field(default_factory=lambda: {"lefts": 0, "rights": 0})
    states: dict[int, PartitionState] = field(default_factory=dict)

    def run(
        self, epoch: int, rows: Mapping[str, int], watermark: int
    ) -> dict[int, PartitionOutcome]:
        spans = {name: (begin, begin + rows[name]) for name, begin in self.begun.items()}
        self.begun = {name: end for name, (_, end) in spans.items()}
        blocks: dict[int, list[bytes]] = {}
        found: dict[int, PartitionOutcome] = {}
        for number, chain in enumerate(self.made.owner):
            work = PartitionWork(number, 1, epoch)
            if not chain.keyed:
                begin, end = spans[chain.name]
                work = replace(work, begin=begin, end=end, watermark=watermark)
            state = self.states.get(number, partition.initial(chain))
            received = list(frames.frames(memoryview(b"".join(blocks.get(number, [])))))
            found[number] = outcome = self.outcome(work, state, received)
            self.states[number] = outcome.state
            for target, block in outcome.blocks:
                blocks.setdefault(target, []).append(block)
        return found

    def outcome(
        self, work: PartitionWork, state: PartitionState, received: Sequence[Frame]
    ) -> PartitionOutcome:
        if self.quiet is not None:
            skipped = partition.skip(self.made, work, state, received, self.quiet)
            if skipped is not None:
                self.skipped += 1
                return skipped
        return partition.run(self.made, work, state, received, quiet=self.quiet)


def told(made: Program, number: int, outcome: PartitionOutcome) -> object:
    """All that comes of an epoch, the state as a checkpoint has it."""
    chain, operator = made.owner[number], outcome.state.operator
    state = chain.root.function.dump(operator) if chain.keyed else None
    given_ = (outcome.blocks, outcome.digest, outcome.rows, outcome.late, outcome.sinks)
    beside = (outcome.taps, outcome.choices, outcome.read)
    return outcome.state.watermark, state, *given_, *beside


def without_rows(watermark: int) -> Epoch:
    return Epoch([], [], watermark)


moments = st.integers(0, 30 * SECOND)
rows_ = st.lists(st.tuples(moments, st.sampled_from(["a", "b", "c"]), st.integers(-1, 9)))
watermarks = st.integers(0, 34)
epochs = st.builds(Epoch, rows_, rows_, watermarks) | st.builds(without_rows, watermarks)


@settings(max_examples=15)
@given(st.lists(epochs, min_size=2, max_size=10))
def test_skipping_gives_the_same_outputs_digests_and_states(course: list[Epoch]) -> None:
    lefts = table([row for epoch in course for row in epoch.lefts])
    rights = table([row for epoch in course for row in epoch.rights])
    made = every_kind(lefts, rights)
    whole, short = Runner(made, None), Runner(made, set())
    watermark = -1
    for number, epoch in enumerate([without_rows(0), *course, without_rows(99)], 1):
        watermark = max(watermark, epoch.watermark * SECOND)
        rows = {"lefts": len(epoch.lefts), "rights": len(epoch.rights)}
        expected, found = whole.run(number, rows, watermark), short.run(number, rows, watermark)
        for partition_ in found:
            assert told(made, partition_, found[partition_]) == told(
                made, partition_, expected[partition_]
            )


def test_an_epoch_without_rows_is_skipped_once_steps_have_seen_one_and_its_watermark_moves() -> (
    None
):
    rows = [(n * SECOND, "ab"[n % 2], n) for n in range(8)]
    made = every_kind(table(rows), table(rows))
    runner = Runner(made, set())
    runner.run(1, {"lefts": 0, "rights": 0}, 0)
    runner.run(2, {"lefts": 8, "rights": 8}, SECOND // 4)
    before, runner.skipped = dict(runner.states), 0
    found = runner.run(3, {"lefts": 0, "rights": 0}, SECOND // 2)
    assert runner.skipped == len(made.owner)
    for number, outcome in found.items():
        assert outcome.state.watermark == SECOND // 2
        assert outcome.state.operator is before[number].operator


def counted(function: Callable[[pa.Table], pa.Table], **more: Any) -> tuple[Program, list[int]]:
    """A source, and a map that notes how many rows each call of it is given."""
    calls: list[int] = []

    def noted(rows: pa.Table) -> pa.Table:
        calls.append(rows.num_rows)
        return function(rows)

    pipeline = Pipeline("calls")
    stream: Stream = pipeline.source("lefts", TableSource(table([]), "at"))
    stream.map("noted", noted, schema=SCHEMA, **more).sink("out")
    return program.build(pipeline), calls


def ran(made: Program, times: int) -> list[int]:
    """How many rows come of each of some epochs without input."""
    runner = Runner(made, set())
    runner.begun = {"lefts": 0}
    found = [runner.run(number, {"lefts": 0}, number)[0] for number in range(1, times + 1)]
    return [sum(sunk.table.num_rows for sunk in outcome.sinks.values()) for outcome in found]


def test_a_function_that_gives_no_rows_for_none_is_called_once_for_that() -> None:
    made, calls = counted(lambda rows: rows)
    assert ran(made, 3) == [0, 0, 0]
    assert calls == [0]


def test_a_function_that_gives_rows_for_none_runs_in_every_epoch() -> None:
    made, calls = counted(lambda _: table([(0, "a", 1)]))
    assert ran(made, 3) == [1, 1, 1]
    assert calls == [0, 0, 0]


def test_a_function_that_may_give_something_else_runs_in_every_epoch() -> None:
    made, calls = counted(lambda rows: rows, deterministic=False)
    assert ran(made, 3) == [0, 0, 0]
    assert calls == [0, 0, 0]


def test_a_partition_that_lacks_a_frame_is_not_skipped() -> None:
    made = every_kind(table([]), table([]))
    runner = Runner(made, set())
    runner.run(1, {"lefts": 0, "rights": 0}, 0)
    number = made.numbers["sums/0"]
    assert runner.quiet is not None
    with pytest.raises(Incomplete, match="no frame of lefts/"):
        partition.skip(made, PartitionWork(number, 1, 2), runner.states[number], [], runner.quiet)
