"""Jobs: who runs what in which stage, and where each reads what it needs."""

import json
from typing import Any

import pyarrow as pa
import pytest

from rekindle.model.errors import RunError
from rekindle_spark.checkpoint.restore_points import DurableInput, RestorePoints
from rekindle_spark.driver.partition_table import PartitionTable
from rekindle_spark.executor.host_scheduler import BEHIND, CATCH_UP, SECOND, URGENT
from rekindle_spark.jobs import job_specs
from rekindle_spark.jobs.job_specs import Ranges, Specification
from rekindle_spark.jobs.suspect_partitions import SuspectedEpoch
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.steps import Pipeline, count
from rekindle_spark.spark.spark_gateway import Read
from rekindle_testing.runtime_builders import UnreadSource

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string())])
ROWS0, ROWS1, COUNTED0, COUNTED1, LARGEST = range(5)
PLACES = {ROWS0: "a", ROWS1: "b", COUNTED0: "a", COUNTED1: "b", LARGEST: "a"}
NODES = {"a": "127.0.0.2", "b": "127.0.0.3"}


def placed() -> PartitionTable:
    """rows x2 -> counted x2 -> largest, all at epoch 7, restore point 4."""
    built = Pipeline("jobs")
    rows = built.source("rows", UnreadSource(SCHEMA, "at"), parallelism=2)
    counted = rows.window(
        "counted", keys=["key"], size_seconds=1, aggregates={"n": count()}, parallelism=2
    )
    counted.top("largest", by="n", count=1).sink("top")
    progress = PartitionTable(program.build(built), RestorePoints(4))
    for partition, executor in PLACES.items():
        progress.place(partition, executor, 2)
        progress.finished[partition] = 7
    return progress


def specify(progress: PartitionTable, work: Ranges) -> Specification:
    epochs = {epoch for first, last in work.values() for epoch in range(first, last + 1)}
    offsets = {epoch: {"rows": [epoch, epoch + 1, 0]} for epoch in epochs}
    common = {"version": 1, "function_seconds_max": 9.0}
    return job_specs.specify(progress, work, NODES, common, offsets)


def layout(specification: Specification) -> list[dict[str, list[int]]]:
    """Partitions by executor in each stage, as the headers say."""
    return [
        {task.executor: [i["partition"] for i in header(task)["work"]] for task in stage}
        for stage in specification.stages
    ]


def header(task: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(task.header)
    return found


def test_an_epoch_runs_level_by_level_with_one_task_per_executor() -> None:
    specification = specify(placed(), dict.fromkeys(PLACES, (8, 8)))
    assert layout(specification) == [
        {"a": [ROWS0], "b": [ROWS1]},
        {"a": [COUNTED0], "b": [COUNTED1]},
        {"a": [LARGEST]},
    ]
    assert [task.host for task in specification.stages[0]] == ["127.0.0.2", "127.0.0.3"]


def test_what_an_executor_runs_of_a_stage_stands_together_in_the_output() -> None:
    progress = placed()
    progress.resident[LARGEST] = progress.placed.pop(LARGEST)
    work = {number: (8, 8) for number in PLACES if number != LARGEST}
    # what does not run comes first where it is, so that it parts nothing that runs
    assert specify(progress, work).output_order == (LARGEST, ROWS0, COUNTED0, ROWS1, COUNTED1)
    progress.placed[COUNTED1] = "a"
    assert specify(progress, work).output_order == (LARGEST, ROWS0, COUNTED0, COUNTED1, ROWS1)
    # nor does what is nowhere
    del progress.resident[LARGEST]
    progress.placed[COUNTED1] = "b"
    assert specify(progress, work).output_order == (LARGEST, ROWS0, COUNTED0, ROWS1, COUNTED1)


def test_frames_of_the_same_job_come_from_the_stage_below() -> None:
    specification = specify(placed(), dict.fromkeys(PLACES, (8, 8)))
    (largest,) = specification.stages[2]
    assert largest.reads == (Read(-2, (0, 2), (LARGEST, LARGEST + 1)),)
    for task, target in zip(specification.stages[1], (COUNTED0, COUNTED1), strict=True):
        assert task.reads == (Read(-1, (0, 2), (target, target + 1)),)
    assert all(task.reads == () for task in specification.stages[0])


def test_frames_of_earlier_epochs_come_from_where_they_are_retained() -> None:
    progress = placed()
    progress.finished[LARGEST] = 5
    progress.retained.add(31, [("a", {COUNTED0: (5, 7)}), ("b", {COUNTED1: (5, 6)})], [1, 1])
    progress.retained.add(32, [("b", {ROWS1: (7, 7)}), ("b", {COUNTED1: (7, 7)})], [1, 1])
    ((task,),) = specify(progress, {LARGEST: (6, 7)}).stages
    assert task.reads == (
        Read(31, (0, 2), (LARGEST, LARGEST + 1)),
        Read(32, (1, 2), (LARGEST, LARGEST + 1)),
    )


def test_one_that_joins_reads_what_it_missed_and_the_new_epoch_at_once() -> None:
    progress = placed()
    progress.finished[LARGEST] = 6
    progress.retained.add(31, [("a", {COUNTED0: (7, 7)}), ("b", {COUNTED1: (7, 7)})], [1, 1])
    work = {**dict.fromkeys(PLACES, (8, 8)), LARGEST: (7, 8)}
    (largest,) = specify(progress, work).stages[2]
    assert [read.shuffle for read in largest.reads] == [-2, 31]
    assert header(largest)["work"][0]["from"] == 7


def test_stages_are_as_many_as_producers_in_a_row_within_the_job() -> None:
    progress = placed()
    progress.retained.add(31, [("a", {ROWS0: (5, 7)}), ("b", {ROWS1: (5, 7)})], [1, 1])
    progress.retained.add(32, [("a", {COUNTED0: (5, 7)}), ("b", {COUNTED1: (5, 7)})], [1, 1])
    work = {COUNTED0: (6, 6), LARGEST: (7, 7)}
    assert len(specify(progress, {LARGEST: (6, 7)}).stages) == 1
    assert len(specify(progress, work).stages) == 2


def test_a_header_says_from_which_version_to_start_and_what_to_read_of_sources() -> None:
    progress = placed()
    progress.finished[ROWS0] = 5
    specification = specify(progress, {ROWS0: (6, 7)})
    content = header(specification.stages[0][0])
    assert content["work"] == [
        {
            "partition": ROWS0,
            "plan_epoch": 2,
            "from": 6,
            "to": 7,
            "counts": [6, 7],
            "readers": None,
            "finished": 5,
            "restore_point": 4,
            "inputs": [],
        }
    ]
    assert content["offsets"] == {"6": {"rows": [6, 7, 0]}, "7": {"rows": [7, 8, 0]}}
    assert content["executor"] == "a"


def test_a_header_says_which_partitions_the_executor_is_to_keep() -> None:
    progress = placed()
    progress.lose(["b"])  # what needed it stops on a, and keeps its state
    specification = specify(progress, {ROWS0: (8, 8)})
    content = header(specification.stages[0][0])
    assert content["held"] == [ROWS0, COUNTED0, LARGEST]
    finished = {str(partition): progress.finished[partition] for partition in content["held"]}
    assert content["finished"] == finished


def test_operators_with_state_are_not_sent_the_offsets_of_sources() -> None:
    specification = specify(placed(), dict.fromkeys(PLACES, (8, 8)))
    assert header(specification.stages[1][0])["offsets"] == {}


def test_what_a_job_has_made_is_known_by_stage_map_and_partition() -> None:
    specification = specify(placed(), dict.fromkeys(PLACES, (8, 8)))
    assert specification.produced[0] == (("a", {ROWS0: (8, 8)}), ("b", {ROWS1: (8, 8)}))
    assert specification.ranges == dict.fromkeys(PLACES, (8, 8))


def test_a_partition_can_go_as_far_as_the_slowest_of_its_producers() -> None:
    progress = placed()
    progress.finished[ROWS1] = 5
    assert job_specs.reachable(progress, COUNTED0, 9, {}) == 5
    assert job_specs.reachable(progress, COUNTED0, 4, {}) == 4
    assert job_specs.reachable(progress, ROWS0, 9, {}) == 9
    assert job_specs.reachable(progress, COUNTED0, 9, {ROWS1: (6, 7)}) == 7, "in the same job"
    assert job_specs.reachable(progress, COUNTED0, 6, {ROWS1: (6, 7)}) == 6
    del progress.finished[ROWS0]
    assert job_specs.reachable(progress, COUNTED0, 9, {}) == 0


def test_frames_in_the_store_are_read_there_and_no_source_makes_them_again() -> None:
    progress = placed()
    progress.finished[COUNTED0] = 3
    progress.restore_points = RestorePoints(
        6,
        {COUNTED0: 3},
        [
            DurableInput(5, {ROWS0: (4, 6), ROWS1: (4, 6)}, frozenset({COUNTED0})),
            DurableInput(6, {ROWS0: (6, 7), ROWS1: (6, 7)}, frozenset({COUNTED0})),
        ],
    )
    progress.retained.add(31, [("a", {ROWS0: (7, 7)}), ("b", {ROWS1: (7, 7)})], [1, 1])
    specification = specify(progress, {COUNTED0: (4, 5)})
    assert layout(specification) == [{"a": [COUNTED0]}]
    ((task,),) = specification.stages
    (item,) = header(task)["work"]
    assert (item["restore_point"], item["inputs"], task.reads) == (3, [5], ())
    ((task,),) = specify(progress, {COUNTED0: (5, 7)}).stages
    (item,) = header(task)["work"]
    assert (item["inputs"], [read.shuffle for read in task.reads]) == ([5, 6], [31])


def test_frames_of_sources_that_nobody_keeps_are_made_again_in_the_same_job() -> None:
    progress = placed()
    progress.finished[COUNTED0] = 4
    progress.retained.add(31, [("a", {ROWS0: (5, 7)}), ("b", {ROWS1: (7, 7)})], [1, 1])
    specification = specify(progress, {COUNTED0: (5, 7)})
    assert layout(specification) == [{"a": [ROWS1]}, {"a": [COUNTED0]}], "where they are read"
    (again,), (counted,) = specification.stages
    assert header(again)["work"][0]["counts"] == []
    assert header(again)["work"][0]["readers"] == [COUNTED0]
    assert header(again)["offsets"].keys() == {"5", "6"}
    assert {read.shuffle: read.maps for read in counted.reads} == {-1: (0, 1), 31: (0, 2)}
    assert specification.ranges == {COUNTED0: (5, 7)}
    assert specification.partitions == {ROWS1, COUNTED0}
    assert specification.produced[0] == (("a", {ROWS1: (5, 6)}),)


def test_a_source_runs_earlier_epochs_for_one_that_joins_and_counts_only_its_own() -> None:
    progress = placed()
    progress.finished[COUNTED0] = 5
    progress.retained.add(31, [("a", {ROWS0: (7, 7)}), ("b", {ROWS1: (6, 7)})], [1, 1])
    work = {**dict.fromkeys(PLACES, (8, 8)), COUNTED0: (6, 8)}
    specification = specify(progress, work)
    items = {
        item["partition"]: item for task in specification.stages[0] for item in header(task)["work"]
    }
    assert (items[ROWS0]["from"], items[ROWS0]["to"], items[ROWS0]["counts"]) == (6, 8, [8, 8])
    assert (items[ROWS1]["from"], items[ROWS1]["to"], items[ROWS1]["counts"]) == (8, 8, [8, 8])
    assert specification.ranges == work


def test_what_operators_with_state_have_made_is_never_made_again() -> None:
    progress = placed()
    progress.finished[LARGEST] = 5
    unkept = "partition largest/0: needs what counted/0 gave in epoch 6, which nobody keeps; start"
    with pytest.raises(RunError, match=unkept):
        specify(progress, {LARGEST: (6, 7)})


def test_sources_have_a_stage_of_their_own() -> None:
    progress = placed()
    progress.retained.add(31, [("a", {ROWS0: (5, 7)}), ("b", {ROWS1: (5, 7)})], [1, 1])
    specification = specify(progress, {ROWS0: (8, 8), COUNTED0: (6, 6), COUNTED1: (6, 6)})
    assert layout(specification) == [{"a": [ROWS0]}, {"a": [COUNTED0], "b": [COUNTED1]}]


def test_where_sources_run_again_only_what_is_near_goes_into_one_job() -> None:
    progress = placed()
    far = {COUNTED0: (1, 4), COUNTED1: (6, 7)}
    assert job_specs.together(progress, far) == {COUNTED0: (1, 4)}
    near = {COUNTED0: (1, 4), COUNTED1: (4, 7)}
    assert job_specs.together(progress, near) == near
    produced = {ROWS0: (1, 7), ROWS1: (1, 7)}
    progress.retained.add(31, [("a", produced)], [1])
    assert job_specs.together(progress, far) == far, "nothing runs again"


def test_who_reads_a_source_that_is_left_out_goes_as_far_as_that_has_run() -> None:
    progress = placed()
    work = {ROWS0: (8, 9), ROWS1: (8, 9), COUNTED0: (2, 9), COUNTED1: (1, 4)}
    assert job_specs.together(progress, work) == {COUNTED0: (2, 7), COUNTED1: (1, 4)}


def test_what_sources_run_in_the_same_job_is_not_made_again() -> None:
    work = {ROWS0: (8, 9), ROWS1: (8, 9), COUNTED0: (8, 9)}
    assert job_specs.made_again(placed(), work) == {}


@pytest.mark.parametrize(
    ("urgency", "slow", "quick"),
    [(BEHIND, SECOND, SECOND), (CATCH_UP, SECOND, None), (URGENT, None, None)],
)
def test_what_runs_behind_the_epochs_or_is_slow_in_catching_up_has_the_second_lane(
    urgency: int, slow: int | None, quick: int | None
) -> None:
    progress = placed()
    for seconds in (0.1, 0.2):
        progress.took(ROWS0, seconds)
    for seconds in (0.2, 0.1):
        progress.took(ROWS1, seconds)
    common = {"version": 1, "function_seconds_max": 9.0, "urgency": urgency}
    offsets = {8: {"rows": [8, 9, 0]}}
    work = dict.fromkeys((ROWS0, ROWS1), (8, 8))
    specification = job_specs.specify(progress, work, NODES, common, offsets)
    items = [item for task in specification.stages[0] for item in header(task)["work"]]
    assert {item["partition"]: item.get("lane") for item in items} == {ROWS0: slow, ROWS1: quick}


@pytest.mark.parametrize(
    ("urgency", "lane", "seconds"),
    [(BEHIND, SECOND, 2.0), (CATCH_UP, SECOND, 2.0), (URGENT, None, 2.0)],
)
def test_functions_that_always_run_beside_hosts_do_so_in_every_job_and_have_less_time(
    urgency: int, lane: int | None, seconds: float
) -> None:
    progress = placed()
    progress.beside = frozenset({ROWS0})
    common = {"version": 1, "function_seconds_max": 20.0, "urgency": urgency}
    work, offsets = dict.fromkeys((ROWS0, ROWS1), (8, 8)), {8: {"rows": [8, 9, 0]}}

    def items() -> dict[int, dict[str, Any]]:
        specification = job_specs.specify(progress, work, NODES, common, offsets)
        found = [item for task in specification.stages[0] for item in header(task)["work"]]
        return {item["partition"]: item for item in found}

    first = items()
    assert (first[ROWS0].get("lane"), first[ROWS0]["beside"]) == (lane, {"seconds_max": seconds})
    with_full_time = {"seconds_max": 20.0} if urgency == BEHIND else None
    assert first[ROWS1].get("beside") == with_full_time
    progress.suspects.slow.add(ROWS0)
    assert items()[ROWS0]["beside"] == {"seconds_max": 20.0}


def test_a_suspected_partition_runs_apart_and_no_other_does() -> None:
    progress = placed()
    progress.suspects.suspect(progress.program, COUNTED0, SuspectedEpoch(8, "it died"))
    specification = specify(progress, dict.fromkeys(PLACES, (8, 8)))
    apart = {
        item["partition"]: item.get("apart")
        for stage in specification.stages
        for task in stage
        for item in header(task)["work"]
    }
    assert apart.pop(COUNTED0) == {"searches": True, "seconds_max": 9.0}
    assert set(apart.values()) == {None}
