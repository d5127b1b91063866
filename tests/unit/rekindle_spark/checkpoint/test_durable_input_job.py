"""The job that writes durable input: how much of it goes on at a time."""

import pytest

from rekindle_spark.checkpoint import durable_input_job
from rekindle_spark.checkpoint.durable_input_job import TURNS_MAX
from rekindle_spark.spark.spark_gateway import Task


def tasks(executors: str) -> list[Task]:
    """One for each letter, the name of its executor."""
    return [Task("127.0.0.2", executor, b"", ()) for executor in executors]


def test_an_executor_writes_the_input_of_one_partition_after_the_other() -> None:
    job = durable_input_job._specification(tasks("ababa"), range(5), 2)
    assert ["".join(task.executor for task in stage) for stage in job.stages] == ["ab", "ab", "a"]
    assert [[number for _, run in stage for number in run] for stage in job.produced] == [
        [0, 1],
        [2, 3],
        [4],
    ]
    assert not job.ranges


@pytest.mark.parametrize("executors", ["a", "ab", "abc"])
def test_of_very_many_each_executor_has_as_few_at_a_time_as_can_be(executors: str) -> None:
    given = tasks(executors * 50)
    job = durable_input_job._specification(given, range(len(given)), len(executors))
    assert len(job.stages) <= TURNS_MAX
    assert {len(stage) for stage in job.stages[:-1]} == {4 * len(executors)}
    assert job.partitions == set(range(len(given)))
