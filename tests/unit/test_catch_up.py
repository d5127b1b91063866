"""Catch-up streams: each executor has its own pieces, its own failures and its own rest."""

import pytest

from rekindle_spark.catchup import PIECE_EPOCHS_FIRST, PIECE_EPOCHS_MAX, Stream
from rekindle_spark.pace import GAIN_MIN, REST_FIRST, REST_MAX, Pace
from rekindle_spark.running import RETRY_SECONDS


def test_pieces_grow_while_they_are_short_and_shrink_when_they_are_long() -> None:
    stream = Stream()
    stream.finished(0.5, target_seconds=2.0)
    assert stream.piece_epochs == 2 * PIECE_EPOCHS_FIRST
    stream.finished(8.0, target_seconds=2.0)
    assert stream.piece_epochs == PIECE_EPOCHS_FIRST
    for _ in range(20):
        stream.finished(0.01, target_seconds=2.0)
    assert stream.piece_epochs == PIECE_EPOCHS_MAX
    for _ in range(20):
        stream.finished(100.0, target_seconds=2.0)
    assert stream.piece_epochs == 1


def test_after_a_failure_an_executor_rests_and_the_others_go_on() -> None:
    failing, other = Stream(), Stream()
    failing.failed(now=10.0)
    assert not failing.may_start(10.0 + RETRY_SECONDS / 2)
    assert other.may_start(10.0)
    assert failing.may_start(10.0 + RETRY_SECONDS)
    assert failing.piece_epochs == 1


def test_a_piece_that_went_well_ends_the_row_of_failures_of_its_own_executor_only() -> None:
    failing, other = Stream(), Stream()
    failing.attempts.count(True)
    other.attempts.count(True)
    other.finished(1.0, target_seconds=2.0)
    assert (failing.attempts.step_errors, other.attempts.step_errors) == (1, 0)


def test_an_executor_rests_after_a_piece_as_long_as_it_is_told() -> None:
    stream = Stream()
    stream.finished(1.0, target_seconds=2.0, rests_until=13.0)
    assert not stream.may_start(12.9)
    assert stream.may_start(13.0)


def test_rests_grow_while_epochs_are_slowed_and_shrink_when_they_are_not() -> None:
    pace = Pace(interval_seconds=2.0)
    pace.epoch_took(2.1, alone=False)
    assert pace.rest_seconds(4.0, 100) == 0.0
    for _ in range(2):
        pace.epoch_took(3.0, alone=False)
    assert pace.rest_seconds(4.0, 100) == pytest.approx(4.0 * 1.5 * REST_FIRST)
    for _ in range(20):
        pace.epoch_took(3.0, alone=False)
    assert pace.rest_seconds(1.0, 100) == REST_MAX
    for _ in range(20):
        pace.epoch_took(2.1, alone=False)
    assert pace.rest_seconds(1.0, 100) == 0.0


@pytest.mark.parametrize(
    ("job_seconds", "epochs"), [(1.0, 1), (1.0, 2), (1.0, 3), (3.0, 4), (9.0, 4)]
)
def test_what_catches_up_gains_however_much_epochs_are_slowed(
    job_seconds: float, epochs: int
) -> None:
    pace = Pace(interval_seconds=2.0)
    for _ in range(50):
        pace.epoch_took(9.0, alone=False)
    rest = pace.rest_seconds(job_seconds, epochs)
    in_time_of_an_epoch = epochs * 2.0 / (job_seconds + rest)
    assert rest >= 0.0
    assert in_time_of_an_epoch >= GAIN_MIN or rest == 0.0


def test_epochs_that_are_long_by_themselves_give_no_reason_to_rest() -> None:
    pace = Pace(interval_seconds=2.0)
    for _ in range(50):
        pace.epoch_took(5.0, alone=True)
    pace.epoch_took(5.2, alone=False)
    assert pace.rest_ratio == 0.0
    pace.epoch_took(6.0, alone=False)
    assert pace.rest_ratio == REST_FIRST
    pace.epoch_took(5.0, alone=True)
    assert pace.rest_ratio == 0.0
