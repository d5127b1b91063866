"""A branch behind a source stops alone, and is a chain of its own for the next driver."""

import threading
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rekindle.model.errors import FencedError, StepError
from rekindle.model.settings import Policy, Settings
from rekindle_spark.checkpoint.checkpoint_coordinator import CheckpointCoordinator
from rekindle_spark.checkpoint.restore_points import RestorePoints
from rekindle_spark.connectors.avro_values import Avro
from rekindle_spark.connectors.decoding import Bytes, Csv, Json
from rekindle_spark.connectors.kafka import Kafka
from rekindle_spark.control import query_stop
from rekindle_spark.driver import stopped_branches
from rekindle_spark.driver.partition_table import PartitionTable
from rekindle_spark.driver.source_intake import Intakes
from rekindle_spark.executor import frames, partition, work_items
from rekindle_spark.executor.partition import PartitionOutcome, PartitionWork
from rekindle_spark.jobs import job_specs
from rekindle_spark.output import dead_letters, output_commit
from rekindle_spark.output.lag_goals import LagGoals
from rekindle_spark.output.late_row_counts import LateCounts
from rekindle_spark.output.sink_publishing import SinkPublishers
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.program import Program
from rekindle_spark.pipeline.steps import Pipeline, count
from rekindle_spark.store.checkpoint_store import CheckpointStore, StoreHistory
from rekindle_spark.store.commit_summary import CommitSummary
from rekindle_spark.user_code.dead_letter_sieve import LeftOutRows, Tolerance

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("size", pa.int64())])
# rows/0, rows/1, counted/0; then the partitions of the branch
ROWS0, ROWS1, COUNTED, BRANCH0, BRANCH1 = range(5)
FAULT = StepError(where="step dear", what="raised ValueError: bad", remedy="mend it")


@dataclass
class Numbers:
    """Row `n` has event time n microseconds, size n."""

    schema: pa.Schema = SCHEMA
    event_time: str = "at"

    def check(self, step: str) -> None: ...
    def rows_at(self, event_time: int) -> int: ...
    def event_time_at(self, offset: int) -> int: ...

    def read(self, begin: int, end: int) -> pa.Table:
        numbers = range(begin, end)
        return pa.table({"at": pa.array(numbers, pa.timestamp("us")), "size": pa.array(numbers)})


def unchanged(table: pa.Table) -> pa.Table:
    return table


def raising_for_three(table: pa.Table) -> pa.Table:
    if pc.any(pc.equal(table["size"], 3)).as_py():
        raise ValueError("three")
    return table


def built() -> Program:
    """rows x2 -> sound; sound -> checked, with dead letters -> `important`, and
    sound -> dear -> dearer -> `cheap`, and -> counted."""
    pipeline = Pipeline("numbers")
    rows = pipeline.source("rows", Numbers(), parallelism=2)
    sound = rows.map("sound", unchanged, schema=SCHEMA)
    checked = sound.map("checked", raising_for_three, schema=SCHEMA, dead_letters=True)
    checked.sink("important", priority=10)
    dear = sound.map("dear", unchanged, schema=SCHEMA).map("dearer", unchanged, schema=SCHEMA)
    dear.sink("cheap")
    dear.window("counted", keys=["size"], size_seconds=1, aggregates={"n": count()}).sink("counts")
    return program.build(pipeline)


def record(step: str = "dear", partition_name: str = "rows/0", epoch: int = 7) -> dict[str, Any]:
    return stopped_branches.Branch("rows", step, partition_name, epoch, "why").record()


def run(made: Program, number: int, *without: str) -> PartitionOutcome:
    work = PartitionWork(
        number, 1, 3, 0, 40, 40, without=frozenset(without), tolerance=Tolerance(1, 9)
    )
    return partition.run(made, work, partition.initial(made.owner[number]), [])


def rows_of(outcome: PartitionOutcome) -> dict[str, tuple[pa.Table, str, str]]:
    return {name: (sunk.table, sunk.file, sunk.digest) for name, sunk in outcome.sinks.items()}


@pytest.mark.parametrize("index", [0, 1])
def test_partition_without_a_branch_and_the_branch_give_what_both_gave_together(
    index: int,
) -> None:
    whole, made = built(), stopped_branches.split(built(), [record()])
    together, without = run(whole, ROWS0 + index), run(whole, ROWS0 + index, "dear")
    parent, branch = run(made, ROWS0 + index), run(made, BRANCH0 + index)
    assert rows_of(without) == rows_of(parent)
    assert without.digest == parent.digest != together.digest
    assert rows_of(parent) | rows_of(branch) == rows_of(together)
    assert rows_of(parent).keys().isdisjoint(rows_of(branch))
    assert set(rows_of(branch)) == {"cheap"}
    found = [
        [
            (target, frame.edge, frame.rows, frame.digest)
            for target, block in outcome.blocks
            for frame in frames.frames(memoryview(block))
        ]
        for outcome in (together, branch, without, parent)
    ]
    assert found == [found[0], found[0], [], []]


def test_branches_are_numbered_last_and_come_before_their_readers() -> None:
    whole, made = (
        built(),
        stopped_branches.split(built(), [record(), record(partition_name="rows/1")]),
    )
    assert made.partition_names == (*whole.partition_names, "dear~branch/0", "dear~branch/1")
    assert made.in_order(range(5)) == [ROWS0, ROWS1, BRANCH0, BRANCH1, COUNTED]
    assert made.hash == whole.hash
    assert (made.branches, whole.branches) == (2, 0)
    assert {number for _, number in made.producers(COUNTED)} == {BRANCH0, BRANCH1}
    assert {query.name: query.operator for query in made.topology.queries} == {
        "important": "rows",
        "cheap": "dear~branch",
        "counts": "counted",
    }
    assert made.owner[BRANCH0].source == "rows"


def test_what_leads_to_a_branch_alone_is_left_out_with_it() -> None:
    made = built()
    rows = made.owner[ROWS0]
    assert stopped_branches.head(made, rows, "dearer") == "dear"
    assert stopped_branches.head(made, rows, "sound") is None
    assert stopped_branches.head(made, rows, "rows") is None
    assert stopped_branches.head(made, made.owner[COUNTED], "counted") is None
    assert stopped_branches.head(made, rows, "dear", gone={"sound"}) is None


def test_steps_that_may_give_something_else_in_a_repeat_are_no_branch() -> None:
    pipeline = Pipeline("numbers")
    rows = pipeline.source("rows", Numbers())
    rows.sink("all")
    rows.map("dear", unchanged, schema=SCHEMA, deterministic=False).sink("cheap")
    made = program.build(pipeline)
    assert stopped_branches.head(made, made.owner[0], "dear") is None


def enriched(*lenient: str) -> Program:
    """rows -> enrich -> `rich`; enrich -> risky -> cautious -> `cheap`; rows -> beside -> `all`;
    some with dead letters."""
    pipeline = Pipeline("numbers")
    rows = pipeline.source("rows", Numbers())
    enrich = rows.map("enrich", raising_for_three, schema=SCHEMA)
    enrich.sink("rich")
    risky = enrich.map("risky", unchanged, schema=SCHEMA)
    risky.map("cautious", unchanged, schema=SCHEMA).sink("cheap")
    rows.map("beside", unchanged, schema=SCHEMA).sink("all")
    for name in lenient:
        pipeline.steps[name] = replace(pipeline.steps[name], dead_letters=True)
    return program.build(pipeline)


@pytest.mark.parametrize("lenient", [(), ("risky",), ("cautious",), ("beside",)])
def test_a_branch_is_left_out_alone_where_no_step_before_it_has_dead_letters(
    lenient: tuple[str, ...],
) -> None:
    made = enriched(*lenient)
    assert stopped_branches.head(made, made.owner[0], "risky") == "risky"
    split = stopped_branches.split(made, [record("risky")])
    assert split.chains[1].copies == {"enrich"}
    assert split.chains[1].letters == tuple(name for name in lenient if name != "beside")


def test_a_step_before_a_branch_with_dead_letters_keeps_it_in_its_chain(tmp_path: Path) -> None:
    made = enriched("enrich")
    for step in ("risky", "cautious"):
        assert stopped_branches.head(made, made.owner[0], step) is None
    # the dead letters are the branch's own where all that follows the step is left out
    assert stopped_branches.head(made, made.owner[0], "enrich") == "enrich"
    found = application(tmp_path)
    found.program = made
    found.progress = PartitionTable(made, RestorePoints(4))
    found.progress.place(0, "a", 1)
    found.progress.live.add(0)
    # the whole partition stops, and with it all queries
    with pytest.raises(StepError, match="step risky"):
        query_stop.stop(found, {0: replaced("risky")})
    assert found.progress.stopped.keys() == {0}
    assert found.store.read().branches == []


def test_a_source_with_dead_letters_keeps_its_branches_in_its_chain() -> None:
    made = enriched()
    (rows,) = made.chains
    lenient = replace(rows, root=replace(rows.root, dead_letters=True))
    made = replace(made, chains=(lenient,))
    assert stopped_branches.head(made, lenient, "risky") is None


@pytest.mark.parametrize(
    ("decoder", "head"),
    [
        (None, "risky"),
        (Json(SCHEMA), "risky"),
        (Csv(SCHEMA), "risky"),
        (Avro(SCHEMA, "http://registry:8081"), None),
        (Bytes(SCHEMA, unchanged), None),
    ],
)
def test_a_source_that_rejects_the_same_at_any_time_leaves_branches_out_alone(
    decoder: Any, head: str | None
) -> None:
    made = enriched()
    (rows,) = made.chains
    source = Kafka("broker:9092", topics=["numbers"], value=decoder)
    lenient = replace(rows, root=replace(rows.root, function=source, dead_letters=True))
    made = replace(made, chains=(lenient,))
    assert stopped_branches.head(made, lenient, "risky") == head


def test_dead_letters_of_a_branchs_own_steps_go_on_with_it() -> None:
    made = enriched("enrich")
    split = stopped_branches.split(made, [record("enrich")])
    together, parent, branch = run(made, 0), run(split, 0), run(split, 1)
    assert set(rows_of(branch)) == {"rich", "cheap", "enrich.dead-letters"}
    assert rows_of(parent) | rows_of(branch) == rows_of(together)
    assert branch.choices == together.choices != {}
    said: dict[str, dict[int, tuple[list[int], list[int]] | None]] = {
        "enrich.dead-letters/0": {6: ([3], []), 7: ([], [])}
    }
    # the first driver has run epochs 5 to 6 with the branch, and 7 without it
    fold = CommitSummary(choices=said)
    fold.take_in(
        1,
        {
            "plan_epoch": 1,
            "finished": {"rows/0": [5, 7, []]},
            "left_out": {"enrich.dead-letters/0": 6},
            "outputs": [],
        },
    )
    history = StoreHistory({}, fold, None, [record("enrich")])
    known = dead_letters.read_back(split, history, RestorePoints(4))
    assert known == {
        (1, 5): {"enrich": LeftOutRows()},
        (1, 6): {"enrich": LeftOutRows((3,), ())},
    }


def test_a_branch_of_a_branch_is_a_chain_too() -> None:
    pipeline = Pipeline("numbers")
    rows = pipeline.source("rows", Numbers())
    rows.sink("all")
    first = rows.map("first", unchanged, schema=SCHEMA)
    first.sink("one")
    first.map("second", unchanged, schema=SCHEMA).sink("two")
    whole = program.build(pipeline)
    records = [
        record("first"),
        stopped_branches.Branch("first~branch", "second", "first~branch/0", 9, "why").record(),
    ]
    made = stopped_branches.split(whole, records)
    assert [(chain.name, [sink.name for sink in chain.sinks]) for chain in made.chains] == [
        ("rows", ["all"]),
        ("first~branch", ["one"]),
        ("second~branch", ["two"]),
    ]
    assert rows_of(run(made, 2)) == {"two": rows_of(run(whole, 0))["two"]}
    assert made.owner[2].source == "rows"


def application(tmp_path: Path, **policy: Any) -> Any:
    """All live on one executor after epoch 12, and a checkpoint of epoch 4."""
    made = built()
    progress, told = PartitionTable(made, RestorePoints(4)), list[dict[str, Any]]()
    for number in range(3):
        progress.place(number, "a", 1)
        progress.live.add(number)
        progress.finished[number] = 12
    store = CheckpointStore(tmp_path / "store")
    store.open(1.0)
    return SimpleNamespace(
        polls=None,
        program=made,
        progress=progress,
        store=store,
        settings=Settings(Policy(**policy)),
        events=SimpleNamespace(
            write=lambda kind, **fields: told.append({"kind": kind, **fields}),
            write_each=lambda kind, each: told.extend({"kind": kind, **one} for one in each),
            dead_letters=lambda _: None,
        ),
        told=told,
        lock=threading.RLock(),
        losses=0,
        claimed=set(),
        newest=12,
        digests={(ROWS0, 12): "before", (ROWS0, 13): "of an epoch that ran", (ROWS1, 13): "kept"},
        committed={},
        late=LateCounts(made),
        lag_goals=LagGoals(),
        sinks=SinkPublishers(),
    )


def test_a_branch_that_raises_stops_with_who_reads_it_and_nothing_else(tmp_path: Path) -> None:
    found = application(tmp_path)
    query_stop.stop(found, {ROWS0: FAULT})
    progress = found.progress
    assert progress.live == {ROWS0, ROWS1}
    assert progress.complete
    assert found.losses == 1
    assert found.store.read().branches == [
        {
            "chain": "rows",
            "step": "dear",
            "partition": "rows/0",
            "epoch": 13,
            "text": str(FAULT),
            "generation": 1,
        }
    ]
    assert found.digests == {(ROWS0, 12): "before", (ROWS1, 13): "kept"}
    assert [event["query_partition"] for event in found.told if "query_partition" in event] == [
        "cheap/0",
        "counts/0",
    ]
    assert stopped_branches.left_out(progress) == {"dear~branch/0": 12}
    with pytest.raises(StepError, match="step dear"):
        query_stop.check(found)


def test_the_other_partitions_of_the_source_go_on_with_the_branch(tmp_path: Path) -> None:
    found = application(tmp_path)
    query_stop.stop(found, {ROWS0: FAULT})
    assert found.progress.gone(ROWS0) == {"dear", "dearer", "cheap"}
    assert found.progress.gone(ROWS1) == frozenset()
    query_stop.stop(found, {ROWS1: FAULT})
    assert found.progress.live == {ROWS0, ROWS1}
    parts = {name for _, name, _ in query_stop.stopped_queries(found.progress)}
    assert parts == {"cheap/0", "cheap/1", "counts/0"}


def test_a_fault_of_what_is_left_out_already_is_old(tmp_path: Path) -> None:
    found = application(tmp_path)
    query_stop.stop(found, {ROWS0: FAULT})
    query_stop.stop(found, {ROWS0: replaced("dearer")})
    assert (found.losses, len(found.store.read().branches)) == (1, 1)
    assert found.progress.live == {ROWS0, ROWS1}
    # the partition was lost, and raises in an epoch that it has passed before
    found.progress.finished[ROWS0] = 8
    query_stop.stop(found, {ROWS0: FAULT})
    assert stopped_branches.left_out(found.progress) == {"dear~branch/0": 8}
    assert found.progress.live == {ROWS0, ROWS1}


def test_a_source_of_which_nobody_wants_anything_more_stops(tmp_path: Path) -> None:
    found = application(tmp_path)
    query_stop.stop(found, {ROWS0: FAULT})
    with pytest.raises(StepError, match="step sound"):
        query_stop.stop(found, {number: replaced("sound") for number in (ROWS0, ROWS1)})


def replaced(step: str) -> StepError:
    return StepError(where=f"step {step}", what="raised ValueError: bad", remedy="mend it")


def test_where_nothing_is_kept_for_branches_none_is_left_out(tmp_path: Path) -> None:
    found = application(tmp_path, buffering="adaptive")
    with pytest.raises(StepError, match="step dear"):
        query_stop.stop(found, {ROWS0: FAULT})
    assert found.store.read().branches == []


def test_a_driver_that_a_newer_one_has_replaced_leaves_nothing_out(tmp_path: Path) -> None:
    found = application(tmp_path)
    CheckpointStore(tmp_path / "store").open(2.0)
    with pytest.raises(FencedError):
        query_stop.stop(found, {ROWS0: FAULT})
    assert found.progress.left_out == {}


def test_a_request_says_from_which_epoch_on_a_branch_is_left_out(tmp_path: Path) -> None:
    found = application(tmp_path)
    query_stop.stop(found, {ROWS0: FAULT})
    item = {
        "partition": ROWS0,
        "plan_epoch": 1,
        "readers": None,
        **job_specs._left_out(found.progress, ROWS0),
    }
    request = {
        "offsets": {str(e): {"rows": [0, 9, 9]} for e in (12, 13)},
        "dead_letters": [1, 9],
        "attempt": 1,
        "generation": 1,
    }
    for epoch, without in ((12, frozenset()), (13, frozenset({"dear"}))):
        assert work_items.work(found.program, request, item, epoch).without == without


def test_commits_say_how_far_outputs_of_branches_have_got(tmp_path: Path) -> None:
    found = application(tmp_path)
    query_stop.stop(found, {ROWS0: FAULT})
    marks = output_commit.marks(found, [ROWS0, ROWS1])
    assert marks == {"left_out": {"cheap/0": 12}}
    found.told.clear()
    for epoch in range(1, 16):
        found.store.log_offsets(epoch, {"offsets": {"rows": [0, 9]}, "final": False})
    content = {"at": 1.0, "plan_epoch": 1, "outputs": [], **marks}
    finished = {"rows/0": [12, 14, ["a", "b", "c"]], "rows/1": [12, 14, ["d", "e", "f"]]}
    output_commit.publish(found, {**content, "finished": finished})
    assert found.committed == {
        "important/0": 14,
        "checked.dead-letters/0": 14,
        "cheap/0": 12,
        "important/1": 14,
        "checked.dead-letters/1": 14,
        "cheap/1": 14,
    }
    told = {event["query_partition"]: event["epoch"] for event in found.told}
    assert told == {"important/0": 14, "cheap/0": 12, "important/1": 14, "cheap/1": 14}

    history = found.store.read()
    made = stopped_branches.split(built(), history.branches)
    digests, committed = output_commit.read_back(made, history, RestorePoints(4))
    assert committed == found.committed
    # what the first driver's digests are of is more than the chains give now
    assert digests == {}
    found.program, found.progress = made, PartitionTable(made)
    finished = {"rows/0": [15, 15, ["g"]], "dear~branch/0": [13, 13, ["h"]]}
    marks = output_commit.marks(found, [ROWS0, BRANCH0])
    assert marks == {"branches": 1}
    output_commit.publish(found, {**content, **marks, "left_out": {}, "finished": finished})
    history = found.store.read()
    digests, committed = output_commit.read_back(made, history, RestorePoints(4))
    assert (committed["important/0"], committed["cheap/0"]) == (15, 13)
    assert digests == {(ROWS0, 15): "g", (BRANCH0, 13): "h"}


def checkpointed(epoch: int, **fields: Any) -> StoreHistory:
    content = {"epoch": epoch, "program": "abc", "bytes": {}, **fields}
    return StoreHistory(
        {}, CommitSummary(), content, [record(), record(partition_name="rows/1", epoch=9)]
    )


def test_a_branch_goes_on_from_where_it_was_left_out() -> None:
    made = stopped_branches.split(built(), [record()])
    older = {"dear~branch/0": 6, "counted/0": 4}
    points = stopped_branches.branch_restore_points(made, checkpointed(10, older=older))
    assert [points.epoch(number) for number in range(5)] == [10, 10, 4, 6, 10]
    # a checkpoint from before the branch was left out
    points = stopped_branches.branch_restore_points(made, checkpointed(5, older={"rows/1": 3}))
    assert [points.epoch(number) for number in range(5)] == [5, 3, 5, 5, 3]
    # a driver for which it was a chain has brought one of both forward
    points = stopped_branches.branch_restore_points(
        made, checkpointed(20, branches=2, older={"rows/1": 11, "dear~branch/0": 15})
    )
    assert [points.epoch(number) for number in range(5)] == [20, 11, 20, 15, 20]
    assert (
        stopped_branches.branch_restore_points(made, StoreHistory({}, CommitSummary(), None))
        == RestorePoints()
    )


def test_a_savepoint_joins_branches_again() -> None:
    saved = checkpointed(20, branches=2)
    assert stopped_branches.are_joined(saved)
    assert not stopped_branches.are_joined(checkpointed(20, branches=1))
    assert not stopped_branches.are_joined(checkpointed(20, branches=2, older={"rows/0": 3}))
    assert not stopped_branches.are_joined(replace(saved, offsets={21: {}}))
    assert not stopped_branches.are_joined(replace(saved, branches=[]))
    assert not stopped_branches.are_joined(replace(saved, checkpoint=None))


def test_checkpoints_keep_the_input_of_branches_and_nothing_else_for_them(tmp_path: Path) -> None:
    found = application(tmp_path)
    query_stop.stop(found, {ROWS0: FAULT})
    progress = found.progress
    for epoch in (12, 13):
        progress.retained.add(epoch, [("a", {ROWS0: (epoch, epoch)})], [10])
    points = RestorePoints(20, {COUNTED: 4})
    assert progress.checkpointed(points) == [13]
    assert progress.lacks(ROWS0, 13, COUNTED)
    assert not progress.lacks(ROWS0, 12, COUNTED)
    assert not progress.lacks(ROWS1, 13, COUNTED)
    assert replace(points, branches=12).oldest == 4
    assert replace(points, branches=2).oldest == 2


def test_a_checkpoint_says_from_where_a_branch_goes_on_and_keeps_its_input(tmp_path: Path) -> None:
    found = application(tmp_path)
    query_stop.stop(found, {ROWS0: FAULT})
    found.staged, found.sheds, found.digests = {}, False, {}
    found.cuts = dict.fromkeys(range(4, 41))
    found.remove = lambda _: None
    found.arrivals = SimpleNamespace(intakes=Intakes())
    # nobody reads the branch that stops, so nothing else is behind
    found.progress.stopped.clear()
    taken = CheckpointCoordinator(found, epoch=40, losses=found.losses)
    found.store.begin_checkpoint(40)
    for epoch in range(1, 41):
        found.store.log_offsets(epoch, {"offsets": {"rows": [0, 9]}, "final": False})
    taken.advance()
    assert min(found.cuts) == 12
    history = found.store.read()
    assert history.checkpoint is not None
    assert history.checkpoint["older"] == {"dear~branch/0": 12}
    points = stopped_branches.branch_restore_points(
        stopped_branches.split(built(), history.branches), history
    )
    assert [points.epoch(number) for number in range(5)] == [40, 40, 40, 12, 40]
    assert min(history.offsets) <= 13
