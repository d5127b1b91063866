"""Errands: the newest of a key, one at a time, tried again when they fail."""

import io
import threading
from collections.abc import Iterator

import pytest

from rekindle.model.errors import RunError
from rekindle_coordinator.coordinator_log import Log
from rekindle_local import process_sets
from rekindle_operator.cluster.work_queue import WorkQueue

WAIT_SECONDS_MAX = 30.0


@pytest.fixture
def errands() -> Iterator[WorkQueue]:
    made = WorkQueue(Log(io.StringIO()), threads=3)
    made.start()
    yield made
    made.stop()


def await_that(condition: object) -> None:
    assert callable(condition)
    assert process_sets.await_condition(condition, limit_seconds=WAIT_SECONDS_MAX)


def test_what_is_left_while_another_one_is_done_is_done_after_it_and_only_the_newest(
    errands: WorkQueue,
) -> None:
    done: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        go_on.wait(WAIT_SECONDS_MAX)
        done.append(1)

    errands.leave("a", first)
    assert begun.wait(WAIT_SECONDS_MAX)
    errands.leave("a", lambda: done.append(2))
    errands.leave("a", lambda: done.append(3))
    errands.leave("b", lambda: done.append(10))
    await_that(lambda: done == [10])
    go_on.set()
    await_that(lambda: done == [10, 1, 3])
    await_that(lambda: errands.waiting == 0)


def test_one_that_fails_is_tried_again_and_others_do_not_wait(errands: WorkQueue) -> None:
    tried: list[int] = []

    def failing() -> None:
        tried.append(1)
        if len(tried) < 3:
            raise RunError(where="here", what="no", remedy="again")

    errands.leave("a", failing)
    await_that(lambda: errands.failing == 1)
    done = threading.Event()
    errands.leave("b", done.set)
    assert done.wait(WAIT_SECONDS_MAX)
    await_that(lambda: len(tried) == 3 and errands.failing == 0)
    assert "no" in errands.log.file.getvalue()  # type: ignore[attr-defined]


def test_a_bug_in_one_does_not_end_the_thread_of_the_others() -> None:
    errands = WorkQueue(Log(io.StringIO()), threads=1)
    errands.start()
    tried = threading.Event()

    def broken() -> None:
        tried.set()
        raise ZeroDivisionError

    errands.leave("a", broken)
    assert tried.wait(WAIT_SECONDS_MAX)
    done = threading.Event()
    errands.leave("b", done.set)
    assert done.wait(WAIT_SECONDS_MAX)
    errands.stop()


def test_one_may_ask_to_be_done_again_later(errands: WorkQueue) -> None:
    times: list[int] = []

    def again() -> float | None:
        times.append(1)
        return 0.05 if len(times) < 4 else None

    errands.leave("a", again)
    await_that(lambda: len(times) == 4 and errands.waiting == 0)


def test_what_waits_for_its_time_does_not_wait_longer_when_it_is_left_again(
    errands: WorkQueue,
) -> None:
    done = threading.Event()
    errands.leave("a", done.set, delay_seconds=0.2)
    errands.leave("a", done.set, delay_seconds=3_600.0)
    assert done.wait(WAIT_SECONDS_MAX)


def test_what_was_left_is_forgotten_when_somebody_else_acts() -> None:
    errands = WorkQueue(Log(io.StringIO()), threads=1)
    forgotten, done = threading.Event(), threading.Event()
    errands.leave("a", forgotten.set)
    errands.clear()
    assert errands.waiting == 0
    errands.start()
    errands.leave("b", done.set)
    assert done.wait(WAIT_SECONDS_MAX)
    assert not forgotten.is_set(), "the only thread would have done it before"
    errands.stop()
