"""CPU of a host: what work has used counts, also where it failed."""

import os
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


def test_work_that_fails_has_used_its_cpu_all_the_same() -> None:
    meter = CpuMeter((os.getpid(),))
    with pytest.raises(ZeroDivisionError), meter.measured(3):
        fail_after(0.01)
    assert meter.read()["work"]["3"] >= 0.01
