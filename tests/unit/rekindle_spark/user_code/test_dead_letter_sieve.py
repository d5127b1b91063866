"""Records for which a user's function raises: the step says which one, or leaves them out."""

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from number_rows import SCHEMA, NumberRows

from rekindle.model.errors import InputError, StepError
from rekindle_spark.executor import frames, partition
from rekindle_spark.executor.partition import PartitionOutcome, PartitionWork
from rekindle_spark.operators import FINAL_WATERMARK, StatefulOperator
from rekindle_spark.operators.stateful import Emitted, ValueState
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.program import Program
from rekindle_spark.pipeline.steps import Pipeline, Stream
from rekindle_spark.user_code.dead_letter_sieve import Tolerance

Function = Callable[[pa.Table], Any]


class Sums(StatefulOperator):
    """Adds up a key's sizes in a list, and raises halfway through at poison."""

    value_schema = pa.schema([("sizes", pa.list_(pa.int64()))])

    def __init__(self, poison: frozenset[int]) -> None:
        self.poison = poison

    def handle(
        self, key: tuple[Any, ...], rows: list[dict[str, Any]], value: ValueState
    ) -> Iterable[Emitted]:
        for row in rows:
            sizes = (value.get() or ([],))[0]
            sizes.append(row["size"])
            value.update((sizes,))
            yield (row["at"], key[0], sum(sizes))
            if row["size"] in self.poison:
                raise ValueError(f"poison at {object()}")


def raising(poison: Iterable[int], tried: list[int] | None = None) -> Function:
    """A function that raises for tables with these sizes; `tried` gets the rows of each call."""
    wrong = pa.array(list(poison), pa.int64())

    def function(table: pa.Table) -> pa.Table:
        if tried is not None:
            tried.append(table.num_rows)
        if pc.any(pc.is_in(table["size"], wrong)).as_py():
            raise ValueError(f"poison at {object()}")
        return table

    return function


def built(attach: Callable[[Stream], Stream]) -> Program:
    pipeline = Pipeline("numbers")
    attach(pipeline.source("rows", NumberRows(), parallelism=2)).sink("out")
    return program.build(pipeline)


def mapped(function: Function, *, dead_letters: bool = True) -> Program:
    return built(
        lambda rows: rows.map("checked", function, schema=SCHEMA, dead_letters=dead_letters)
    )


def summed(poison: Iterable[int], *, dead_letters: bool = True) -> Program:
    sums = Sums(frozenset(poison))
    return built(
        lambda rows: rows.stateful(
            "sums", sums, keys=["key"], schema=SCHEMA, dead_letters=dead_letters
        )
    )


def read(
    made: Program,
    tolerance: Tolerance = Tolerance(3, 100),  # noqa: B008
    number: int = 1,
) -> PartitionOutcome:
    work = PartitionWork(number, 1, 3, 0, 40, FINAL_WATERMARK, tolerance=tolerance)
    return partition.run(made, work, partition.initial(made.owner[number]), [])


def add_up(made: Program, tolerance: Tolerance = Tolerance(3, 100)) -> PartitionOutcome:  # noqa: B008
    """The stateful step after all that the source gives."""
    blocks = [block for number in (0, 1) for _, block in read(made, number=number).blocks]
    received = list(frames.frames(memoryview(b"".join(blocks))))
    state = partition.initial(made.owner[2])
    return partition.run(made, PartitionWork(2, 1, 3, tolerance=tolerance), state, received)


def sizes(outcome: PartitionOutcome, output: str) -> list[int]:
    found: list[int] = outcome.sinks[output].table["size"].to_pylist()
    return found


def test_without_dead_letters_the_error_says_where_the_row_is() -> None:
    with pytest.raises(StepError) as caught:
        read(mapped(raising([33, 37]), dead_letters=False))
    assert str(caught.value).startswith("step checked: raised ValueError: poison at <object")
    place = "at epoch 3 of rows/1, source row 33, at=1970-01-01 00:00:33.000000, key='key-3', size"
    assert place in str(caught.value)
    assert "dead_letters=True" in caught.value.remedy


def test_behind_a_filter_the_row_is_told_by_its_place_among_the_steps_rows() -> None:
    def is_even(table: pa.Table) -> pa.Array:
        return pc.equal(pc.bit_wise_and(table["size"], 1), 0)

    def attach(rows: Stream) -> Stream:
        return rows.filter("even", is_even).map("checked", raising([24]), schema=SCHEMA)

    with pytest.raises(StepError, match=r"epoch 3 of rows/1, row 2, at=.* 00:00:24"):
        read(built(attach))


def test_a_long_value_is_cut() -> None:
    def attach(rows: Stream) -> Stream:
        schema = pa.schema([("at", pa.timestamp("us")), ("note", pa.string())])
        noted = rows.map(
            "noted",
            lambda table: pa.table({"at": table["at"], "note": ["x" * 500] * len(table)}, schema),
            schema=schema,
        )
        return noted.filter("checked", lambda table: 1 / (len(table) - len(table)))

    with pytest.raises(StepError, match=r"row 0, at=.*, note='x{36}\.\.\., in <lambda> \("):
        read(built(attach))


@given(poison=st.sets(st.integers(20, 38), min_size=1))
def test_rows_that_raise_are_left_out_and_kept_beside(poison: set[int]) -> None:
    outcome = read(mapped(raising(poison)))
    assert sizes(outcome, "out") == [size for size in range(20, 40) if size not in poison]
    letters = outcome.sinks["checked.dead-letters"]
    assert letters.file == "1-000000003.parquet"
    assert letters.table["size"].to_pylist() == sorted(poison)
    assert set(letters.table["dead_letter_step"].to_pylist()) == {"checked"}
    assert set(letters.table["dead_letter_epoch"].to_pylist()) == {3}
    assert all("poison" in text for text in letters.table["dead_letter_error"].to_pylist())


def test_a_repeat_gives_the_same_digest_however_the_error_is_worded() -> None:
    first, again = (read(mapped(raising([33]))) for _ in range(2))
    assert first.digest == again.digest
    assert first.digest != read(mapped(raising([34]))).digest
    assert first.sinks["checked.dead-letters"].digest == again.sinks["checked.dead-letters"].digest


def test_a_function_that_never_raises_is_called_once() -> None:
    tried: list[int] = []
    read(mapped(raising([], tried)))
    assert tried == [20]


def test_a_row_is_tried_as_often_as_is_wanted_before_it_is_left_out() -> None:
    tried: list[int] = []
    read(mapped(raising([33], tried)), Tolerance(7, 100))
    # nothing but the row in question is looked at alone as often
    assert tried.count(1) >= 7
    assert tried[-1] == 19


def test_a_row_that_raises_less_often_than_it_is_tried_is_no_letter() -> None:
    left = [6]

    def function(table: pa.Table) -> pa.Table:
        if 33 in table["size"].to_pylist() and left[0]:
            left[0] -= 1
            raise ValueError("away")
        return table

    outcome = read(mapped(function))
    assert sizes(outcome, "out") == list(range(20, 40))
    assert outcome.sinks.keys() == {"out"}


def test_too_many_letters_are_a_broken_function() -> None:
    assert len(sizes(read(mapped(raising(range(30, 34))), Tolerance(3, 4)), "out")) == 16
    with pytest.raises(StepError, match=r"source row 34, .*, after 4 dead letters"):
        read(mapped(raising(range(30, 35))), Tolerance(3, 4))


def test_letters_may_be_a_number_or_a_share_of_the_rows_whichever_is_more() -> None:
    a_third = Tolerance(1, 4, 33.0)
    assert len(sizes(read(mapped(raising(range(30, 36))), a_third), "out")) == 14
    with pytest.raises(StepError) as caught:
        read(mapped(raising(range(30, 37))), a_third)
    assert "after 6 dead letters of 20 rows, the most it may have" in caught.value.what
    remedy = "raise dead_letters_max or dead_letters_percent_max in the settings"
    assert caught.value.remedy.endswith(remedy)


def test_the_share_of_letters_of_a_stateful_step_is_that_of_its_rows() -> None:
    with pytest.raises(StepError, match="after 2 dead letters of 40 rows"):
        add_up(summed({11, 13, 27}), Tolerance(1, 1, 5.0))


@pytest.mark.parametrize("dead_letters", [False, True])
def test_rows_that_raise_only_together_make_no_letters(dead_letters: bool) -> None:
    def function(table: pa.Table) -> pa.Table:
        if {22, 39} <= set(table["size"].to_pylist()):
            raise ValueError("both")
        return table

    with pytest.raises(StepError, match="raised ValueError: both, at epoch 3 of rows/1, no single"):
        read(mapped(function, dead_letters=dead_letters))


def test_what_a_source_makes_for_some_readers_has_no_letters() -> None:
    made = built(
        lambda rows: rows.map("checked", raising([33]), schema=SCHEMA, dead_letters=True).top(
            "best", by="size", count=3
        )
    )
    work = PartitionWork(
        1, 1, 3, 0, 40, FINAL_WATERMARK, readers=frozenset([2]), tolerance=Tolerance(3, 9)
    )
    assert partition.run(made, work, partition.initial(made.owner[1]), []).sinks == {}


def test_a_stateful_step_goes_on_as_if_its_letters_had_never_come() -> None:
    outcome, poison = add_up(summed({11, 27})), {11, 27}
    sums: dict[int, int] = {}
    wanted = []
    for size in (size for size in range(40) if size not in poison):
        sums[size % 5] = sums.get(size % 5, 0) + size
        wanted.append((f"key-{size % 5}", sums[size % 5]))
    out = outcome.sinks["out"].table
    found = list(zip(out["key"].to_pylist(), out["size"].to_pylist(), strict=True))
    assert sorted(found) == sorted(wanted)
    letters = outcome.sinks["sums.dead-letters"].table
    assert letters["size"].to_pylist() == [11, 27]
    assert letters["key"].to_pylist() == ["key-1", "key-2"]
    ((sizes_held,), _) = outcome.state.operator.values["key-1",]
    assert sizes_held == [size for size in range(1, 40, 5) if size != 11]


def test_a_stateful_step_without_dead_letters_says_which_row_it_is() -> None:
    with pytest.raises(StepError, match=r"epoch 3 of sums/0, at=.* 00:00:11\.0+, key='key-1', siz"):
        add_up(summed({11}, dead_letters=False))


def test_letters_are_an_output_beside_the_queries_and_no_part_of_what_a_store_belongs_to() -> None:
    made, strict = mapped(raising([])), mapped(raising([]), dead_letters=False)
    assert made.chains[0].outputs == ("out", "checked.dead-letters")
    assert [query.name for query in made.topology.queries] == ["out"]
    assert made.hash == strict.hash


def test_names_that_belong_to_dead_letters_are_refused() -> None:
    rows = Pipeline("numbers").source("rows", NumberRows())
    with pytest.raises(InputError, match="has the name of an output of dead letters"):
        rows.sink("checked.dead-letters")
    with pytest.raises(InputError, match="dead_letters: is 1; give True or False"):
        rows.filter("checked", raising([]), dead_letters=1)  # type: ignore[arg-type]
    schema = SCHEMA.append(pa.field("dead_letter_step", pa.string()))
    named = rows.map("named", raising([]), schema=schema)
    with pytest.raises(InputError, match="column 'dead_letter_step': has the name of a column"):
        named.filter("checked", raising([]), dead_letters=True)


def test_a_panic_of_a_library_is_raised_by_the_step_though_it_is_no_exception() -> None:
    class Panic(BaseException):
        """As libraries in other languages raise it."""

    def function(_table: pa.Table) -> pa.Table:
        raise Panic("unreachable")

    with pytest.raises(StepError, match="step checked: raised Panic: unreachable, at epoch 3"):
        read(mapped(function, dead_letters=False))
