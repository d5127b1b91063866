"""Source partitions among readers: each offset is read by one of them, whatever their numbers."""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_source import Log

from rekindle.model.errors import DataLossError, StepError
from rekindle_spark.executor import partition, source_reading
from rekindle_spark.executor.partition import PartitionOutcome, PartitionWork
from rekindle_spark.executor.source_reading import RangesRead, RowsRead, Span
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.steps import Pipeline
from rekindle_spark.pipeline.unbounded_source import RowsAndRejects, SourceTerms
from rekindle_spark.user_code.dead_letter_sieve import Tolerance

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("offset", pa.int64())])


class Numbers:
    """Each second offset is a row, with as many seconds as event time; none behind 100."""

    schema = SCHEMA
    event_time = "at"
    terms = SourceTerms(future_seconds_max=1_000)

    def read(self, _: str, start: int, end: int) -> pa.Table:
        offsets = [n for n in range(start, min(end, 100)) if n % 2 == 0]
        times = pa.array([n * 1_000_000 for n in offsets], pa.timestamp("us"))
        return pa.table({"at": times, "offset": pa.array(offsets, pa.int64())})


def numbers_read(spans: list[Span], now: float) -> RangesRead:
    return source_reading.read(Numbers(), spans, lambda given: given, now)  # type: ignore[arg-type]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), max_size=9),
    st.integers(1, 12),
)
def test_each_offset_is_read_by_exactly_one_reader_in_order(
    lengths: list[tuple[int, int]], parallelism: int
) -> None:
    spans = [(f"p{n}", begin, begin + size, f"i{n}") for n, (begin, size) in enumerate(lengths)]
    read: dict[str, list[int]] = {name: [] for name, *_ in spans}
    for index in range(parallelism):
        for name, begin, end, identity in source_reading.share(spans, index, parallelism):
            assert identity == name.replace("p", "i")
            read[name] += range(begin, end)
    assert {name: sorted(found) for name, found in read.items()} == {
        name: list(range(begin, end)) for name, begin, end, _ in spans
    }


class Recreated(Numbers):
    """Its partitions have another identity than before; `asked` has what was done."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def read(self, partition: str, start: int, end: int) -> pa.Table:
        self.asked.append(partition)
        return super().read(partition, start, end)

    def check_identities(self, logged: Sequence[tuple[str, str]]) -> None:
        self.asked.append([*logged])
        for name, identity in logged:
            if identity != "second":
                raise DataLossError(where=name, what=f"is not {identity}", remedy="go back")


def test_rows_of_a_partition_that_was_recreated_are_not_those_that_are_logged() -> None:
    def numbers(*spans: Span) -> list[int]:
        found = source_reading.read(Recreated(), spans, lambda given: given, 0.0)  # type: ignore[arg-type]
        return list(found.rows["offset"].to_pylist())

    assert numbers(("a", 0, 4, "second"), ("a", 4, 6, ""), ("b", 5, 5, "first")) == [0, 2, 4]
    with pytest.raises(DataLossError, match="b: is not first"):
        numbers(("a", 0, 4, "second"), ("b", 0, 4, "first"))


def test_records_that_are_gone_with_their_partition_are_said_to_be_gone_with_it() -> None:
    class Emptied(Recreated):
        def read(self, partition: str, start: int, end: int) -> pa.Table:
            raise DataLossError(where=partition, what=f"has not {start} to {end}", remedy="none")

    def read(identity: str) -> None:
        spans = [("a", 0, 4, identity)]
        source_reading.read(Emptied(), spans, lambda given: given, 0.0)  # type: ignore[arg-type]

    with pytest.raises(DataLossError, match="a: is not first"):
        read("first")
    for identity in ("second", ""):
        with pytest.raises(DataLossError, match="a: has not 0 to 4"):
            read(identity)


def test_identities_are_asked_for_once_behind_all_rows() -> None:
    source, second = Recreated(), "second"
    spans = [("a", 0, 4, second), ("a", 4, 6, second), ("b", 0, 4, second), ("c", 2, 4, "")]
    source_reading.read(source, spans, lambda given: given, 0.0)  # type: ignore[arg-type]
    assert source.asked == ["a", "a", "b", "c", [("a", second), ("b", second)]]
    source.asked.clear()
    source_reading.read(source, spans[3:], lambda given: given, 0.0)  # type: ignore[arg-type]
    assert source.asked == ["c"]


def test_what_was_read_says_how_late_it_is_and_how_large() -> None:
    spans = [("a", 0, 10, ""), ("b", 100, 120, ""), ("c", 5, 5, "")]
    reading = numbers_read(spans, now=0.0)
    found = reading.read
    assert reading.rows["offset"].to_pylist() == [0, 2, 4, 6, 8]
    assert found["a"].greatest == 8_000_000
    assert (found["a"].offsets, found["a"].rows) == (10, 5)
    assert found["b"] == RowsRead(None, 20, 0)
    assert "c" not in found
    both = source_reading.merged([found, {"a": RowsRead(3, 1, 1), "d": RowsRead(None, 1, 0)}])
    assert both["a"].greatest == 8_000_000
    assert (both["a"].offsets, both["a"].rows) == (11, 5)
    assert both["d"].greatest is None


@pytest.mark.parametrize(
    ("now", "greatest", "ahead"), [(-992.0, 8, 0), (-993.0, 6, 1), (-1_001.0, None, 5)]
)
def test_rows_too_far_ahead_of_the_clock_are_read_and_do_not_count_for_the_greatest_time(
    now: float, greatest: int | None, ahead: int
) -> None:
    reading = numbers_read([("a", 0, 10, "")], now)
    assert reading.rows["offset"].to_pylist() == [0, 2, 4, 6, 8]
    found = None if greatest is None else greatest * 1_000_000
    assert reading.read == {"a": RowsRead(found, 10, reading.rows.nbytes, ahead, 5)}
    assert reading.read["a"].plus(reading.read["a"]).ahead == 2 * ahead


class Doubtful(Log):
    """A log of which each third record is no row."""

    reject_schema = pa.schema([("offset", pa.int64())])

    def read(self, partition: str, start: int, end: int) -> RowsAndRejects:  # type: ignore[override]
        bad = [n for n in range(start, end) if n % 3 == 0]
        rows = super().read(partition, start, end)
        good = pa.array([n % 3 != 0 for n in range(start, end)], pa.bool_())
        rejects = {"offset": pa.array(bad, pa.int64()), "why": ["is no row"] * len(bad)}
        return RowsAndRejects(rows.filter(good), pa.table(rejects))


def run(*, dead_letters: bool, letters_max: int = 10, readers: bool = False) -> PartitionOutcome:
    """One epoch of ten records of such a log."""
    pipeline = Pipeline("logs")
    rows = pipeline.source("one", Doubtful({"p": 10}), dead_letters=dead_letters)
    rows.sink("out")
    tolerance = Tolerance(1, letters_max)
    work = PartitionWork(0, 1, 7, spans=(("p", 0, 10, ""),), tolerance=tolerance)
    work = replace(work, readers=frozenset() if readers else None)
    built = program.build(pipeline)
    return partition.run(built, work, partition.initial(built.chains[0]), [])


def test_what_a_source_cannot_decode_is_kept_beside_with_its_reason() -> None:
    outcome = run(dead_letters=True)
    assert outcome.sinks["out"].table.num_rows == 6
    assert outcome.sinks["one.dead-letters"].table.to_pylist() == [
        {
            "offset": n,
            "dead_letter_step": "one",
            "dead_letter_epoch": 7,
            "dead_letter_error": "is no row",
        }
        for n in (0, 3, 6, 9)
    ]
    assert run(dead_letters=True).digest == outcome.digest
    assert "one.dead-letters" not in run(dead_letters=True, readers=True).sinks


def test_without_dead_letters_or_with_too_many_the_source_is_at_fault() -> None:
    with pytest.raises(StepError, match=r"step one: cannot decode 4 records in epoch 7, first off"):
        run(dead_letters=False)
    with pytest.raises(StepError, match=r"is no row; .*or raise dead_letters_max"):
        run(dead_letters=True, letters_max=3)
