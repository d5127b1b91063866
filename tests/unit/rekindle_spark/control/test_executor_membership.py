"""Executors that are silent or cut off, or whose hosts are dead: what is noticed, and when."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from rekindle.model.settings import Policy, Settings
from rekindle_spark.control.executor_membership import (
    DISK_SECONDS_MAX,
    DISK_SECONDS_MIN,
    DROPPED_KNOWN_MAX,
    HELD_SECONDS_MIN,
    HOST_FAILURES_MAX,
    AvoidedMachines,
    Hold,
    HostFailures,
    Membership,
    SuspectedExecutors,
)
from rekindle_spark.spark.spark_gateway import ExecutorSeen

LIMIT, LONG = 15.0, 1_000.0


def seen(**silent_seconds: float) -> list[ExecutorSeen]:
    return [ExecutorSeen(name, f"node-of-{name}", s) for name, s in silent_seconds.items()]


def test_an_executor_is_suspected_once_when_it_is_silent_for_half_the_limit() -> None:
    suspicion = SuspectedExecutors()
    assert suspicion.changes(seen(a=7.4, b=0.5), LIMIT, LONG) == ([], [])
    assert suspicion.changes(seen(a=7.6, b=0.5), LIMIT, LONG) == (["a"], [])
    assert suspicion.changes(seen(a=9.0, b=0.5), LIMIT, LONG) == ([], [])


def test_one_that_is_heard_of_again_is_cleared_once_and_may_be_suspected_again() -> None:
    suspicion = SuspectedExecutors()
    suspicion.changes(seen(a=8.0), LIMIT, LONG)
    assert suspicion.changes(seen(a=0.2), LIMIT, LONG) == ([], ["a"])
    assert suspicion.changes(seen(a=0.4), LIMIT, LONG) == ([], [])
    assert suspicion.changes(seen(a=8.0), LIMIT, LONG) == (["a"], [])


def test_one_that_is_gone_is_not_cleared() -> None:
    suspicion = SuspectedExecutors()
    suspicion.changes(seen(a=8.0), LIMIT, LONG)
    assert suspicion.changes(seen(), LIMIT, LONG) == ([], [])
    assert suspicion.executors == set()


def test_after_a_pause_of_the_driver_silence_is_nobodys_fault_but_clears_nobody() -> None:
    suspicion = SuspectedExecutors()
    suspicion.changes(seen(a=8.0), LIMIT, LONG)
    assert suspicion.changes(seen(a=12.0, b=12.0), LIMIT, listening_seconds=1.0) == ([], [])
    assert suspicion.executors == {"a"}


def test_one_late_message_is_no_suspicion_however_short_the_limit_is() -> None:
    assert SuspectedExecutors().changes(seen(a=1.5), 1.0, LONG) == ([], [])


def test_an_executor_whose_host_fails_again_and_again_is_given_up() -> None:
    failures = HostFailures()
    assert [failures.count("a") for _ in range(HOST_FAILURES_MAX)] == [False, False, True]


def test_deaths_while_functions_of_one_chain_run_count_as_one() -> None:
    failures = HostFailures()
    assert not any(failures.count("a", chain=4) for _ in range(2 * HOST_FAILURES_MAX))
    assert not failures.count("a", chain=5)
    assert failures.count("a", chain=6)


def test_a_host_that_answers_in_between_starts_the_count_anew() -> None:
    failures = HostFailures()
    for _ in range(HOST_FAILURES_MAX):
        assert not failures.count("a")
        failures.forget(["a", "b"])
    assert failures.in_a_row == {}


def test_a_machine_whose_disk_is_full_again_is_left_alone_for_twice_as_long() -> None:
    disks = AvoidedMachines()
    now, waits = 1_000.0, []
    for _ in range(7):
        waits.append(disks.note("a", now))
        assert disks.leaves_alone("a", now + waits[-1] - 1.0)
        now += waits[-1]
        assert not disks.leaves_alone("a", now)
    assert waits[0] == DISK_SECONDS_MIN
    assert waits[:3] == [DISK_SECONDS_MIN, 2 * DISK_SECONDS_MIN, 4 * DISK_SECONDS_MIN]
    assert waits[-1] == DISK_SECONDS_MAX
    assert not disks.leaves_alone("b", now)
    disks.note("b", now)
    assert disks.note("a", now + 2 * DISK_SECONDS_MAX) == DISK_SECONDS_MIN
    assert disks.waits.keys() == {"a"}


def test_on_a_machine_with_a_full_disk_nobody_joins_for_a_while_and_nobody_is_lost() -> None:
    dropped: list[str] = []
    there = [ExecutorSeen("1", "a", 0.3, "machine"), *seen(b=0.3)]
    spark = SimpleNamespace(executors=lambda: there, drop=lambda name, _: dropped.append(name))
    policy = Policy(silent_seconds=LIMIT)
    joined = {"1": "a", "b": "node-of-b"}
    application: Any = SimpleNamespace(
        exchange=spark, settings=Settings(policy=policy), executors=joined
    )
    membership = Membership(application, known=dict(joined))

    def look() -> None:
        membership.looked_at = 0.0
        assert membership.observe() == []

    look()
    assert membership.drop_full("1") == DISK_SECONDS_MIN
    assert dropped == ["1"]
    look()
    assert membership.pending == {"1": "a"}
    membership.pending.clear()
    joined.pop("1")
    there[0] = ExecutorSeen("2", "a-anew", 0.3, "machine")
    look()
    assert membership.arrived() == []
    del there[0]
    look()
    assert membership.pending == {}
    there.append(ExecutorSeen("3", "a-anew", 0.3, "machine"))
    look()
    assert membership.arrived() == []
    membership.avoided.waits.clear()
    assert membership.arrived() == [("3", "a-anew")]


def test_one_whose_connection_has_ended_is_dropped_at_once_and_does_not_count_as_silent() -> None:
    dropped: list[tuple[str, str]] = []
    spark = SimpleNamespace(
        executors=lambda: [ExecutorSeen("1", "a", 0.3, connected=False), *seen(b=0.3)],
        drop=lambda executor, reason: dropped.append((executor, reason)),
    )
    policy = Policy(silent_seconds=LIMIT)
    application: Any = SimpleNamespace(exchange=spark, settings=Settings(policy=policy))
    membership = Membership(application, known={"1": "a", "b": "node-of-b"})
    membership.observe()
    assert dropped == [("1", "disconnected")]
    assert membership.pending == {"1": "a"}
    assert membership.silent == set()


def test_of_executors_that_were_dropped_the_newest_are_known(cluster: "Cluster") -> None:
    for number in range(DROPPED_KNOWN_MAX + 1):
        cluster.membership.drop(str(number), "its host does not start")
    assert "0" not in cluster.membership.dropped
    assert list(cluster.membership.dropped) == [str(n + 1) for n in range(DROPPED_KNOWN_MAX)]


def test_once_a_loss_is_told_nothing_is_kept_of_the_silence(cluster: "Cluster") -> None:
    cluster.quiet = {"e3"}
    assert cluster.go_on(LIMIT + 3) == ["e3"]
    assert cluster.membership.silent == set()


class Cluster:
    """Ten executors, how long each has been silent, and a driver that goes on looking."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.dropped = 1_000.0, list[str]()
        self.silent = {f"e{number}": 0.0 for number in range(10)}
        self.quiet: set[str] = set()
        monkeypatch.setattr(
            "rekindle_spark.control.executor_membership.time.monotonic", lambda: self.now
        )
        spark = SimpleNamespace(
            executors=lambda: seen(**self.silent), drop=lambda name, _: self.dropped.append(name)
        )
        application: Any = SimpleNamespace(
            exchange=spark, settings=Settings(policy=Policy(silent_seconds=LIMIT))
        )
        self.membership = Membership(application)
        self.membership.observe()

    def go_on(self, seconds: float) -> list[str]:
        """Who is dropped in that time."""
        before = len(self.dropped)
        for _ in range(round(seconds / 0.5)):
            self.now += 0.5
            for name, silent_seconds in self.silent.items():
                self.silent[name] = silent_seconds + 0.5 if name in self.quiet else 0.2
            self.membership.observe()
        return sorted(self.dropped[before:])


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def test_a_driver_whose_own_network_is_away_drops_nobody(cluster: Cluster) -> None:
    cluster.go_on(30.0)
    cluster.quiet = set(cluster.silent)
    assert cluster.go_on(20.0) == []
    assert len(cluster.membership.hold.executors) == 10
    cluster.quiet = {"e7"}  # the last one is heard of a little later
    assert cluster.go_on(5.0) == []
    cluster.quiet = set()
    assert cluster.go_on(60.0) == []
    assert cluster.membership.hold.executors == frozenset()


def test_who_stays_silent_once_others_are_heard_of_is_lost(cluster: Cluster) -> None:
    cluster.go_on(30.0)
    cluster.quiet = set(cluster.silent)
    cluster.go_on(20.0)
    cluster.quiet = {"e1", "e2"}
    assert cluster.go_on(LIMIT - 1.0) == []
    assert cluster.go_on(3.0) == ["e1", "e2"]


def test_where_nobody_is_heard_of_all_are_lost_in_the_end(cluster: Cluster) -> None:
    cluster.go_on(30.0)
    cluster.quiet = set(cluster.silent)
    assert cluster.go_on(LIMIT + HELD_SECONDS_MIN - 1.0) == []
    assert cluster.go_on(3.0) == sorted(cluster.silent)


def test_most_of_the_executors_are_lost_as_ever(cluster: Cluster) -> None:
    cluster.go_on(30.0)
    cluster.quiet = set(cluster.silent) - {"e3"}
    assert cluster.go_on(LIMIT + 1.0) == sorted(cluster.quiet)


def test_a_coordinator_may_have_those_dropped_that_are_held(cluster: Cluster) -> None:
    cluster.go_on(30.0)
    cluster.quiet = set(cluster.silent)
    cluster.go_on(20.0)
    cluster.membership.drop("e4", "ordered")
    assert cluster.go_on(1.0) == []
    assert cluster.dropped == ["e4"]


def test_one_executor_alone_is_not_held() -> None:
    hold = Hold()
    hold.look({"a"}, {"a"}, 5.0)
    assert not hold.spares(LIMIT, 5.0)


@pytest.mark.parametrize(("looked_seconds_ago", "dropped"), [(1.0, ["a"]), (100.0, [])])
def test_after_a_pause_of_the_driver_nobody_is_dropped_for_silence(
    looked_seconds_ago: float, dropped: list[str]
) -> None:
    found: list[str] = []
    spark = SimpleNamespace(
        executors=lambda: seen(a=16.0, b=0.3), drop=lambda name, _: found.append(name)
    )
    application: Any = SimpleNamespace(
        exchange=spark, settings=Settings(policy=Policy(silent_seconds=LIMIT))
    )
    looked_at = time.monotonic() - looked_seconds_ago
    Membership(application, known={"a": "n", "b": "m"}, looked_at=looked_at).observe()
    assert found == dropped


def test_one_that_was_dropped_is_reported_as_silent_until_its_loss_is_told() -> None:
    spark = SimpleNamespace(executors=lambda: seen(a=16.0, b=0.3), drop=lambda *_: None)
    policy = Policy(silent_seconds=LIMIT)
    joined = {"a": "node-of-a", "b": "node-of-b"}
    application: Any = SimpleNamespace(
        exchange=spark, settings=Settings(policy=policy), executors=joined
    )
    membership = Membership(application, known=dict(joined), looked_at=time.monotonic() - 1.0)
    assert membership.observe() == []
    assert membership.sightings()["a"].silent_seconds > LIMIT
    joined.pop("a")
    assert membership.sightings().keys() == {"b"}
