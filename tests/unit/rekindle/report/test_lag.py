"""The lag of a query: a sawtooth between cuts and commits, and the time that it is too high."""

import pytest

from rekindle.report import lag
from rekindle.report.lag import Commit, Cuts, Tooth

CUTS = Cuts.of([(n, float(n)) for n in range(1, 11)])


def commits(*pairs: tuple[float, int], partition: str = "q/0") -> list[Commit]:
    return [Commit(t, partition, epoch) for t, epoch in pairs]


def test_lag_counts_from_the_cut_of_the_newest_epoch_that_is_committed() -> None:
    steps = lag.progress(commits((1.5, 1), (2.5, 2)), ["q/0"])
    assert lag.sawtooth(CUTS, steps, 0.0, 4.0) == (
        Tooth(0.0, 1.5, 0.0),
        Tooth(1.5, 2.5, 1.0),
        Tooth(2.5, 4.0, 2.0),
    )


def test_the_slowest_query_partition_decides() -> None:
    both = commits((1.2, 1), (2.2, 2)) + commits((1.9, 1), (5.0, 2), partition="q/1")
    assert lag.progress(both, ["q/0", "q/1"]) == [(1.9, 1), (5.0, 2)]


def test_a_partition_that_never_commits_holds_the_whole_query_back() -> None:
    steps = lag.progress(commits((1.2, 1)), ["q/0", "q/1"])
    assert lag.sawtooth(CUTS, steps, 0.0, 3.0) == (Tooth(0.0, 3.0, 0.0),)


def test_an_epoch_committed_again_after_a_rollback_changes_nothing() -> None:
    assert lag.progress(commits((1.5, 5), (2.5, 3), (3.5, 6)), ["q/0"]) == [(1.5, 5), (3.5, 6)]


def test_of_an_epoch_cut_twice_the_first_cut_counts() -> None:
    assert Cuts.of([(1, 4.0), (1, 2.0)]).at(1, 0.0) == 2.0


def test_nothing_is_owed_once_the_final_epoch_is_committed() -> None:
    cuts = Cuts.of([(1, 1.0), (2, 2.0)], final=2)
    steps = lag.progress(commits((1.5, 1), (2.5, 2)), ["q/0"])
    assert lag.sawtooth(cuts, steps, 0.0, 100.0)[-1] == Tooth(1.5, 2.5, 1.0)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0.0, 4.0, 2.0),  # the height just before a drop, at 4.0, counts
        (0.0, 2.0, 1.5),  # the drop at 1.5
        (2.6, 3.0, 1.0),
        (5.0, 6.0, 0.0),
    ],
)
def test_the_worst_lag_is_the_highest_point_of_the_sawtooth(
    start: float, end: float, expected: float
) -> None:
    steps = lag.progress(commits((1.5, 1), (2.5, 2)), ["q/0"])
    assert lag.worst(lag.sawtooth(CUTS, steps, 0.0, 4.0), start, end) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("threshold", "end", "expected"),
    [
        (3.0, 10.0, []),
        (2.0, 5.0, [(3.0, 4.0)]),  # cut at 1.0, so above 2.0 from 3.0 until the commit at 4.0
        (2.0, 3.5, [(3.0, 3.5)]),
        (0.5, 10.0, [(1.5, 4.0), (4.25, 6.5)]),
    ],
)
def test_a_query_is_unavailable_from_the_crossing_of_its_limit_until_the_commit(
    threshold: float, end: float, expected: list[tuple[float, float]]
) -> None:
    teeth = [Tooth(0.0, 4.0, 1.0), Tooth(4.0, 6.5, 3.75)]
    assert lag.above(teeth, threshold, 0.0, end) == expected


def test_drops_that_stay_above_the_limit_make_one_interval() -> None:
    teeth = [Tooth(0.0, 10.0, 0.0), Tooth(10.0, 12.0, 5.0), Tooth(12.0, 13.0, 12.0)]
    assert lag.above(teeth, 3.0, 0.0, 13.0) == [(3.0, 12.0)]


def test_a_drop_below_the_limit_parts_two_intervals() -> None:
    teeth = [Tooth(0.0, 10.0, 0.0), Tooth(10.0, 20.0, 9.0)]
    found = lag.above(teeth, 3.0, 0.0, 20.0)
    assert found == [(3.0, 10.0), (12.0, 20.0)]
    assert lag.duration(found) == 15.0


def test_nothing_before_the_failure_counts_as_unavailable() -> None:
    assert lag.above([Tooth(-10.0, 2.0, -10.0)], 1.0, 0.0, 5.0) == [(0.0, 2.0)]


def test_the_epoch_length_is_the_median_distance_of_cuts() -> None:
    cuts = Cuts.of([(1, 0.0), (2, 1.0), (3, 2.0), (4, 9.0)])
    assert cuts.spacing(-1.0, 10.0) == 1.0
    assert cuts.spacing(8.0, 10.0) is None


@pytest.mark.parametrize(
    ("steps", "late"),
    [
        ([(n + 0.5, n) for n in range(1, 11)], []),
        ([(3.5, 3), (8.4, 4), (8.5, 8), (9.5, 9), (10.5, 10)], [5, 6]),
        ([(3.5, 3), (6.4, 5), (7.5, 7), (8.5, 8), (10.5, 10)], []),
        ([(3.5, 3)], [5, 6, 7, 8, 9]),
    ],
    ids=["all in time", "late after a stop", "only the one in flight", "never again"],
)
def test_late_epochs_leave_out_the_one_in_flight_at_the_failure(
    steps: list[lag.Step], late: list[int]
) -> None:
    # Failure at 3.7: epoch 4 is in flight. Allowed are 2 s; the run ends at 11.5.
    assert lag.late_epochs(CUTS, steps, 2.0, 3.7, 11.5) == late
