"""CPU of a host: what work has used counts, also where it failed."""

import os
import threading
import time

import pytest

from rekindle_spark.executor.cpu_meter import CpuMeter


def spend(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def fail_after(seconds: float) -> None:
    spend(seconds)
    raise ZeroDivisionError


def test_readings_are_by_partition_and_since_the_last_one() -> None:
    meter = CpuMeter((os.getpid(),))
    for partition in (3, 5, 3):
        with meter.measured(partition):
            spend(0.01)
    work = meter.read()["work"]
    assert set(work) == {"3", "5"}
    assert work["3"] >= 0.02
    assert meter.read()["work"] == {}


def test_what_waits_in_the_other_lane_is_not_charged_with_what_others_use() -> None:
    meter = CpuMeter((os.getpid(),))
    begun, ended = threading.Event(), threading.Event()

    def wait() -> None:
        with meter.measured(5):
            begun.set()
            ended.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    begun.wait()
    with meter.measured(3):
        spend(0.05)
    ended.set()
    thread.join()
    work = meter.read()["work"]
    assert work["3"] >= 0.04
    assert work["5"] < 0.02


def test_work_in_both_lanes_is_charged_with_all_that_the_process_has_used() -> None:
    meter = CpuMeter((os.getpid(),))
    before = time.process_time()
    with meter.measured(3):
        thread = threading.Thread(target=lambda: _measured(meter, 5))
        thread.start()
        spend(0.02)
        thread.join()
    spent = time.process_time() - before
    work = meter.read()["work"]
    assert set(work) == {"3", "5"}
    assert sum(work.values()) == pytest.approx(spent, rel=0.1)


def _measured(meter: CpuMeter, partition: int) -> None:
    with meter.measured(partition):
        spend(0.02)


def test_work_that_fails_has_used_its_cpu_all_the_same() -> None:
    meter = CpuMeter((os.getpid(),))
    with pytest.raises(ZeroDivisionError), meter.measured(3):
        fail_after(0.01)
    assert meter.read()["work"]["3"] >= 0.01
