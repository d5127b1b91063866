"""When a job is given up: not for how long it runs, but for how long nothing is done for it."""

from rekindle_spark.executor.job_activity import Signs
from rekindle_spark.jobs import job_idleness
from rekindle_spark.jobs.job_idleness import Watch

JOB = 7
OWING = {"1": frozenset({3}), "2": frozenset({4})}
PRODUCED = [[("1", {3: (5, 5)}), ("2", {4: (5, 5)})], [("2", {6: (5, 5)})]]


def signs(**counts: int) -> dict[str, Signs]:
    """Signs of executors `e1`, `e2` for the job."""
    return {
        name[1:]: Signs(entries={JOB: ((count,), f"loading {name}")})
        for name, count in counts.items()
    }


def test_a_job_that_gives_signs_goes_on_for_as_long_as_it_takes() -> None:
    watch = Watch()
    for now in range(0, 10_000, 10):
        idle = watch.look(JOB, OWING, signs(e1=now, e2=now), float(now))
        assert idle is not None
        assert idle.seconds == 0.0


def test_one_that_does_nothing_is_found_though_all_others_go_on() -> None:
    watch = Watch()
    for now in range(0, 80, 10):
        idle = watch.look(JOB, OWING, signs(e1=now, e2=1), float(now))
    assert idle is not None
    assert (idle.executor, idle.seconds) == ("2", 70.0)
    assert idle.described({"2": "n2"}) == (
        "executor 2 on n2 has neither loaded, written nor finished anything for 70 s; "
        "last: loading e2"
    )


def test_who_has_reported_is_asked_no_more_and_who_begins_later_has_all_its_time() -> None:
    watch = Watch()
    watch.look(JOB, {"1": frozenset({3})}, signs(e1=1), 0.0)
    idle = watch.look(JOB, {"2": frozenset({6})}, signs(e1=1, e2=1), 70.0)
    assert idle is not None
    assert (idle.executor, idle.seconds) == ("2", 0.0)


def test_an_executor_of_which_nothing_is_known_has_done_nothing() -> None:
    watch = Watch()
    watch.look(JOB, {"1": frozenset({3})}, {}, 0.0)
    idle = watch.look(JOB, {"1": frozenset({3})}, {}, 90.0)
    assert idle is not None
    assert idle.seconds == 90.0
    assert "its task has not begun" in idle.described({"1": "n1"})


def test_those_owe_a_report_whose_stage_has_begun() -> None:
    assert job_idleness.owing(PRODUCED, []) == OWING
    assert job_idleness.owing(PRODUCED, [{"executor": "2"}]) == {"1": frozenset({3})}
    both = [{"executor": "2"}, {"executor": "1"}]
    assert job_idleness.owing(PRODUCED, both) == {"2": frozenset({4, 6})}


def test_where_all_have_reported_it_is_spark_that_does_not_end_the_job() -> None:
    reports = [{"executor": "1"}, {"executor": "2"}, {"executor": "2"}]
    assert job_idleness.owing(PRODUCED, reports) == {"": frozenset()}
    watch = Watch()
    watch.look(JOB, {"": frozenset()}, {}, 0.0)
    idle = watch.look(JOB, {"": frozenset()}, {}, 90.0)
    assert idle is not None
    assert idle.described({}) == "Spark has not ended it 90 s after its last task"


def test_short_jobs_are_not_looked_at() -> None:
    watch = Watch(due_at=103.0)
    assert not watch.is_due(102.9)
    assert watch.is_due(103.0)
    watch.look(JOB, OWING, {}, 103.0)
    assert not watch.is_due(103.9)
    assert watch.is_due(104.0)
