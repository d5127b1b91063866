"""Turns in the lanes of a host: who waits for whom, and what is noted of both."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from host_world import COUNTS, ROWS, Desk, Numbers, digests

from rekindle_spark.executor import host_scheduler
from rekindle_spark.executor.host_scheduler import FIRST, SECOND, HostScheduler
from rekindle_spark.user_code import watchdog

WAITED_SECONDS_MAX = 30.0


@pytest.fixture(autouse=True)
def _same_interval_afterwards() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "store")


def test_the_most_urgent_has_the_next_turn() -> None:
    scheduler, ran = HostScheduler(), list[int]()

    def run(urgency: int) -> None:
        with scheduler.turn(urgency):
            ran.append(urgency)

    threads = [threading.Thread(target=run, args=(urgency,)) for urgency in (3, 0, 2)]
    with scheduler.turn(0):
        for number, thread in enumerate(threads, start=1):
            thread.start()
            while len(scheduler.waiting) < number:
                pass
    for thread in threads:
        thread.join()
    assert ran == [0, 2, 3]


class Stuck:
    """A source whose reading in the second lane takes until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
        self.begun, self.goes_on = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._ask, args=(desk,), daemon=True)
        self.report: dict[str, Any] = {}
        read, stuck = Numbers.read, self

        def slow(source: Numbers, begin: int, end: int) -> pa.Table:
            if threading.current_thread() is stuck.thread:
                stuck.begun.set()
                stuck.goes_on.wait()
            return read(source, begin, end)

        desk.count_rows(1, 1)  # the host has its program then
        chain = desk.host.programs[desk.named_program[2]].chains[ROWS]
        monkeypatch.setattr(type(chain.root.function), "read", slow)

    def _ask(self, desk: Desk) -> None:
        self.report, _ = desk.ask(ROWS, 9, 9, lane=SECOND)

    def __enter__(self) -> "Stuck":
        self.thread.start()
        self.begun.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.goes_on.set()
        self.thread.join()


def test_work_in_the_first_lane_does_not_wait_for_a_function_that_is_slow_in_the_second(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, ran = Stuck(monkeypatch, desk), list[str]()
    first = threading.Thread(target=lambda: ran.extend(digests(desk.count_rows(2, 2))))
    with stuck:
        first.start()
        first.join(WAITED_SECONDS_MAX)
        assert len(ran) == 1
        assert stuck.thread.is_alive()
    assert stuck.report["partitions"][str(ROWS)]["status"] == "ok"


def test_the_watchdog_knows_of_the_work_in_both_lanes(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = desk.host.lanes[FIRST].watchdog.memory
    with Stuck(monkeypatch, desk):
        (noted,) = watchdog.read_all(bytes(notes))
        assert (noted.partition, noted.epoch) == (ROWS, 9)
        first = desk.host.lanes[FIRST].watchdog
        first.begin(COUNTS, 2, "counts")
        assert [one.partition for one in watchdog.read_all(bytes(notes))] == [COUNTS, ROWS]
        first.end()
        assert [one.partition for one in watchdog.read_all(bytes(notes))] == [ROWS]
    assert watchdog.read_all(bytes(notes)) == ()


def test_a_thread_of_the_second_lane_gives_the_interpreter_back_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    intervals: list[float] = []
    monkeypatch.setattr("sys.setswitchinterval", intervals.append)
    first, second = host_scheduler.lanes()
    with first.turn(0, lambda: None):
        assert not intervals, "nobody else wants it"
    with second.turn(2, lambda: None):
        assert intervals == [host_scheduler.SWITCH_SECONDS]
