"""Restore points: what a checkpoint has of partitions that are behind, and what they would lack."""

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle_spark.checkpoint import durable_input_job, restore_points
from rekindle_spark.checkpoint.restore_points import DurableInput, RestorePoints
from rekindle_spark.driver.partition_table import PartitionTable
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.steps import Pipeline, count
from rekindle_store import checkpoint_records
from rekindle_testing.runtime_builders import UnreadSource

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string())])
ROWS, COUNTED0, COUNTED1, LARGEST = range(4)
EVERYTHING = {ROWS, COUNTED0, COUNTED1, LARGEST}


def built() -> program.Program:
    """rows -> counted x2 -> largest."""
    pipeline = Pipeline("restoring")
    counted = pipeline.source("rows", UnreadSource(SCHEMA, "at")).window(
        "counted", keys=["key"], size_seconds=1, aggregates={"n": count()}, parallelism=2
    )
    counted.top("largest", by="n", count=1).sink("top")
    return program.build(pipeline)


def largest_is_behind() -> PartitionTable:
    """All but the last step run, after epoch 9; the restore point is 4, all since is retained."""
    progress = PartitionTable(built(), RestorePoints(4))
    for partition in (ROWS, COUNTED0, COUNTED1):
        progress.place(partition, "a", 1)
        progress.finished[partition] = 9
        progress.live.add(partition)
    produced = dict.fromkeys((ROWS, COUNTED0, COUNTED1), (5, 9))
    progress.retained.add(1, [("a", produced)], [10])
    return progress


def test_without_checkpoint_everything_starts_before_all_input() -> None:
    points = restore_points.from_record(None, built())
    assert (points.oldest, points.epoch(COUNTED0)) == (0, 0)
    assert points.needs(COUNTED0, ROWS, 1)


def test_what_was_behind_keeps_its_state_and_gets_input() -> None:
    first = DurableInput(9, {COUNTED0: (5, 10)}, frozenset({LARGEST}))
    points = RestorePoints(4).after(9, {LARGEST}, first)
    assert (points.epoch(LARGEST), points.epoch(COUNTED0), points.oldest) == (4, 9, 4)
    assert [points.has(LARGEST, COUNTED0, epoch) for epoch in (4, 5, 9, 10)] == [
        False,
        True,
        True,
        False,
    ]
    assert not points.needs(LARGEST, COUNTED0, 9)
    assert points.needs(LARGEST, COUNTED1, 9)
    second = DurableInput(12, {COUNTED0: (10, 13)}, frozenset({LARGEST}))
    points = points.after(12, {LARGEST}, second)
    assert (points.epoch(LARGEST), points.oldest) == (4, 4)
    assert points.checkpoints(LARGEST, 5, 9) == [9]
    assert points.checkpoints(LARGEST, 9, 10) == [9, 12]
    assert points.checkpoints(COUNTED0, 9, 10) == []


def test_what_has_caught_up_needs_no_input_of_before() -> None:
    written = DurableInput(9, {COUNTED0: (5, 10)}, frozenset({LARGEST}))
    points = RestorePoints(4).after(9, {LARGEST}, written).after(12, (), None)
    assert (points.inputs, points.older, points.oldest) == ([], {}, 12)
    assert not points.has(LARGEST, COUNTED0, 7)


POINTS = st.builds(
    RestorePoints,
    st.integers(10, 20),
    st.dictionaries(st.sampled_from(sorted(EVERYTHING)), st.integers(0, 9)),
    st.lists(
        st.builds(
            DurableInput,
            st.integers(1, 20),
            st.dictionaries(st.sampled_from([ROWS, COUNTED0]), st.just((3, 5, 7, 9))),
            st.frozensets(st.sampled_from(sorted(EVERYTHING))),
        ),
        max_size=3,
    ),
)


@given(POINTS)
def test_a_record_says_all_of_it(points: RestorePoints) -> None:
    whole = built()
    record = {"epoch": points.newest, **points.record(whole.partition_names)}
    assert restore_points.from_record(record, whole) == points
    assert checkpoint_records.oldest(record) == points.oldest


def test_a_record_of_an_earlier_version_has_everybodys_state() -> None:
    record = {"epoch": 7, "bytes": {"counted/0": 5, "largest/0": 5}}
    assert restore_points.from_record(record, built()) == RestorePoints(7)
    assert checkpoint_records.oldest(record) == 7
    assert sorted(checkpoint_records.files(record)) == [
        "checkpoints/7/counted-0.state",
        "checkpoints/7/largest-0.state",
    ]


def test_files_of_a_record_are_states_old_and_new_and_inputs() -> None:
    written = DurableInput(9, {COUNTED0: (5, 10)}, frozenset({LARGEST}))
    points = RestorePoints(4).after(9, {LARGEST}, written)
    record = {
        "epoch": 9,
        "bytes": {"counted/0": 5, "counted/1": 5},
        **points.record(built().partition_names),
    }
    assert sorted(checkpoint_records.files(record)) == [
        "checkpoints/4/largest-0.state",
        "checkpoints/9/counted-0.state",
        "checkpoints/9/counted-1.state",
        "checkpoints/9/largest-0.input",
    ]


def test_what_somebody_behind_would_lack_is_to_be_written() -> None:
    progress = largest_is_behind()
    assert durable_input_job.unwritten(progress, 8, {LARGEST}) == {
        COUNTED0: (5, 9),
        COUNTED1: (5, 9),
    }
    written = DurableInput(7, {COUNTED0: (5, 8)}, frozenset({LARGEST}))
    progress.restore_points = RestorePoints(7, {LARGEST: 4}, [written])
    assert durable_input_job.unwritten(progress, 9, {LARGEST}) == {
        COUNTED0: (8, 10),
        COUNTED1: (5, 10),
    }
    assert durable_input_job.unwritten(progress, 9, set()) == {}


def test_a_checkpoint_waits_where_what_is_needed_is_nowhere() -> None:
    progress = largest_is_behind()
    assert durable_input_job.is_covered(progress, 9, {LARGEST})
    progress.retained.clear()
    assert not durable_input_job.is_covered(progress, 9, {LARGEST})
    frames = {COUNTED0: (5, 10), COUNTED1: (5, 10)}
    written = DurableInput(9, frames, frozenset({LARGEST}))
    progress.restore_points = RestorePoints(9, {LARGEST: 4}, [written])
    assert durable_input_job.is_covered(progress, 9, {LARGEST})


def test_what_sources_made_need_not_be_anywhere() -> None:
    progress = largest_is_behind()
    progress.retained.clear()
    progress.restore_points = RestorePoints(4, {}, [])
    assert durable_input_job.is_covered(progress, 9, {COUNTED0, COUNTED1})


def test_of_a_producer_that_is_gone_nobody_needs_what_it_will_make() -> None:
    progress = largest_is_behind()
    progress.lose(["a"])
    assert durable_input_job.is_covered(progress, 9, {LARGEST, COUNTED0, COUNTED1})


def test_a_state_that_is_made_of_several_files_needs_them_all_until_it_is_written_whole() -> None:
    points = RestorePoints(4).after(9, (), None, {COUNTED0: 4}).after(12, (), None, {COUNTED0: 9})
    assert points.chains == {COUNTED0: (4, 9, 12)}
    record = {"epoch": 12, "bytes": {"counted/0": 5}, **points.record(built().partition_names)}
    assert sorted(set(checkpoint_records.files(record))) == [
        "checkpoints/12/counted-0.state",
        "checkpoints/4/counted-0.state",
        "checkpoints/9/counted-0.state",
    ]
    assert restore_points.from_record(record, built()) == points
    behind = points.after(15, {COUNTED0}, None)
    assert (behind.chains, behind.epoch(COUNTED0)) == ({COUNTED0: (4, 9, 12)}, 12)
    assert points.after(15, (), None).chains == {}


def test_a_file_that_builds_on_another_than_the_restore_point_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="partition 1 builds on epoch 3"):
        RestorePoints(4).after(9, (), None, {COUNTED0: 3})


def test_what_an_uncertain_step_gave_that_is_behind_itself_is_not_written() -> None:
    progress = largest_is_behind()
    rows, counted, largest = progress.program.chains
    uncertain = replace(counted, root=replace(counted.root, deterministic=False))
    progress.program = replace(progress.program, chains=(rows, uncertain, largest))
    both = {COUNTED0: (5, 9), COUNTED1: (5, 9)}
    assert durable_input_job.unwritten(progress, 8, {LARGEST}) == both
    behind = {COUNTED0, LARGEST}
    found = durable_input_job.unwritten(progress, 8, behind)
    assert COUNTED0 not in found
    assert found[COUNTED1] == (5, 9)
