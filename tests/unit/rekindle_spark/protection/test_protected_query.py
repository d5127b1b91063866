"""One protected query: its backlog, its stop, its start function."""

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest
from streaming_world import Stream, batch

from rekindle.model.errors import InputError
from rekindle_spark.protection.protected_query import START_REST_SECONDS, ProtectedQuery
from rekindle_spark.protection.start_terms import BatchLimit

LATER = float("inf")


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as made:
        yield made


def begun(stream: Stream) -> ProtectedQuery:
    query = ProtectedQuery("orders", lambda: stream)
    query.begin()
    return query


def looked(query: ProtectedQuery, progress: dict[str, Any], **status: Any) -> bool:
    """Whether a query has caught up after this batch."""
    query.query.progress = progress
    query.query.message = status.get("message", "Processing new data")
    query.query.has_data = status.get("has_data", True)
    query.look(lambda _: None, 1.0)
    return query.is_caught_up


def settle(query: ProtectedQuery) -> None:
    if query._work is not None:
        wait([query._work])
    query.look(lambda _: None, 1.0)


def test_where_the_source_knows_its_newest_offset_that_decides() -> None:
    query = begun(Stream("q", "r1"))
    assert not looked(query, batch(1, 0.1, offsets=(5, 9)))
    assert looked(query, batch(2, 60.0, offsets=(9, 9)))


def test_spark_is_asked_for_the_status_only_where_offsets_leave_a_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    status: Any = Stream.status

    def noted(stream: Stream) -> Any:
        asked.append(stream.runId)
        return status.fget(stream)

    monkeypatch.setattr(Stream, "status", property(noted))
    query = begun(Stream("q", "r1"))
    assert looked(query, batch(1, 0.1, offsets=(9, 9)))
    assert not asked
    assert not looked(query, batch(2, 0.1, offsets=(9, 12)))
    assert asked == ["r1"]


def test_a_large_last_batch_and_nothing_after_it_is_no_backlog() -> None:
    query = begun(Stream("q", "r1", "ProcessingTimeTrigger(0)"))
    assert looked(query, batch(1, 1.0))
    assert not looked(query, batch(2, 30.0))
    assert looked(query, batch(2, 30.0), message="Waiting for data to arrive", has_data=False)


def test_a_batch_within_its_interval_has_no_backlog() -> None:
    query = begun(Stream("q", "r1", "ProcessingTimeTrigger(5000)"))
    assert looked(query, batch(1, 0.5))
    assert looked(query, batch(2, 4.9))
    assert not looked(query, batch(3, 5.1))
    assert looked(query, batch(3, 5.1), message="Waiting for next trigger")


def test_a_query_whose_batches_have_become_longer_permanently_is_not_behind_permanently() -> None:
    query = begun(Stream("q", "r1", "ProcessingTimeTrigger(0)"))
    assert looked(query, batch(0, 1.0))
    seen = [looked(query, batch(number, 5.0)) for number in range(1, 30)]
    assert not any(seen[:5])
    assert all(seen[10:])


def test_a_batch_that_is_looked_at_often_counts_once() -> None:
    query = begun(Stream("q", "r1", "ProcessingTimeTrigger(0)"))
    looked(query, batch(0, 1.0))
    for _ in range(50):
        looked(query, batch(1, 1.5))
    assert query.usual_seconds == pytest.approx(1.1)


def test_a_stop_that_fails_is_made_again(pool: ThreadPoolExecutor) -> None:
    stream = Stream("q", "r1", stop_error=TimeoutError("it takes too long"))
    query = begun(stream)
    query.steer(wanted=False, pool=pool, now=1.0)
    settle(query)
    assert query.is_running
    stream.stop_error = None
    query.steer(wanted=False, pool=pool, now=1.0)
    settle(query)
    assert (query.is_running, stream.is_active, query.ended) == (False, False, None)


def failing(failures: int) -> tuple[ProtectedQuery, list[str]]:
    """A query whose start function raises so often after its first call, and the calls' threads."""
    calls: list[str] = []

    def start() -> Stream:
        calls.append(threading.current_thread().name)
        if 1 < len(calls) <= 1 + failures:
            raise OSError("no broker answers")
        return Stream("q", f"r{len(calls)}")

    query = ProtectedQuery("orders", start)
    query.begin()
    return query, calls


def start_again(query: ProtectedQuery, pool: ThreadPoolExecutor) -> None:
    query.steer(wanted=False, pool=pool, now=1.0)
    settle(query)
    for _ in range(10):
        query.steer(wanted=True, pool=pool, now=LATER)
        settle(query)


def test_a_source_that_is_away_for_a_moment_ends_no_query(pool: ThreadPoolExecutor) -> None:
    query, calls = failing(len(START_REST_SECONDS))
    start_again(query, pool)
    assert query.is_running
    assert query.run_id == f"r{len(calls)}"
    query.raise_failure()


def test_a_start_function_that_goes_on_to_raise_is_left_alone_and_its_error_raised(
    pool: ThreadPoolExecutor,
) -> None:
    query, calls = failing(100)
    start_again(query, pool)
    assert len(calls) == 1 + 1 + len(START_REST_SECONDS)
    assert query.ended == "its start function raises OSError: no broker answers"
    with pytest.raises(OSError, match="no broker answers"):
        query.raise_failure()


def test_a_start_function_that_exits_is_called_once_and_left_alone(
    pool: ThreadPoolExecutor,
) -> None:
    calls: list[int] = []

    def start() -> Stream:
        calls.append(1)
        if len(calls) > 1:
            sys.exit("no settings")
        return Stream("q", "r1")

    query = ProtectedQuery("orders", start)
    query.begin()
    start_again(query, pool)
    assert len(calls) == 1 + 1
    assert query.ended == "its start function raises SystemExit: no settings"
    with pytest.raises(SystemExit, match="no settings"):
        query.raise_failure()


def test_between_two_calls_of_a_start_function_there_is_a_break(pool: ThreadPoolExecutor) -> None:
    query, calls = failing(100)
    query.steer(wanted=False, pool=pool, now=1.0)
    settle(query)
    query.steer(wanted=True, pool=pool, now=LATER)
    settle(query)
    query.steer(wanted=True, pool=pool, now=query.rests_until - 0.1)
    assert (len(calls), query.is_busy) == (2, False)


def test_who_starts_a_query_whose_start_function_raised_has_it_protected_again(
    pool: ThreadPoolExecutor,
) -> None:
    query, _ = failing(100)
    start_again(query, pool)
    query.look({"q": Stream("q", "r99")}.get, 1.0)
    assert (query.run_id, query.ended, query.is_running) == ("r99", None, True)
    query.raise_failure()


def test_a_start_function_is_called_again_in_a_thread_that_was_prepared(
    pool: ThreadPoolExecutor,
) -> None:
    prepared: list[str] = []
    query, calls = failing(0)
    query.prepare_thread = lambda: prepared.append(threading.current_thread().name)
    start_again(query, pool)
    assert prepared == calls[1:]


def limited() -> tuple[ProtectedQuery, list[BatchLimit]]:
    """A query whose start function takes a limit, and the limits that it was given."""
    limits: list[BatchLimit] = []

    def start(limit: BatchLimit) -> Stream:
        limits.append(limit)
        return Stream("q", f"r{len(limits)}")

    query = ProtectedQuery("orders", start)
    query.begin()
    return query, limits


def test_batches_of_a_query_that_is_started_again_are_limited_by_its_fastest_batch(
    pool: ThreadPoolExecutor,
) -> None:
    query, limits = limited()
    looked(query, batch(1, 2.0, rows=100))
    looked(query, batch(2, 0.5, rows=300))
    looked(query, batch(3, 4.0, rows=20))
    looked(query, batch(4, 0.1))
    start_again(query, pool)
    assert limits == [BatchLimit(None), BatchLimit(20 * 600)]
    query.look(lambda _: None, 1.0)
    query.query.is_active = False
    query.look({"q": Stream("q", "r99")}.get, 1.0)
    assert query.limit == BatchLimit(None), "who starts it elsewhere limits nothing"


def test_a_batch_that_its_limit_has_cut_off_leaves_a_backlog_whatever_its_time(
    pool: ThreadPoolExecutor,
) -> None:
    query, _ = limited()
    assert looked(query, batch(1, 1.0, rows=100)), "it is not limited yet"
    start_again(query, pool)
    assert not looked(query, batch(2, 1.0, rows=1_900))
    assert not looked(query, batch(2, 1.0, rows=1_900), message="Waiting for next trigger")
    assert looked(query, batch(3, 1.0, rows=900))
    assert looked(query, batch(3, 1.0, rows=1_900, offsets=(9, 9))), "where offsets tell they do"


@pytest.mark.parametrize(
    ("trigger", "called"),
    [
        ("ContinuousTrigger(1000)", "continuous"),
        ("OneTimeTrigger", "once"),
        ("AvailableNowTrigger", "availableNow"),
        ("RealTimeTrigger(300000)", "realTime"),
    ],
)
def test_a_trigger_with_which_a_query_cannot_be_stopped_is_refused(
    trigger: str, called: str
) -> None:
    stream = Stream("q", "r1", trigger)
    with pytest.raises(InputError, match=f"has the trigger {called}"):
        begun(stream)
    assert not stream.is_active


RANDOM = "0a1b2c3d-0a1b-4c2d-8e3f-0a1b2c3d4e5f"


@pytest.mark.parametrize(
    ("checkpoint", "name"),
    [
        pytest.param(f"file:/tmp/temporary-{RANDOM}", None, id="temporary"),
        pytest.param(f"file:/tmp/temporary-{RANDOM}", "orders", id="temporary with a name"),
        pytest.param(f"hdfs://name/checkpoints/{RANDOM}", None, id="random below the default"),
    ],
)
def test_a_query_whose_checkpoint_would_be_another_after_a_stop_is_refused(
    checkpoint: str, name: str | None
) -> None:
    stream = Stream("q", "r1", checkpoint=checkpoint, name=name, checkpoints="/checkpoints/")
    with pytest.raises(InputError, match="has no checkpoint of its own"):
        begun(stream)
    assert not stream.is_active


@pytest.mark.parametrize(
    ("checkpoint", "name"),
    [
        pytest.param("s3a://bucket/checkpoints/orders", None, id="its own"),
        pytest.param(f"s3a://bucket/{RANDOM}", "orders", id="a number that somebody has given"),
        pytest.param(f"s3a://bucket/tenants/{RANDOM}", None, id="a number of a tenant"),
        pytest.param("file:/temporary-files/orders", None, id="a folder that is called so"),
    ],
)
@pytest.mark.parametrize("default", ["", "s3a://bucket/checkpoints"])
def test_a_checkpoint_that_is_the_same_each_time_is_taken(
    checkpoint: str, name: str | None, default: str
) -> None:
    stream = Stream("q", "r1", checkpoint=checkpoint, name=name, checkpoints=default)
    assert begun(stream).is_running


def test_a_query_that_comes_back_as_another_one_is_stopped_and_called_again_no_more(
    pool: ThreadPoolExecutor,
) -> None:
    made: list[Stream] = []

    def start() -> Stream:
        made.append(Stream(f"q{len(made)}", f"r{len(made)}"))
        return made[-1]

    query = ProtectedQuery("orders", start)
    query.begin()
    start_again(query, pool)
    assert [one.is_active for one in made] == [False, False]
    with pytest.raises(InputError, match=r"another query \(q1, and not q0\)"):
        query.raise_failure()
