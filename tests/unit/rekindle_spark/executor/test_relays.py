"""A branch behind a keyed step reads what the step's partitions write for it while it is away."""

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from rekindle.model.errors import DamagedError, InputError, RunError, StepError
from rekindle_spark.checkpoint import durable_input_job
from rekindle_spark.checkpoint.restore_points import RestorePoints
from rekindle_spark.driver import stopped_branches
from rekindle_spark.driver.partition_table import LeftOut, PartitionTable
from rekindle_spark.executor import frames, partition, work_items
from rekindle_spark.executor.frames import Frame
from rekindle_spark.executor.host import Done
from rekindle_spark.executor.partition import PartitionOutcome, PartitionWork
from rekindle_spark.operators import StatefulOperator
from rekindle_spark.output.sink_files import SinkFiles
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.program import Program
from rekindle_spark.pipeline.steps import Pipeline, count
from rekindle_spark.store.checkpoint_store import StoreHistory
from rekindle_spark.store.commit_summary import CommitSummary
from rekindle_store import checkpoint_records, store_files
from rekindle_testing.runtime_builders import UnreadSource

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string())])
NUMBERED = pa.schema([("key", pa.string()), ("at", pa.timestamp("us")), ("number", pa.int64())])
# rows/0, numbered/0, numbered/1, last/0; then the partitions of the branch
ROWS, NUMBERED0, NUMBERED1, LAST, RELAY0, RELAY1 = range(6)
EPOCH, WATERMARK = 7, 1_000_000
FAULT = StepError(where="step dear", what="raised ValueError: bad", remedy="mend it")


class Numbers(StatefulOperator):
    """Numbers the rows of a key."""

    value_schema = pa.schema([("rows", pa.int64())])

    def handle(self, key: Any, rows: Any, value: Any) -> Any:
        (number,) = value.get() if value.exists() else (0,)
        for row in rows:
            number += 1
            yield (key[0], row["at"], number)
        value.update((number,))


def built() -> Program:
    """rows -> numbered x2 -> `important`; -> dear -> `cheap`, and -> last -> `lasts`."""
    pipeline = Pipeline("numbers")
    rows = pipeline.source("rows", UnreadSource(SCHEMA, "at"))
    numbered = rows.stateful("numbered", Numbers(), keys=["key"], schema=NUMBERED, parallelism=2)
    numbered.sink("important", priority=10)
    dear = numbered.filter("dear", lambda table: pc.greater(table["number"], 1))
    dear.sink("cheap")
    dear.window("last", keys=["key"], size_seconds=1, aggregates={"n": count()}).sink("lasts")
    return program.build(pipeline)


def records() -> list[dict[str, Any]]:
    return [stopped_branches.Branch("numbered", "dear", "numbered/0", EPOCH, "why").record()]


def arrived(made: Program, number: int, rows: int = 9) -> list[Frame]:
    """What `rows/0` gives a partition of `numbered`."""
    (edge,) = made.inputs[made.owner[number].index]
    table = pa.table(
        {
            "at": pa.array(range(rows), pa.timestamp("us")),
            "key": [f"key-{n % 2}" for n in range(rows)],
        },
        schema=SCHEMA,
    )
    label = frames.Label(edge.index, ROWS, number, 1, EPOCH, WATERMARK)
    return list(frames.frames(memoryview(frames.encode(label, table))))


def run(made: Program, number: int, *without: str, rows: int = 9) -> PartitionOutcome:
    work = PartitionWork(number, 1, EPOCH, without=frozenset(without))
    state = partition.initial(made.owner[number])
    return partition.run(made, work, state, arrived(made, number, rows))


def relayed(made: Program, number: int, store: Path) -> PartitionOutcome:
    item = {"partition": number, "plan_epoch": 1, "readers": None}
    request = {"store": str(store), "dead_letters": [1, 0], "generation": 1, "attempt": 1}
    work = work_items.work(made, request, item, EPOCH)
    return partition.run(made, work, partition.initial(made.owner[number]), [])


def written(store: Path, outcome: PartitionOutcome) -> None:
    outputs = SinkFiles(store_files.at(store))
    for name in outcome.sinks | outcome.taps:
        (store / "outputs" / name).mkdir(parents=True, exist_ok=True)
    Done(outputs).write(outcome)
    outputs.put_in_place()


def rows_of(outcome: PartitionOutcome) -> dict[str, tuple[pa.Table, str, str]]:
    return {name: (sunk.table, sunk.file, sunk.digest) for name, sunk in outcome.sinks.items()}


def given(outcome: PartitionOutcome) -> list[tuple[Any, ...]]:
    return [
        (target, frame.edge, frame.epoch, frame.watermark, frame.rows, frame.digest)
        for target, block in outcome.blocks
        for frame in frames.frames(memoryview(block))
    ]


@pytest.mark.parametrize("rows", [9, 0])
def test_a_branch_gives_later_what_it_would_have_given(tmp_path: Path, rows: int) -> None:
    whole, made = built(), stopped_branches.split(built(), records())
    for index in (0, 1):
        together = run(whole, NUMBERED0 + index, rows=rows)
        without = run(whole, NUMBERED0 + index, "dear", rows=rows)
        parent = run(made, NUMBERED0 + index, rows=rows)
        assert rows_of(without) == rows_of(parent)
        assert without.digest == parent.digest
        assert given(parent) == []
        assert parent.taps["dear~branch"].table.equals(
            without.taps["dear~branch"].table, check_metadata=True
        )
        written(tmp_path, without)
        branch = relayed(made, RELAY0 + index, tmp_path)
        assert rows_of(parent) | rows_of(branch) == rows_of(together)
        assert given(branch) == given(together)
        assert together.taps == branch.taps == {}


TIMED = pa.schema(
    [
        *NUMBERED,
        ("second", pa.timestamp("s")),
        ("day", pa.date64()),
        ("times", pa.large_list(pa.time32("s"))),
    ]
)


class Timed(Numbers):
    """Numbers rows, with types that Parquet has not."""

    def handle(self, key: Any, rows: Any, value: Any) -> Any:
        moment = dt.datetime(2024, 5, 1, 12)
        for row in super().handle(key, rows, value):
            yield (*row, moment, moment.date(), [moment.time()])


def seconds(table: pa.Table) -> pa.Table:
    return table.set_column(2, "number", table["second"].cast(pa.int64()))


def test_a_branch_gets_rows_of_the_types_that_its_step_gives(tmp_path: Path) -> None:
    pipeline = Pipeline("numbers")
    rows = pipeline.source("rows", UnreadSource(SCHEMA, "at"))
    timed = rows.stateful("numbered", Timed(), keys=["key"], schema=TIMED)
    timed.map("dear", seconds, schema=TIMED).sink("cheap")
    whole = program.build(pipeline)
    made = stopped_branches.split(whole, records())
    together = run(whole, NUMBERED0)
    written(tmp_path, run(whole, NUMBERED0, "dear"))
    branch = relayed(made, NUMBERED0 + 1, tmp_path)
    assert rows_of(branch) == rows_of(together)


def stream_of(*lenient: str) -> Program:
    """rows -> checked -> numbered -> `all`; -> dear -> costly -> `cheap`, and -> beside -> `more`;
    some with dead letters."""
    pipeline = Pipeline("numbers")
    rows = pipeline.source("rows", UnreadSource(SCHEMA, "at"))
    checked = rows.filter("checked", lambda table: pc.is_valid(table["key"]))
    numbered = checked.stateful("numbered", Numbers(), keys=["key"], schema=NUMBERED)
    numbered.sink("all")
    dear = numbered.filter("dear", lambda table: pc.greater(table["number"], 1))
    dear.filter("costly", lambda table: pc.greater(table["number"], 2)).sink("cheap")
    numbered.filter("beside", lambda table: pc.greater(table["number"], 3)).sink("more")
    for name in lenient:
        pipeline.steps[name] = replace(pipeline.steps[name], dead_letters=True)
    return program.build(pipeline)


def requested(made: Program, number: int, store: Path, epoch: int, *without: str) -> PartitionWork:
    """The work of a partition as a host takes it from a request, in its second attempt."""
    left_out = dict.fromkeys(without, epoch)
    item = {"partition": number, "plan_epoch": 3, "readers": None, "without": left_out}
    request = {"store": str(store), "dead_letters": [1, 9], "generation": 1, "attempt": 2}
    return work_items.work(made, request, item, epoch)


@pytest.mark.parametrize(
    ("lenient", "first"),
    [
        ((), "dear"),
        (("dear",), "dear"),
        (("costly",), "dear"),
        (("beside",), "dear"),
        (("checked",), None),
        (("numbered",), None),
    ],
)
def test_where_a_branch_is_left_out_the_next_driver_finds_its_rows(
    tmp_path: Path, lenient: tuple[str, ...], first: str | None
) -> None:
    whole = stream_of(*lenient)
    assert stopped_branches.head(whole, whole.owner[1], "dear") == first
    if first is None:
        return
    made = stopped_branches.split(whole, records())
    state = partition.initial(whole.owner[1])
    # the driver that leaves the branch out, and the next one, which goes on writing for it
    for one, without, epoch in ((whole, ("dear",), EPOCH), (made, (), EPOCH + 1)):
        asked = requested(one, 1, tmp_path, epoch, *without)
        received = [replace(frame, epoch=epoch) for frame in arrived(one, 1)]
        written(tmp_path, partition.run(one, asked, state, received))
        relay = requested(made, 2, tmp_path, epoch)
        branch = partition.run(made, relay, partition.initial(made.owner[2]), [])
        together = rows_of(run(whole, 1))["cheap"][0]
        assert rows_of(branch)["cheap"][0].equals(together)


def test_no_step_gets_dead_letters_while_rows_behind_it_wait_for_a_branch() -> None:
    for name in ("checked", "numbered"):
        with pytest.raises(InputError, match=r"step numbered: has dead letters.*dear~branch waits"):
            stopped_branches.split(stream_of(name), records())
    for name in ("dear", "costly", "beside"):
        assert stopped_branches.split(stream_of(name), records()).branches == 1


def test_what_should_be_there_and_is_not_is_damage(tmp_path: Path) -> None:
    (tmp_path / "outputs" / "dear~branch").mkdir(parents=True)
    with pytest.raises(DamagedError, match="is not there, but the epoch has run"):
        relayed(stopped_branches.split(built(), records()), RELAY0, tmp_path)


def test_rows_that_an_earlier_version_has_kept_for_a_branch_are_read(tmp_path: Path) -> None:
    without = run(built(), NUMBERED0, "dear")
    written(tmp_path, without)
    branch = stopped_branches.split(built(), records())
    now = relayed(branch, RELAY0, tmp_path)
    for name, sunk in without.taps.items():
        outputs = SinkFiles(store_files.at(tmp_path))
        outputs.write(name, sunk.file, sunk.table)  # without a checksum of all of it
        outputs.put_in_place()
    before = relayed(branch, RELAY0, tmp_path)
    assert rows_of(before) == rows_of(now)
    assert given(before) == given(now)


def test_rows_under_the_name_of_an_attempt_are_read_from_the_last_one(tmp_path: Path) -> None:
    """An earlier version has named them so where a step beside had dead letters."""
    written(tmp_path, run(built(), NUMBERED0, "dear"))
    branch = stopped_branches.split(built(), records())
    now = relayed(branch, RELAY0, tmp_path)
    (folder,) = (tmp_path / "outputs").glob("*~branch")
    (file,) = folder.glob("0-*.parquet")
    file.rename(folder / f"{file.stem}-2-3-10.parquet")
    for older in ("1-9-9", "2-3-9"):
        (folder / f"{file.stem}-{older}.parquet").write_bytes(b"of another attempt")
    before = relayed(branch, RELAY0, tmp_path)
    assert (rows_of(before), given(before)) == (rows_of(now), given(now))
    names = [f"outputs/{folder.name}/{one.name}" for one in folder.iterdir()]
    assert {checkpoint_records.waiting_rows(name) for name in names} == {(0, EPOCH)}


def flipped(data: bytes, place: int, bit: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def misread(sealed: bytes, place: int) -> bool:
    """Whether a reader of Parquet alone takes another watermark, or rows, from a file whose byte
    there has another last bit."""
    whole, damaged = (
        pa.BufferReader(data[sealed.index(b"PAR1") :])
        for data in (sealed, flipped(sealed, place, 0))
    )
    try:
        found = pq.ParquetFile(damaged, page_checksum_verification=True).read(use_threads=False)
        right = pq.ParquetFile(whole).read(use_threads=False)
        return not found.equals(right, check_metadata=True)
    except (pa.ArrowException, OSError, ValueError):
        return False


def test_no_flipped_bit_of_what_a_branch_reads_reaches_it(tmp_path: Path) -> None:
    written(tmp_path, run(built(), NUMBERED0, "dear", rows=50))
    made = stopped_branches.split(built(), records())
    (path,) = (tmp_path / "outputs" / "dear~branch").iterdir()
    whole, right = path.read_bytes(), relayed(made, RELAY0, tmp_path)
    unseen = [place for place in range(len(whole) // 2, len(whole)) if misread(whole, place)]
    assert unseen, "Parquet alone does not see them"
    for place, bit in (
        *((place, place % 8) for place in range(0, len(whole), 41)),
        *((place, 0) for place in unseen),
    ):
        path.write_bytes(flipped(whole, place, bit))
        try:
            found = relayed(made, RELAY0, tmp_path)
        except RunError:
            continue  # of which one says that it is damaged, or of another version
        assert (rows_of(found), given(found)) == (rows_of(right), given(right)), place


def test_a_branch_runs_an_epoch_once_its_partition_has() -> None:
    made = stopped_branches.split(built(), records())
    assert made.partition_names[RELAY0:] == ("dear~branch/0", "dear~branch/1")
    assert made.in_order(range(6)) == [ROWS, NUMBERED0, NUMBERED1, RELAY0, RELAY1, LAST]
    assert list(made.upstream(RELAY1)) == [NUMBERED1]
    assert list(made.downstream(NUMBERED0)) == [RELAY0]
    assert {number for _, number in made.producers(LAST)} == {RELAY0, RELAY1}
    assert list(made.producers(RELAY0)) == []
    assert made.hash == built().hash
    assert ("numbered", "dear~branch") in made.topology.edges


def test_where_somebody_reads_a_branch_and_its_source_none_is_left_out() -> None:
    pipeline = Pipeline("numbers")
    rows = pipeline.source("rows", UnreadSource(SCHEMA, "at"))
    numbered = rows.stateful("numbered", Numbers(), keys=["key"], schema=NUMBERED)
    numbered.sink("important")
    dear = numbered.filter("dear", lambda table: pc.greater(table["number"], 1))
    numbered.join("both", dear, keys=["key"], within_seconds=1).sink("joined")
    made = program.build(pipeline)
    assert stopped_branches.head(made, made.owner[1], "dear") is None
    made = built()
    assert stopped_branches.head(made, made.owner[NUMBERED0], "dear") == "dear"
    assert stopped_branches.head(made, made.owner[NUMBERED0], "numbered") is None


def test_a_branch_of_a_branch_is_written_by_it(tmp_path: Path) -> None:
    pipeline = Pipeline("numbers")
    rows = pipeline.source("rows", UnreadSource(SCHEMA, "at"))
    numbered = rows.stateful("numbered", Numbers(), keys=["key"], schema=NUMBERED)
    numbered.sink("all")
    first = numbered.filter("first", lambda table: pc.greater(table["number"], 1))
    first.sink("one")
    first.filter("second", lambda table: pc.greater(table["number"], 2)).sink("two")
    whole = program.build(pipeline)
    for order in (("first", "second"), ("second", "first")):
        chain, entries = "numbered", []
        for step in order:
            entries.append(stopped_branches.Branch(chain, step, f"{chain}/0", EPOCH, "").record())
            chain = "first~branch" if step == "first" else chain
        made = stopped_branches.split(whole, entries)
        names = {one.name: one.first for one in made.chains}
        written(tmp_path, run(made, 1))
        one = relayed(made, names["first~branch"], tmp_path)
        written(tmp_path, one)
        two = relayed(made, names["second~branch"], tmp_path)
        assert rows_of(run(made, 1)) | rows_of(one) | rows_of(two) == rows_of(run(whole, 1))


def test_what_was_given_before_a_branch_was_left_out_is_the_branchs() -> None:
    made = stopped_branches.split(built(), records())
    inputs = [{"checkpoint": 9, "frames": {"numbered/0": [3, 10]}, "partitions": ["last/0"]}]
    older = {"last/0": 2, "dear~branch/0": EPOCH - 1}
    content = {"epoch": 9, "program": "abc", "bytes": {}, "older": older, "inputs": inputs}
    points = stopped_branches.branch_restore_points(
        made, StoreHistory({}, CommitSummary(), content, records())
    )
    assert [points.has(LAST, RELAY0, epoch) for epoch in (2, 3, 6, 7, 9)] == [
        False,
        True,
        True,
        False,
        False,
    ]
    whole = built()
    (edge,) = whole.inputs[whole.owner[LAST].index]
    label = frames.Label(edge.index, NUMBERED1, LAST, 1, 4, WATERMARK)
    (frame,) = frames.frames(memoryview(frames.encode(label, None)))
    assert work_items._renumbered(made, frame).producer == RELAY1
    assert work_items._renumbered(whole, frame).producer == NUMBERED1


def running(made: Program) -> PartitionTable:
    progress = PartitionTable(made, RestorePoints(4))
    for number in range(len(made.partition_names)):
        progress.place(number, "a", 1)
        progress.live.add(number)
        progress.finished[number] = 12
    return progress


def test_checkpoints_go_on_without_what_nobody_gives_a_reader_of_a_branch() -> None:
    progress = running(built())
    progress.leave_out(NUMBERED0, "dear", LeftOut(13, FAULT))
    assert progress.stopped.keys() == {LAST}
    spans = {NUMBERED0: (5, 15), NUMBERED1: (5, 15)}
    progress.retained.add(1, [("a", spans)], [10])
    progress.finished |= {NUMBERED0: 15, NUMBERED1: 15}
    assert durable_input_job.is_covered(progress, 15, [LAST])
    wanted = durable_input_job.unwritten(progress, 15, {LAST})
    assert wanted == {NUMBERED0: (5, 13), NUMBERED1: (5, 16)}
    assert durable_input_job._given(progress, LAST, wanted) == wanted


def test_a_branch_stops_with_the_branch_that_writes_for_it() -> None:
    made = stopped_branches.split(built(), records())
    progress = running(made)
    progress.stop({NUMBERED1: FAULT})
    assert progress.stopped.keys() == {NUMBERED1, RELAY1, LAST}
    assert progress.live == {ROWS, NUMBERED0, RELAY0}
