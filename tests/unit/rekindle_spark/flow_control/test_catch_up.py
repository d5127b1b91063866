"""Catch-up streams: each executor has its own pieces, its own failures and its own rest."""

import pytest

from rekindle_spark.driver.catch_up_loop import CatchUpStream
from rekindle_spark.flow_control.catch_up_pace import (
    GAIN_MIN,
    PIECE_EPOCHS_FIRST,
    PIECE_EPOCHS_MAX,
    REST_FIRST,
    REST_MAX,
    CatchUpBatching,
    CatchUpThrottle,
)
from rekindle_spark.jobs.job_runner import RETRY_SECONDS


def sizes(
    pieces: CatchUpBatching, *, job_seconds: float, epoch_seconds: float, count: int = 20
) -> list[int]:
    """Of the next pieces, each done in the time that these costs give."""
    found = []
    for _ in range(count):
        seconds = job_seconds + epoch_seconds * pieces.epochs
        pieces.took(pieces.epochs, seconds, target_seconds=1.5)
        found.append(pieces.epochs)
    return found


def test_pieces_grow_while_they_are_short_and_shrink_when_they_are_long() -> None:
    pieces = CatchUpBatching(epochs=4, is_cold=False)
    pieces.took(pieces.epochs, 0.5, target_seconds=2.0)
    assert pieces.epochs == 8
    pieces.took(pieces.epochs, 80.0, target_seconds=2.0)
    assert pieces.epochs == 4
    assert sizes(pieces, job_seconds=0.0, epoch_seconds=0.001)[-1] == PIECE_EPOCHS_MAX
    assert sizes(pieces, job_seconds=0.0, epoch_seconds=100.0)[-1] == 1


@pytest.mark.parametrize(
    ("job_seconds", "epoch_seconds", "expected"),
    [(0.5, 0.1, 10), (2.0, 0.1, 20), (3.0, 0.1, 30), (3.0, 1.0, 3), (3.0, 5.0, 1), (9.0, 0.01, 64)],
)
def test_what_a_job_costs_by_itself_is_half_of_a_piece_at_most_where_that_is_possible(
    job_seconds: float, epoch_seconds: float, expected: int
) -> None:
    pieces = CatchUpBatching()
    sizes(pieces, job_seconds=job_seconds, epoch_seconds=epoch_seconds)
    for size in sizes(pieces, job_seconds=job_seconds, epoch_seconds=epoch_seconds, count=60):
        assert size == pytest.approx(expected, abs=1)


def test_the_first_piece_of_an_executor_says_nothing() -> None:
    pieces = CatchUpBatching()
    pieces.took(pieces.epochs, 80.0, target_seconds=1.5)
    assert pieces.epochs == PIECE_EPOCHS_FIRST
    assert sizes(pieces, job_seconds=0.5, epoch_seconds=0.1, count=2)[-1] > PIECE_EPOCHS_FIRST


def test_pieces_that_are_all_alike_grow_until_they_tell_their_costs_apart() -> None:
    pieces = CatchUpBatching(is_cold=False)
    for epochs, seconds in ((4, 4.0), (2, 1.2)):  # while code was compiled
        pieces.took(epochs, seconds, target_seconds=1.5)
    found = sizes(pieces, job_seconds=0.8, epoch_seconds=0.05, count=30)
    assert found[-1] >= 12


def test_a_short_piece_that_could_not_be_longer_does_not_make_the_next_one_short() -> None:
    pieces = CatchUpBatching()
    sizes(pieces, job_seconds=0.5, epoch_seconds=0.1)
    for _ in range(10):
        pieces.took(1, 0.6, target_seconds=1.5)
    assert pieces.epochs >= 5


def test_a_piece_after_a_failure_is_small_and_the_ones_behind_it_grow_again() -> None:
    pieces = CatchUpBatching()
    sizes(pieces, job_seconds=1.0, epoch_seconds=0.1)
    pieces.failed()
    assert pieces.epochs == 1
    assert sizes(pieces, job_seconds=1.0, epoch_seconds=0.1)[:3] == [2, 4, 8]


def test_after_a_failure_an_executor_rests_and_the_others_go_on() -> None:
    failing, other = CatchUpStream(), CatchUpStream()
    failing.failed(now=10.0)
    assert not failing.may_start(10.0 + RETRY_SECONDS / 2)
    assert other.may_start(10.0)
    assert failing.may_start(10.0 + RETRY_SECONDS)
    assert failing.pieces.epochs == 1


def test_rests_grow_while_epochs_are_slowed_and_shrink_when_they_are_not() -> None:
    pace = CatchUpThrottle(interval_seconds=2.0)
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
    pace = CatchUpThrottle(interval_seconds=2.0)
    for _ in range(50):
        pace.epoch_took(9.0, alone=False)
    rest = pace.rest_seconds(job_seconds, epochs)
    in_time_of_an_epoch = epochs * 2.0 / (job_seconds + rest)
    assert rest >= 0.0
    assert in_time_of_an_epoch >= GAIN_MIN or rest == 0.0


def test_epochs_that_are_long_by_themselves_give_no_reason_to_rest() -> None:
    pace = CatchUpThrottle(interval_seconds=2.0)
    for _ in range(50):
        pace.epoch_took(5.0, alone=True)
    pace.epoch_took(5.2, alone=False)
    assert pace.rest_ratio == 0.0
    pace.epoch_took(6.0, alone=False)
    assert pace.rest_ratio == REST_FIRST
    pace.epoch_took(5.0, alone=True)
    assert pace.rest_ratio == 0.0
