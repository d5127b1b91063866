"""What the machine gave a run between two readings of its counters."""

import time
from pathlib import Path

import loud_skips
import pytest

from rekindle.report import machine_limits
from rekindle_local.demo import machine_load
from rekindle_local.demo.machine_load import Counters

STAT = """\
cpu  200 0 100 900 50 0 0 0 0 0
cpu0 100 0 50 400 20 0 0 0 0 0
cpu1 100 0 50 500 30 0 0 0 0 0
intr 5
"""


def reading(
    at: float,
    idle_seconds: float | None,
    *,
    serving: tuple[float, float] = (0.0, 0.0),
    node: tuple[float, float] = (0.0, 0.0),
    throttled: int = 0,
    outer: int = 0,
) -> Counters:
    """Two cores, one thread that serves and one of a node: seconds run and waited so far."""
    waits = {"serving": {1: serving}, "node": {2: node}}
    return Counters(at, 2, idle_seconds, waits, {"node": throttled}, outer)


def test_a_run_that_gets_all_it_wants_does_not_wait() -> None:
    before = reading(10.0, 100.0)
    after = reading(11.0, 101.2, serving=(0.5, 0.02), node=(0.2, 0.01))
    found = machine_load.between(before, after, ())
    assert found["idle_share"] == pytest.approx(0.6)
    assert found["waiting_share"] == pytest.approx(0.03 / 0.73)
    assert found["own_cores"] == pytest.approx(0.7)
    assert found["other_cores"] == pytest.approx(0.1)
    assert not machine_limits.is_limited(found)


def test_a_run_beside_a_program_that_takes_all_cpu_waits() -> None:
    before = reading(10.0, 100.0)
    after = reading(11.0, 100.0, serving=(0.4, 0.5), node=(0.1, 0.3))
    found = machine_load.between(before, after, ())
    assert found["other_cores"] == pytest.approx(1.5)
    assert machine_limits.is_limited(found)


def test_a_node_that_has_used_up_its_quota_waits_for_that_and_not_for_the_machine() -> None:
    before = reading(10.0, 100.0)
    after = reading(11.0, 100.05, serving=(0.4, 0.02), node=(0.2, 3.0), throttled=4)
    found = machine_load.between(before, after, ())
    assert found["waiting_share"] == pytest.approx(0.02 / 0.42)
    assert not machine_limits.is_limited(found)
    unthrottled = reading(11.0, 100.05, serving=(0.4, 0.02), node=(0.2, 3.0))
    assert machine_limits.is_limited(machine_load.between(before, unthrottled, ()))


def test_what_a_node_waits_while_it_starts_is_counted_apart() -> None:
    before = reading(10.0, 100.0)
    after = reading(11.0, 100.0, serving=(0.5, 0.05), node=(0.3, 2.0))
    found = machine_load.between(before, after, ("node",))
    assert found["waiting_share"] == pytest.approx(0.05 / 0.55)
    assert found["starting_waited_seconds"] == pytest.approx(2.0)


def test_the_limit_of_a_container_around_the_run_counts_as_the_machine() -> None:
    before = reading(10.0, 100.0)
    after = reading(11.0, 101.5, serving=(0.4, 0.5), outer=3)
    assert machine_limits.is_limited(machine_load.between(before, after, ()))


def test_threads_that_end_or_begin_are_no_time_that_runs_backwards() -> None:
    before = Counters(10.0, 2, 100.0, {"serving": {1: (50.0, 5.0), 2: (1.0, 1.0)}})
    after = Counters(11.0, 2, 101.0, {"serving": {2: (1.5, 1.1), 3: (0.2, 0.1)}})
    found = machine_load.between(before, after, ())
    assert found["own_cores"] == pytest.approx(0.7)
    assert found["waiting_share"] == pytest.approx(0.2 / 0.9)


def test_a_kernel_that_counts_nothing_leaves_it_open() -> None:
    found = machine_load.between(Counters(10.0, 2, None), Counters(11.0, 2, None), ())
    assert (found["idle_share"], found["waiting_share"]) == (None, None)
    assert not machine_limits.is_limited(found)


def test_only_the_cores_that_the_run_may_use_are_looked_at() -> None:
    assert machine_load.read_idle_seconds(STAT, [0, 1], 100) == pytest.approx(9.5)
    assert machine_load.read_idle_seconds(STAT, [1], 100) == pytest.approx(5.3)
    assert machine_load.read_idle_seconds(STAT, [2], 100) is None
    assert machine_load.read_idle_seconds("cpu0 0 0 0 0 0 0\n", [0], 100) is None


def test_threads_are_read_in_seconds_and_a_process_that_is_gone_has_none(tmp_path: Path) -> None:
    for thread, text in (("7", "2500000000 500000000 12\n"), ("8", "broken\n")):
        (tmp_path / "task" / thread).mkdir(parents=True)
        (tmp_path / "task" / thread / "schedstat").write_text(text)
    assert machine_load.read_waits(tmp_path) == {7: (2.5, 0.5)}
    assert machine_load.read_waits(tmp_path / "gone") == {}


def test_cpu_time_of_this_process_is_counted_as_running() -> None:
    before = machine_load.read_waits(Path("/proc/self"))
    if not before:
        loud_skips.skip("this kernel does not count how long threads run")
    end = time.thread_time() + 0.05
    while time.thread_time() < end:
        pass
    after = machine_load.read_waits(Path("/proc/self"))
    assert sum(ran for ran, _ in after.values()) > sum(ran for ran, _ in before.values()) + 0.04
