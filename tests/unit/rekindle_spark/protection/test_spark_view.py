"""Hosts and their incarnations, and what queries take of them, from Spark's status."""

import pytest
from py4j.protocol import Py4JError
from streaming_world import Context, Job, Task

from rekindle_spark.protection.spark_view import (
    STALLED_SECONDS,
    Heartbeats,
    RunTimes,
    SparkView,
    TaskRetries,
)

RUNS = {"orders": "r1"}


def test_a_host_is_the_same_while_executors_join_it_and_another_once_one_is_gone() -> None:
    context = Context([("1", "n1", 2)])
    view = SparkView(context)
    first = view.nodes()["n1"]
    context.executors.append(("10", "n1", 2))
    joined = view.nodes()["n1"]
    assert joined.incarnation == first.incarnation, "an executor that joins is no loss"
    assert (first.capacity_percent, joined.capacity_percent) == (200.0, 400.0)
    del context.executors[1]
    left = view.nodes()["n1"]
    assert left.incarnation != first.incarnation
    context.executors[0] = ("11", "n1", 2)
    replaced = view.nodes()["n1"]
    assert replaced.incarnation not in {first.incarnation, left.incarnation}


def test_a_host_that_was_away_for_a_look_is_another() -> None:
    context = Context([("1", "n1", 1)])
    view = SparkView(context)
    first = view.nodes()["n1"]
    context.executors, executors = [], context.executors
    assert view.nodes() == {}
    context.executors = executors
    assert view.nodes()["n1"].incarnation != first.incarnation


def test_spark_lists_executors_again_only_once_they_are_others() -> None:
    context = Context([("1", "n1", 1), ("2", "n2", 1)])
    view = SparkView(context)
    first = view.nodes()
    assert [view.nodes() for _ in range(3)] == [first] * 3
    assert context.lists == 1
    context.executors = context.executors[:1]
    assert view.nodes().keys() == {"n1"}
    assert context.lists == 2


def test_a_loss_that_the_status_of_spark_tells_late_is_seen_once_it_does() -> None:
    context = Context([("1", "n1", 1), ("2", "n2", 1)])
    view = SparkView(context)
    view.nodes()
    context.late, context.executors = context.executors, context.executors[:1]
    assert view.nodes().keys() == {"n1", "n2"}
    context.late = None
    assert view.nodes().keys() == {"n1"}


def test_executors_are_listed_each_time_where_the_scheduler_does_not_name_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = Context([("1", "n1", 1), ("2", "n2", 1)])
    monkeypatch.setattr(Context, "getExecutorIds", property(_not_there))
    view = SparkView(context)
    view.nodes()
    context.executors = context.executors[:1]
    assert view.nodes().keys() == {"n1"}


def test_a_host_is_silent_once_the_heartbeats_of_all_its_executors_are_overdue() -> None:
    context = Context([("1", "n1", 1), ("2", "n1", 1), ("3", "n2", 1)])
    context.heartbeats = {"1": 100_000, "2": 100_000, "3": 102_000}
    view, beats = SparkView(context), Heartbeats(context)
    view.nodes()
    for second in range(0, 20, 5):  # the first question begins to listen
        if second == 10:
            context.heartbeats = {**context.heartbeats, "3": 112_000}
        told = beats.silences(float(second))
        assert told is not None
    assert told == {"1": 15.0, "2": 15.0, "3": 0.0}, "the third one's next heartbeat is not due"
    assert view.silent_seconds(told) == {"n1": 15.0, "n2": 0.0}
    assert view.silent_seconds({**told, "2": 0.0})["n1"] == 0.0
    assert view.silent_seconds({}) == {}


def test_only_time_in_which_the_driver_listened_is_silence() -> None:
    context = Context([("1", "n1", 1)])
    context.heartbeats, beats = {"1": 100_000}, Heartbeats(context)
    assert beats.silences(0.0) == {"1": 0.0}
    assert beats.silences(5.0) == {"1": 0.0}
    assert beats.silences(35.0) == {"1": 0.0}, "it stood still for half a minute"
    assert [beats.silences(35.0 + more) for more in (5.0, 10.0, 15.0)][-1] == {"1": 15.0}


def test_a_clock_that_was_set_makes_nobody_silent_and_hides_nobody() -> None:
    context, hour = Context([("1", "n1", 1), ("2", "n2", 1)]), 3_600_000
    beats = Heartbeats(context)
    context.heartbeats = {"1": 100_000, "2": 100_000}
    for second in range(0, 35, 5):
        if second % 10 == 0:
            moment = 100_000 + second * 1_000 + (hour if second >= 10 else 0)
            moment -= 2 * hour if second >= 20 else 0
            context.heartbeats = {**context.heartbeats, "1": moment}
        told = beats.silences(float(second))
    assert told == {"1": 0.0, "2": 30.0}


def test_where_spark_says_nothing_of_heartbeats_nothing_is_known(
    caplog: pytest.LogCaptureFixture,
) -> None:
    beats = Heartbeats(Context([("1", "n1", 1)]))
    assert [beats.silences(float(now)) for now in range(3)] == [None] * 3
    assert len(caplog.records) == 1, "once is enough"


def test_a_table_of_heartbeats_that_changes_as_it_is_read_is_read_again() -> None:
    context = Context([("1", "n1", 1)])
    context.heartbeats, beats = {"1": 100_000}, Heartbeats(context)
    assert beats.silences(0.0) == {"1": 0.0}
    context.changes = True
    assert beats.silences(1.0) is None
    context.changes = False
    assert beats.silences(2.0) == {"1": 0.0}


def _not_there(_: Context) -> None:
    raise Py4JError("Method getExecutorIds([]) does not exist")


def test_executors_are_replaced_only_where_the_host_is_the_one_that_was_meant() -> None:
    context = Context([("1", "n1", 1), ("2", "n2", 1)])
    view = SparkView(context)
    nodes = view.nodes()
    view.drop({"n1": nodes["n1"].incarnation, "n2": "another"})
    assert context.replaced == ["1"]
    assert view.nodes().keys() == {"n2"}


def test_a_batch_that_takes_most_of_a_long_interval_costs_what_it_takes() -> None:
    """Batches of 30 s on one core, once a minute: half a core in every window, and no zeros."""
    context = Context()
    times = RunTimes(context, str)
    found = []
    for second in range(0, 600, 10):
        for number in range(second // 60 + 1):
            ended = 60 * number + 30
            done = ended <= second
            context.jobs[number] = Job("r1", 1_000 * ended if done else None, 30_000 * done)
        found.append(times.loads(RUNS, {"orders": 60.0}))
    assert [loads["orders"] for loads in found if loads] == [50.0] * 9


def test_a_job_that_runs_over_the_end_of_a_window_counts_with_all_that_it_takes() -> None:
    context = Context(jobs={0: Job("r1", 1_000, 500)})
    times = RunTimes(context, str)
    times.loads(RUNS, {"orders": 0.0})
    context.jobs[1] = Job("r1", None, 0)
    assert times.loads(RUNS, {"orders": 0.0}) == {}, "no job has ended since"
    context.jobs[1] = Job("r1", 21_000, 20_000)
    assert times.loads(RUNS, {"orders": 0.0}) == {"orders": 100.0}


def test_a_job_that_runs_beside_a_later_one_counts_once_it_has_ended() -> None:
    context = Context(jobs={0: Job("r1", 0, 0)})
    times = RunTimes(context, str)
    times.loads(RUNS, {"orders": 0.0})
    context.jobs |= {1: Job("r1", None, 0), 2: Job("r1", 10_000, 1_000)}
    assert times.loads(RUNS, {"orders": 0.0}) == {"orders": 10.0}
    context.jobs[1] = Job("r1", 20_000, 19_000)
    assert times.loads(RUNS, {"orders": 0.0}) == {"orders": 190.0}


def test_of_many_jobs_some_are_looked_at_and_the_others_count_as_these() -> None:
    context = Context(jobs={0: Job("r1", 0, 0)})
    times = RunTimes(context, str)
    times.loads(RUNS, {"orders": 1.0})
    context.jobs |= {number: Job("r1", 1_000 * number, 200) for number in range(1, 11)}
    assert times.loads(RUNS, {"orders": 1.0}) == {"orders": pytest.approx(20.0)}


def test_a_stage_that_spark_has_forgotten_is_no_error() -> None:
    context = Context(jobs={0: Job("r1", 0, 0)}, forgotten={1})
    times = RunTimes(context, str)
    times.loads(RUNS, {"orders": 1.0})
    context.jobs |= {1: Job("r1", 5_000, 9_000), 2: Job("r1", 10_000, 1_000)}
    assert times.loads(RUNS, {"orders": 1.0}) == {"orders": 10.0}


def test_of_jobs_that_spark_has_forgotten_none_makes_a_query_look_cheap() -> None:
    """A job of half a second each second; Spark keeps ten of them, and twenty have come."""
    context = Context(jobs={0: Job("r1", 0, 500)})
    times = RunTimes(context, str)
    times.loads(RUNS, {"orders": 1.0})
    context.jobs = {number: Job("r1", 1_000 * number, 500) for number in range(11, 21)}
    assert times.loads(RUNS, {"orders": 1.0}) == {"orders": 50.0}


def test_one_query_begins_again_and_the_others_go_on() -> None:
    context = Context(jobs={0: Job("r1", 0, 0), 1: Job("r2", 0, 0)})
    times, runs = RunTimes(context, str), {"orders": "r1", "stock": "r2"}
    seconds = dict.fromkeys(runs, 1.0)
    times.loads(runs, seconds)
    times.forget(["r1"])
    context.jobs |= {2: Job("r1", 10_000, 5_000), 3: Job("r2", 10_000, 5_000)}
    assert times.loads(runs, seconds) == {"stock": 50.0}


def running(*tasks: Task) -> tuple[Context, TaskRetries]:
    """Tasks of the jobs 4 and 5 of a run, of a job 6 of somebody else, and of a large job 7."""
    jobs = {4: Job("r1", None, 0), 5: Job("r1", None, 0), 6: Job("other", None, 0)}
    context = Context(tasks=list(tasks), jobs={**jobs, 7: Job("r1", None, 0, tasks=1_001)})
    return context, TaskRetries(context, str)


def test_tasks_that_run_at_a_drop_and_still_do_a_while_later_are_killed() -> None:
    ended, other = Task(42, 4, "SUCCESS"), Task(61, 6)
    context, retries = running(Task(41, 4), ended, Task(51, 5), other, Task(71, 7))
    assert retries.retry(["r1"], 1e9) == 0, "nothing was dropped"
    retries.note_drop(100.0, 1_000)
    context.tasks += [Task(43, 4, start=1_001)]
    retries.note_drop(104.0, 5_000)
    context.tasks += [Task(44, 4, start=5_001)]
    assert retries.retry(["r1"], 99.9 + STALLED_SECONDS) == 0
    assert (retries.retry(["r1"], 100.0 + STALLED_SECONDS), context.killed) == (2, [41, 51])
    context.tasks = [task for task in context.tasks if task.number not in context.killed]
    assert retries.retry(["r1"], 103.9 + STALLED_SECONDS) == 0
    assert (retries.retry(["r1"], 104.0 + STALLED_SECONDS), context.killed) == (1, [41, 51, 43])
    assert retries.retry(["r1"], 1e9) == 0, "what began after the drops goes on"


def test_a_task_is_killed_once_for_each_drop() -> None:
    context, retries = running()
    for number in (41, 51):
        context.tasks = [Task(number, 4)]
        retries.note_drop(float(number), 0)
        for _ in range(2):
            retries.retry(["r1"], number + STALLED_SECONDS)
    assert context.killed == [41, 51]


def test_tasks_of_jobs_that_spark_forgets_meanwhile_are_left_alone() -> None:
    context, retries = running(Task(41, 4), Task(51, 5))
    retries.note_drop(0.0, 0)
    context.forgotten = {4}
    assert (retries.retry(["r1"], STALLED_SECONDS), context.killed) == (1, [51])
