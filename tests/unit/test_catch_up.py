"""Catch-up streams: each executor has its own pace, its own failures and its own rest."""

from rekindle_spark.catchup import PIECE_EPOCHS_FIRST, PIECE_EPOCHS_MAX, Stream
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
