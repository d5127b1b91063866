"""When a checkpoint is due: not for an epoch that has run, and not before its time."""

import struct
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from rekindle.model.settings import RuntimeSettings, Settings
from rekindle.model.switch_mode import ON
from rekindle_spark.checkpoint.checkpoint_coordinator import CheckpointCoordinator
from rekindle_spark.checkpoint.restore_points import RestorePoints
from rekindle_spark.driver.driver_context import Staged
from rekindle_spark.driver.epoch_cutter import Cut
from rekindle_spark.driver.partition_table import PartitionTable
from rekindle_spark.driver.source_intake import Intake, Intakes, PartitionCut, StreamCut
from rekindle_spark.executor import job_activity
from rekindle_spark.executor.job_activity import Activity
from rekindle_spark.jobs.job_idleness import Watch
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.steps import Pipeline, count
from rekindle_spark.pipeline.unbounded_source import SourceTerms
from rekindle_spark.store.checkpoint_store import CheckpointStore
from rekindle_testing.runtime_builders import UnreadSource

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string())])
ROWS, COUNTED, LARGEST = range(3)
NEWEST = 7
NEXT = dict.fromkeys((ROWS, COUNTED, LARGEST), (NEWEST + 1, NEWEST + 1))
BEHIND = {partition: span for partition, span in NEXT.items() if partition != LARGEST}


@pytest.fixture
def application() -> Any:
    """All live on one executor, after epoch 7; the restore point is 4, all since is retained."""
    pipeline = Pipeline("checkpointing")
    counted = pipeline.source("rows", UnreadSource(SCHEMA, "at")).window(
        "counted", keys=["key"], size_seconds=1, aggregates={"n": count()}
    )
    counted.top("largest", by="n", count=1).sink("top")
    progress = PartitionTable(program.build(pipeline), RestorePoints(4))
    for partition in NEXT:
        progress.place(partition, "a", 1)
        progress.finished[partition] = NEWEST
        progress.live.add(partition)
    progress.retained.add(1, [("a", {ROWS: (5, 7), COUNTED: (5, 7)})], [1])
    begun: list[int] = []
    return SimpleNamespace(
        polls=None,
        program=progress.program,
        progress=progress,
        settings=Settings(),
        executors={"a": "n1"},
        store=SimpleNamespace(
            begin_checkpoint=begun.append, settled=0, begins=frozenset(), not_removed=""
        ),
        begun=begun,
        lock=threading.RLock(),
        newest=NEWEST,
        losses=0,
        checkpoint_attempt=3,
        trailing_attempts={},
        ordering=ON,
        staged={},
        arrivals=SimpleNamespace(intakes=Intakes()),
    )


def checkpointing(application: Any, seconds: float) -> CheckpointCoordinator:
    """The last checkpoint was begun so long ago."""
    return CheckpointCoordinator(application, losses=0, last_at=time.monotonic() - seconds)


def fall_behind(application: Any) -> None:
    application.progress.live.discard(LARGEST)


def test_an_epoch_that_an_older_driver_may_run_as_well_is_not_checkpointed(
    application: Any,
) -> None:
    taking = checkpointing(application, 11.0)
    taking.shared = 8
    assert taking.due(8, NEXT) is None
    assert taking.due(9, NEXT) == 9


def test_while_all_run_it_is_due_at_its_interval(application: Any) -> None:
    assert checkpointing(application, 9.0).due(8, NEXT) is None
    taking = checkpointing(application, 11.0)
    assert taking.due(8, NEXT) == 8
    assert (taking.waiting, taking.behind, application.begun) == ({COUNTED, LARGEST}, set(), [8])


def test_it_is_coming_from_when_it_is_due_until_it_is_there(application: Any) -> None:
    assert not checkpointing(application, 9.0).is_coming(8, NEXT)
    taking = checkpointing(application, 11.0)
    assert taking.is_coming(8, NEXT)
    assert (taking.epoch, application.begun) == (None, []), "nothing has begun"
    taking.shared = 8
    assert not taking.is_coming(8, NEXT)
    assert taking.is_coming(9, NEXT)
    taking.due(9, NEXT)
    assert taking.is_coming(10, NEXT)
    taking.epoch = None
    assert not taking.is_coming(10, NEXT)
    taking.preserving = SimpleNamespace()  # type: ignore[assignment]
    assert taking.is_coming(10, NEXT)


def test_while_some_are_behind_it_is_due_more_rarely(application: Any) -> None:
    fall_behind(application)
    assert checkpointing(application, 59.0).due(8, BEHIND) is None
    taking = checkpointing(application, 61.0)
    assert taking.due(8, BEHIND) == 8
    assert (taking.waiting, taking.behind) == ({COUNTED}, {LARGEST})


def test_executors_that_have_a_lot_to_keep_bring_it_forward(application: Any) -> None:
    fall_behind(application)
    application.progress.retained.held["a"] = 129 * 2**20
    assert checkpointing(application, 9.0).due(8, BEHIND) is None
    assert checkpointing(application, 11.0).due(8, BEHIND) == 8
    application.settings = Settings(runtime=RuntimeSettings(retained_mib_max=20.0))
    application.progress.retained.held["a"] = 9 * 2**20
    assert checkpointing(application, 11.0).due(8, BEHIND) is None
    application.progress.retained.held["a"] = 11 * 2**20
    assert checkpointing(application, 11.0).due(8, BEHIND) == 8


@pytest.mark.parametrize("hindrance", ["unordered", "staged", "nowhere"])
def test_it_waits_where_the_input_of_who_is_behind_is_not_certain(
    application: Any, hindrance: str
) -> None:
    fall_behind(application)
    if hindrance == "unordered":
        application.ordering = "off"
    elif hindrance == "staged":
        application.staged = {7: Staged(unordered=True)}
    else:
        application.progress.retained.clear()
    assert checkpointing(application, 61.0).due(8, BEHIND) is None


def test_an_epoch_that_has_run_is_not_checkpointed_again(application: Any) -> None:
    application.newest = 8  # the final epoch, which others follow to
    assert checkpointing(application, 500.0).due(8, {LARGEST: (8, 8)}) is None
    taking = CheckpointCoordinator(
        application, epoch=8, waiting={COUNTED}, last_at=time.monotonic()
    )
    assert taking.due(8, {LARGEST: (8, 8)}) is None
    assert taking.waiting == {COUNTED}, "what is being taken goes on"


def test_the_job_of_an_epoch_that_is_issued_again_waits_for_all_its_states_again(
    application: Any,
) -> None:
    taking = checkpointing(application, 11.0)
    taking.due(8, NEXT)
    taking.acknowledge([{"partition": COUNTED, "epoch": 8, "attempt": 3, "bytes": 5, "base": 4}])
    assert (taking.waiting, taking.bases) == ({LARGEST}, {COUNTED: 4})
    assert taking.due(8, NEXT) == 8
    assert (taking.waiting, taking.bases) == ({COUNTED, LARGEST}, {})


def test_an_epoch_whose_checkpoint_a_loss_has_ended_is_not_checkpointed_again(
    application: Any,
) -> None:
    taking = checkpointing(application, 11.0)
    taking.due(8, NEXT)
    application.losses += 1  # the lost executor may write its states much later
    taking.last_at -= 11.0
    assert taking.due(8, NEXT) is None
    assert taking.epoch is None
    application.newest = 8
    assert taking.due(9, dict.fromkeys(NEXT, (9, 9))) == 9


def test_where_a_fenced_driver_has_left_a_record_the_checkpoint_is_given_up(
    application: Any, trailed: CheckpointCoordinator
) -> None:
    application.store.complete_checkpoint = lambda *_: False
    application.trailing_attempts[LARGEST] = 5
    trailed.acknowledge([{"partition": LARGEST, "epoch": 8, "attempt": 5, "bytes": 5}])
    application.progress.finished[LARGEST] = 8
    trailed.advance()
    assert [kind for kind, _ in application.told] == ["checkpoint-failed"]
    assert (trailed.epoch, application.progress.restore_points.newest) == (None, 4)


def test_what_a_state_is_made_of_counts_from_the_last_file_that_has_it_whole(
    application: Any,
) -> None:
    taking = checkpointing(application, 11.0)
    taking.due(8, NEXT)
    taking.acknowledge([{"partition": COUNTED, "epoch": 8, "attempt": 3, "bytes": 50}])
    taking.acknowledge([{"partition": COUNTED, "epoch": 8, "attempt": 3, "bytes": 5, "base": 4}])
    assert taking.state_bytes == {COUNTED: 55}
    taking.acknowledge([{"partition": COUNTED, "epoch": 8, "attempt": 3, "bytes": 60}])
    assert taking.state_bytes == {COUNTED: 60}


def test_after_a_loss_it_is_begun_anew_with_a_later_epoch(application: Any) -> None:
    taking = checkpointing(application, 11.0)
    taking.due(8, NEXT)
    application.losses = 1
    assert taking.due(9, dict.fromkeys(NEXT, (9, 9))) is None
    assert taking.epoch is None


def test_what_a_job_that_failed_has_written_does_not_count_for_its_repeat(application: Any) -> None:
    taking = checkpointing(application, 11.0)
    assert taking.due(8, NEXT) == 8
    taking.acknowledge([{"partition": COUNTED, "epoch": 8, "attempt": 2, "bytes": 5}])
    assert COUNTED in taking.waiting
    taking.acknowledge([{"partition": COUNTED, "epoch": 8, "attempt": 3, "bytes": 5}])
    assert COUNTED not in taking.waiting


def test_sources_that_went_ahead_are_not_behind(application: Any) -> None:
    application.progress.finished[ROWS] = NEWEST + 1
    work = {number: span for number, span in NEXT.items() if number != ROWS}
    checkpoint = checkpointing(application, 11.0)
    assert checkpoint.due(NEWEST + 1, work) == NEWEST + 1
    assert (checkpoint.behind, checkpoint.waiting) == (set(), {COUNTED, LARGEST})


@pytest.fixture
def trailed(application: Any) -> CheckpointCoordinator:
    """The checkpoint of epoch 8 is on its way, and what is largest runs behind the epochs."""
    application.progress.trailing = frozenset({LARGEST})
    application.told, application.digests, application.cuts = [], {}, {}
    application.remove = lambda _: None
    application.events = SimpleNamespace(
        write=lambda kind, **values: application.told.append((kind, values))
    )
    application.store.complete_checkpoint = lambda *_: True
    taking = checkpointing(application, 11.0)
    assert taking.due(8, BEHIND) == 8
    application.newest = 8
    application.progress.finished |= dict.fromkeys(BEHIND, 8)
    taking.acknowledge([{"partition": COUNTED, "epoch": 8, "attempt": 3, "bytes": 5}])
    return taking


def test_what_runs_behind_is_no_input_to_keep_but_a_state_to_wait_for(
    application: Any, trailed: CheckpointCoordinator
) -> None:
    assert (trailed.behind, trailed.waiting) == (set(), {LARGEST})
    trailed.advance()
    assert trailed.epoch == 8
    assert trailed.within({LARGEST: (8, 11)}) == 8
    application.trailing_attempts[LARGEST] = 5
    trailed.acknowledge([{"partition": LARGEST, "epoch": 8, "attempt": 3, "bytes": 5}])
    assert trailed.waiting == {LARGEST}, "the epoch's own job did not run it"
    trailed.acknowledge([{"partition": LARGEST, "epoch": 8, "attempt": 5, "bytes": 5}])
    trailed.advance()
    assert trailed.epoch == 8, "the job that wrote the state has not counted yet"
    application.progress.finished[LARGEST] = 8
    trailed.advance()
    assert application.told[-1] == ("checkpoint", {"epoch": 8, "behind": 0, "settled": 0})
    assert application.progress.restore_points.newest == 8


def test_a_job_behind_that_is_issued_again_writes_its_states_again(
    application: Any, trailed: CheckpointCoordinator
) -> None:
    application.trailing_attempts[LARGEST] = 5
    trailed.acknowledge([{"partition": LARGEST, "epoch": 8, "attempt": 5, "bytes": 5}])
    assert not trailed.waiting
    assert trailed.within({LARGEST: (8, 9)}) == 8
    assert trailed.waiting == {LARGEST}


def test_only_who_has_yet_to_run_its_epoch_is_asked_for_a_state(
    trailed: CheckpointCoordinator,
) -> None:
    assert trailed.within({LARGEST: (9, 11)}) is None
    assert trailed.within({LARGEST: (6, 7)}) is None
    assert trailed.within({COUNTED: (8, 8)}) is None
    trailed.application.losses += 1
    assert trailed.within({LARGEST: (8, 8)}) is None


def test_a_checkpoint_is_not_idle_while_what_it_waits_for_has_yet_to_run(
    application: Any, trailed: CheckpointCoordinator
) -> None:
    application.exchange = SimpleNamespace(signs=dict)
    trailed.watch = Watch(due_at=0.0)
    assert trailed.is_taking(8)


@pytest.mark.parametrize(("lag", "is_waited_for"), [(8, True), (9, False)])
def test_who_is_far_behind_is_not_waited_for_and_its_input_is_kept(
    application: Any, lag: int, is_waited_for: bool
) -> None:
    application.progress.trailing = frozenset({LARGEST})
    application.newest = NEWEST + lag - 1
    epoch = NEWEST + lag
    for partition in (ROWS, COUNTED):
        application.progress.finished[partition] = epoch - 1
    application.progress.retained.add(2, [("a", {ROWS: (8, 20), COUNTED: (8, 20)})], [1])
    work = dict.fromkeys((ROWS, COUNTED), (epoch, epoch))
    taking = checkpointing(application, 61.0)
    assert taking.due(epoch, work) == epoch
    assert taking.waiting == ({COUNTED, LARGEST} if is_waited_for else {COUNTED})
    assert taking.behind == (set() if is_waited_for else {LARGEST})
    assert (taking.within({LARGEST: (8, epoch)}) == epoch) == is_waited_for


def test_who_falls_far_behind_before_the_checkpoints_epoch_takes_it_down(
    application: Any, trailed: CheckpointCoordinator
) -> None:
    assert (trailed.due(15, dict.fromkeys(BEHIND, (15, 15))), trailed.epoch) == (None, 8)
    application.exchange = SimpleNamespace(signs=dict)
    assert trailed.due(16, dict.fromkeys(BEHIND, (16, 16))) is None
    assert trailed.epoch is None
    assert application.told[-1][0] == "checkpoint-failed"


def test_who_is_held_back_before_the_checkpoints_epoch_takes_it_down(
    application: Any, trailed: CheckpointCoordinator
) -> None:
    application.progress.live.discard(LARGEST)
    trailed.advance()
    assert trailed.epoch is None
    assert application.told[-1][0] == "checkpoint-failed"


def test_no_folder_is_made_where_nobody_writes_a_state(application: Any) -> None:
    """Nothing but the removal of a file in it removes a folder, so each would stay for good."""
    pipeline = Pipeline("stateless")
    pipeline.source("rows", UnreadSource(SCHEMA, "at")).map(
        "same", lambda rows: rows, schema=SCHEMA
    ).sink("out")
    progress = PartitionTable(program.build(pipeline), RestorePoints(4))
    numbers = range(len(progress.program.partition_names))
    for partition in numbers:
        progress.place(partition, "a", 1)
        progress.finished[partition] = NEWEST
        progress.live.add(partition)
    application.program, application.progress = progress.program, progress
    taking = checkpointing(application, 11.0)
    assert taking.due(8, dict.fromkeys(numbers, (8, 8))) == 8
    assert (taking.waiting, application.begun) == (set(), [])


def test_what_cannot_be_removed_again_and_again_is_said_once(application: Any) -> None:
    said: list[str] = []
    application.store.complete_checkpoint = lambda *_: True
    application.events = SimpleNamespace(write=lambda kind, **_: said.append(kind))
    application.digests, application.cuts, application.remove = {}, {}, lambda _: None
    taking = checkpointing(application, 11.0)
    for epoch, trouble in enumerate(["denied", "", *["denied"] * 5, "", *["denied"] * 3], 8):
        application.store.not_removed = trouble
        taking.last_at -= 11.0
        assert taking.due(epoch, dict.fromkeys(NEXT, (epoch, epoch))) == epoch
        application.newest = epoch
        taking.waiting.clear()
        taking.advance()
    # after the third, and the third after one that went well
    assert said.count("removal-failed") == 2
    assert [number for number, kind in enumerate(said) if kind != "checkpoint"] == [5, 12]


def completed(application: Any, *, is_urgent: bool, newest: int = 8) -> dict[str, Any]:
    """The record of the checkpoint of epoch 8, once so many epochs have run."""
    written: list[dict[str, Any]] = []

    def complete(_: int, record: dict[str, Any]) -> bool:
        written.append(record)
        return True

    application.store.complete_checkpoint = complete
    application.events = SimpleNamespace(write=lambda *_, **__: None)
    application.digests, application.cuts, application.remove = {}, {}, lambda _: None
    taking = checkpointing(application, 11.0)
    taking.is_urgent = is_urgent
    assert taking.due(8, NEXT) == 8
    application.newest = newest
    taking.waiting.clear()
    taking.advance()
    return written[0]


def test_the_last_checkpoint_of_a_driver_that_was_asked_to_end_is_a_savepoint(
    application: Any,
) -> None:
    assert completed(application, is_urgent=True)["savepoint"]


@pytest.mark.parametrize(("is_urgent", "newest"), [(False, 8), (True, 9)])
def test_one_that_a_driver_takes_on_its_way_is_none(
    application: Any, is_urgent: bool, newest: int
) -> None:
    record = completed(application, is_urgent=is_urgent, newest=newest)
    assert "savepoint" not in record


def test_its_record_has_the_event_times_that_were_read(application: Any) -> None:
    assert "greatest" not in completed(application, is_urgent=True)
    last = StreamCut((PartitionCut("p", 0, 9, 9, "made"), PartitionCut("unread", 0, 0, 0)), 0, 0.0)
    intake = Intake("topic", SourceTerms(), last, greatest={"p": 5})
    application.arrivals.intakes = Intakes({"topic": intake})
    application.progress.restore_points, application.newest = RestorePoints(4), NEWEST
    record = completed(application, is_urgent=True)
    assert record["greatest"] == {"topic": {"p": ["made", 9, 5]}}


def cut_of(epoch: int) -> Cut:
    """The cut of an epoch; all up to it have ten rows each of two sources."""
    begin, end = 10 * epoch - 10, 10 * epoch
    stream = StreamCut((PartitionCut("p", begin, end, end),), 0, 0.0)
    streams = {"files": stream, "topic": stream}
    return Cut(epoch, 0.0, {}, 0, 1.0, False, streams=streams)


def test_files_stay_listed_for_the_checkpoint_from_before_the_states_of_what_is_behind(
    application: Any, tmp_path: Path
) -> None:
    """A shared state that is damaged has the start go on from it."""
    store = application.store = CheckpointStore(tmp_path)
    store.open(1.0)
    application.digests, application.remove = {}, lambda _: None
    settled: list[int] = []
    application.events = SimpleNamespace(
        write=lambda _, **values: settled.append(values["settled"])
    )
    application.cuts = {epoch: cut_of(epoch) for epoch in range(4, 14)}
    for cut in application.cuts.values():
        store.log_offsets(cut.epoch, cut.record())
    application.progress.restore_points = RestorePoints()
    taken: list[tuple[int, int]] = []

    def commit(newest: dict[str, Any], kept: dict[str, Any]) -> None:
        taken.append((newest["topic"]["p"], kept["files"]["p"]))

    application.polls = SimpleNamespace(commit=commit)
    taking = checkpointing(application, 0.0)
    for epoch in range(4, 14):
        is_behind = 6 <= epoch < 12
        taking.epoch, taking.behind = epoch, {LARGEST} if is_behind else set()
        taking.sizes = {COUNTED: 1} if is_behind else {COUNTED: 1, LARGEST: 1}
        taking.advance()
    begun = [(40, 40), (50, 40)]
    outage = [(50, 40)] * 6
    assert taken == [*begun, *outage, (120, 50), (130, 120)]
    assert settled == [end // 10 for _, end in taken], "the events say the same"
    assert sorted(application.cuts) == [13]
    assert sorted(taking.begins) == [12, 13]


def being_written(application: Any, host: Activity, idle_seconds: float) -> CheckpointCoordinator:
    """A checkpoint for whose states the only host has given no other sign for so long."""
    said = struct.pack(">qqq", 0, 0, 0)
    application.exchange = SimpleNamespace(signs=lambda: {"a": said + bytes(host.memory)})
    application.events = SimpleNamespace(write=lambda kind, **values: told.append((kind, values)))
    told: list[tuple[str, dict[str, str]]] = []
    application.told = told
    taking = checkpointing(application, 500.0)
    taking.due(8, NEXT)
    sign = job_activity.read(said + bytes(host.memory)).of(job_activity.CHECKPOINTS, frozenset())
    since = time.monotonic() - idle_seconds
    taking.watch = Watch(due_at=since, last={"a": (sign, since)})
    return taking


def test_one_that_is_being_written_goes_on_for_as_long_as_bytes_move(application: Any) -> None:
    host = Activity()
    with host.entry(job_activity.CHECKPOINTS) as entry:
        taking = being_written(application, host, idle_seconds=500.0)
        entry.sign()
        assert taking.due(9, NEXT) is None
        assert taking.is_taking(8)
    assert application.told == []


@pytest.mark.parametrize("is_written", [False, True])
def test_one_whose_states_nobody_goes_on_with_is_given_up_with_who_and_what(
    application: Any, is_written: bool
) -> None:
    host = Activity()
    with host.entry(job_activity.CHECKPOINTS if is_written else 5) as entry:
        entry.begin("writing checkpoints/8/counted-0.state")
        assert being_written(application, host, idle_seconds=70.0).due(9, NEXT) is None
        assert application.told == []
        taking = being_written(application, host, idle_seconds=76.0)
        assert not taking.is_taking(8)
        taking = being_written(application, host, idle_seconds=76.0)
        assert taking.due(9, NEXT) is None
    ((kind, values),) = application.told
    assert kind == "checkpoint-failed"
    assert values["text"].startswith("executor a on n1 has neither loaded, written nor finished")
    assert ("last: writing checkpoints/8/counted-0.state" in values["text"]) == is_written
