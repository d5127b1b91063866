"""Whether lag grows, how late is normal, who is back: by the commits of queries."""

import pytest

from rekindle_peers import freshness, lateness
from rekindle_peers.freshness import ReflectedRows


def batches(seconds: float, growth: float, count: int = 8) -> list[ReflectedRows]:
    """Batches one after the other: each takes what has come in when the one before has ended, and
    so much longer per second."""
    found, begin = [], 0.0
    for _ in range(count):
        end = begin + seconds
        found.append(ReflectedRows(end, begin, 0))
        begin, seconds = end, seconds * (1 + growth)
    return found


def test_lag_that_stays_is_sustained_and_lag_that_grows_is_not() -> None:
    steady, growing = batches(10.0, 0.0), batches(10.0, 0.5)
    assert lateness.growths({"a": steady}, 0.0, 100.0) == {"a": pytest.approx(0.0)}
    found = lateness.growths({"a": steady, "b": growing}, 0.0, 1000.0)
    assert found["b"] > 0.3
    assert not lateness.sustained(found)
    assert lateness.sustained({"a": 0.1, "b": -0.1})


def test_one_query_that_falls_behind_is_enough() -> None:
    mostly = dict.fromkeys("abcdefghijklmnopq", 0.0)
    assert lateness.sustained(mostly)
    assert not lateness.sustained({**mostly, "slow": 0.3})
    assert not lateness.sustained(dict.fromkeys("abc", 0.1)), "nor may all grow a little"


def test_lag_that_still_falls_from_the_start_is_no_normal_lag() -> None:
    """As it was: 98 s of backlog in one batch, and the failure came with the next minute's half."""
    cold = ReflectedRows(98.0, 0.0, 0)
    warm = [ReflectedRows(98.0 + at, 96.0 + at, 0) for at in range(17, 120, 2)]
    commits = {"late-carriers": [cold, *warm]}
    assert lateness.sustained(lateness.growths(commits, 98.0, 160.0)), "it does not grow"
    assert not lateness.level(commits, 98.0, 160.0)
    assert lateness.limits(commits, 100.0, 160.0)["late-carriers"] > 100.0, "no outage would count"
    assert lateness.level(commits, 120.0, 200.0)
    assert lateness.limits(commits, 140.0, 200.0)["late-carriers"] < 10.0


def test_batches_that_vary_by_a_fifth_are_level() -> None:
    found, begin = [], 0.0
    for seconds in (15.0, 18.0, 14.0, 17.0, 15.0, 18.0, 14.0, 16.0):
        found.append(ReflectedRows(begin + seconds, begin, 0))
        begin += seconds
    assert lateness.level({"a": found}, begin - 64.0, begin)


def test_a_run_is_judged_by_a_minute_or_by_as_long_as_its_batches_need() -> None:
    short, long = batches(1.0, 0.0, 100), batches(30.0, 0.0, 6)
    assert lateness.settled_since({"a": short}, 100.0, 60.0) == 40.0
    assert lateness.settled_since({"a": short, "b": long}, 185.0, 60.0) == 90.0
    assert lateness.settled_since({"a": short, "b": long[:3]}, 185.0, 60.0) is None
    assert lateness.settled_since({}, 185.0, 60.0) is None


def test_lag_is_worst_right_before_a_commit_and_counts_up_to_now() -> None:
    commits = batches(10.0, 0.0, 3)  # at 10, 20 and 30, each of what came in 10 s before
    assert lateness.worst(commits, 0.0, 30.0) == 20.0
    assert lateness.worst(commits, 25.0, 30.0) == 20.0
    assert lateness.worst(commits, 35.0, 55.0) == 35.0
    assert lateness.worst([], 5.0, 30.0) == 25.0


def test_who_is_late_is_said_by_the_limit_of_the_report() -> None:
    commits = {"a": batches(10.0, 0.0, 12), "b": batches(2.0, 0.0, 60)}
    found = lateness.limits(commits, 60.0, 120.0)
    assert found == {"a": 30.0, "b": pytest.approx(6.0)}
    assert lateness.late(commits, found, 100.0, 120.0) == 0
    assert lateness.late(commits, found, 100.0, 125.0) == 1
    assert lateness.late(commits, found, 100.0, 145.0) == 2


def test_what_was_kept_up_with_lately_takes_the_last_batch_however_long_it_took() -> None:
    found = batches(200.0, 0.0, count=3)
    assert lateness.since(found, 590.0) == found[1:]
    assert lateness.since(found, 100.0) == found
    assert lateness.since([], 590.0) == []


def test_an_only_batch_has_taken_its_rows_from_the_begin() -> None:
    only = ReflectedRows(318.0, 1.0, 2_480_785)
    found = lateness.since([only], 1000.0)
    assert found == [ReflectedRows(1.0, 1.0, 0), only]
    assert freshness.rows_per_second({"a": found}) == pytest.approx(7826, abs=1)


def test_input_waits_where_lag_is_longer_than_commits_are_apart() -> None:
    """As it was: Flink at its limit, 170 s behind, with a checkpoint each 5 s."""
    behind = [ReflectedRows(5.0 * n, 5.0 * n - 170.0, 0) for n in range(40, 60)]
    fresh = [ReflectedRows(5.0 * n, 5.0 * n - 7.0, 0) for n in range(40, 60)]
    commits = {"behind": behind, "fresh": fresh, "batches": batches(60.0, 0.0)}
    assert lateness.sustained(lateness.growths(commits, 200.0, 300.0))
    assert lateness.level(commits, 200.0, 300.0)
    assert lateness.waits(commits, 200.0, 300.0) == 1
    assert not lateness.fall({"behind": 0.0, "fresh": -0.1})
    assert lateness.fall({"behind": -0.5, "fresh": 0.0})
