"""Dead letters are remembered: a repeat of a committed epoch leaves out exactly the same rows."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from number_rows import SCHEMA, NumberRows

from rekindle.model.errors import StepError
from rekindle_spark.checkpoint.restore_points import RestorePoints
from rekindle_spark.driver.partition_table import PartitionTable
from rekindle_spark.executor import frames, host_answers, partition
from rekindle_spark.executor.partition import PartitionOutcome, PartitionWork
from rekindle_spark.jobs import job_specs
from rekindle_spark.operators import FINAL_WATERMARK, StatefulOperator
from rekindle_spark.operators.stateful import Emitted, ValueState
from rekindle_spark.output import dead_letters
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.program import Program
from rekindle_spark.pipeline.steps import Pipeline, Stream
from rekindle_spark.store.checkpoint_store import StoreHistory
from rekindle_spark.store.commit_summary import CommitSummary
from rekindle_spark.user_code.dead_letter_sieve import LeftOutRows, Tolerance

TOLERANCE = Tolerance(2, 100)
NOTHING = LeftOutRows()


class Away:
    """A service without which a function raises for some rows; `calls` counts."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = set(sizes)
        self.calls = 0

    def check(self, table: pa.Table) -> pa.Table:
        self.calls += 1
        wrong = pa.array(sorted(self.sizes), pa.int64())
        if pc.any(pc.is_in(table["size"], wrong)).as_py():
            raise ConnectionError("the service is away")
        return table


class Sums(StatefulOperator):
    """How many rows a call had, and their sum so far; it asks the service for each row."""

    value_schema = pa.schema([("sum", pa.int64())])

    def __init__(self, away: Away) -> None:
        self.away = away

    def handle(
        self, key: tuple[Any, ...], rows: list[dict[str, Any]], value: ValueState
    ) -> Iterable[Emitted]:
        for row in rows:
            if row["size"] in self.away.sizes:
                raise ConnectionError("the service is away")
            value.update(((value.get() or (0,))[0] + row["size"],))
        yield (rows[-1]["at"], f"{key[0]} of {len(rows)}", (value.get() or (0,))[0])


def built(attach: Callable[[Stream], Stream]) -> Program:
    pipeline = Pipeline("numbers")
    attach(pipeline.source("rows", NumberRows(), parallelism=2)).sink("out")
    return program.build(pipeline)


def mapped(away: Away) -> Program:
    def check(table: pa.Table) -> pa.Table:
        return away.check(table)

    return built(lambda rows: rows.map("checked", check, schema=SCHEMA, dead_letters=True))


def read(made: Program, **terms: Any) -> PartitionOutcome:
    """The second source partition, of rows 20 to 39."""
    work = PartitionWork(1, 1, 3, 0, 40, FINAL_WATERMARK, tolerance=TOLERANCE, **terms)
    return partition.run(made, work, partition.initial(made.owner[1]), [])


def add_up(away: Away, **terms: Any) -> PartitionOutcome:
    """The stateful step on all that the source gives."""
    made = built(
        lambda rows: rows.stateful(
            "sums", Sums(away), keys=["key"], schema=SCHEMA, dead_letters=True
        )
    )
    blocks = [
        block
        for number in (0, 1)
        for _, block in partition.run(
            made,
            PartitionWork(number, 1, 3, 0, 40, FINAL_WATERMARK),
            partition.initial(made.owner[0]),
            [],
        ).blocks
    ]
    received = list(frames.frames(memoryview(b"".join(blocks))))
    work = PartitionWork(2, 1, 3, tolerance=TOLERANCE, **terms)
    return partition.run(made, work, partition.initial(made.owner[2]), received)


def test_a_repeat_leaves_out_what_was_left_out_though_the_service_is_back() -> None:
    away = Away(23, 31, 32)
    first = read(mapped(away))
    assert first.choices["checked"].left == (3, 4, 11, 13)
    away.sizes.clear()
    repeat = read(mapped(away), choices=first.choices)
    assert repeat.digest == first.digest
    assert repeat.choices["checked"].left == (3, 4, 11, 13)
    assert repeat.sinks["out"].table.equals(first.sinks["out"].table)
    letters = first.sinks["checked.dead-letters"], repeat.sinks["checked.dead-letters"]
    assert [one.is_there for one in letters] == [False, True]
    assert letters[0].digest == letters[1].digest
    assert read(mapped(away)).digest != first.digest, "without the choice it is another output"


def test_what_is_known_to_be_left_out_is_not_tried_again() -> None:
    away = Away(23)
    first = read(mapped(away))
    away.calls = 0
    read(mapped(away), choices=first.choices)
    assert away.calls == 1


def test_what_was_taken_before_is_not_left_out_by_a_repeat() -> None:
    away = Away()
    first = read(mapped(away))
    assert first.choices == {}
    away.sizes = {23}
    with pytest.raises(StepError, match=r"source row 23, .*which it took before"):
        read(mapped(away), choices={"checked": NOTHING})
    away.sizes.clear()
    assert read(mapped(away), choices={"checked": NOTHING}).digest == first.digest


def test_rows_of_a_key_are_taken_one_by_one_again_where_they_were() -> None:
    away = Away(23, 31)
    first = add_up(away)
    away.sizes.clear()
    repeat = add_up(away, choices=first.choices)
    assert repeat.digest == first.digest
    assert repeat.sinks["out"].table.equals(first.sinks["out"].table)
    keys = set(first.sinks["out"].table["key"].to_pylist())
    assert {"key-3 of 1", "key-1 of 1", "key-0 of 8"} <= keys
    assert len(first.choices["sums"].left) == 4


def test_rows_of_a_key_that_were_taken_together_are_not_taken_one_by_one() -> None:
    away = Away()
    first = add_up(away)
    away.sizes = {23}
    with pytest.raises(StepError, match="rows of one key, which it took before"):
        add_up(away, choices={"sums": NOTHING})
    away.sizes.clear()
    assert add_up(away, choices={"sums": NOTHING}).digest == first.digest


def epochs_of(outcome: PartitionOutcome, *numbers: int) -> list[Any]:
    """As a host reports them, and JSON carries them."""
    given = [outcome.rows, outcome.digest, host_answers.sinks(outcome), outcome.late]
    told = [[number, *given, *host_answers.choices(outcome)] for number in numbers]
    found: list[Any] = json.loads(json.dumps(told))
    return found


def record(made: Program, *, first: int, last: int, choices: list[Any]) -> dict[str, Any]:
    finished = {made.partition_names[1]: [first, last, ["d"] * (last - first + 1)]}
    outputs = [[output, epoch, 1, "f", "d"] for output, epoch, *_ in choices]
    return {"plan_epoch": 1, "finished": finished, "outputs": outputs, "choices": choices}


def history_of(*commits: dict[str, Any]) -> StoreHistory:
    fold = CommitSummary()
    for number, record in enumerate(commits, 1):
        fold.take_in(number, record)
    return StoreHistory({}, fold, None)


def test_a_choice_goes_by_the_commit_record_into_the_next_drivers_requests() -> None:
    made = mapped(Away(23))
    progress, committed = PartitionTable(made), dict[str, int]()
    said = dead_letters.take_in(progress, committed, 1, epochs_of(read(made), 3))
    assert said == [["checked.dead-letters/1", 3, [3, 4], said[0][3]]]
    dead_letters.take_in(progress, committed, 1, [[4, 20, "d", {}, 0]])
    assert progress.choices[1, 4] == {"checked": NOTHING}
    history = history_of(record(made, first=3, last=4, choices=said))
    points = RestorePoints(2)
    found = dead_letters.read_back(made, history, points)
    assert found == progress.choices
    header = job_specs._choices(PartitionTable(made, points, choices=found), 1, 3, 5)
    assert header["choices"].keys() == {"3", "4"}
    assert header["choices"]["3"]["checked"][0] == (3, 4)
    assert header["choices"]["4"] == {"checked": [(), ()]}


def test_a_choice_is_said_once_and_stays_as_it_was_committed() -> None:
    made = mapped(Away(23))
    progress = PartitionTable(made)
    first = epochs_of(read(made), 3)
    dead_letters.take_in(progress, {}, 1, first)
    committed = {"checked.dead-letters/1": 3}
    assert dead_letters.take_in(progress, committed, 1, first) == []
    dead_letters.take_in(progress, committed, 1, [[3, 20, "d", {}, 0]])
    assert progress.choices[1, 3]["checked"].left == (3, 4)


def test_what_no_repeat_can_be_of_is_forgotten() -> None:
    made = mapped(Away(23))
    progress = PartitionTable(made)
    dead_letters.take_in(progress, {}, 1, epochs_of(read(made), 3, 4))
    progress.checkpointed(RestorePoints(3))
    assert list(progress.choices) == [(1, 4)]
    history = history_of(record(made, first=3, last=4, choices=[]))
    assert list(dead_letters.read_back(made, history, RestorePoints(3))) == [(1, 4)]


def test_choices_of_a_source_are_known_as_long_as_a_reader_goes_on_from_an_older_checkpoint() -> (
    None
):
    made = mapped(Away(23))
    progress = PartitionTable(made)
    said = dead_letters.take_in(progress, {}, 1, epochs_of(read(made), 3, 4, 5, 6))
    points = RestorePoints(6, {0: 4})
    progress.checkpointed(points)
    assert list(progress.choices) == [(1, 5), (1, 6)]
    found = dead_letters.read_back(
        made, history_of(record(made, first=3, last=6, choices=said)), points
    )
    assert found == progress.choices
    assert found[1, 5]["checked"].left == (3, 4)


def test_of_letters_of_earlier_versions_it_is_not_known_which_rows_they_were() -> None:
    made = mapped(Away())
    older = record(made, first=3, last=4, choices=[["checked.dead-letters/1", 3, [1, 2], []]])
    del older["choices"]
    again = record(made, first=3, last=3, choices=[])
    found = dead_letters.read_back(made, history_of(older, again), RestorePoints())
    assert found == {(1, 4): {"checked": NOTHING}}


def test_what_waits_for_a_checkpoint_is_not_known() -> None:
    made = mapped(Away())
    held = {**record(made, first=3, last=4, choices=[]), "checkpoint": 4}
    assert dead_letters.read_back(made, history_of(held), RestorePoints()) == {}
