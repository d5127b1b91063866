"""Failures of jobs in a row: what counts as one row, and for how long it goes on."""

import time

import pytest

from rekindle_spark.jobs.job_runner import Attempts


class Clock:
    """Stands still, until it is set."""

    now = 1_000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: made.now)
    return made


def test_failures_close_together_are_a_row_and_one_long_after_begins_another(clock: Clock) -> None:
    attempts = Attempts()
    attempts.count(step_error=True)
    clock.now += 140.0
    attempts.count(step_error=True)
    assert (attempts.step_errors, attempts.seconds) == (2, 140.0)
    clock.now += 160.0
    attempts.count(step_error=True)
    assert (attempts.step_errors, attempts.seconds) == (1, 0.0)


def test_jobs_for_which_nothing_was_done_are_a_row_however_long_that_took(clock: Clock) -> None:
    attempts = Attempts()
    attempts.count(step_error=False, idle_seconds=660.0)
    clock.now += 661.0
    attempts.count(step_error=False, idle_seconds=660.0)
    assert attempts.seconds == 661.0
