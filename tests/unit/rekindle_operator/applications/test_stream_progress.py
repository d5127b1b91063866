"""When a streaming query has caught up, by the jobs that its driver lists."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from rekindle.model.errors import InputError
from rekindle_operator.applications import stream_progress
from rekindle_operator.applications.stream_progress import (
    CatchUp,
    IncidentTimes,
    MicroBatch,
    ProgressReading,
    SparkJob,
    StreamingQueryJobs,
    StreamProgress,
    catch_up,
    judge_stream,
    queries_of,
)

QUERY, RUN = "0b6c1c2e-6f0e-4a65-9d3a-0d1f6f1d7a11", "6c9f5d0e-7b3c-41d1-8d71-2f1c5b0c9f42"
NEXT_RUN = "7c9f5d0e-7b3c-41d1-8d71-2f1c5b0c9f42"
BACK = 1_000.0


def job(number: int, at: float, seconds: float | None = 1.0, **more: object) -> SparkJob:
    """A job of a batch."""
    run = more.pop("run", RUN)
    made = SparkJob(
        job_id=number,
        status="RUNNING" if seconds is None else "SUCCEEDED",
        description=f"orders<br/>\nid = {QUERY}<br/>\nrunId = {run}<br/>\nbatch = {number}",
        submission_time=spark_time(at),
        completion_time=None if seconds is None else spark_time(at + seconds),
        stage_ids=(2 * number, 2 * number + 1),
    )
    for name, value in more.items():
        made = replace_field(made, name, value)
    return made


def replace_field(made: SparkJob, name: str, value: object) -> SparkJob:
    values = {field: getattr(made, field) for field in made.__struct_fields__}
    return SparkJob(**{**values, name: value})


def spark_time(at: float) -> str:
    text = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
    return f"{text[:-3]}GMT"


def batches(
    *rows: int | None, began: float = BACK + 5.0, every: float = 10.0, seconds: float = 4.0
) -> tuple[MicroBatch, ...]:
    """Batches that begin one after the other, with these rows."""
    return tuple(
        MicroBatch(number, began + every * number, began + every * number + seconds, rows=count)
        for number, count in enumerate(rows)
    )


def judged(
    made: tuple[MicroBatch, ...], *, idle: float = 6.0, lost_at: float = BACK - 60.0
) -> StreamProgress:
    """The verdict so long after the end of the newest batch."""
    newest = made[-1]
    now = (newest.began if newest.ended is None else newest.ended) + idle
    return judge_stream(
        StreamingQueryJobs(QUERY, "orders", made), IncidentTimes(now, lost_at, BACK)
    )


def with_reference(made: tuple[MicroBatch, ...], *rows: int | None) -> tuple[MicroBatch, ...]:
    """With batches from before the loss."""
    before = batches(*rows, began=BACK - 400.0)
    later = (replace(batch, number=batch.number + len(before)) for batch in made)
    return (*before, *later)


def test_batches_are_made_of_jobs_by_query_and_number() -> None:
    jobs = [
        job(7, 20.0, None),
        job(6, 12.0, 3.0),
        job(6, 10.0, 1.0),
        SparkJob(1, description="a job of another kind", submission_time=spark_time(3.0)),
        SparkJob(2),
    ]
    (query,) = queries_of(jobs)
    assert (query.name, query.query_id) == ("orders", QUERY)
    assert [(item.number, item.began, item.ended) for item in query.batches] == [
        (6, 10.0, 15.0),
        (7, 20.0, None),
    ]
    assert query.batches[0].stages == (12, 13)


def test_a_batch_that_ran_again_counts_as_the_later_run_had_it() -> None:
    (query,) = queries_of([job(6, 10.0, 30.0, status="FAILED"), job(6, 60.0, run=NEXT_RUN)])
    (batch,) = query.batches
    assert (batch.began, batch.failed) == (60.0, False)


def test_a_query_without_a_name_has_its_id() -> None:
    text = f"id = {QUERY}<br/>\nrunId = {RUN}<br/>\nbatch = 3"
    (query,) = queries_of([job(3, 1.0, description=text)])
    assert query.name == QUERY[:8]


def test_a_name_is_another_party_s_text_and_is_cut() -> None:
    text = f"{'x' * 500}\x1b[2J<br/>\nid = {QUERY}<br/>\nrunId = {RUN}<br/>\nbatch = 3"
    (query,) = queries_of([job(3, 1.0, description=text)])
    assert len(query.name) == stream_progress.NAME_LENGTH_MAX
    assert query.name.isprintable()


@pytest.mark.parametrize("text", ["yesterday", "", "2026-13-01T00:00:00.000GMT"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="no time of Spark's status API"):
        queries_of([job(3, 1.0, submission_time=text)])


def test_rows_of_batches_are_those_of_their_stages() -> None:
    queries = queries_of([job(1, BACK + 1.0), job(2, BACK + 10.0), job(3, BACK + 20.0, None)])
    times = IncidentTimes(BACK + 22.0, BACK - 60.0, BACK)
    assert set(stream_progress.rows_wanted(queries, times)) == {2, 3, 4, 5}
    (query,) = stream_progress.with_rows(queries, {2: 5, 3: 0, 4: None, 5: 7})
    assert [batch.rows for batch in query.batches] == [5, None, None]


def test_where_no_batch_has_rows_its_source_does_not_count_them() -> None:
    queries = queries_of([job(1, BACK + 1.0), job(2, BACK + 10.0)])
    (query,) = stream_progress.with_rows(queries, {2: 0, 3: 0, 4: 0, 5: 0})
    assert [batch.rows for batch in query.batches] == [None, None]


def test_few_stages_are_asked_for_of_many_queries_and_none_of_a_batch_with_many() -> None:
    made = tuple(replace(batch, stages=(1, 2)) for batch in batches(*[None] * 9))
    many = [StreamingQueryJobs(str(number), "q", made) for number in range(40)]
    times = IncidentTimes(BACK + 500.0, BACK - 60.0, BACK)
    assert len(stream_progress.rows_wanted(many, times)) == stream_progress.STAGES_MAX
    wide = tuple(replace(batch, stages=tuple(range(9))) for batch in made)
    assert not stream_progress.rows_wanted([StreamingQueryJobs("a", "q", wide)], times)


CAUGHT_UP = {
    "as before the loss": with_reference(batches(1_100), 1_000, 990, 1_010),
    "as before, by durations": with_reference(batches(None, None), None, None, None),
    "fewer rows than before the loss": with_reference(batches(9_000, 20), 1_000, 990, 1_010),
    "waits for its trigger": batches(9_000, 1_000, 990, 1_015),
    "waits for its trigger, rows unknown": batches(None, None, None),
    "nothing to read": batches(9_000, 0),
    "steady": batches(1_000, 1_050, 990, 1_020, 1_100, every=4.2),
}
BEHIND = {
    "more rows than before the loss": with_reference(batches(9_000), 1_000, 990, 1_010),
    "longer than before the loss": with_reference(batches(1_000, seconds=9.9), 1_000, 990, 1_010),
    "one batch, by its duration": with_reference(batches(None), None, None, None),
    "two batches before the loss are no reference": with_reference(batches(1_000), 1_000, 990),
    "at a limit": batches(5_000, 5_000, 5_001, 5_000, 5_000, every=4.2),
    "at a limit, with a trigger": batches(5_000, 5_000, 5_001),
    "batches shrink": batches(16_000, 8_000, 4_000, 2_000, 1_000, every=4.2),
    "batches grow": batches(1_000, 1_200, 1_500, 1_700, 2_000, every=4.2),
    "back to back, rows unknown": batches(*[None] * 9, every=4.2),
    "its first batch": batches(1_000),
}


@pytest.mark.parametrize("name", CAUGHT_UP)
def test_a_query_has_caught_up(name: str) -> None:
    found = judged(CAUGHT_UP[name])
    assert found.is_caught_up, found.text


@pytest.mark.parametrize("name", BEHIND)
def test_a_query_is_behind(name: str) -> None:
    found = judged(BEHIND[name])
    assert not found.is_caught_up, found.text


def test_batches_from_before_the_pods_were_back_do_not_count() -> None:
    made = batches(1_000, 1_050, 990, 1_020, 1_100, began=BACK - 50.0)
    assert judged(made, idle=1.0).text == "batch 4 began before its pods were back"


def test_the_last_minute_before_a_loss_was_known_is_no_reference() -> None:
    made = with_reference(batches(9_000), 1_000, 990, 1_010, 1_000)
    slow = tuple(
        replace(batch, began=batch.began + 330.0, ended=(batch.ended or 0.0) + 330.0)
        for batch in made[:4]
    )
    assert not judged((*slow, *made[4:])).is_caught_up


def test_a_query_that_runs_no_job_waits_for_input_or_for_its_trigger() -> None:
    made = batches(5_000, 5_000, 5_000)
    assert not judged(made, idle=29.0).is_caught_up
    assert judged(made, idle=31.0).is_caught_up
    rare = batches(5_000, 5_000, 5_000, every=60.0)
    assert not judged(rare, idle=56.0).is_caught_up, "its trigger is not due"
    assert judged(rare, idle=91.0).is_caught_up
    one = batches(5_000)
    assert not judged(one, idle=119.0).is_caught_up, "nobody knows how often it has a batch"
    assert judged(one, idle=121.0).is_caught_up


def test_a_pause_from_before_the_pods_were_back_is_none() -> None:
    made = batches(10, 20, 30, began=BACK - 500.0)
    times = IncidentTimes(BACK + 5.0, BACK - 60.0, BACK)
    query = StreamingQueryJobs(QUERY, "orders", made)
    assert not judge_stream(query, times).is_caught_up
    assert judge_stream(query, replace(times, now=BACK + 31.0)).is_caught_up


def test_a_batch_that_runs_for_long_or_has_failed_is_behind() -> None:
    good = batches(1_000, 1_050, 990, 1_015)
    later = MicroBatch(9, good[-1].began + 10.0, None)
    assert judged((*good, later), idle=3.0).is_caught_up
    assert judged((*good, later), idle=30.0).text == "batch 9 has run for 30.0 s"
    failed = replace(later, ended=later.began + 1.0, failed=True)
    assert judged((*good, failed), idle=400.0).text == "batch 9 has failed"


CALM = StreamProgress("orders", True, "as before")
LATE = StreamProgress("stock", False, "batch 7 has failed")


@pytest.mark.parametrize(
    ("reading", "seconds", "by", "text"),
    [
        (ProgressReading((CALM,)), 1.0, "Progress", "Caught up: orders (as before)."),
        (ProgressReading((CALM, LATE)), 1_799.0, None, "Not caught up yet: stock."),
        (ProgressReading((CALM, LATE)), 1_800.0, "Pods", "within 30 minutes: stock (batch 7"),
        (ProgressReading(), 179.0, None, "lists no batch"),
        (ProgressReading(), 180.0, "Pods", "lists no batch"),
        (ProgressReading(unread="no", unread_seconds=59.0), 900.0, None, "not known: no."),
        (ProgressReading(unread="no", unread_seconds=1.0), 1_800.0, "Pods", "not known: no."),
        (ProgressReading(unread="no", unread_seconds=60.0), 61.0, "Pods", "not known: no."),
        (ProgressReading(unread="no", is_final=True), 0.0, "Pods", "not known: no."),
    ],
)
def test_what_follows_from_a_reading(
    reading: ProgressReading, seconds: float, by: str | None, text: str
) -> None:
    found = catch_up(reading, seconds)
    assert found.by == by
    assert text in found.text
    assert found.is_behind == (by == "Pods" and bool(reading.queries))


def test_of_many_queries_a_few_are_named() -> None:
    many = tuple(replace(CALM, name=f"q{number}") for number in range(9))
    assert catch_up(ProgressReading(many), 1.0) == CatchUp(
        "Progress", "Caught up: q0 (as before); q1 (as before); q2 (as before); and 6 more."
    )
