"""Who is suspected to end its process, runs apart meanwhile, and is cleared or not."""

import pyarrow as pa
import pytest

from rekindle_spark.jobs.suspect_partitions import SuspectedEpoch, Suspects
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.program import Program
from rekindle_spark.pipeline.steps import Pipeline, count
from rekindle_testing.runtime_builders import UnreadSource

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string())])
ROWS0, ROWS1, KEYS0, KEYS1 = range(4)
DEATH = SuspectedEpoch(12, "step checked: ended its process with SIGSEGV")


@pytest.fixture
def built() -> Program:
    """rows x2 -> by-key x2."""
    pipeline = Pipeline("two")
    rows = pipeline.source("rows", UnreadSource(SCHEMA, "at"), parallelism=2)
    rows.window(
        "by-key", keys=["key"], size_seconds=1, aggregates={"n": count()}, parallelism=2
    ).sink("keys")
    return program.build(pipeline)


def test_all_partitions_of_a_source_run_apart_once_one_is_suspected(built: Program) -> None:
    suspects = Suspects()
    suspects.suspect(built, ROWS0, DEATH)
    assert suspects.alone.keys() == {ROWS0}
    assert suspects.apart == {ROWS0, ROWS1}


def test_of_an_operator_with_state_the_suspected_partition_alone_runs_apart(built: Program) -> None:
    suspects = Suspects()
    suspects.suspect(built, KEYS0, DEATH)
    assert suspects.apart == suspects.alone.keys() == {KEYS0}


def test_who_passes_the_epoch_without_a_death_is_trusted_again(built: Program) -> None:
    suspects = Suspects()
    suspects.suspect(built, ROWS0, DEATH)
    assert not suspects.passed(built, ROWS0, 11, deaths=False)
    assert suspects.apart == {ROWS0, ROWS1}
    assert suspects.passed(built, ROWS0, 12, deaths=False)
    assert not suspects.alone
    assert not suspects.apart


def test_who_passes_it_without_the_records_at_fault_runs_apart_for_good(built: Program) -> None:
    suspects = Suspects()
    suspects.suspect(built, ROWS0, DEATH)
    assert not suspects.passed(built, ROWS0, 11, deaths=True)
    assert suspects.passed(built, ROWS0, 13, deaths=False)
    assert not suspects.alone
    assert suspects.apart == {ROWS0, ROWS1}


def test_who_is_cleared_a_second_time_runs_apart_for_good(built: Program) -> None:
    suspects = Suspects()
    for _ in range(2):
        suspects.suspect(built, KEYS0, DEATH)
        assert suspects.passed(built, KEYS0, 12, deaths=False)
    assert suspects.apart == {KEYS0}


def test_several_are_suspected_at_once_and_each_is_cleared_by_itself(built: Program) -> None:
    suspects = Suspects()
    for number in (ROWS0, ROWS1, KEYS1):
        suspects.suspect(built, number, DEATH)
    assert suspects.passed(built, ROWS0, 12, deaths=False)
    assert suspects.alone.keys() == {ROWS1, KEYS1}
    assert suspects.apart == {ROWS0, ROWS1, KEYS1}
    assert suspects.passed(built, KEYS1, 12, deaths=False)
    assert suspects.apart == {ROWS0, ROWS1}


def test_partitions_of_a_source_stay_apart_where_one_of_them_was_stopped(built: Program) -> None:
    suspects = Suspects()
    suspects.suspect(built, ROWS0, DEATH)
    suspects.forget([ROWS0])
    assert not suspects.alone
    assert ROWS1 in suspects.apart


def test_where_others_wait_a_call_gets_a_part_of_the_time_until_it_has_shown_that_it_needs_it(
    built: Program,
) -> None:
    suspects = Suspects()
    assert suspects.terms(ROWS0, 60.0) == {}
    suspects.suspect(built, ROWS0, DEATH)
    assert suspects.terms(ROWS0, 60.0)["apart"] == {"searches": True, "seconds_max": 60.0}
    assert suspects.terms(ROWS1, 60.0)["apart"] == {"searches": False, "seconds_max": 6.0}
    assert suspects.terms(ROWS1, 0.5)["apart"] == {"searches": False, "seconds_max": 0.5}
    suspects.suspect(built, ROWS1, DEATH)
    assert suspects.passed(built, ROWS1, 12, deaths=False)
    assert suspects.terms(ROWS1, 60.0)["apart"] == {"searches": False, "seconds_max": 60.0}


def test_the_death_of_a_process_is_news_once_however_many_tasks_report_it() -> None:
    suspects = Suspects()
    assert [suspects.is_news("3", process) for process in (40, 40, 41)] == [True, False, True]


def test_who_runs_without_the_step_at_fault_is_suspected_no_more(built: Program) -> None:
    suspects = Suspects()
    suspects.suspect(built, ROWS0, DEATH)
    suspects.relieve(ROWS0)
    suspects.relieve(KEYS0)
    assert (suspects.alone, suspects.guilty) == ({}, {ROWS0})
    # it may still have to run epochs with the step again
    assert suspects.apart == {ROWS0, ROWS1}
    suspects.passed_for_good(ROWS0)
    suspects.passed_for_good(ROWS1)
    assert suspects.apart == {ROWS1}
